//! Random programs over several streams, finished in random order, against a sequential model.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{Fate, Rig, io, rig_with};
use std::time::Duration;
use trunnion_backend_core::ServerSettings;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{AccessServer, Grant, Pattern, Payload, Region, Server, Until};
use trunnion_runtime_core::timeline::Moment;

const SIZE: usize = 64;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n
    }
}

struct Buffer {
    handle: Handle,
    /// What it holds when all that was asked for went well.
    model: Vec<u8>,
}

struct Program {
    rig: Rig,
    random: Random,
    streams: Vec<StreamId>,
    buffers: Vec<Buffer>,
    kernel: KernelHandle,
    reads: Vec<(Promise<Vec<Bytes>>, Vec<u8>)>,
    promises: Vec<(Promise<Vec<Bytes>>, Vec<u8>)>,
    accesses: Vec<(Moment, Promise<Grant>)>,
    issued: Vec<Moment>,
    fails: bool,
}

fn broken() -> Error {
    Error::Driver { call: "random".into(), code: 1, message: "broken".into() }
}

impl Program {
    fn new(seed: u64, fails: bool) -> Self {
        let pressure_wait = Duration::from_millis(1);
        let mut rig =
            rig_with(ServerSettings { batch_limit: 5, idle_streams: 1, pressure_wait, ..ServerSettings::default() });
        let kernel = rig.kernel("io", io());
        rig.script.get().writes_now = seed.is_multiple_of(2);
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let streams = (0..2 + random.below(6)).map(|_| StreamId::new()).collect();
        let none = Vec::new;
        let mut program = Self {
            rig,
            random,
            streams,
            buffers: Vec::new(),
            kernel,
            reads: none(),
            promises: Vec::new(),
            accesses: Vec::new(),
            issued: Vec::new(),
            fails,
        };
        for _ in 0..4 {
            program.allocate();
        }
        program
    }

    fn stream(&mut self) -> StreamId {
        self.streams[self.random.below(self.streams.len())]
    }

    fn allocate(&mut self) {
        let s = self.stream();
        let handle = self.rig.buffer(s, SIZE as u64);
        let s = self.stream();
        self.rig.write(s, &handle, 0);
        self.buffers.push(Buffer { handle, model: vec![0; SIZE] });
    }

    fn pick(&mut self) -> usize {
        self.random.below(self.buffers.len())
    }

    fn part(&mut self) -> std::ops::Range<usize> {
        let start = self.random.below(SIZE);
        start..start + 1 + self.random.below(SIZE - start)
    }

    fn step(&mut self) {
        let (s, i, part, byte) = (self.stream(), self.pick(), self.part(), self.random.below(256) as u8);
        let target = self.buffers[i].handle.slice(part.start as u64..part.end as u64).unwrap();
        match self.random.below(16) {
            0 | 1 => {
                let at = self.rig.write(s, &target, byte);
                self.issued.push(at);
                self.buffers[i].model[part].fill(byte);
            }
            2 => {
                let at = self.rig.at(s);
                self.rig.server.fill(at, &target, Pattern::new(&[byte]).unwrap());
                self.buffers[i].model[part].fill(byte);
            }
            3 | 4 => {
                let j = self.pick();
                if i != j {
                    let from = self.buffers[j].handle.slice(part.start as u64..part.end as u64).unwrap();
                    let at = self.rig.at(s);
                    self.rig.server.copy(at, &Region::whole(&from), &Region::whole(&target));
                    let bytes = self.buffers[j].model[part.clone()].to_vec();
                    self.buffers[i].model[part].copy_from_slice(&bytes);
                }
            }
            5..=7 => {
                let j = self.pick();
                if i != j {
                    let (from, to) = (self.buffers[j].handle.clone(), self.buffers[i].handle.clone());
                    let at = self.rig.launch(s, &self.kernel.clone(), &[&from, &to]);
                    self.issued.push(at);
                    let add = self.buffers[j].model[0].wrapping_add(1);
                    self.buffers[i].model.iter_mut().for_each(|b| *b = b.wrapping_add(add));
                    if self.fails && self.random.below(12) == 0 {
                        self.rig.script.get().failing.insert(at.seq, broken());
                    }
                }
            }
            8 | 9 => {
                let handle = self.buffers[i].handle.clone();
                let read = self.rig.read(s, &handle);
                self.reads.push((read, self.buffers[i].model.clone()));
            }
            10 => {
                let (promise, at) = (Promise::new(), self.rig.at(s));
                self.rig.server.write(at, &Region::whole(&target), Payload::Promised(promise.clone()));
                self.promises.push((promise, vec![byte; part.len()]));
                self.buffers[i].model[part].fill(byte);
            }
            11 => {
                let stream = StreamId::new();
                let (at, granted) = (self.rig.at(stream), Promise::new());
                self.rig.server.open(at, &target, Access::ReadWrite, granted.clone());
                self.accesses.push((at, granted));
            }
            12 if self.buffers.len() > 2 => {
                self.buffers.swap_remove(i);
                self.rig.free_dropped();
                self.allocate();
            }
            13 if !self.issued.is_empty() => {
                let on = self.issued[self.random.below(self.issued.len())];
                let at = self.rig.at(s);
                self.rig.server.wait(at, Until::Moment(on));
            }
            14 => {
                let at = self.rig.at(s);
                self.rig.server.mark(at);
                self.rig.is_done(at);
            }
            _ if self.fails => {
                let call = ["submit", "launch", "write", "copy", "read"][self.random.below(5)];
                self.rig.script.next(call, 0, Fate::Fails(broken()));
            }
            _ => self.rig.server.flush(s).unwrap(),
        }
    }

