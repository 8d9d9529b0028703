//! Promises on their way to whoever waits: answered by the server inside, by the layer where that was not asked, or with the end.

use alloc::vec::Vec;
use core::time::Duration;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::Grant;
use trunnion_runtime_core::timeline::Moment;

/// A promise somebody waits for.
#[derive(Clone)]
pub(super) enum Owed {
    Read(Promise<Vec<Bytes>>),
    Signal(Promise<()>),
    Grant(Promise<Grant>),
}

impl Owed {
    pub(super) fn fail(&self, error: &Error, wakers: &mut Wakers) {
        match self {
            Self::Read(promise) => promise.fulfil(Err(error.clone()), wakers),
            Self::Signal(promise) => promise.fulfil(Err(error.clone()), wakers),
            Self::Grant(promise) => promise.fulfil(Err(error.clone()), wakers),
        }
    }

    fn is_given(&self) -> bool {
        match self {
            Self::Read(promise) => promise.is_given(),
            Self::Signal(promise) => promise.is_given(),
            Self::Grant(promise) => promise.is_given(),
        }
    }

    /// Hands its answer, if there is one, on to the promise it stands for.
    fn hand_on(&self, owed: &Owed, wakers: &mut Wakers) {
        fn give<T: Clone>(from: &Promise<T>, to: &Promise<T>, wakers: &mut Wakers) {
            if let Some(answer) = from.get() {
                to.fulfil(answer, wakers);
            }
        }
        match (self, owed) {
            (Self::Read(from), Self::Read(to)) => give(from, to, wakers),
            (Self::Signal(from), Self::Signal(to)) => give(from, to, wakers),
            (Self::Grant(from), Self::Grant(to)) => give(from, to, wakers),
            _ => {}
        }
    }
}

struct Debt {
    at: Moment,
    owed: Owed,
    /// What the server inside answers in its place, to be handed on later.
    stand: Option<Owed>,
    /// When the answer is handed on, once there is one.
    due: Option<Deadline>,
}

/// What is owed, in the order in which it was asked for.
#[derive(Default)]
pub(super) struct Owing(Vec<Debt>);

impl Owing {
    /// What was asked for at `at`; with the promise that stands for it inside, where that is another.
    pub(super) fn owe(&mut self, at: Moment, owed: Owed, stand: Option<Owed>) {
        self.0.push(Debt { at, owed, stand, due: None });
    }

    /// Forgets what was answered.
    pub(super) fn forget_given(&mut self) {
        self.0.retain(|debt| !debt.owed.is_given());
    }

    /// Hands on what is due; `draw` says how long each answer is kept, from when it is first seen. The highest number that was handed
    /// on, and how long until the next is due.
    pub(super) fn hand_on_due(
        &mut self,
        mut draw: impl FnMut() -> Deadline,
        wakers: &mut Wakers,
    ) -> (Option<u64>, Option<Duration>) {
        let (mut told, mut next): (Option<u64>, Option<Duration>) = (None, None);
        for i in 0..self.0.len() {
            // A stream's answers come in their order.
            let at = self.0[i].at;
            let is_next = !self.0[..i].iter().any(|before| before.at.stream == at.stream && !before.owed.is_given());
            let debt = &mut self.0[i];
            let Some(stand) = debt.stand.as_ref().filter(|stand| stand.is_given() && !debt.owed.is_given()) else {
                continue;
            };
            let due = debt.due.get_or_insert_with(&mut draw);
            if is_next && due.expired() {
                stand.hand_on(&debt.owed, wakers);
                told = told.max(Some(at.seq));
            } else if is_next && let Some(left) = due.remaining() {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        self.forget_given();
        (told, next)
    }

    /// Hands on every answer there is, up to a moment of a stream.
    pub(super) fn hand_on_up_to(&mut self, at: Moment, wakers: &mut Wakers) {
        let before = |debt: &&Debt| debt.at.stream == at.stream && debt.at.seq <= at.seq;
        for debt in self.0.iter().filter(before) {
            if let Some(stand) = &debt.stand {
                stand.hand_on(&debt.owed, wakers);
            }
        }
    }

    /// Hands on every answer there is.
    pub(super) fn hand_on_all(&mut self, wakers: &mut Wakers) {
        for debt in &self.0 {
            if let Some(stand) = &debt.stand {
                stand.hand_on(&debt.owed, wakers);
            }
        }
    }

    /// Answers everything with this.
    pub(super) fn fail_all(&mut self, error: &Error, wakers: &mut Wakers) {
        for debt in self.0.drain(..) {
            debt.owed.fail(error, wakers);
        }
    }
}
