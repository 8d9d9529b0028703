//! What the lanes of a warp do together: barriers, shuffles, votes, matches and reductions.

use super::WARP;
use super::block::Block;
use super::thread::State;
use crate::codes::{Code, Fault};
use crate::ptx::inst::{Reduce, Shuffle, Together};
use crate::ptx::{Inst, Op};

impl<'a> Block<'a> {
    fn inst(&self, thread: usize) -> &'a Inst {
        let thread = &self.threads[thread];
        &self.function(thread).code[thread.pc]
    }

    fn stands_at(&self, thread: usize) -> (usize, usize) {
        (self.threads[thread].function, self.threads[thread].pc)
    }

    /// Carries out what the lanes of a warp have come together for; whether there was something.
    pub(super) fn meet_in_warp(&mut self, warp: usize) -> Result<bool, Fault> {
        let lanes = warp * WARP..((warp + 1) * WARP).min(self.threads.len());
        let mut progress = false;
        for thread in lanes.clone() {
            if self.threads[thread].state == State::Warp {
                progress |= self.meet(thread, lanes.start, lanes.end)?;
            }
        }
        // Which lanes come along is known once nobody else can still come.
        if !progress && lanes.clone().all(|thread| self.threads[thread].state != State::Running) {
            for thread in lanes.clone() {
                if self.threads[thread].state == State::Lanes {
                    self.tell_lanes(thread, lanes.start, lanes.end);
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    fn tell_lanes(&mut self, first: usize, start: usize, end: usize) {
        let at = self.stands_at(first);
        let group: Vec<usize> =
            (start..end).filter(|t| self.threads[*t].state == State::Lanes && self.stands_at(*t) == at).collect();
        let mask = group.iter().fold(0u64, |mask, thread| mask | 1 << (thread - start));
        let Op::ActiveMask { dst } = self.inst(first).op else { return };
        for thread in group {
            self.threads[thread].set(dst, mask);
            self.threads[thread].pc += 1;
            self.threads[thread].state = State::Running;
        }
    }

    /// Whether every lane that one waiting lane names has come; then they go on.
    fn meet(&mut self, first: usize, start: usize, end: usize) -> Result<bool, Fault> {
        let inst = self.inst(first);
        let Op::Warp { what, dst, src, negate, mask } = &inst.op else { return Ok(false) };
        let function = self.function(&self.threads[first]);
        let mask = self.value(&self.threads[first], function, *mask) as u32;
        if mask >> (first - start) & 1 == 0 {
            let what = format_args!("the mask 0x{mask:08x} of lanes does not name the lane itself");
            return Err(self.fault(&self.threads[first], inst.line, Code::ILLEGAL_INSTRUCTION, what));
        }
        let named: Vec<usize> = (start..end).filter(|thread| mask >> (thread - start) & 1 == 1).collect();
        if let Some(gone) = named.iter().find(|thread| self.threads[**thread].state == State::Done) {
            let what = format_args!("the mask 0x{mask:08x} names lane {}, which has ended", gone - start);
            return Err(self.fault(&self.threads[first], inst.line, Code::LAUNCH_FAILED, what));
        }
        let at = self.stands_at(first);
        if !named.iter().all(|thread| self.threads[*thread].state == State::Warp && self.stands_at(*thread) == at) {
            return Ok(false);
        }
        let read = |thread: usize, at: usize| self.value(&self.threads[thread], function, src[at]);
        let values: Vec<u64> = named.iter().map(|thread| read(*thread, 0)).collect();
        let says: Vec<bool> = values.iter().map(|value| (value & 1 == 1) != *negate).collect();
        let lane_bits = |chosen: &dyn Fn(usize) -> bool| {
            let chosen = named.iter().enumerate().filter(|(at, _)| chosen(*at));
            chosen.fold(0u64, |bits, (_, thread)| bits | 1 << (thread - start))
        };
        let answers: Vec<[u64; 2]> = named
            .iter()
            .enumerate()
            .map(|(at, thread)| match what {
                Together::Barrier => [0, 0],
                Together::All => [u64::from(says.iter().all(|says| *says)), 0],
                Together::Any => [u64::from(says.iter().any(|says| *says)), 0],
                Together::Uniform => [u64::from(says.iter().all(|other| *other == says[0])), 0],
                Together::Ballot => [lane_bits(&|at| says[at]), 0],
                Together::MatchAny(size) => {
                    [lane_bits(&|other| cut(values[other], *size) == cut(values[at], *size)), 0]
                }
                Together::MatchAll(size) => {
                    let same = values.iter().all(|value| cut(*value, *size) == cut(values[0], *size));
                    [if same { u64::from(mask) } else { 0 }, u64::from(same)]
                }
                Together::Reduce(reduce, signed) => [reduced(*reduce, *signed, &values), 0],
                Together::Elect => [(named[0] - start) as u64, u64::from(at == 0)],
                Together::Shuffle(mode) => {
                    let (source, valid) =
                        source_lane(*mode, thread - start, read(*thread, 1) as u32, read(*thread, 2) as u32);
                    // What a lane holds that does not take part is left open; hardware gives what it finds.
                    let place = named.iter().position(|other| other - start == source);
                    [cut(place.map_or(0xBAD0_BAD0, |place| values[place]), 4), u64::from(valid)]
                }
            })
            .collect();
        for (thread, answer) in named.iter().zip(answers) {
            let thread = &mut self.threads[*thread];
            if *what != Together::Barrier {
                thread.set(dst[0], answer[0]);
                thread.set(dst[1], answer[1]);
            }
            thread.pc += 1;
            thread.state = State::Running;
        }
        if *what == Together::Barrier {
            self.shared.order_warp(start / WARP);
        }
        Ok(true)
    }
}

fn cut(value: u64, size: u8) -> u64 {
    if size >= 8 { value } else { value & ((1 << (size * 8)) - 1) }
}

/// The lane a shuffle reads, and whether that lies within the segment; otherwise it reads its own.
fn source_lane(mode: Shuffle, lane: usize, by: u32, clamp: u32) -> (usize, bool) {
    let (lane, by) = (lane as i64, i64::from(by & 31));
    let (segment, clamp) = (i64::from(clamp >> 8 & 31), i64::from(clamp & 31));
    let most = (lane & segment) | (clamp & !segment);
    let least = lane & segment;
    let source = match mode {
        Shuffle::Up => lane - by,
        Shuffle::Down => lane + by,
        Shuffle::Butterfly => lane ^ by,
        Shuffle::Index => least | (by & !segment),
    };
    // Going up, the clamp is the lower end.
    let valid = if mode == Shuffle::Up { source >= most } else { source <= most };
    (if valid { source as usize } else { lane as usize }, valid)
}

fn reduced(reduce: Reduce, signed: bool, values: &[u64]) -> u64 {
    let words = values.iter().map(|value| *value as u32);
    u64::from(match reduce {
        Reduce::Add => words.fold(0u32, u32::wrapping_add),
        Reduce::And => words.fold(u32::MAX, |a, b| a & b),
        Reduce::Or => words.fold(0, |a, b| a | b),
        Reduce::Xor => words.fold(0, |a, b| a ^ b),
        Reduce::Min if signed => words.map(|word| word as i32).min().unwrap_or(0) as u32,
        Reduce::Max if signed => words.map(|word| word as i32).max().unwrap_or(0) as u32,
        Reduce::Min => words.min().unwrap_or(0),
        Reduce::Max => words.max().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::source_lane;
    use crate::ptx::inst::Shuffle;

    #[test]
    fn shuffles_stay_in_their_segment() {
        assert_eq!(source_lane(Shuffle::Down, 30, 1, 31), (31, true));
        assert_eq!(source_lane(Shuffle::Down, 31, 1, 31), (31, false));
        assert_eq!(source_lane(Shuffle::Up, 1, 1, 0), (0, true));
        assert_eq!(source_lane(Shuffle::Up, 0, 1, 0), (0, false));
        assert_eq!(source_lane(Shuffle::Butterfly, 5, 3, 31), (6, true));
        // Segments of eight lanes: the upper bits of the clamp are the segment's mask.
        let eight = (32 - 8) << 8 | 31;
        assert_eq!(source_lane(Shuffle::Down, 15, 1, eight), (15, false));
        assert_eq!(source_lane(Shuffle::Index, 13, 2, eight), (10, true));
    }
}
