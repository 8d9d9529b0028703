//! Running a program on a client.

use super::compare::{Observed, Place, Replayed};
use super::content::Content;
use super::kernels::{KernelTable, Unresolved};
use super::step::{Call, Counts, LaunchCall, Program, View};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use hashbrown::HashMap;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::{Client, TensorView};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::service::Reading;
use trunnion_runtime_core::timeline::Point;

/// What new memory is filled with in a replay, so that two runs can be compared: what is in it otherwise is not defined.
pub const FRESH: u8 = 0xCD;

/// Into how many pieces a buffer is taken at most to see which of its bytes a failure lies on, and the fewest bytes of a piece.
const PIECES: u64 = 64;
const PIECE: u64 = 16;

/// Runs a program on a client's device and says what it gave. Calls are made on one thread, in the program's order, each on a stream of
/// this run for the program's.
///
/// A reservation is followed by a fill with [`FRESH`]; a launch without bounds checks is made with them; a write in place is a write.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(program: &Program, client: &Client, kernels: &KernelTable) -> Result<Replayed, ReplayError> {
    let player = Player::new(program, client, kernels)?;
    (0..program.steps.len()).try_for_each(|place| player.issue(place))?;
    player.finish()
}

/// Why a program was not replayed. What it had asked for before that went on.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// A kernel was not found.
    #[error(transparent)]
    Kernel(#[from] Unresolved),
    /// The program cannot say what was done there.
    #[error("step {step} ({verb} {number}) cannot be replayed: {why}")]
    Unportable {
        /// The step's place.
        step: usize,
        /// Its number.
        number: u64,
        /// What it is.
        verb: &'static str,
        /// Why not.
        why: String,
    },
    /// The client refused a call.
    #[error("step {step} ({verb} {number}): {error}")]
    Refused {
        /// The step's place.
        step: usize,
        /// Its number.
        number: u64,
        /// What it is.
        verb: &'static str,
        /// What the client says.
        #[source]
        error: Box<Error>,
    },
    /// The program contradicts itself; [`Program::check`] says how.
    #[error("step {step} ({verb} {number}) names what is not there")]
    Invalid {
        /// The step's place.
        step: usize,
        /// Its number.
        number: u64,
        /// What it is.
        verb: &'static str,
    },
    /// The device is lost, or has no answer: what is in the buffers cannot be seen.
    #[error("the bytes at the end cannot be read: {error}")]
    NoEnd {
        /// What the client says.
        #[source]
        error: Box<Error>,
    },
}

/// A program that is being run. Steps are issued one by one, by any thread: whoever issues them from several sees to it that a step comes
/// after those it depends on.
pub struct Player<'a> {
    program: &'a Program,
    client: Client,
    kernels: HashMap<u32, KernelHandle>,
    state: spin::Mutex<State>,
    empty: Handle,
}

#[derive(Default)]
struct State {
    streams: HashMap<u32, Client>,
    buffers: HashMap<u32, Handle>,
    /// The points of each stream, by number.
    points: HashMap<u32, Vec<(u64, Point)>>,
    reads: Vec<(usize, Reading)>,
}

