//! Making a program from a seed.

use super::THREADS;
use crate::kernels;
use core::ops::Range;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::kernel::{Kernel, SourceKernel};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::{Bounds, Pattern};
use trunnion_server_layers::program::{Call, Content, Counts, KernelInfo, LaunchCall, Program, Step, View};

/// Numbers that look random and are the same every time.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next one.
    #[allow(clippy::should_implement_trait, reason = "there is always a next one")]
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

/// What a program is made from.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Equal seeds make equal programs.
    pub seed: u64,
    /// How many steps it has, about.
    pub steps: usize,
    /// How many streams it uses.
    pub streams: u32,
    /// By how many threads it is issued, each with streams of its own.
    pub threads: usize,
    /// Whether some of its launches do not compile.
    pub fails: bool,
    /// Whether some of its launches read counts that are over every limit, which shows when what came after them is under way.
    pub fails_late: bool,
    /// Whether some of its buffers are allocated for themselves, which takes more memory than they have bytes.
    pub modes: bool,
}

/// Bytes in a buffer. Parts begin at multiples of [`UNIT`], which suits every device.
const SIZE: u64 = 2048;
const UNIT: u64 = 256;

/// The kernels of the programs, by their place.
const SCRAMBLE: u32 = 0;
const CARRY: u32 = 1;
const PUT: u32 = 2;
const BROKEN: u32 = 3;

struct Maker {
    recipe: Recipe,
    random: Random,
    buffers: Vec<u32>,
    next_buffer: u32,
    /// Counts over every limit, in a buffer that nothing else uses; where launches are to read them.
    counts: Option<View>,
    program: Program,
}

impl Recipe {
    /// Makes the program.
    pub fn make(self) -> Program {
        let info = |kernel: SourceKernel| KernelInfo {
            name: kernel.name().to_string(),
            workgroup: Kernel::workgroup_size(&kernel).unwrap_or([1; 3]),
            interface: kernel.interface().unwrap_or_default(),
            constants: kernel.constants(),
            form: SourceForm::Host,
            source: None,
        };
        let used = [kernels::scramble(), kernels::carry(), kernels::put(), kernels::broken()];
        let config = vec![("seed".into(), self.seed.to_string()), (THREADS.into(), self.threads.to_string())];
        let program = Program { config, kernels: used.map(info).to_vec(), steps: Vec::new() };
        let random = Random::new(self.seed);
        let mut maker = Maker { recipe: self, random, buffers: Vec::new(), next_buffer: 0, counts: None, program };
        maker.counts = self.fails_late.then(|| maker.create_counts());
        for stream in 0..4 {
            maker.create(stream % self.streams);
        }
        while maker.program.steps.len() < self.steps {
            maker.step();
        }
        maker.program
    }
}

impl Maker {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn push(&mut self, stream: u32, call: Call) {
        let number = self.program.steps.len() as u64 + 1;
        self.program.steps.push(Step { number, stream, call });
    }

    fn create(&mut self, stream: u32) {
        let buffer = self.next_buffer;
        self.next_buffer += 1;
        let mode = match self.below(8) {
            0 | 1 if !self.recipe.modes => AllocationMode::Auto,
            0 => AllocationMode::Persistent,
            1 => AllocationMode::Dedicated,
            _ => AllocationMode::Auto,
        };
        self.buffers.push(buffer);
        self.push(stream, Call::Reserve { buffer, size: SIZE, mode });
        let content = Content::Random(self.random.next());
        self.push(stream, Call::Write { target: View::new(buffer, 0..SIZE), content });
    }

    fn create_counts(&mut self) -> View {
        let view = View::new(self.next_buffer, 0..12);
        self.push(0, Call::Reserve { buffer: self.next_buffer, size: 12, mode: AllocationMode::Auto });
        self.push(0, Call::Write { target: view.clone(), content: Content::of(&[0xFF; 12]) });
        self.next_buffer += 1;
        view
    }

    /// Some units of a buffer.
    fn part(&mut self) -> Range<u64> {
        let start = self.below(SIZE / UNIT);
        let count = 1 + self.below(SIZE / UNIT - start);
        start * UNIT..(start + count) * UNIT
    }

