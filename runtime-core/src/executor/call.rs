//! Blocking calls: through the ring like everything else, and run by their caller where the lock is free.

use super::error::CallError;
use super::guarded::word_of;
use super::resident::Resident;
use super::ring::Ring;
use super::shared::{Patience, Shared};
use super::slot::{Answer, Waiting};
use crate::platform::{Backoff, Deadline, ThreadToken};

impl<T: Resident> Shared<T> {
    pub(super) fn call<R, F>(&self, call: F, deadline: &Deadline) -> Result<R, CallError>
    where
        R: Send + 'static,
        F: FnOnce(&mut T, u64) -> R + Send + 'static,
    {
        let me = word_of(ThreadToken::current());
        if self.state.is_held_by(me) {
            return Err(CallError::Reentrant);
        }
        let (waiting, reply) = self.slots.open::<R>();
        let entry = move |resident: &mut T, ticket: u64| reply.answer(|| call(resident, ticket));
        let ticket = self.push_any(move || entry, Patience::Caller(deadline))?;
        match self.wait(waiting, Ring::<T>::end_of(ticket), me, deadline)? {
            Answer::Returned(value) => Ok(value),
            Answer::Panicked(message) => Err(CallError::Panicked { message }),
            Answer::Closed => Err(CallError::Closed),
        }
    }

    /// Helps until the entry that ends at `until` is run, or waits for whoever runs it.
    fn wait<R>(
        &self,
        mut waiting: Waiting<'_, R>,
        until: u64,
        me: usize,
        deadline: &Deadline,
    ) -> Result<Answer<R>, CallError> {
        let mut backoff = Backoff::default();
        let mut spun = false;
        loop {
            let helped = self.help(me, until);
            if let Some(answer) = waiting.take() {
                return Ok(answer);
            }
            if deadline.expired() {
                // What is left in the ring is nobody's to run if the runner sleeps on.
                let late = waiting.give_up();
                self.awaken_runner();
                return late.ok_or_else(|| CallError::Timeout { waited: deadline.waited() });
            }
            if helped {
                continue;
            }
            if !spun {
                spun = true;
                self.spin_until(2 * self.spin, || waiting.is_answered() || self.state.is_free());
                continue;
            }
            if !self.park(&mut waiting, deadline) {
                backoff.wait();
            }
        }
    }

    /// Sleeps until answered or the deadline; `false` where nobody would end the sleep in time.
    #[cfg(feature = "std")]
    fn park<R>(&self, waiting: &mut Waiting<'_, R>, deadline: &Deadline) -> bool {
        // With the note left, whoever holds the lock rouses the runner as it lets go, and that runs our entry. If the
        // lock is free our entry waits for one before it, claimed and not published yet.
        let sleep = self.has_runner && !self.has_ended() && self.state.note();
        if sleep {
            waiting.park(deadline.remaining());
        }
        sleep
    }

    #[cfg(not(feature = "std"))]
    fn park<R>(&self, _waiting: &mut Waiting<'_, R>, _deadline: &Deadline) -> bool {
        false
    }

    /// Looks again and again, for `limit` or for a while where there is no clock; whether it came true.
    pub(super) fn spin_until(&self, limit: core::time::Duration, found: impl Fn() -> bool) -> bool {
        if cfg!(loom) {
            return found();
        }
        let deadline = Deadline::after(limit);
        loop {
            for _ in 0..32 {
                if found() {
                    return true;
                }
                core::hint::spin_loop();
            }
            if deadline.expired() {
                return false;
            }
            crate::platform::give_way();
        }
    }
}
