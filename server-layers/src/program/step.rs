//! What a program is made of: steps, their calls, and the views of buffers they name.

use super::content::Content;
use super::kernels::KernelInfo;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::{Bounds, Pattern};

/// What a device was asked: a list of steps, each complete with its bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// What is known about the run, as name and value: for people, and for whoever puts a device into the same state. A name has no
    /// spaces.
    pub config: Vec<(String, String)>,
    /// The kernels; a launch names one by its place here.
    pub kernels: Vec<KernelInfo>,
    /// What was asked, in the order in which the device accepted it.
    pub steps: Vec<Step>,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The device's number for the operation. Numbers never fall; those of calls that are no operation are their predecessor's.
    pub number: u64,
    /// The stream, from 0.
    pub stream: u32,
    /// What is asked.
    pub call: Call,
}

/// What a step asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A new buffer. What is in it is not defined.
    Reserve {
        /// Its number; no two buffers of a program have the same.
        buffer: u32,
        /// Its bytes.
        size: u64,
        /// How it is allocated.
        mode: AllocationMode,
    },
    /// Nobody holds the buffer any more.
    Free {
        /// Its number.
        buffer: u32,
    },
    /// Host bytes into a buffer.
    Write {
        /// Where to.
        target: View,
        /// The bytes.
        content: Content,
    },
    /// A buffer's bytes to the host, several at once.
    Read {
        /// Where from, each with the bytes that came, where they are known.
        sources: Vec<(View, Option<Content>)>,
    },
    /// Bytes of a buffer into another place.
    Copy {
        /// Where from.
        source: View,
        /// Where to.
        target: View,
    },
    /// A pattern, again and again.
    Fill {
        /// Where to.
        target: View,
        /// The pattern.
        pattern: Pattern,
    },
    /// A kernel.
    Launch(LaunchCall),
    /// Nothing: a moment of the stream.
    Mark,
    /// What the stream does next comes after another stream's moment: after its last operation with at most this number.
    Wait {
        /// The other stream.
        stream: u32,
        /// The number.
        number: u64,
    },
    /// The stream waited for something that is no work of the device. It is replayed as [`Mark`](Self::Mark).
    Outside,
    /// What is queued on the stream goes to the driver.
    Flush,
    /// Something that no program can say. A program with such a step cannot be replayed beyond it.
    Lost {
        /// What it was.
        why: String,
    },
}

/// A launch.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchCall {
    /// The kernel's place in [`Program::kernels`].
    pub kernel: u32,
    /// How many workgroups.
    pub counts: Counts,
    /// What an access outside a buffer does. A launch without checks is replayed with them.
    pub bounds: Bounds,
    /// The buffers, as many as the kernel's interface has.
    pub buffers: Vec<View>,
    /// The parameters, as long as the interface says.
    pub parameters: Vec<u8>,
}

/// How many workgroups a launch has.
#[derive(Clone, Debug, PartialEq)]
pub enum Counts {
    /// Known counts by axis.
    Static([u32; 3]),
    /// Three `u32` at the start of a buffer.
    Dynamic(View),
}

/// Some bytes of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The buffer; `None` for memory of no bytes at all.
    pub buffer: Option<u32>,
    /// The bytes.
    pub range: Range<u64>,
    /// The rows in them; `None` for all of them.
    pub rows: Option<Rows>,
}

impl View {
    /// Bytes of a buffer.
    pub fn new(buffer: u32, range: Range<u64>) -> Self {
        Self { buffer: Some(buffer), range, rows: None }
    }

    /// Memory of no bytes.
    pub fn empty() -> Self {
        Self { buffer: None, range: 0..0, rows: None }
    }

    /// How many bytes it names: those of its rows, where it has rows.
    pub fn size(&self) -> u64 {
        self.rows.as_ref().map_or(self.range.end.saturating_sub(self.range.start), Rows::size)
    }

    /// Whether both name bytes of one buffer that overlap, rows taken as all they span.
    pub fn overlaps(&self, other: &View) -> bool {
        self.buffer.is_some()
            && self.buffer == other.buffer
            && self.range.start.max(other.range.start) < self.range.end.min(other.range.end)
    }
}

