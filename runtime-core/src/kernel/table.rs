//! The kernels of one server: which are known, and which slots are free again.

use super::{Kernel, KernelHandle, KernelId, KernelReader};
use crate::error::{Error, Result};
use crate::executor::let_go;
use crate::id::ServiceId;
use crate::properties::DeviceProperties;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use hashbrown::HashMap;

/// How many functions that nobody holds are remembered.
const IDLE: usize = 256;

/// Kernels are remembered, so that their code is found again by their id. Those whose content tells them apart stay as long as the
/// server. A function that nobody holds, and what it captured, goes when a few hundred others were prepared after it: a program that
/// makes a new one again and again does not grow.
#[derive(Default)]
pub(crate) struct KernelTable {
    state: spin::Mutex<State>,
    any_retired: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Nothing more is remembered.
    closed: bool,
    known: HashMap<KernelId, Known>,
    /// Functions that nobody may hold: those found so when last looked through, and those prepared since.
    functions: usize,
    /// Counts the preparations.
    clock: u64,
    /// Slots given out so far.
    slots: u32,
    free: Vec<u32>,
    retired: Vec<u32>,
}

struct Known {
    handle: KernelHandle,
    used: u64,
}

impl State {
    fn find(&mut self, id: KernelId) -> Option<KernelHandle> {
        self.clock += 1;
        let known = self.known.get_mut(&id)?;
        known.used = self.clock;
        Some(known.handle.clone())
    }

    /// Takes out the functions that nobody holds, but for the later half of what may be kept, when there are too many.
    fn evict(&mut self) -> Vec<Known> {
        let idle = |id: &KernelId, known: &Known| id.is_unique() && Arc::strong_count(&known.handle.0) == 1;
        if self.functions <= IDLE {
            return Vec::new();
        }
        let mut ages: Vec<u64> =
            self.known.iter().filter(|(id, known)| idle(id, known)).map(|(_, known)| known.used).collect();
        // Looked through again only when as many more were prepared: the search is paid for by those.
        self.functions = ages.len().min(IDLE / 2);
        if ages.len() <= IDLE / 2 {
            return Vec::new();
        }
        ages.sort_unstable();
        let oldest_kept = ages[ages.len() - IDLE / 2];
        self.known.extract_if(|id, known| idle(id, known) && known.used < oldest_kept).map(|(_, known)| known).collect()
    }
}

/// A kernel's slot; free again, once the server has heard of it, when this is dropped.
pub(super) struct Slot {
    pub(super) index: u32,
    pub(super) table: Weak<KernelTable>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.state.lock().retired.push(self.index);
            table.any_retired.store(true, Ordering::Release);
        }
    }
}

