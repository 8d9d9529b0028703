//! Barriers of a block: who waits, who arrived, and when they are let go.

use super::block::Block;
use super::thread::State;
use crate::memory::Access;
use crate::ptx::inst::Gather;
use crate::report::ReportKind;

/// Barriers a block has.
const BARRIERS: u32 = 16;

impl Block<'_> {
    /// Lets go the threads of every barrier that is complete; whether there was one.
    pub(super) fn meet_at_barriers(&mut self, access: &mut Access<'_>) -> bool {
        let mut progress = false;
        for id in 0..BARRIERS {
            let waiting: Vec<usize> = (0..self.threads.len())
                .filter(|thread| matches!(self.threads[*thread].state, State::Barrier { id: at, .. } if at == id))
                .collect();
            let Some(first) = waiting.first() else { continue };
            let State::Barrier { threads, .. } = self.threads[*first].state else { continue };
            // Threads that have ended are not waited for.
            let alive = self.threads.iter().filter(|thread| thread.state != State::Done).count() as u32;
            let here = waiting.len() as u32 + self.arrived.get(&id).copied().unwrap_or(0);
            if here >= threads.unwrap_or(alive) {
                self.arrived.remove(&id);
                self.release(id, &waiting, access);
                progress = true;
            }
        }
        progress
    }

    fn release(&mut self, id: u32, waiting: &[usize], access: &Access<'_>) {
        let first = &self.threads[waiting[0]];
        let other = waiting
            .iter()
            .map(|thread| &self.threads[*thread])
            .find(|thread| (thread.function, thread.pc) != (first.function, first.pc));
        if let Some(other) = other {
            let (name, here) = (access.name(), self.place(first, first.line));
            let there = self.place(other, other.line);
            let text = format!("kernel {name}: {here} and {there} wait at different instructions of barrier {id}");
            access.report(ReportKind::DivergentBarrier, text);
        }
        self.shared.order_block();
        let says: Vec<bool> = waiting.iter().filter_map(|thread| self.said.get(thread)).map(|said| said.0).collect();
        for index in waiting {
            if let Some((_, dst, gather)) = self.said.remove(index) {
                let count = says.iter().filter(|says| **says).count();
                let answer = match gather {
                    Gather::Nothing => 0,
                    Gather::Count => count as u64,
                    Gather::All => u64::from(count == says.len()),
                    Gather::Any => u64::from(count > 0),
                };
                self.threads[*index].set(dst, answer);
            }
            self.threads[*index].state = State::Running;
            self.threads[*index].pc += 1;
        }
    }
}
