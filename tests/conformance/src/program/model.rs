//! The sequential model: what a program gives when its steps are done one after another, byte by byte.

use crate::kernels::{BROKEN, TOO_MANY};
use alloc::collections::BTreeMap;
use trunnion_runtime_core::access::Access;
use trunnion_server_layers::program::{
    Call, Counts, FRESH, LaunchCall, Observed, Place, Program, Replayed, Step, View,
};

/// A buffer: its bytes, and for each why it has none, if a failure lies on it.
struct Buffer {
    bytes: Vec<u8>,
    marks: Vec<Option<&'static str>>,
}

#[derive(Default)]
struct Model {
    buffers: BTreeMap<u32, Buffer>,
}

/// What a program gives in order.
///
/// # Errors
/// A kernel, or a content, that the model does not know.
pub fn model(program: &Program) -> Result<Replayed, String> {
    let (mut model, mut replayed) = (Model::default(), Replayed::default());
    for (step, Step { number, call, .. }) in program.steps.iter().enumerate() {
        match call {
            Call::Reserve { buffer, size, .. } => {
                let size = *size as usize;
                model.buffers.insert(*buffer, Buffer { bytes: vec![FRESH; size], marks: vec![None; size] });
            }
            Call::Free { buffer } => _ = model.buffers.remove(buffer),
            Call::Write { target, content } => {
                let bytes = content.bytes(target.size()).map_err(|error| error.to_string())?;
                let unknown = || format!("step {step}: the model cannot write {content:?}");
                let bytes = bytes.ok_or_else(unknown)?.to_vec::<u8>().map_err(|error| error.to_string())?;
                model.put(target, &bytes)?;
            }
            Call::Read { sources } => {
                let mark = sources.iter().find_map(|(view, _)| model.mark(view));
                for (source, (view, _)) in sources.iter().enumerate() {
                    let observed = match mark {
                        Some(why) => Observed::failed(view.size(), why),
                        None => Observed::well(model.get(view)?),
                    };
                    replayed.reads.push((Place::Read { step, number: *number, source }, observed));
                }
            }
            Call::Copy { source, target } => match model.mark(source) {
                Some(why) => model.set_mark(target, why)?,
                None => {
                    let bytes = model.get(source)?;
                    model.put(target, &bytes)?;
                }
            },
            Call::Fill { target, pattern } => {
                let bytes: Vec<u8> = pattern.bytes().iter().copied().cycle().take(target.size() as usize).collect();
                model.put(target, &bytes)?;
            }
            Call::Launch(launch) => model.launch(program, launch)?,
            Call::Mark | Call::Wait { .. } | Call::Outside | Call::Flush => {}
            Call::Lost { why } => return Err(format!("step {step}: {why}")),
        }
    }
    let buffers = model.buffers.into_iter().map(|(buffer, state)| (Place::Buffer { buffer }, state.observed()));
    replayed.buffers = buffers.collect();
    Ok(replayed)
}

impl Buffer {
    fn observed(self) -> Observed {
        let mut observed = Observed::well(self.bytes);
        for (at, mark) in self.marks.iter().enumerate() {
            let Some(why) = mark else { continue };
            observed.bytes[at] = 0;
            let at = at as u64;
            match observed.failures.last_mut() {
                Some((range, last)) if range.end == at && last == why => range.end += 1,
                _ => observed.failures.push((at..at + 1, why.to_string())),
            }
        }
        observed
    }
}

/// Where the bytes of a view are in its buffer, in order.
fn places(view: &View) -> Vec<usize> {
    let start = view.range.start as usize;
    match &view.rows {
        None => (start..view.range.end as usize).collect(),
        Some(rows) => {
            let mut places = Vec::new();
            rows.for_each(|row| places.extend((row..row + rows.row).map(|at| start + at as usize)));
            places
        }
    }
}

impl Model {
    fn buffer(&mut self, view: &View) -> Result<&mut Buffer, String> {
        view.buffer.and_then(|number| self.buffers.get_mut(&number)).ok_or_else(|| format!("{view:?} is not there"))
    }

    /// The failure that lies on some byte of a view.
    fn mark(&self, view: &View) -> Option<&'static str> {
        let buffer = self.buffers.get(&view.buffer?)?;
        places(view).into_iter().find_map(|at| buffer.marks[at])
    }

    fn set_mark(&mut self, view: &View, why: &'static str) -> Result<(), String> {
        let buffer = self.buffer(view)?;
        places(view).into_iter().for_each(|at| buffer.marks[at] = Some(why));
        Ok(())
    }

    fn get(&mut self, view: &View) -> Result<Vec<u8>, String> {
        let buffer = self.buffer(view)?;
        Ok(places(view).into_iter().map(|at| buffer.bytes[at]).collect())
    }

    fn put(&mut self, view: &View, bytes: &[u8]) -> Result<(), String> {
        let buffer = self.buffer(view)?;
        for (at, byte) in places(view).into_iter().zip(bytes) {
            (buffer.bytes[at], buffer.marks[at]) = (*byte, None);
        }
        Ok(())
    }

    fn launch(&mut self, program: &Program, launch: &LaunchCall) -> Result<(), String> {
        let kernel = program.kernels.get(launch.kernel as usize).ok_or("a kernel that is not there")?;
        let uses: Vec<(&View, Access)> =
            launch.buffers.iter().zip(&kernel.interface.buffers).map(|(view, buffer)| (view, buffer.access)).collect();
        let counts = match &launch.counts {
            Counts::Dynamic(view) => Some(view),
            Counts::Static(_) => None,
        };
        let mark = counts.and_then(|view| self.mark(view));
        let mark =
            mark.or_else(|| uses.iter().filter(|(_, access)| access.reads()).find_map(|(view, _)| self.mark(view)));
        let failure = match kernel.name.as_str() {
            BROKEN => Some(BROKEN),
            // The only counts that the programs read are over every limit.
            _ => counts.map(|_| TOO_MANY),
        };
        // A launch over a byte that a failure lies on is skipped as a whole.
        if let Some(why) = mark.or(failure) {
            let mut written = uses.iter().filter(|(_, access)| access.writes());
            return written.try_for_each(|(view, _)| self.set_mark(view, why));
        }
        match (kernel.name.as_str(), launch.buffers.as_slice()) {
            ("scramble", [x]) => {
                let bytes = self.get(x)?;
                let elems = bytes.as_chunks::<4>().0.iter().map(|elem| u32::from_ne_bytes(*elem));
                let after: Vec<u8> = elems.flat_map(|x| x.wrapping_mul(3).wrapping_add(1).to_ne_bytes()).collect();
                self.put(x, &after)
            }
            ("carry", [from, to]) => {
                let bytes = self.get(from)?;
                self.put(to, &bytes)
            }
            ("put", [out]) => {
                let bytes: Vec<u8> = launch.parameters.iter().copied().cycle().take(out.size() as usize).collect();
                self.put(out, &bytes)
            }
            (name, _) => Err(format!("the model does not know kernel `{name}`")),
        }
    }
}