impl Call {
    /// What the text form calls it.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Reserve { .. } => "reserve",
            Self::Free { .. } => "free",
            Self::Write { .. } => "write",
            Self::Read { .. } => "read",
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Launch(_) => "launch",
            Self::Mark => "mark",
            Self::Wait { .. } => "wait",
            Self::Outside => "outside",
            Self::Flush => "flush",
            Self::Lost { .. } => "lost",
        }
    }

    /// Calls `visit` with every view the call names.
    pub fn views<'a>(&'a self, mut visit: impl FnMut(&'a View)) {
        match self {
            Self::Write { target, .. } | Self::Fill { target, .. } => visit(target),
            Self::Read { sources } => sources.iter().for_each(|(view, _)| visit(view)),
            Self::Copy { source, target } => {
                visit(source);
                visit(target);
            }
            Self::Launch(launch) => {
                if let Counts::Dynamic(view) = &launch.counts {
                    visit(view);
                }
                launch.buffers.iter().for_each(visit);
            }
            Self::Reserve { .. }
            | Self::Free { .. }
            | Self::Mark
            | Self::Wait { .. }
            | Self::Outside
            | Self::Flush
            | Self::Lost { .. } => {}
        }
    }
}

impl Program {
    /// The steps for which `keep` is true, by place, without those that cannot be without a step that went: calls on a buffer whose
    /// reservation went are taken out with it. What is left is a program again.
    pub fn retain(&self, mut keep: impl FnMut(usize) -> bool) -> Self {
        let mut known = hashbrown::HashSet::new();
        let mut steps = Vec::new();
        for (place, step) in self.steps.iter().enumerate() {
            let kept = keep(place);
            let mut whole = true;
            step.call.views(|view| whole &= view.buffer.is_none_or(|buffer| known.contains(&buffer)));
            match step.call {
                Call::Reserve { buffer, .. } if kept => _ = known.insert(buffer),
                // A buffer whose end was not kept lives to the end.
                Call::Free { buffer } if kept => whole = known.remove(&buffer),
                _ => {}
            }
            if kept && whole {
                steps.push(step.clone());
            }
        }
        Self { config: self.config.clone(), kernels: self.kernels.clone(), steps }
    }

    /// The first `count` steps.
    pub fn prefix(&self, count: usize) -> Self {
        self.retain(|place| place < count)
    }

    /// The value of a setting of [`config`](Self::config).
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.config.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn step(number: u64, call: Call) -> Step {
        Step { number, stream: 0, call }
    }

    fn reserve(buffer: u32) -> Call {
        Call::Reserve { buffer, size: 16, mode: AllocationMode::Auto }
    }

    #[test]
    fn what_depends_on_a_reservation_that_went_goes_with_it() {
        let copy = Call::Copy { source: View::new(0, 0..16), target: View::new(1, 0..16) };
        let steps = [reserve(0), reserve(1), copy, Call::Free { buffer: 0 }, Call::Mark];
        let steps = (1..).zip(steps).map(|(number, call)| step(number, call)).collect();
        let program = Program { steps, ..Program::default() };
        let numbers = |program: &Program| program.steps.iter().map(|step| step.number).collect::<Vec<_>>();
        assert_eq!(numbers(&program.retain(|place| place != 0)), [2, 5]);
        assert_eq!(numbers(&program.retain(|place| place != 1)), [1, 4, 5]);
        assert_eq!(numbers(&program.retain(|place| place != 3)), [1, 2, 3, 5]);
        assert_eq!(numbers(&program.prefix(3)), [1, 2, 3]);
    }

    #[test]
    fn views_of_no_bytes_and_of_other_buffers_overlap_nothing() {
        let view = View::new(0, 4..8);
        assert!(view.overlaps(&View::new(0, 7..9)));
        assert!(!view.overlaps(&View::new(0, 8..9)) && !view.overlaps(&View::new(1, 4..8)));
        assert!(!View::empty().overlaps(&View::empty()));
        let rows = Rows { row: 2, outer: vec![(3, 4)] };
        assert_eq!(View { rows: Some(rows), ..View::new(0, 0..100) }.size(), 6);
    }
}