impl KernelTable {
    /// The handle of a kernel: the one it was prepared as before, else a new one. [`Error::ShutDown`] once it is closed.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        kernel: Arc<dyn Kernel>,
        properties: &DeviceProperties,
        reader: &dyn KernelReader,
        service: ServiceId,
    ) -> Result<KernelHandle> {
        let id = kernel.id();
        let known = self.state.lock().find(id);
        if let Some(known) = known {
            return Ok(known);
        }
        // Reading a source may take long, so it is done without the lock; of two threads that do it at once, one is heard.
        let checked = KernelHandle::check(kernel, properties, reader, service)?;
        let mut state = self.state.lock();
        if let Some(known) = state.find(id) {
            return Ok(known);
        }
        if state.closed {
            return Err(Error::ShutDown { service });
        }
        let index = state.free.pop().unwrap_or(state.slots);
        state.slots = state.slots.max(index + 1);
        let handle = checked(Slot { index, table: Arc::downgrade(self) });
        let used = state.clock;
        state.known.insert(id, Known { handle: handle.clone(), used });
        state.functions += usize::from(id.is_unique());
        let evicted = state.evict();
        drop(state);
        // Dropping a kernel gives its slot back, and drops what a function captured: without the lock.
        let_go(evicted);
        Ok(handle)
    }

    /// Forgets every kernel, and remembers none from here on: a function may hold a client, and so what keeps this table.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let known = core::mem::take(&mut state.known);
        drop(state);
        // As when some are evicted: without the lock.
        let_go(known);
    }

    /// Every kernel that is remembered, by slot.
    pub(crate) fn prepared(&self) -> Vec<KernelHandle> {
        let mut all: Vec<_> = self.state.lock().known.values().map(|known| known.handle.clone()).collect();
        all.sort_by_key(KernelHandle::slot);
        all
    }

    /// Takes the kernels that are gone and calls `retire` with the slot of each, which may be given out again afterwards.
    pub(crate) fn retire(&self, mut retire: impl FnMut(u32)) {
        if !self.any_retired.load(Ordering::Relaxed) || !self.any_retired.swap(false, Ordering::Acquire) {
            return;
        }
        let retired = core::mem::take(&mut self.state.lock().retired);
        retired.iter().for_each(|slot| retire(*slot));
        self.state.lock().free.extend(retired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elem::ElemType;
    use crate::error::SourceForm;
    use crate::id::{BackendName, DeviceId};
    use crate::kernel::{DeclaredInterface, Interface, Source, SourceKernel, TensorMap};
    use crate::properties::{DeviceInfo, DeviceKind, Features, Limits, TargetProperties};
    use alloc::string::ToString;

    fn prepare(table: &Arc<KernelTable>, kernel: SourceKernel) -> KernelHandle {
        try_prepare(table, kernel).unwrap()
    }

    fn try_prepare(table: &Arc<KernelTable>, kernel: SourceKernel) -> Result<KernelHandle> {
        let device = DeviceId { backend: BackendName::new("test").unwrap(), index: 0 };
        let properties = DeviceProperties::new(
            DeviceInfo::new(device, DeviceKind::Other, "", "", ""),
            Features::new(Vec::new(), Vec::new()),
            Limits::default(),
            TargetProperties::new("", 16, 1),
        );
        let reader = DeclaredInterface(alloc::vec![SourceForm::Host, SourceForm::Wgsl]);
        table.prepare(Arc::new(kernel), &properties, &reader, ServiceId::new())
    }

    fn function() -> SourceKernel {
        SourceKernel::new("function", Interface::new()).source(Source::host(|_| Ok(())))
    }

    fn text(name: &str) -> SourceKernel {
        SourceKernel::new(name, Interface::new()).source(Source::wgsl("fn main() {}"))
    }

    #[test]
    fn a_kernel_is_prepared_once_by_its_id() {
        let table = Arc::new(KernelTable::default());
        let function = function();
        let slot = prepare(&table, function.clone()).slot();
        assert_eq!(prepare(&table, function.clone()).slot(), slot);
        assert_ne!(prepare(&table, self::function()).slot(), slot);
        assert_ne!(prepare(&table, text("a")).slot(), prepare(&table, text("b")).slot());
    }

    #[test]
    fn a_device_that_reads_no_source_refuses_a_kernel_that_declares_nothing() {
        let error = try_prepare(&Arc::default(), SourceKernel::wgsl("k", "")).unwrap_err();
        let why = "it declares no interface, and this device does not read one from its source";
        assert_eq!(error, Error::InvalidKernel { kernel: "k".into(), why: why.into() });
    }

    #[test]
    fn a_device_without_tensor_maps_refuses_a_kernel_that_has_one() {
        let interface = Interface::new().read().parameters(8).tensor_map(TensorMap::new(0, ElemType::F32, [4]));
        let kernel = SourceKernel::new("k", interface).source(Source::wgsl("text"));
        let error = try_prepare(&Arc::default(), kernel).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { what, .. } if what == "a kernel with tensor maps"), "{error}");
    }

    #[test]
    fn a_constant_that_is_not_finite_is_refused_and_others_are_the_handles() {
        let table = Arc::new(KernelTable::default());
        let error = try_prepare(&table, text("k").constant("scale", f64::INFINITY)).unwrap_err();
        assert_eq!(error.to_string(), "kernel `k`: constant `scale` is inf, which is not finite");
        assert_eq!(prepare(&table, text("k").constant("scale", 0.5)).constants(), [("scale".into(), 0.5)]);
    }

    #[test]
    fn functions_made_again_and_again_use_slots_again() {
        let table = Arc::new(KernelTable::default());
        let held: Vec<_> = (0..10).map(|_| prepare(&table, function())).collect();
        let kept = prepare(&table, text("a")).slot();
        for _ in 0..20 * IDLE {
            let slot = prepare(&table, function()).slot();
            assert!(slot as usize <= 2 * IDLE + 11, "slot {slot}");
            table
                .retire(|slot| assert!(slot != kept && held.iter().all(|handle| handle.slot() != slot), "slot {slot}"));
        }
        assert_eq!(prepare(&table, text("a")).slot(), kept);
    }

    #[test]
    fn what_is_remembered_goes_with_the_table() {
        let (captured, table) = (Arc::new(()), Arc::new(KernelTable::default()));
        let inside = captured.clone();
        let kernel = SourceKernel::new("f", Interface::new()).source(Source::host(move |_| {
            let _ = &inside;
            Ok(())
        }));
        let handle = prepare(&table, kernel);
        drop(table);
        assert_eq!(Arc::strong_count(&captured), 2);
        drop(handle);
        assert_eq!(Arc::strong_count(&captured), 1);
    }
}