    /// Every other unit, or every third, of what is left from one on.
    fn rows(&mut self, buffer: u32) -> View {
        let start = self.below(SIZE / UNIT - 1);
        let every = 2 + self.below(2);
        let count = (SIZE / UNIT - start).div_ceil(every);
        let rows = Rows { row: UNIT, outer: vec![(count, every * UNIT)] };
        View { rows: Some(rows), ..View::new(buffer, start * UNIT..SIZE) }
    }

    fn launch(&mut self, stream: u32, kernel: u32, buffers: Vec<View>, parameters: Vec<u8>) {
        let groups = buffers.first().map_or(0, |view| view.size().div_ceil(kernels::PART)) as u32;
        self.launch_over(stream, kernel, Counts::Static([groups, 1, 1]), buffers, parameters);
    }

    fn launch_over(&mut self, stream: u32, kernel: u32, counts: Counts, buffers: Vec<View>, parameters: Vec<u8>) {
        self.push(stream, Call::Launch(LaunchCall { kernel, counts, bounds: Bounds::Checked, buffers, parameters }));
    }

    fn step(&mut self) {
        let stream = self.below(self.recipe.streams.into()) as u32;
        let place = self.below(self.buffers.len() as u64) as usize;
        let other = self.below(self.buffers.len() as u64) as usize;
        let (a, b, part) = (self.buffers[place], self.buffers[other], self.part());
        let (target, source) = (View::new(a, part.clone()), View::new(b, part));
        match self.below(16) {
            0..=2 => self.launch(stream, SCRAMBLE, vec![target], Vec::new()),
            3 if a != b => self.push(stream, Call::Copy { source, target }),
            4 if a != b => self.launch(stream, CARRY, vec![source, target], Vec::new()),
            5 => {
                let length = 1usize << self.below(5);
                let bytes = [self.random.next().to_le_bytes(), self.random.next().to_le_bytes()].concat();
                if let Ok(pattern) = Pattern::new(&bytes[..length]) {
                    self.push(stream, Call::Fill { target, pattern });
                }
            }
            6 => {
                let content = Content::Random(self.random.next());
                self.push(stream, Call::Write { target, content });
            }
            7 => {
                let target = self.rows(a);
                let content = Content::Random(self.random.next());
                self.push(stream, Call::Write { target, content });
            }
            8 => {
                // Freed with its work queued, and another of the same size at once.
                let buffer = self.buffers.swap_remove(place);
                self.push(stream, Call::Free { buffer });
                self.create(stream);
            }
            9 => self.push(stream, Call::Flush),
            10 => {
                let (next, number) = ((stream + 1) % self.recipe.streams, self.program.steps.len() as u64);
                self.push(stream, Call::Wait { stream: next, number });
            }
            11 if a != b => {
                let late = self.below(2) == 1;
                match self.counts.clone() {
                    Some(counts) if late => {
                        self.launch_over(stream, CARRY, Counts::Dynamic(counts), vec![source, target], Vec::new());
                    }
                    _ if self.recipe.fails && !late => self.launch(stream, BROKEN, vec![source, target], Vec::new()),
                    _ => {}
                }
            }
            12 => {
                let parameters = self.random.next().to_le_bytes()[..4].to_vec();
                self.launch(stream, PUT, vec![target], parameters);
            }
            13 => {
                let rows = self.rows(b);
                self.push(stream, Call::Read { sources: vec![(target, None), (rows, None)] });
            }
            14 => self.push(stream, Call::Read { sources: vec![(target, None)] }),
            15 => self.push(stream, Call::Mark),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_a_program_and_follows_from_its_seed() {
        for seed in 0..50 {
            let (fails, fails_late, modes) = (seed % 2 == 0, seed % 5 == 0, seed % 3 == 0);
            let recipe = Recipe { seed, steps: 200, streams: 5, threads: 3, fails, fails_late, modes };
            let program = recipe.make();
            assert_eq!(program.check(), Ok(()));
            assert_eq!(program, recipe.make());
            assert_eq!(Program::parse(&program.to_string()), Ok(program));
        }
    }
}
