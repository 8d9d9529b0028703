//! Which steps depend on which: for whoever issues the steps of a program from several threads.

use super::step::{Call, Counts, Program, Step, View};
use alloc::vec::Vec;
use trunnion_runtime_core::access::Access;

impl Program {
    /// Whether the device must accept one step after another, both given by their place, for the program to give what it gives in order:
    /// they use common bytes and one writes them, one makes or frees a buffer that the other uses, one waits for the other, or both are
    /// of one stream.
    pub fn must_follow(&self, later: usize, earlier: usize) -> bool {
        let (Some(after), Some(before)) = (self.steps.get(later), self.steps.get(earlier)) else { return false };
        if earlier >= later {
            return false;
        }
        if after.stream == before.stream {
            return true;
        }
        match &after.call {
            Call::Wait { stream, number } => *stream == before.stream && before.number <= *number,
            Call::Reserve { buffer, .. } | Call::Free { buffer } => touches(before, *buffer),
            _ => match &before.call {
                Call::Reserve { buffer, .. } | Call::Free { buffer } => touches(after, *buffer),
                _ => self.conflict(after, before),
            },
        }
    }

    fn conflict(&self, after: &Step, before: &Step) -> bool {
        let ours = self.uses(&after.call);
        let theirs = self.uses(&before.call);
        ours.iter().any(|(view, access)| {
            theirs.iter().any(|(other, their)| (access.writes() || their.writes()) && view.overlaps(other))
        })
    }

    /// The bytes a call uses, and how.
    pub fn uses<'a>(&self, call: &'a Call) -> Vec<(&'a View, Access)> {
        let mut uses = Vec::new();
        match call {
            Call::Write { target, .. } | Call::Fill { target, .. } => uses.push((target, Access::Overwrite)),
            Call::Read { sources } => uses.extend(sources.iter().map(|(view, _)| (view, Access::Read))),
            Call::Copy { source, target } => uses.extend([(source, Access::Read), (target, Access::Overwrite)]),
            Call::Launch(launch) => {
                if let Counts::Dynamic(view) = &launch.counts {
                    uses.push((view, Access::Read));
                }
                let kernel = self.kernels.get(launch.kernel as usize);
                let interface = kernel.map_or(&[][..], |kernel| &kernel.interface.buffers);
                uses.extend(launch.buffers.iter().zip(interface).map(|(view, buffer)| (view, buffer.access)));
            }
            Call::Reserve { .. }
            | Call::Free { .. }
            | Call::Mark
            | Call::Wait { .. }
            | Call::Outside
            | Call::Flush
            | Call::Lost { .. } => {}
        }
        uses
    }
}

fn touches(step: &Step, buffer: u32) -> bool {
    let mut touches = matches!(step.call, Call::Reserve { buffer: b, .. } | Call::Free { buffer: b } if b == buffer);
    step.call.views(|view| touches |= view.buffer == Some(buffer));
    touches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_on_common_bytes_of_which_one_is_written_follow_each_other() {
        let text = "trunnion-program 1\n\
            1 s0 reserve b0 64 auto\n\
            2 s1 fill b0[0..8] 00\n\
            3 s2 fill b0[8..16] 00\n\
            4 s3 read b0[0..8]\n\
            5 s4 read b0[0..16]\n\
            6 s5 copy b0[0..8] b0[16..24]\n\
            7 s6 wait s3 4\n\
            8 s7 free b0\n\
            9 s3 mark\n\
            end 9\n";
        let program = Program::parse(text).unwrap();
        let before = |later| (0..later).filter(|earlier| program.must_follow(later, *earlier)).collect::<Vec<_>>();
        let expected: [&[usize]; 9] = [&[], &[0], &[0], &[0, 1], &[0, 1, 2], &[0, 1], &[3], &[0, 1, 2, 3, 4, 5], &[3]];
        for (later, expected) in expected.iter().enumerate() {
            assert_eq!(before(later), *expected, "step {later}");
        }
        assert!(!program.must_follow(1, 3) && !program.must_follow(1, 1));
    }
}
