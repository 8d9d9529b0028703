//! A context: the streams of a program on a device, and what its work died of.

use alloc::sync::Arc;
use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use crate::codes::{Code, Fault, Outcome};
use crate::device::Device;
use crate::driver::driver;
use crate::handles;
use crate::memory::Visitor;
use crate::report::{ReportKind, Reports};
use crate::stream::Stream;
use crate::sync::lock;

/// A context. Equivalent to: `CUcontext`.
pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) device: Arc<Device>,
    pub(crate) is_primary: bool,
    /// The code that every call gives since work failed; zero for none.
    broken: AtomicU32,
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Streams that were destroyed and had work to do then.
    ending: Mutex<Vec<Arc<Stream>>>,
    /// Held while work is accepted, so that streams that wait for each other agree on the order.
    pub(crate) accepting: Mutex<()>,
    /// Contexts of other devices whose memory kernels of this one may touch.
    peers: Mutex<HashSet<usize>>,
}

impl Context {
    pub(crate) fn new(device: Arc<Device>, is_primary: bool) -> Arc<Self> {
        let context = Arc::new(Self {
            handle: handles::fresh(),
            device,
            is_primary,
            broken: AtomicU32::new(0),
            streams: Mutex::default(),
            ending: Mutex::default(),
            accepting: Mutex::default(),
            peers: Mutex::default(),
        });
        // The stream without a name comes first.
        context.add_stream(true, 0);
        driver().contexts.keep(context.handle, context.clone());
        context
    }

    pub(crate) fn add_stream(self: &Arc<Self>, is_blocking: bool, priority: i32) -> Arc<Stream> {
        let stream = Stream::new(self.clone(), is_blocking, priority);
        lock(&self.streams).push(stream.clone());
        driver().streams.keep(stream.handle, stream.clone());
        stream
    }

    pub(crate) fn remove_stream(&self, stream: &Arc<Stream>) {
        lock(&self.streams).retain(|known| !Arc::ptr_eq(known, stream));
        let mut ending = lock(&self.ending);
        ending.retain(|ended| !ended.is_idle());
        ending.push(stream.clone());
    }

    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).clone()
    }

    /// The stream that a null handle means. Equivalent to: `CU_STREAM_LEGACY`.
    pub(crate) fn legacy_stream(&self) -> Outcome<Arc<Stream>> {
        lock(&self.streams).first().cloned().ok_or(Code::INVALID_CONTEXT)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire) != 0
    }

    /// The error every call gives, if work failed.
    pub(crate) fn check(&self) -> Outcome {
        match self.broken.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    /// Work failed: everything after it fails too. The first failure is the one that is told.
    pub(crate) fn fail(&self, fault: &Fault) {
        self.device.report(ReportKind::Fault, format!("{}: {}", fault.code.0, fault.why));
        self.break_with(fault.code);
    }

    /// Lets every call give a code from here on.
    pub(crate) fn break_with(&self, code: Code) {
        let _ = self.broken.compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Makes the context whole again, which no real one does but by being made anew.
    pub(crate) fn mend(&self) {
        self.broken.store(0, Ordering::Release);
    }

    /// Waits until everything accepted so far is done.
    pub(crate) fn wait(&self) {
        let ending = lock(&self.ending).clone();
        for stream in self.streams().into_iter().chain(ending) {
            stream.wait();
        }
        self.device.current_pool().settle(&self.device);
        self.device.default_pool().settle(&self.device);
    }

    pub(crate) fn enable_peer(&self, other: usize) -> Outcome {
        if lock(&self.peers).insert(other) { Ok(()) } else { Err(Code::PEER_ACCESS_ALREADY_ENABLED) }
    }

    pub(crate) fn disable_peer(&self, other: usize) -> Outcome {
        if lock(&self.peers).remove(&other) { Ok(()) } else { Err(Code::PEER_ACCESS_NOT_ENABLED) }
    }

    /// Ends every stream. What they still have to do is done first.
    pub(crate) fn close(&self) {
        for stream in core::mem::take(&mut *lock(&self.streams)) {
            stream.close();
            let _ = driver().streams.remove(stream.handle);
        }
        let _ = driver().contexts.remove(self.handle);
    }
}

impl Visitor for Context {
    fn device(&self) -> u32 {
        self.device.ordinal
    }

    fn reaches(&self, context: usize) -> bool {
        lock(&self.peers).contains(&context)
    }

    fn reaches_pool(&self, pool: usize) -> bool {
        driver().pool(pool).is_ok_and(|pool| pool.is_open_to(self.device.ordinal))
    }

    fn reports(&self) -> &Reports {
        &self.device.reports
    }
}

thread_local! {
    /// The contexts of this thread, the current one last. Zero stands for none.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// The stream each context has for this thread alone.
    static OWN_STREAMS: RefCell<HashMap<usize, usize>> = RefCell::new(HashMap::new());
}

/// The handle of this thread's context; zero for none.
pub(crate) fn current_handle() -> usize {
    CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// This thread's context, whole or broken.
pub(crate) fn current_or_broken() -> Outcome<Arc<Context>> {
    driver().contexts.get(current_handle()).map_err(|_| Code::INVALID_CONTEXT)
}

/// This thread's context; the error its work died of, if it did.
pub(crate) fn current() -> Outcome<Arc<Context>> {
    let context = current_or_broken()?;
    context.check()?;
    Ok(context)
}

/// Puts another context in the place of this thread's.
pub(crate) fn set_current(handle: usize) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(handle);
    });
}

pub(crate) fn push_current(handle: usize) {
    CURRENT.with_borrow_mut(|stack| stack.push(handle));
}

/// Takes this thread's context away; the one before counts again.
pub(crate) fn pop_current() -> Outcome<usize> {
    CURRENT.with_borrow_mut(Vec::pop).filter(|handle| *handle != 0).ok_or(Code::INVALID_CONTEXT)
}

/// This thread's own stream of a context. Equivalent to: `CU_STREAM_PER_THREAD`.
pub(crate) fn own_stream(context: &Arc<Context>) -> Outcome<Arc<Stream>> {
    OWN_STREAMS.with_borrow_mut(|streams| {
        if let Some(stream) = streams.get(&context.handle).and_then(|handle| driver().streams.get(*handle).ok()) {
            return Ok(stream);
        }
        let stream = context.add_stream(true, 0);
        streams.insert(context.handle, stream.handle);
        Ok(stream)
    })
}
