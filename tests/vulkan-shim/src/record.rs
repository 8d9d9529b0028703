//! What was handed to the device: the commands of a buffer, and submissions in their order.

use core::fmt;

use alloc::vec::Vec;
use ash::vk;

use crate::objects::Object;

/// Bytes of a buffer at a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The binding.
    pub binding: u32,
    /// The buffer.
    pub buffer: Object,
    /// Where the bytes begin in it.
    pub offset: u64,
    /// How many there are.
    pub size: u64,
}

/// Bytes that are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where they begin in the source.
    pub source: u64,
    /// Where they begin in the target.
    pub target: u64,
    /// How many there are.
    pub size: u64,
}

/// A command in a command buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `vkCmdBindPipeline`.
    Bind {
        /// The pipeline.
        pipeline: Object,
    },
    /// `vkCmdPushConstants`.
    Constants {
        /// Where they begin, in bytes.
        offset: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// `vkCmdBindDescriptorSets` or `vkCmdPushDescriptorSetKHR`: what the bindings are from now on.
    Descriptors {
        /// Whether they were pushed.
        pushed: bool,
        /// The bindings that were given.
        buffers: Vec<Bound>,
    },
    /// `vkCmdDispatch` or `vkCmdDispatchBase`.
    Dispatch {
        /// The pipeline that is bound.
        pipeline: Object,
        /// The counts of workgroups.
        groups: [u32; 3],
        /// What is bound.
        buffers: Vec<Bound>,
    },
    /// `vkCmdDispatchIndirect`.
    DispatchIndirect {
        /// The pipeline that is bound.
        pipeline: Object,
        /// The buffer with the counts.
        counts: Object,
        /// Where they are in it.
        offset: u64,
        /// What is bound.
        buffers: Vec<Bound>,
    },
    /// `vkCmdCopyBuffer`.
    Copy {
        /// The source.
        source: Object,
        /// The target.
        target: Object,
        /// What is copied.
        regions: Vec<Region>,
    },
    /// `vkCmdFillBuffer`.
    Fill {
        /// The target.
        target: Object,
        /// Where it begins.
        offset: u64,
        /// How many bytes.
        size: u64,
        /// The value of each four bytes.
        value: u32,
    },
    /// `vkCmdUpdateBuffer`.
    Update {
        /// The target.
        target: Object,
        /// Where it begins.
        offset: u64,
        /// How many bytes.
        size: u64,
    },
    /// `vkCmdPipelineBarrier`, its dependencies taken together.
    Barrier(Barrier),
    /// Another command, by its name.
    Other(&'static str),
}

/// A barrier, its dependencies taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The stages that come before.
    pub from: vk::PipelineStageFlags,
    /// The stages that come after.
    pub to: vk::PipelineStageFlags,
    /// What is made available.
    pub available: vk::AccessFlags,
    /// What it is made visible to.
    pub visible: vk::AccessFlags,
    /// How many dependencies are of single buffers, and not of all memory.
    pub of_buffers: usize,
}

impl Command {
    /// Whether it does something to bytes, and is not a setting or a barrier.
    pub fn is_work(&self) -> bool {
        matches!(
            self,
            Self::Dispatch { .. }
                | Self::DispatchIndirect { .. }
                | Self::Copy { .. }
                | Self::Fill { .. }
                | Self::Update { .. }
        )
    }

    /// The barrier, if it is one.
    pub fn barrier(&self) -> Option<Barrier> {
        match self {
            Self::Barrier(barrier) => Some(*barrier),
            _ => None,
        }
    }
}

/// A value of a timeline semaphore; 0 where the semaphore is binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The semaphore.
    pub semaphore: Object,
    /// Its value.
    pub value: u64,
}

/// One `VkSubmitInfo` that the driver took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Which call of `vkQueueSubmit` it came with, counted from 1 over all of the shim.
    pub call: u32,
    /// The queue, numbered in the order in which they were first got.
    pub queue: Object,
    /// What it waits for.
    pub waits: Vec<Moment>,
    /// What it does, over all its command buffers.
    pub commands: Vec<Command>,
    /// What it signals.
    pub signals: Vec<Moment>,
}

impl Submission {
    /// The commands that do something to bytes, with the barriers between them.
    pub fn outline(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|command| command.is_work() || command.barrier().is_some())
    }

    /// The barriers.
    pub fn barriers(&self) -> impl Iterator<Item = Barrier> {
        self.commands.iter().filter_map(Command::barrier)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}[{}+{}]", self.binding, self.buffer, self.offset, self.size)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}+{}", self.source, self.target, self.size)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.semaphore, self.value)
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "barrier {:?} ({:?}) -> {:?} ({:?})", self.from, self.available, self.to, self.visible)?;
        if self.of_buffers > 0 {
            write!(f, ", {} of buffers", self.of_buffers)?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { pipeline } => write!(f, "bind {pipeline}"),
            Self::Constants { offset, bytes } => write!(f, "constants {offset}+{}", bytes.len()),
            Self::Descriptors { pushed, buffers } => {
                f.write_str(if *pushed { "push descriptors" } else { "bind descriptors" })?;
                list(f, " ", buffers)
            }
            Self::Dispatch { pipeline, groups: [x, y, z], buffers } => {
                write!(f, "dispatch {x}x{y}x{z} {pipeline}")?;
                list(f, " ", buffers)
            }
            Self::DispatchIndirect { pipeline, counts, offset, buffers } => {
                write!(f, "dispatch by {counts}[{offset}] {pipeline}")?;
                list(f, " ", buffers)
            }
            Self::Copy { source, target, regions } => {
                write!(f, "copy {source} to {target}")?;
                list(f, " ", regions)
            }
            Self::Fill { target, offset, size, value } => {
                write!(f, "fill {target}[{offset}+{size}] with {value:#010x}")
            }
            Self::Update { target, offset, size } => write!(f, "update {target}[{offset}+{size}]"),
            Self::Barrier(barrier) => write!(f, "{barrier}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "submit {} to {}", self.call, self.queue)?;
        list(f, " after ", &self.waits)?;
        list(f, " then ", &self.signals)?;
        self.commands.iter().try_for_each(|command| write!(f, "\n  {command}"))
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, before: &str, of: &[T]) -> fmt::Result {
    of.iter().enumerate().try_for_each(|(index, item)| write!(f, "{}{item}", if index == 0 { before } else { " " }))
}