/// What a step failed with, before it is known which.
enum Stop {
    Unportable(String),
    Refused(Error),
    Invalid,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl<'a> Player<'a> {
    /// Prepares the kernels that the program launches.
    ///
    /// # Errors
    /// A kernel that was not found; the device's fault.
    pub fn new(program: &'a Program, client: &Client, table: &KernelTable) -> Result<Self, ReplayError> {
        let mut kernels = HashMap::new();
        for step in &program.steps {
            if let Call::Launch(launch) = &step.call
                && let Some(info) = program.kernels.get(launch.kernel as usize)
                && !kernels.contains_key(&launch.kernel)
            {
                kernels.insert(launch.kernel, table.prepare(info, client)?);
            }
        }
        let empty = client.empty(0).map_err(|error| ReplayError::NoEnd { error: Box::new(error) })?;
        Ok(Self { program, client: client.clone(), kernels, state: spin::Mutex::default(), empty })
    }

    /// Makes the call of the step at this place.
    ///
    /// # Errors
    /// What the client refuses, and what the program cannot say.
    pub fn issue(&self, place: usize) -> Result<(), ReplayError> {
        let Some(step) = self.program.steps.get(place) else { return Ok(()) };
        let client = self.stream(step.stream);
        let point = self.call(&client, place, &step.call).map_err(|stop| {
            let (step, number, verb) = (place, step.number, step.call.verb());
            match stop {
                Stop::Unportable(why) => ReplayError::Unportable { step, number, verb, why },
                Stop::Refused(error) => ReplayError::Refused { step, number, verb, error: Box::new(error) },
                Stop::Invalid => ReplayError::Invalid { step, number, verb },
            }
        })?;
        if let Some(point) = point {
            self.state.lock().points.entry(step.stream).or_default().push((step.number, point));
        }
        Ok(())
    }

    /// The program's stream, as this run has it.
    fn stream(&self, stream: u32) -> Client {
        let fresh = || {
            let mut client = self.client.clone();
            client.set_stream(StreamId::new());
            client
        };
        self.state.lock().streams.entry(stream).or_insert_with(fresh).clone()
    }

    fn handle(&self, view: &View) -> Result<Handle, Stop> {
        let Some(buffer) = view.buffer else { return Ok(self.empty.clone()) };
        let known = self.state.lock().buffers.get(&buffer).cloned();
        Ok(known.ok_or(Stop::Invalid)?.slice(view.range.clone())?)
    }

    fn call(&self, client: &Client, place: usize, call: &Call) -> Result<Option<Point>, Stop> {
        Ok(Some(match call {
            Call::Reserve { buffer, size, mode } => {
                let handle = {
                    let _window = client.allocation_mode(*mode);
                    client.empty(*size)?
                };
                let filled = whole_units(*size, client);
                let point = client.fill(&handle.slice(..filled)?, &[FRESH])?;
                self.state.lock().buffers.insert(*buffer, handle);
                point
            }
            Call::Free { buffer } => {
                let freed = self.state.lock().buffers.remove(buffer);
                drop(freed);
                return Ok(None);
            }
            Call::Write { target, content } => return self.write(client, target, content).map(Some),
            Call::Read { sources } => {
                let handles =
                    sources.iter().map(|(view, _)| Ok((self.handle(view)?, view))).collect::<Result<Vec<_>, Stop>>()?;
                let shapes: Vec<Shape> = handles.iter().map(|(handle, view)| Shape::of(view, handle)).collect();
                let views: Vec<_> =
                    handles.iter().zip(&shapes).map(|((handle, _), shape)| shape.view(handle)).collect();
                let reading = client.read_tensors_async(&views)?;
                let point = reading.point();
                self.state.lock().reads.push((place, reading));
                point
            }
            Call::Copy { source, target } => {
                let (from, to) = (self.handle(source)?, self.handle(target)?);
                match (&source.rows, &target.rows) {
                    (None, None) => client.copy(&from, &to)?,
                    _ => return self.copy_rows(client, (source, from), (target, to)).map(Some),
                }
            }
            Call::Fill { target, pattern } => client.fill(&self.handle(target)?, pattern.bytes())?,
            Call::Launch(launch) => return self.launch(client, launch).map(Some),
            Call::Mark | Call::Outside => client.record()?,
            Call::Wait { stream, number } => match self.point(*stream, *number) {
                Some(point) => client.wait(point)?,
                // Nothing of that stream came before.
                None => client.record()?,
            },
            Call::Flush => {
                client.flush()?;
                return Ok(None);
            }
            Call::Lost { why } => return Err(Stop::Unportable(why.clone())),
        }))
    }

    fn write(&self, client: &Client, target: &View, content: &Content) -> Result<Point, Stop> {
        let handle = self.handle(target)?;
        let bytes = match content {
            Content::Nothing => return Ok(client.record()?),
            Content::Lost(why) => return Err(Stop::Unportable(why.clone())),
            Content::Failed(why) => {
                return Err(Stop::Unportable(alloc::format!("the bytes to be written never came: {why}")));
            }
            known => known.bytes(target.size())?.ok_or(Stop::Invalid)?,
        };
        Ok(match &target.rows {
            // The slice is written the way that suits its length: at once, in place or through the queue.
            None => client.write_slice(&handle, bytes.as_slice()?)?,
            Some(_) => client.write_tensor(&Shape::of(target, &handle).view(&handle), bytes)?,
        })
    }

    /// Copies between rows. Where both sides are cut alike it is one call; a client copies between tensors of one shape, so otherwise the
    /// rows of one side are cut to those of the other where they can be.
    fn copy_rows(&self, client: &Client, source: (&View, Handle), target: (&View, Handle)) -> Result<Point, Stop> {
        let (from, to) = (Shape::of(source.0, &source.1), Shape::of(target.0, &target.1));
        let (from, to) = match (from.shape == to.shape, from.strides.len() == 1, to.strides.len() == 1) {
            (true, ..) => (from, to),
            (false, true, _) => (to.dense(), to),
            (false, _, true) => {
                let dense = from.dense();
                (from, dense)
            }
            _ => {
                let why = "it copies between rows of different lengths, which no call of a client does";
                return Err(Stop::Unportable(why.to_string()));
            }
        };
        Ok(client.copy_tensor(&from.view(&source.1), &to.view(&target.1))?)
    }

    fn launch(&self, client: &Client, launch: &LaunchCall) -> Result<Point, Stop> {
        let kernel = self.kernels.get(&launch.kernel).ok_or(Stop::Invalid)?;
        let grid = match &launch.counts {
            Counts::Static([x, y, z]) => Grid::Static(*x, *y, *z),
            Counts::Dynamic(view) => Grid::Dynamic(self.handle(view)?),
        };
        let buffers = launch.buffers.iter().map(|view| self.handle(view)).collect::<Result<Vec<_>, Stop>>()?;
        let args = buffers.iter().fold(trunnion_runtime_core::kernel::Args::new(), |args, buffer| args.buffer(buffer));
        Ok(client.launch(kernel, grid, args.parameter_bytes(&launch.parameters))?)
    }

    /// The last point of a stream with at most this number.
    fn point(&self, stream: u32, number: u64) -> Option<Point> {
        let state = self.state.lock();
        let points = state.points.get(&stream)?;
        let after = points.partition_point(|(known, _)| *known <= number);
        points.get(after.checked_sub(1)?).map(|(_, point)| *point)
    }

    /// Waits for what was read and reads what is in the buffers.
    ///
    /// # Errors
    /// The device's fault, or no answer in time. Failures that lie on bytes are no errors here: they are what the run gave.
    pub fn finish(self) -> Result<Replayed, ReplayError> {
        let Self { program, mut client, state, .. } = self;
        let no_end = |error| ReplayError::NoEnd { error: Box::new(error) };
        let State { buffers, mut reads, .. } = state.into_inner();
        client.set_stream(StreamId::new());
        let mut replayed = Replayed::default();
        reads.sort_by_key(|(place, _)| *place);
        for (step, reading) in reads {
            let Some((number, Call::Read { sources })) = program.steps.get(step).map(|step| (step.number, &step.call))
            else {
                continue;
            };
            let answer = lies_on_bytes(reading.wait()).map_err(no_end)?;
            for (source, (view, _)) in sources.iter().enumerate() {
                let observed = match &answer {
                    Ok(all) => all.get(source).map(observe).transpose().map_err(no_end)?.unwrap_or_default(),
                    Err(error) => Observed::failed(view.size(), error.to_string()),
                };
                replayed.reads.push((Place::Read { step, number, source }, observed));
            }
        }
        let mut buffers: Vec<_> = buffers.into_iter().collect();
        buffers.sort_by_key(|(buffer, _)| *buffer);
        for (buffer, handle) in buffers {
            let size = whole_units(handle.size_in_used(), &client);
            let piece = (size / PIECES).next_power_of_two().max(PIECE).max(client.limits().copy_alignment);
            let mut observed = Observed::default();
            look(&client, &handle, 0..size, piece, &mut observed).map_err(no_end)?;
            replayed.buffers.push((Place::Buffer { buffer }, observed));
        }
        Ok(replayed)
    }
}

impl fmt::Debug for Player<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The bytes that transfers of the device can name, which are nearly all.
fn whole_units(size: u64, client: &Client) -> u64 {
    size - size % client.limits().copy_alignment.max(1)
}

fn observe(bytes: &Bytes) -> Result<Observed> {
    Ok(Observed::well(bytes.to_vec::<u8>()?))
}

/// A failure that lies on bytes is an answer; one of the device, or none in time, is not.
fn lies_on_bytes<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Err(error) if error.is_device_lost() || error.is_timeout() || matches!(error, Error::ShutDown { .. }) => {
            Err(error)
        }
        answer => Ok(answer),
    }
}

