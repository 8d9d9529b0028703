//! What a device's executor holds: its server, and the memory nobody holds any more.

use super::{Owed, Shared};
use crate::access::Access;
use crate::allocation::AllocationMode;
use crate::error::{Error, Result, Rung};
use crate::executor::{Resident, Wakers};
use crate::foreign::Foreign;
use crate::handle::Handle;
use crate::platform::Deadline;
use crate::pressure::{MemoryPressure, PressureAnswer, RETRIES};
use crate::server::{ForeignServer, Grant, RecordingServer, Server};
use crate::timeline::Moment;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

/// The server with what it shares with its clients.
pub(crate) struct Core {
    pub(crate) server: Box<dyn Server>,
    shared: Arc<Shared>,
    /// The latest access in place that was asked for.
    asked: u64,
    /// Accesses that were over before they were asked for: where the queue is full, the end of one overtakes its beginning.
    over: Vec<Moment>,
}

impl Core {
    pub(super) fn new(server: Box<dyn Server>, shared: Arc<Shared>) -> Self {
        Self { server, shared, asked: 0, over: Vec::new() }
    }

    /// Frees what nobody holds any more.
    #[inline]
    pub(crate) fn free_dropped(&mut self) {
        if self.shared.handles.any_dropped() {
            let server = &mut self.server;
            self.shared.handles.free_dropped(|memory| server.free(memory));
        }
    }

    /// Reserves memory; what was dropped before this request is free for it. A request made inside a hook asks no hook, also when it is
    /// carried out after that.
    #[inline]
    pub(crate) fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode, is_of_hook: bool) {
        self.free_dropped();
        if !is_of_hook && self.shared.hooks.any() {
            self.reserve_with_hooks(at, memory, mode);
        } else {
            self.server.reserve(at, memory, mode);
        }
    }

    /// Where there is no memory, whoever has a hook may give something back and have the request tried again.
    #[cold]
    fn reserve_with_hooks(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        let mut attempt = 0;
        loop {
            let Err(mut error) = self.server.try_reserve(at, memory, mode) else { return };
            let may_help = matches!(error, Error::OutOfMemory(_)) && attempt < RETRIES;
            let asked = may_help
                .then(|| self.shared.hooks.ask(&MemoryPressure::new(memory.allocation_size(), &error, attempt)))
                .flatten();
            if asked != Some(PressureAnswer::Retry) {
                if let Error::OutOfMemory(numbers) = &mut error
                    && (asked.is_some() || attempt > 0)
                {
                    numbers.tried.push(Rung::Hook);
                }
                return self.server.refuse(at, memory, error);
            }
            attempt += 1;
            self.free_dropped();
        }
    }

    /// Asks what records the memory, where the server has that, and notes whether it does.
    pub(crate) fn ask_recording<T>(&mut self, ask: impl FnOnce(&mut dyn RecordingServer) -> T) -> Option<T> {
        let recording = self.server.memory()?.recording()?;
        let answer = ask(recording);
        self.shared.is_recording.store(recording.is_recording(), Ordering::Relaxed);
        Some(answer)
    }

    /// An access in place is asked for; answered with `unsupported` where the server has none.
    pub(crate) fn open_access(
        &mut self,
        at: Moment,
        target: &Handle,
        access: Access,
        granted: Owed<Grant>,
        unsupported: Error,
    ) {
        self.asked = at.seq;
        if let Some(i) = self.over.iter().position(|over| *over == at) {
            // Nobody waits for it any more, and nobody would end it.
            self.over.swap_remove(i);
            return;
        }
        match self.server.access() {
            Some(server) => server.open(at, target, access, granted.hand_over()),
            None => granted.fail(unsupported),
        }
    }

    /// An access is over.
    pub(super) fn close_access(&mut self, at: Moment, failure: Option<Error>) {
        if at.seq > self.asked {
            self.over.push(at);
        } else if let Some(server) = self.server.access() {
            server.close(at, failure);
        }
    }

    /// Hands the server something that is somebody else's; what it does not keep is let go of when the device is released.
    pub(crate) fn ask_foreign<T>(
        &mut self,
        foreign: Foreign,
        unsupported: Error,
        ask: impl FnOnce(&mut dyn ForeignServer, &Foreign) -> Result<T>,
    ) -> Result<T> {
        self.free_dropped();
        let answer = self.server.foreign().map_or(Err(unsupported), |server| ask(server, &foreign));
        self.shared.leave_late(|late| foreign.let_go(&mut late.wakers));
        answer
    }

    /// Lets every caller know when the device has failed.
    #[inline]
    pub(crate) fn note_fault(&self) {
        if let Some(fault) = self.server.fault()
            && !self.shared.ended.load(Ordering::Relaxed)
        {
            self.shared.end(fault.clone());
        }
    }
}

impl Resident for Core {
    fn enter(&mut self) {
        self.server.enter();
    }

    fn progress(&mut self) {
        self.server.progress();
    }

    fn leave(&mut self) -> Wakers {
        self.free_dropped();
        let Self { server, shared, .. } = self;
        shared.kernels.retire(|slot| server.retire_kernel(slot));
        self.note_fault();
        let late = self.shared.take_late();
        let Some(mut late) = late else { return self.server.leave() };
        late.closed.into_iter().for_each(|(at, failure)| self.close_access(at, failure));
        late.wakers.extend(self.server.leave());
        late.wakers
    }

    fn panicked(&mut self, ticket: u64, message: &str) {
        self.server.panicked(ticket, message);
    }

    fn closing(&mut self) {
        let deadline = self.shared.shutdown.lock().take().unwrap_or_else(|| Deadline::after(Duration::ZERO));
        self.free_dropped();
        let abandoned = self.server.shutdown(&deadline);
        self.shared.abandoned.store(abandoned, Ordering::Relaxed);
    }
}
