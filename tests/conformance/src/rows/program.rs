//! Random programs against a sequential model: what streams and threads do together must be what one after another gives.

use crate::check::{Failure, Outcome};
use crate::context::Context;
use crate::factory::Variant;
use crate::kernels::{self, BROKEN};
pub use crate::program::Random;
use crate::program::{Recipe, prove, replay_on_threads};
use crate::{ensure, ensure_eq, tests};
use alloc::sync::Arc;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use trunnion_runtime_core::client::Client;
use trunnion_server_layers::program::{Program, Replayed, Sink};
use trunnion_server_layers::{Record, RecordOptions, Recording};

tests! {
    C8 random_programs_over_streams_give_what_the_sequential_run_gives .seconds(240);
    C8 random_programs_issued_by_threads_give_what_the_sequential_run_gives .seconds(240);
    M7 random_programs_on_hard_memory_give_what_the_sequential_run_gives .seconds(240);
    M6 random_programs_with_failures_give_what_the_sequential_run_gives .seconds(240);
    F1 random_programs_with_failures_issued_by_threads_give_what_the_sequential_run_gives .seconds(240);
    X5 a_run_that_was_recorded_replays_to_the_bytes_it_read .seconds(240);
    X5 a_recording_whose_sink_fails_disturbs_nobody;
}

fn late(seed: u64) -> Variant {
    Variant::late(Duration::from_micros(500), seed)
}

/// As it is used in most tests.
const RECIPE: Recipe =
    Recipe { seed: 0, steps: 300, streams: 5, threads: 1, fails: false, fails_late: false, modes: true };

fn random_programs_over_streams_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    (0..12).try_for_each(|seed| prove(cx, "streams", &late(seed), Recipe { seed, ..RECIPE }))
}

fn random_programs_issued_by_threads_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    (300..312).try_for_each(|seed| {
        // Without a delay the threads meet in the device's own work, with one in what waits for it.
        let variant = if seed % 2 == 0 { Variant::plain() } else { late(seed) };
        prove(cx, "threads", &variant, Recipe { seed, streams: 6, threads: 3, ..RECIPE })
    })
}

fn random_programs_on_hard_memory_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    (100..108).try_for_each(|seed| {
        let variant = Variant { separate_memory: true, memory_types: Some(3), memory: Some(1 << 20), ..late(seed) };
        prove(cx, "memory", &variant, Recipe { seed, modes: false, ..RECIPE })
    })
}

fn random_programs_with_failures_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    (200..212).try_for_each(|seed| {
        let variant = Variant { fail_compile: Some(BROKEN), ..late(seed) };
        prove(cx, "failures", &variant, Recipe { seed, fails: true, fails_late: true, ..RECIPE })
    })
}

fn random_programs_with_failures_issued_by_threads_give_what_the_sequential_run_gives(cx: &Context) -> Outcome {
    (400..408).try_for_each(|seed| {
        let variant = Variant { fail_compile: Some(BROKEN), ..late(seed) };
        prove(
            cx,
            "thread-failures",
            &variant,
            Recipe { seed, streams: 6, threads: 3, fails: true, fails_late: true, ..RECIPE },
        )
    })
}

/// Lines that somebody else reads, at most so many.
#[derive(Clone)]
struct Lines(Arc<Mutex<String>>, usize);

impl Sink for Lines {
    fn line(&mut self, line: &str) -> Result<(), String> {
        self.1 = self.1.checked_sub(1).ok_or("no more lines, on purpose")?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line(line)
    }
}

/// Runs a program on a device that is recorded. What it gave, and what was written down.
fn recorded(cx: &Context, program: &Program, lines: usize) -> Outcome<(Replayed, Recording, String)> {
    let sink = Lines(Arc::default(), lines);
    let settings = cx.settings();
    let opened = cx.opened(&Variant::broken(), &settings.open)?;
    let (opened, recording) = Record::around(opened, sink.clone(), RecordOptions::default());
    let client = Client::try_init_with(cx.device()?, opened, &settings)?;
    let seen = replay_on_threads(program, &client, &kernels::table(), 3).map_err(Failure::new)?;
    client.shutdown(Duration::from_secs(10));
    let text = sink.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((seen, recording, text))
}

fn a_run_that_was_recorded_replays_to_the_bytes_it_read(cx: &Context) -> Outcome {
    for seed in 0..4 {
        let (_, recording, text) = recorded(cx, &Recipe { seed, fails: true, ..RECIPE }.make(), usize::MAX)?;
        ensure!(recording.has_ended(), "the recording has not ended: {recording:?}");
        let again = Program::parse(&text).map_err(Failure::new)?;
        let expected = again.expected()?;
        ensure!(expected.reads.len() > 20, "only {} reads were recorded", expected.reads.len());
        let client = cx.open(&Variant { fail_compile: Some(BROKEN), ..late(seed) })?;
        let seen = replay_on_threads(&again, &client, &kernels::table(), 1).map_err(Failure::new)?;
        if let Some(difference) = expected.difference(&seen) {
            return Err(Failure::new(difference.table("recorded", "replayed")));
        }
    }
    Ok(())
}

fn a_recording_whose_sink_fails_disturbs_nobody(cx: &Context) -> Outcome {
    let program = Recipe { seed: 9, ..RECIPE }.make();
    let (whole, ..) = recorded(cx, &program, usize::MAX)?;
    for lines in [0, 1, 100] {
        let (seen, recording, text) = recorded(cx, &program, lines)?;
        ensure_eq!(seen.difference(&whole), None);
        ensure_eq!(recording.fault().as_deref(), Some("no more lines, on purpose"));
        ensure_eq!(text.lines().count(), lines);
    }
    Ok(())
}
