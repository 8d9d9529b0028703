//! What is decided about a launch when it is issued: its mode, who records it, and what is compiled later.
//!
//! A launch looks at two counters, and no further where both are zero.

use crate::error::{Error, Result};
use crate::executor::let_go;
use crate::id::{ServiceId, StreamId};
use crate::kernel::{KernelHandle, KernelId, LaunchMode, LaunchedKernel};
use crate::server::Bounds;
use crate::sync::AtomicU64;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use hashbrown::HashMap;

/// What is compiled later.
#[derive(Default)]
struct Queued {
    /// By slot and bounds.
    kernels: HashMap<(u32, Bounds), KernelHandle>,
    has_ended: bool,
}

/// What a device has to look at when a launch is issued.
#[derive(Default)]
pub(crate) struct Launches {
    /// How many scopes of the device's streams, and recorders, are open.
    watching: AtomicUsize,
    recordings: spin::Mutex<Vec<Recording>>,
    /// What was queued to be compiled.
    queued: spin::Mutex<Queued>,
}

impl Launches {
    /// Whether a launch of this device is anything but usual. No order is asked of the counters: who opened a scope or a recorder sees it
    /// on this thread, and on others by what told them of it.
    #[inline(always)]
    pub(crate) fn are_watched(&self) -> bool {
        self.watching.load(Ordering::Relaxed) | OF_PROCESS.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn watch(&self) {
        self.watching.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unwatch(&self) {
        self.watching.fetch_sub(1, Ordering::Relaxed);
    }
}

// ---- scopes

/// Which launches a scope of a launch mode reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Those of every stream of every device.
    Process,
    /// Those of one stream of one device.
    Stream(ServiceId, StreamId),
}

impl Reach {
    fn meets(self, other: Self) -> bool {
        self == other || self == Self::Process || other == Self::Process
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("the process"),
            Self::Stream(service, stream) => write!(f, "{stream} of {service}"),
        }
    }
}

/// The open scopes, of all devices: the mode by what they reach, and how many there are. Those that meet have one mode.
static SCOPES: spin::Mutex<BTreeMap<Reach, (LaunchMode, usize)>> = spin::Mutex::new(BTreeMap::new());

/// How many scopes of the process are open.
static OF_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// Opens a scope, unless an open one of another mode reaches some of the same launches.
pub(crate) fn open_scope(reach: Reach, mode: LaunchMode) -> Result<()> {
    let mut scopes = SCOPES.lock();
    if let Some((by, (open, _))) = scopes.iter().find(|(other, (open, _))| reach.meets(**other) && *open != mode) {
        return Err(Error::LaunchModeConflict {
            asked: mode,
            of: reach.to_string().into(),
            open: *open,
            by: by.to_string().into(),
        });
    }
    scopes.entry(reach).or_insert((mode, 0)).1 += 1;
    if reach == Reach::Process {
        OF_PROCESS.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Closes an open scope.
pub(crate) fn close_scope(reach: Reach) {
    let mut scopes = SCOPES.lock();
    let Some((_, open)) = scopes.get_mut(&reach) else { return };
    *open -= 1;
    if *open == 0 {
        scopes.remove(&reach);
    }
    if reach == Reach::Process {
        OF_PROCESS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The mode of a launch that is issued now.
pub(crate) fn mode_of(service: ServiceId, stream: StreamId) -> LaunchMode {
    let scopes = SCOPES.lock();
    let open = scopes.get(&Reach::Process).or_else(|| scopes.get(&Reach::Stream(service, stream)));
    open.map_or(LaunchMode::Execute, |(mode, _)| *mode)
}

// ---- recorders

/// What a recorder has seen.
struct Recording {
    number: u64,
    /// In the order of the first launches.
    kernels: Vec<LaunchedKernel>,
    places: HashMap<(KernelId, LaunchMode), usize>,
}

impl Launches {
    /// Begins a recording; the number names it.
    pub(crate) fn start_recording(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.recordings.lock().push(Recording { number, kernels: Vec::new(), places: HashMap::new() });
        self.watch();
        number
    }

    /// What a recording has so far.
    pub(crate) fn recorded(&self, number: u64) -> Vec<LaunchedKernel> {
        let recordings = self.recordings.lock();
        recordings.iter().find(|recording| recording.number == number).map(|r| r.kernels.clone()).unwrap_or_default()
    }

    /// Ends a recording, unless it has ended.
    pub(crate) fn end_recording(&self, number: u64) -> Vec<LaunchedKernel> {
        let mut recordings = self.recordings.lock();
        let Some(place) = recordings.iter().position(|recording| recording.number == number) else { return Vec::new() };
        self.unwatch();
        recordings.swap_remove(place).kernels
    }

    /// Notes a launch that was accepted in every open recording.
    pub(crate) fn note(&self, kernel: &KernelHandle, mode: LaunchMode) {
        for recording in self.recordings.lock().iter_mut() {
            let Recording { kernels, places, .. } = recording;
            let place = *places.entry((kernel.id(), mode)).or_insert_with(|| {
                kernels.push(LaunchedKernel { name: kernel.name().into(), id: kernel.id(), mode, launches: 0 });
                kernels.len() - 1
            });
            kernels[place].launches += 1;
        }
    }
}

// ---- what is compiled later

impl Launches {
    /// Puts a kernel on the list of those to be compiled, unless it is there.
    pub(crate) fn queue(&self, kernel: &KernelHandle, bounds: Bounds) {
        let mut queued = self.queued.lock();
        if !queued.has_ended {
            queued.kernels.entry((kernel.slot(), bounds)).or_insert_with(|| kernel.clone());
        }
    }

    /// What is on the list: it stays there.
    pub(crate) fn queued(&self) -> Vec<(KernelHandle, Bounds)> {
        self.queued.lock().kernels.iter().map(|((_, bounds), kernel)| (kernel.clone(), *bounds)).collect()
    }

    /// The device has ended: empties the list, and takes no kernel from here on.
    pub(crate) fn end(&self) {
        let kernels = {
            let mut queued = self.queued.lock();
            queued.has_ended = true;
            core::mem::take(&mut queued.kernels)
        };
        // As below: without the lock.
        let_go(kernels);
    }

    /// Takes what was compiled off the list.
    pub(crate) fn unqueue(&self, compiled: &[(KernelHandle, Bounds)]) {
        // What is dropped, with what a function captured, is dropped without the lock.
        let mut gone = Vec::with_capacity(compiled.len());
        let mut queued = self.queued.lock();
        gone.extend(compiled.iter().filter_map(|(kernel, bounds)| queued.kernels.remove(&(kernel.slot(), *bounds))));
        drop(queued);
        let_go(gone);
    }
}
