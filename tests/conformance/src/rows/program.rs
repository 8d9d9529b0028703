//! Random programs against a sequential model: what streams and threads do together must be what one after another gives.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, tests};
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::KernelHandle;

tests! {
    C8 random_programs_over_streams_give_what_the_sequential_run_gives .seconds(60);
    M7 random_programs_on_hard_memory_give_what_the_sequential_run_gives .seconds(60);
    M6 random_programs_with_failures_give_what_the_sequential_run_gives .seconds(60);
}

/// Numbers that look random and are the same every time.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next one.
    pub fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The next one below `n`; 0 when `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }
}

/// Elements of 32 bits in a buffer. Parts begin at multiples of [`UNIT`], which suits every device.
const ELEMS: usize = 512;
const UNIT: usize = 64;

/// A buffer and what must be in it; `None` where a failure lies.
struct Buffer {
    handle: Handle,
    model: Vec<Option<u32>>,
}

struct Program {
    streams: Vec<Client>,
    buffers: Vec<Buffer>,
    scramble: KernelHandle,
    carry: KernelHandle,
    broken: Option<KernelHandle>,
    random: Random,
    log: Vec<String>,
}

impl Program {
    fn new(client: &Client, seed: u64, fails: bool) -> Outcome<Self> {
        let mut program = Self {
            streams: (0..5).map(|_| on_new_stream(client)).collect(),
            buffers: Vec::new(),
            scramble: client.prepare(kernels::scramble())?,
            carry: client.prepare(kernels::carry())?,
            broken: fails.then(|| client.prepare(kernels::broken())).transpose()?,
            random: Random::new(seed),
            log: Vec::new(),
        };
        for _ in 0..4 {
            program.create(0)?;
        }
        Ok(program)
    }

    fn pick(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }

    /// Some units of a buffer, as a range of elements.
    fn part(&mut self) -> core::ops::Range<usize> {
        let start = self.pick(ELEMS / UNIT);
        let count = 1 + self.pick(ELEMS / UNIT - start);
        start * UNIT..(start + count) * UNIT
    }

    fn slice(&self, buffer: usize, part: &core::ops::Range<usize>) -> Outcome<Handle> {
        Ok(self.buffers[buffer].handle.slice(part.start as u64 * 4..part.end as u64 * 4)?)
    }

    fn create(&mut self, stream: usize) -> Outcome {
        let value = self.random.next() as u32;
        let handle = self.streams[stream].create_from_slice(raw(&[value; ELEMS]))?;
        self.buffers.push(Buffer { handle, model: vec![Some(value); ELEMS] });
        Ok(())
    }

    fn step(&mut self) -> Outcome {
        let (stream, a, b) =
            (self.pick(self.streams.len()), self.pick(self.buffers.len()), self.pick(self.buffers.len()));
        let (part, action) = (self.part(), self.pick(12));
        self.log.push(format!("{action} on {stream}: {a} {b} {part:?}"));
        let client = self.streams[stream].clone();
        let target = self.slice(a, &part)?;
        match action {
            0..=2 => {
                client.launch(&self.scramble, cover(part.len())?, [&target])?;
                let model = &mut self.buffers[a].model[part];
                // A launch over a marked byte is skipped as a whole.
                let well = model.iter().all(Option::is_some);
                model.iter_mut().for_each(|x| *x = x.filter(|_| well).map(|x| x.wrapping_mul(3).wrapping_add(1)));
            }
            3 | 4 if a != b => {
                let source = self.slice(b, &part)?;
                match action {
                    3 => client.copy(&source, &target)?,
                    _ => client.launch(&self.carry, cover(part.len())?, [&source, &target])?,
                };
                let values = self.buffers[b].model[part.clone()].to_vec();
                let well = values.iter().all(Option::is_some);
                let values = values.into_iter().map(|x| x.filter(|_| well));
                self.buffers[a].model[part].iter_mut().zip(values).for_each(|(x, y)| *x = y);
            }
            5 => {
                let value = self.random.next() as u32;
                client.fill(&target, &value.to_ne_bytes())?;
                self.buffers[a].model[part].fill(Some(value));
            }
            6 => {
                let values: Vec<u32> = part.clone().map(|i| i as u32 ^ stream as u32).collect();
                client.write_slice(&target, raw(&values))?;
                self.buffers[a].model[part].iter_mut().zip(values).for_each(|(x, y)| *x = Some(y));
            }
            7 => {
                // Dropped with its work queued, and another of the same size at once.
                self.buffers.swap_remove(a);
                self.create(stream)?;
            }
            8 => client.flush()?,
            9 => drop(client.wait(self.streams[(stream + 1) % 5].record()?)?),
            10 if self.broken.is_some() && a != b => {
                let source = self.slice(b, &part)?;
                if let Some(broken) = &self.broken {
                    client.launch(broken, cover(part.len())?, [&source, &target])?;
                }
                self.buffers[a].model[part].fill(None);
            }
            _ if self.random.below(4) == 0 => self.compare(stream, a, &part)?,
            _ => {}
        }
        Ok(())
    }

    fn compare(&self, stream: usize, buffer: usize, part: &core::ops::Range<usize>) -> Outcome {
        let expected = &self.buffers[buffer].model[part.clone()];
        let read = self.streams[stream].read_one(&self.slice(buffer, part)?);
        let all: Option<Vec<u32>> = expected.iter().copied().collect();
        let say = |what: String| {
            let tail = self.log.len().saturating_sub(25);
            Err(Failure::new(format_args!(
                "buffer {buffer}, elements {part:?}: {what}; the last of {} steps:\n{}",
                self.log.len(),
                self.log[tail..].join("\n")
            )))
        };
        match (read, all) {
            (Ok(read), Some(expected)) => {
                let read = read.to_vec::<u32>()?;
                match read.iter().zip(&expected).position(|(seen, expected)| seen != expected) {
                    None => Ok(()),
                    Some(at) => say(format!("element {} is {}, expected {}", part.start + at, read[at], expected[at])),
                }
            }
            (Err(error), None) if well_known(&error) => Ok(()),
            (Err(error), _) => say(format!("{error}")),
            (Ok(_), None) => say("a failure that lay there is gone".into()),
        }
    }

    fn run(mut self, steps: usize) -> Outcome {
        for _ in 0..steps {
            self.step()?;
        }
        for buffer in 0..self.buffers.len() {
            for unit in 0..ELEMS / UNIT {
                self.compare(0, buffer, &(unit * UNIT..(unit + 1) * UNIT))?;
            }
        }
        ensure!(!self.log.is_empty(), "no step was made");
        Ok(())
    }
}

/// The one cause the programs make, alone or inherited, or several times from several launches.
fn well_known(error: &Error) -> bool {
    match error {
        Error::Several(all) => all.iter().all(well_known),
        other => matches!(other.root(), Error::Compile { .. }),
    }
}

fn random_programs_over_streams_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    for seed in 0..12 {
        let client = cx.open(&Variant::late(Duration::from_micros(500), seed))?;
        Program::new(&client, seed, false)?.run(300)?;
    }
    Ok(())
}

fn random_programs_on_hard_memory_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    for seed in 100..108 {
        let variant = Variant {
            separate_memory: true,
            memory_types: Some(3),
            memory: Some(1 << 20),
            ..Variant::late(Duration::from_micros(500), seed)
        };
        Program::new(&cx.open(&variant)?, seed, false)?.run(300)?;
    }
    Ok(())
}

fn random_programs_with_failures_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    for seed in 200..212 {
        let variant =
            Variant { fail_compile: Some(kernels::BROKEN), ..Variant::late(Duration::from_micros(500), seed) };
        Program::new(&cx.open(&variant)?, seed, true)?.run(300)?;
    }
    Ok(())
}