    /// The device and the host do something.
    fn world(&mut self) {
        let streams = self.rig.script.get().streams();
        if !streams.is_empty() && self.random.below(3) == 0 {
            let stream = streams[self.random.below(streams.len())];
            self.rig.script.get().finish(stream);
            if self.random.below(2) == 0 {
                self.rig.server.progress();
            }
        }
        if !self.promises.is_empty() && self.random.below(6) == 0 {
            let i = self.random.below(self.promises.len());
            let (promise, bytes) = self.promises.swap_remove(i);
            let fails = self.fails && self.random.below(4) == 0;
            let given = if fails { Err(broken()) } else { Ok(vec![Bytes::from_vec(bytes)]) };
            promise.fulfil(given, &mut Wakers::new());
            self.rig.server.progress();
        }
        if !self.accesses.is_empty() && self.random.below(6) == 0 {
            let i = self.random.below(self.accesses.len());
            let (at, granted) = self.accesses.swap_remove(i);
            let failure = (self.fails && self.random.below(4) == 0).then(broken);
            self.rig.server.close(at, failure);
            drop(granted);
        }
        self.rig.server.leave();
    }

    fn end(mut self) -> (usize, usize) {
        for (promise, bytes) in std::mem::take(&mut self.promises) {
            promise.fulfil(Ok(vec![Bytes::from_vec(bytes)]), &mut Wakers::new());
        }
        for (at, _) in std::mem::take(&mut self.accesses) {
            self.rig.server.close(at, None);
        }
        for stream in self.streams.clone() {
            self.rig.server.flush(stream).unwrap();
        }
        self.rig.run();
        assert_eq!(self.rig.server.parked(), 0);
        let (mut good, mut bad) = (0, 0);
        for (read, model) in &self.reads {
            match read.get().expect("every read is answered") {
                Ok(bytes) => {
                    assert_eq!(bytes[0].as_slice().unwrap(), model);
                    good += 1;
                }
                Err(error) => {
                    let all = if let Error::Several(all) = &error { all.clone() } else { vec![error.clone()] };
                    assert!(all.iter().all(|error| error.root() == &broken()), "{error}");
                    assert!(self.fails, "nothing fails: {error}");
                    bad += 1;
                }
            }
        }
        for at in self.issued.clone() {
            assert!(self.rig.is_done(at), "{at:?}");
        }
        self.buffers.clear();
        self.rig.free_dropped();
        self.rig.server.memory().unwrap().cleanup().unwrap();
        assert_eq!(self.rig.server.memory().unwrap().usage().reserved, 0);
        assert_eq!(self.rig.server.shutdown(&Deadline::after(Duration::from_secs(1))), 0);
        assert_eq!(self.rig.script.get().pages, 0);
        (good, bad)
    }
}

fn run(fails: bool) -> (usize, usize) {
    let set = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = set("TRUNNION_SEED").unwrap_or(1);
    let seeds = set("TRUNNION_SEEDS").unwrap_or(if first == 1 { 100 } else { 1 });
    let mut sum = (0, 0);
    for seed in first..first + seeds {
        let caught = std::panic::catch_unwind(|| {
            let mut program = Program::new(seed, fails);
            for _ in 0..150 {
                program.step();
                program.world();
            }
            program.end()
        });
        let (good, bad) = caught.unwrap_or_else(|_| panic!("TRUNNION_SEED={seed} shows it"));
        sum = (sum.0 + good, sum.1 + bad);
    }
    sum
}

#[test]
fn every_read_gives_what_a_sequential_run_gives() {
    let (good, bad) = run(false);
    assert!(good > 0 && bad == 0);
}

#[test]
fn with_failures_everywhere_a_read_gives_the_right_bytes_or_the_cause() {
    let (good, bad) = run(true);
    println!("{good} reads gave bytes, {bad} the cause");
    assert!(good > 0 && bad > 0);
}
