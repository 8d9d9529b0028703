//! What streams are asked to do, and doing it.

use alloc::sync::Arc;
use std::sync::OnceLock;
use std::time::Instant;

use crate::clock::{Clock, Stamp};
use crate::codes::Fault;
use crate::context::Context;
use crate::driver::driver;
use crate::execute;
use crate::graph::Run;
use crate::host::{self, HostFunction};
use crate::loaded::Launch;
use crate::memory::{Access, Kind, Region};
use crate::report::ReportKind;

/// One end of a copy.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Memory that devices see.
    Device(u64),
    /// Memory of the program.
    Host(usize),
    /// Bytes of the program that were taken when the copy was asked for.
    Taken(Arc<Vec<u8>>),
}

/// A copy of `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) to: End,
    pub(crate) from: End,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    /// Bytes from one row to the next, and from one slice to the next.
    pub(crate) to_pitch: [usize; 2],
    pub(crate) from_pitch: [usize; 2],
}

impl Copy {
    /// A copy of `bytes` in a row.
    pub(crate) fn line(to: End, from: End, bytes: usize) -> Self {
        Self { to, from, width: bytes, height: 1, depth: 1, to_pitch: [0; 2], from_pitch: [0; 2] }
    }

    /// Bytes from the first to the last, of the target and of the source.
    pub(crate) fn spans(&self) -> [usize; 2] {
        [self.to_pitch, self.from_pitch].map(|pitch| {
            if self.width * self.height * self.depth == 0 {
                return 0;
            }
            (self.depth - 1) * pitch[1] + (self.height - 1) * pitch[0] + self.width
        })
    }

    /// What it is called in reports.
    fn name(&self) -> &'static str {
        match (&self.to, &self.from) {
            (End::Device(_), End::Device(_)) => "copy on the device",
            (End::Device(_), _) => "copy to the device",
            (_, End::Device(_)) => "copy to the host",
            _ => "copy on the host",
        }
    }

    fn run(&self, access: &mut Access<'_>) -> Result<(), Fault> {
        let mut bytes = vec![0; self.width];
        for slice in 0..self.depth {
            for row in 0..self.height {
                let offset = |pitch: [usize; 2]| row * pitch[0] + slice * pitch[1];
                let (to, from) = (offset(self.to_pitch), offset(self.from_pitch));
                match &self.from {
                    End::Device(address) => access.read(address + from as u64, &mut bytes)?,
                    End::Host(address) => host::read(address + from, &mut bytes),
                    End::Taken(taken) => bytes.copy_from_slice(&taken[from..from + self.width]),
                }
                match &self.to {
                    End::Device(address) => access.write(address + to as u64, &bytes)?,
                    End::Host(address) => host::write(address + to, &bytes),
                    // Nothing is written to what was taken.
                    End::Taken(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Setting `height` rows of `width` elements to a value.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    pub(crate) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(crate) element: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pitch: usize,
}

impl Fill {
    fn run(&self, access: &mut Access<'_>) -> Result<(), Fault> {
        let pattern = &self.value.to_le_bytes()[..self.element];
        for row in 0..self.height {
            let to = self.to + (row * self.pitch) as u64;
            let bytes = self.width * self.element;
            if pattern.iter().all(|byte| *byte == pattern[0]) {
                access.fill(to, pattern[0], bytes)?;
            } else {
                access.write(to, &pattern.repeat(self.width))?;
            }
        }
        Ok(())
    }
}

/// Something to do.
#[derive(Clone)]
pub(crate) enum Work {
    /// Only that its turn came.
    Nothing,
    Copy(Copy),
    Fill(Fill),
    Launch(Arc<Launch>),
    Host(HostFunction),
    /// Notes when its turn came.
    Mark(Arc<OnceLock<Instant>>),
    /// Gives memory back.
    Free(Arc<Region>),
    /// Makes memory of a graph usable.
    Allocate(Arc<Region>),
    Graph(Arc<Run>),
}

impl Work {
    /// Does it. Work of a broken context is not done, but for what others wait for.
    pub(crate) fn run(&self, context: &Arc<Context>, stamp: Stamp, clock: &Clock) {
        if let Self::Mark(time) = self {
            let _ = time.set(Instant::now());
            return;
        }
        if context.is_broken() {
            return;
        }
        if let Err(fault) = self.attempt(context, stamp, clock) {
            context.fail(&fault);
        }
    }

    /// What it is called in reports.
    fn name(&self) -> &str {
        match self {
            Self::Copy(copy) => copy.name(),
            Self::Fill(_) => "fill",
            Self::Launch(launch) => launch.name(),
            Self::Free(_) => "free",
            Self::Allocate(_) => "allocation",
            Self::Nothing | Self::Host(_) | Self::Mark(_) | Self::Graph(_) => "",
        }
    }

    fn attempt(&self, context: &Arc<Context>, stamp: Stamp, clock: &Clock) -> Result<(), Fault> {
        let mut access = Access::new(&driver().space, &**context, stamp, clock, self.name());
        let said = |fault: Fault| Fault { why: format!("{}: {}", self.name(), fault.why), ..fault };
        match self {
            Self::Nothing | Self::Mark(_) => Ok(()),
            Self::Copy(copy) => copy.run(&mut access).map_err(said),
            Self::Fill(fill) => fill.run(&mut access).map_err(said),
            Self::Host(function) => {
                function.call();
                Ok(())
            }
            Self::Free(region) if region.is_freed() => {
                let text = format!("0x{:x}, an allocation of {} bytes, is freed twice", region.base, region.size);
                access.report(ReportKind::BadFree, text);
                Ok(())
            }
            Self::Free(region) => {
                access.end(region);
                give_back(context, region);
                Ok(())
            }
            Self::Allocate(region) => {
                region.backing.clear();
                region.revive(stamp);
                Ok(())
            }
            Self::Launch(launch) => execute::run(&launch.request(context), &mut access).map(drop),
            Self::Graph(run) => {
                for (work, stamp, clock) in &run.steps {
                    // Each step may break the context, and then the rest is not done.
                    work.run(context, *stamp, clock);
                }
                Ok(())
            }
        }
    }
}

/// Gives memory back to its device, or to the pool it came from.
pub(crate) fn give_back(context: &Arc<Context>, region: &Arc<Region>) {
    if let Kind::Pooled { pool } = region.kind {
        if region.free() {
            region.backing.clear();
            if let Ok(pool) = driver().pool(pool) {
                pool.give(region.size);
            }
        }
        return;
    }
    if region.kind == Kind::Graph {
        // Its bytes are the graph's until that is gone.
        region.free();
        region.backing.clear();
        return;
    }
    let owner = driver().device(region.backing.device as i32);
    owner.as_ref().unwrap_or(&context.device).release(region);
}
