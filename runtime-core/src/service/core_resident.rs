//! What a device's executor holds: its server, and the memory nobody holds any more.

use super::Shared;
use crate::error::Error;
use crate::executor::{Resident, Wakers};
use crate::platform::Deadline;
use crate::server::Server;
use crate::timeline::Moment;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use core::time::Duration;

/// The server with what it shares with its clients.
pub(crate) struct Core {
    pub(crate) server: Box<dyn Server>,
    shared: Arc<Shared>,
}

impl Core {
    pub(super) fn new(server: Box<dyn Server>, shared: Arc<Shared>) -> Self {
        Self { server, shared }
    }

    /// Frees what nobody holds any more.
    #[inline]
    pub(crate) fn free_dropped(&mut self) {
        if self.shared.handles.any_dropped() {
            let server = &mut self.server;
            self.shared.handles.free_dropped(|memory| server.free(memory));
        }
    }

    /// An access is over.
    pub(super) fn close_access(&mut self, at: Moment, failure: Option<Error>) {
        if let Some(server) = self.server.access() {
            server.close(at, failure);
        }
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
        let Self { server, shared } = self;
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