/// Reads a range, and where a failure lies in it, its halves, down to pieces.
fn look(client: &Client, handle: &Handle, range: Range<u64>, piece: u64, into: &mut Observed) -> Result<()> {
    match lies_on_bytes(client.read_one(&handle.slice(range.clone())?))? {
        Ok(bytes) => into.bytes.extend(bytes.as_slice()?),
        Err(error) => match range.end - range.start {
            size if size > piece => {
                let middle = range.start + (size / 2).next_multiple_of(piece);
                look(client, handle, range.start..middle, piece, into)?;
                look(client, handle, middle..range.end, piece, into)?;
            }
            size => {
                into.bytes.resize(into.bytes.len() + usize::try_from(size).unwrap_or(0), 0);
                into.failures.push((range, error.to_string()));
            }
        },
    }
    Ok(())
}

/// Rows of bytes, as the client's calls for tensors take them.
struct Shape {
    shape: Vec<u64>,
    strides: Vec<u64>,
}

impl Shape {
    fn of(view: &View, handle: &Handle) -> Self {
        let (row, outer) = match &view.rows {
            Some(rows) => (rows.row, rows.outer.as_slice()),
            None => (handle.size_in_used(), &[][..]),
        };
        let shape = outer.iter().map(|(count, _)| *count).chain([row]).collect();
        let strides = outer.iter().map(|(_, stride)| *stride).chain([1]).collect();
        Self { shape, strides }
    }

    /// The same rows one after another.
    fn dense(&self) -> Self {
        let mut strides = alloc::vec![1u64; self.shape.len()];
        for i in (1..self.shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(self.shape[i]);
        }
        Self { shape: self.shape.clone(), strides }
    }

    fn view<'a>(&'a self, handle: &'a Handle) -> TensorView<'a> {
        TensorView { handle, shape: &self.shape, strides: &self.strides, elem: ElemType::U8 }
    }
}
