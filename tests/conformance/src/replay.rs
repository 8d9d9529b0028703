//! `--replay FILE`: runs a recorded program on a backend, and says where it gives something else than another, or than was recorded.

use crate::context::Context;
use crate::factory::{Factory, Variant};
use crate::kernels;
use crate::program::{THREADS, replay_on_threads, variant_of};
use crate::{Failure, Outcome};
use alloc::sync::Arc;
use std::path::PathBuf;
use std::process::ExitCode;
use trunnion_server_layers::program::{Difference, Place, Program, Replayed, Step};

/// What is to be replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The program's file.
    pub file: PathBuf,
    /// The backend it is run on.
    pub backend: String,
    /// The backend it is compared with; what was recorded where there is none.
    pub compare: Option<String>,
    /// Whether to look for the first step after which they differ.
    pub bisect: bool,
    /// Whether a file that was cut off is run as far as it goes.
    pub recover: bool,
}

/// Both gave the same.
const EQUAL: u8 = 0;
/// They differ.
const DIFFERENT: u8 = 1;
/// It could not be run.
const CANNOT: u8 = 2;

/// Up to so many steps every prefix is tried, so that the one found is the shortest.
const EVERY_PREFIX: usize = 256;

/// Replays a program and prints what came of it. The exit code is 0 where all is equal, 1 where something differs, 2 where it cannot be run.
pub fn replay(replay: &Replay, factories: &[Arc<dyn Factory>]) -> ExitCode {
    match run(replay, factories) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(CANNOT)
        }
    }
}

fn run(replay: &Replay, factories: &[Arc<dyn Factory>]) -> Outcome<u8> {
    let program = read(replay)?;
    let device = Device::of(&replay.backend, factories, &program)?;
    let Some(other) = &replay.compare else {
        let expected = program.expected()?;
        let name = device.name();
        let Some(difference) = expected.difference(&device.run(&program)?) else {
            println!("{name}: {} steps, {} reads as recorded", program.steps.len(), expected.reads.len());
            return Ok(EQUAL);
        };
        println!("{name} gives something else than was recorded\n{}", difference.table("recorded", name));
        print_step(&program, &difference);
        return Ok(DIFFERENT);
    };
    let other = Device::of(other, factories, &program)?;
    let Some(difference) = differ(&device, &other, &program)? else {
        println!("{} and {}: {} steps, all equal", device.name(), other.name(), program.steps.len());
        return Ok(EQUAL);
    };
    println!("{} and {} differ\n{}", device.name(), other.name(), difference.table(device.name(), other.name()));
    print_step(&program, &difference);
    if replay.bisect {
        print_first_step(&device, &other, &program)?;
    }
    Ok(DIFFERENT)
}

fn read(replay: &Replay) -> Outcome<Program> {
    let name = replay.file.display();
    let failed = |why: String| Failure::Failed(format!("{name}: {why}"));
    let text = std::fs::read_to_string(&replay.file).map_err(|error| failed(error.to_string()))?;
    if !replay.recover {
        return Program::parse(&text).map_err(|error| failed(error.to_string()));
    }
    let (program, error) = Program::recover(&text);
    if let Some(error) = error {
        println!("{name}: {error}; the {} steps before that are run", program.steps.len());
    }
    Ok(program)
}

/// A backend, and how its devices are to behave.
struct Device {
    context: Context,
    variant: Variant,
}

impl Device {
    fn of(name: &str, factories: &[Arc<dyn Factory>], program: &Program) -> Outcome<Self> {
        let known = || Failure::Failed(format!("there is no backend `{name}`"));
        let factory = factories.iter().find(|factory| factory.name() == name).ok_or_else(known)?;
        factory.available().map_err(|why| Failure::Failed(format!("{name} is not available: {why}")))?;
        let variant = variant_of(program).map_err(Failure::Failed)?;
        let context = Context::new(factory.clone());
        match context.open(&variant) {
            Err(Failure::Skipped(why)) => {
                println!("{why}; its device is run as it is");
                Ok(Self { context, variant: Variant::plain() })
            }
            Err(other) => Err(other),
            Ok(_) => Ok(Self { context, variant }),
        }
    }

    fn name(&self) -> &str {
        self.context.factory().name()
    }

    /// Runs a program on a device that has run nothing before.
    fn run(&self, program: &Program) -> Outcome<Replayed> {
        let client = self.context.open(&self.variant)?;
        let threads = program.setting(THREADS).and_then(|threads| threads.parse().ok()).unwrap_or(1);
        replay_on_threads(program, &client, &kernels::table(), threads)
            .map_err(|error| Failure::Failed(format!("{}: {error}", self.name())))
    }
}

fn differ(device: &Device, other: &Device, program: &Program) -> Outcome<Option<Difference>> {
    Ok(device.run(program)?.difference(&other.run(program)?))
}

fn print_step(program: &Program, difference: &Difference) {
    if let Place::Read { step, .. } = difference.place
        && let Some(step) = program.steps.get(step)
    {
        println!("the read that differs: {}", line_of(step));
    }
}

/// A step's own line, without those of its bytes, cut where it is long.
fn line_of(step: &Step) -> String {
    let text = step.to_string();
    let line = text.lines().last().unwrap_or_default();
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_string(),
    }
}

/// The first step after which what two backends give differs, by its place, and what differs then. Of a program of more than 256 steps
/// it is one after which it differs and before which it does not. `None` where they do not differ.
///
/// # Errors
/// What keeps the program from being run.
pub fn first_step(
    factories: &[Arc<dyn Factory>],
    backend: &str,
    other: &str,
    program: &Program,
) -> Outcome<Option<(usize, Difference)>> {
    bisect(&Device::of(backend, factories, program)?, &Device::of(other, factories, program)?, program)
}

fn bisect(device: &Device, other: &Device, program: &Program) -> Outcome<Option<(usize, Difference)>> {
    let count = program.steps.len();
    let Some(mut found) = differ(device, other, program)? else { return Ok(None) };
    let (mut equal, mut different) = (0, count);
    while equal + 1 < different {
        let middle = if count <= EVERY_PREFIX { equal + 1 } else { equal + (different - equal) / 2 };
        match differ(device, other, &program.prefix(middle))? {
            Some(difference) => (different, found) = (middle, difference),
            None => equal = middle,
        }
    }
    Ok(Some((different.saturating_sub(1), found)))
}

fn print_first_step(device: &Device, other: &Device, program: &Program) -> Outcome {
    let Some((place, found)) = bisect(device, other, program)? else {
        println!("they do not differ every time: what differs depends on when things happen");
        return Ok(());
    };
    let count = program.steps.len();
    let which = if count <= EVERY_PREFIX { "the first step" } else { "a step" };
    println!("{which} after which they differ is {place} of {count}, and what differs is {}:", found.place);
    if let Some(step) = program.steps.get(place) {
        println!("{}", line_of(step));
    }
    println!("{}", found.table(device.name(), other.name()));
    Ok(())
}
