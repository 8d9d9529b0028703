//! Whether steps make a program: each names only what is there, and what belongs together fits.

use super::content::Content;
use super::defect::Defect;
use super::kernels::KernelInfo;
use super::step::{Call, Counts, LaunchCall, Program, Step, View};
use super::{MAX_DIMENSIONS, MAX_SIZE, MAX_VIEWS};
use hashbrown::HashMap;
use trunnion_runtime_core::layout::Rows;

type Result<T = ()> = core::result::Result<T, Defect>;

/// Checks the steps of a program one after another.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    /// The buffers by number: their bytes, and whether they are still there.
    buffers: HashMap<u32, (u64, bool)>,
    number: u64,
}

impl Checker {
    /// Nothing was asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next step.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn step(&mut self, step: &Step, kernels: &[KernelInfo]) -> Result {
        if step.number < self.number {
            return Err(Defect::Order { number: step.number, before: self.number });
        }
        self.call(&step.call, kernels)?;
        self.number = step.number;
        Ok(())
    }

    fn call(&mut self, call: &Call, kernels: &[KernelInfo]) -> Result {
        match call {
            Call::Reserve { buffer, size, .. } => {
                at_most("a buffer's size", *size, MAX_SIZE)?;
                match self.buffers.try_insert(*buffer, (*size, true)) {
                    Ok(_) => Ok(()),
                    Err(_) => Err(Defect::Twice { what: "buffer", number: (*buffer).into() }),
                }
            }
            Call::Free { buffer } => {
                self.size(*buffer)?;
                self.buffers.insert(*buffer, (0, false));
                Ok(())
            }
            Call::Write { target, content } => {
                self.view(target)?;
                content_fits(content, target)
            }
            Call::Read { sources } => {
                at_most_views(sources.len())?;
                sources.iter().try_for_each(|(view, content)| {
                    self.view(view)?;
                    content.as_ref().map_or(Ok(()), |content| content_fits(content, view))
                })
            }
            Call::Copy { source, target } => {
                self.view(source)?;
                self.view(target)?;
                same_size("bytes of a copy's target", target.size(), source.size())
            }
            Call::Fill { target, pattern } => {
                self.plain(target)?;
                let length = pattern.bytes().len() as u64;
                let rest = target.size() % length;
                same_size("bytes left over by a fill's pattern", rest, 0)
            }
            Call::Launch(launch) => self.launch(launch, kernels),
            Call::Mark | Call::Wait { .. } | Call::Outside | Call::Flush | Call::Lost { .. } => Ok(()),
        }
    }

    fn launch(&self, launch: &LaunchCall, kernels: &[KernelInfo]) -> Result {
        let unknown = Defect::NotKnown { what: "kernel", number: launch.kernel.into() };
        let kernel = kernels.get(launch.kernel as usize).ok_or(unknown)?;
        at_most_views(launch.buffers.len())?;
        launch.buffers.iter().try_for_each(|view| self.plain(view))?;
        if let Counts::Dynamic(view) = &launch.counts {
            self.plain(view)?;
        }
        let (buffers, parameters) = (kernel.interface.buffers.len(), kernel.interface.parameters);
        same_size("buffers of a launch", launch.buffers.len() as u64, buffers as u64)?;
        same_size("bytes of a launch's parameters", launch.parameters.len() as u64, parameters.into())
    }

    fn size(&self, buffer: u32) -> Result<u64> {
        match self.buffers.get(&buffer) {
            Some((size, true)) => Ok(*size),
            _ => Err(Defect::NotKnown { what: "buffer", number: buffer.into() }),
        }
    }

    /// A view of a buffer that is there, with rows that lie in it.
    fn view(&self, view: &View) -> Result {
        let size = view.buffer.map_or(Ok(0), |buffer| self.size(buffer))?;
        let out = |range| Defect::OutOfRange { what: "buffer", range, size };
        if view.range.start > view.range.end || view.range.end > size {
            return Err(out(view.range.clone()));
        }
        let Some(rows) = &view.rows else { return Ok(()) };
        let extent = extent(rows).ok_or(Defect::Rows)?;
        match view.range.start.checked_add(extent) {
            Some(end) if end <= view.range.end => Ok(()),
            end => Err(out(view.range.start..end.unwrap_or(u64::MAX))),
        }
    }

    /// A view without rows.
    fn plain(&self, view: &View) -> Result {
        match view.rows {
            None => self.view(view),
            Some(_) => Err(Defect::Rows),
        }
    }
}

/// The bytes that rows span, counted without trusting them; `None` where they are no rows.
fn extent(rows: &Rows) -> Option<u64> {
    if rows.outer.len() > MAX_DIMENSIONS || rows.outer.iter().any(|(count, _)| *count == 0) {
        return None;
    }
    let (mut size, mut extent) = (rows.row, rows.row);
    for (count, stride) in rows.outer.iter().rev() {
        // Rows that lie in each other would be written twice, in no order that is told.
        if *count > 1 && *stride < extent {
            return None;
        }
        size = size.checked_mul(*count)?;
        extent = (count - 1).checked_mul(*stride)?.checked_add(extent)?;
    }
    (size <= MAX_SIZE && extent <= MAX_SIZE).then_some(extent)
}

pub(super) fn content_fits(content: &Content, view: &View) -> Result {
    let size = view.size();
    match content {
        _ if content.fits(size) => Ok(()),
        Content::Bytes(bytes) => same_size("bytes given for a view", bytes.len() as u64, size),
        Content::Repeat(pattern) if size.is_multiple_of(pattern.len().max(1) as u64) => {
            at_most("the size of repeated bytes", size, super::MAX_MADE)
        }
        Content::Repeat(pattern) => {
            same_size("bytes left over by a repeated pattern", size % pattern.len().max(1) as u64, 0)
        }
        _ => at_most("the size of random bytes", size, super::MAX_MADE),
    }
}

fn same_size(what: &'static str, got: u64, expected: u64) -> Result {
    if got == expected { Ok(()) } else { Err(Defect::Size { what, got, expected }) }
}

fn at_most(what: &'static str, value: u64, limit: u64) -> Result {
    if value <= limit { Ok(()) } else { Err(Defect::TooLarge { what, value, limit }) }
}

fn at_most_views(count: usize) -> Result {
    if count <= MAX_VIEWS { Ok(()) } else { Err(Defect::TooManyViews) }
}

impl Program {
    /// Whether the steps make a program: each names only what is there, and what belongs together fits.
    ///
    /// # Errors
    /// The first step that does not, by its place, and what is wrong with it.
    pub fn check(&self) -> core::result::Result<(), (usize, Defect)> {
        let mut checker = Checker::new();
        self.steps
            .iter()
            .enumerate()
            .try_for_each(|(place, step)| checker.step(step, &self.kernels).map_err(|defect| (place, defect)))
    }
}
