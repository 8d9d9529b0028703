//! Memory and events of somebody else: taken as a reservation, a wait and a mark are.

use super::FaultInjector;
use super::failing::Doomed;
use super::plan::FaultKind;
use crate::inside::ask_foreign;
use crate::operation::Operation;
use alloc::sync::Arc;
use core::any::Any;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::server::{ForeignServer, Region, Server};
use trunnion_runtime_core::timeline::Moment;

impl<S: Server + ?Sized> ForeignServer for FaultInjector<S> {
    fn import(&mut self, at: Moment, memory: &Handle, foreign: &Foreign) -> Result<()> {
        self.is_lost()?;
        self.service.get_or_insert(memory.service());
        let fault = self.turn(Operation::Reserve, at);
        match fault {
            None => ask_foreign(&mut *self.inside, |inside| inside.import(at, memory, foreign)),
            // It is there, and what comes of it is known later.
            Some(kind @ (FaultKind::Late | FaultKind::Never)) => {
                ask_foreign(&mut *self.inside, |inside| inside.import(at, memory, foreign))?;
                self.fail_reservation(at, memory, kind);
                Ok(())
            }
            Some(kind) => {
                let whole = Region::whole(memory);
                self.refuse_call(kind, Doomed::new(Operation::Reserve, at).uses(&whole, Access::Overwrite))
            }
        }
    }

    fn import_event(&mut self, at: Moment, event: &Foreign) -> Result<()> {
        self.is_lost()?;
        match self.turn(Operation::Wait, at) {
            None | Some(FaultKind::Late) => ask_foreign(&mut *self.inside, |inside| inside.import_event(at, event)),
            Some(FaultKind::Never) => {
                self.passes(Some(FaultKind::Never), Doomed::new(Operation::Wait, at));
                Ok(())
            }
            Some(kind) => self.refuse_call(kind, Doomed::new(Operation::Wait, at)),
        }
    }

    fn export_event(&mut self, at: Moment) -> Result<Arc<dyn Any + Send + Sync>> {
        self.is_lost()?;
        match self.turn(Operation::Mark, at) {
            None | Some(FaultKind::Late | FaultKind::Never) => {
                ask_foreign(&mut *self.inside, |inside| inside.export_event(at))
            }
            Some(kind) => {
                self.refuse_call(kind, Doomed::new(Operation::Mark, at))?;
                ask_foreign(&mut *self.inside, |inside| inside.export_event(at))
            }
        }
    }
}

impl<S: Server + ?Sized> FaultInjector<S> {
    /// A call that answers at once fails, with nothing asked inside.
    fn refuse_call(&mut self, kind: FaultKind, doomed: Doomed<'_>) -> Result<()> {
        match kind {
            FaultKind::Lost => {
                self.passes(Some(kind), doomed);
                self.is_lost()
            }
            FaultKind::Panic => self.panic_on_purpose(doomed.operation),
            kind => Err(self.error_of(kind, &doomed)),
        }
    }
}
