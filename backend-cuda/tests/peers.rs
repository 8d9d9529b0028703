//! Memory of one device that another one uses where it is, however it was made, and devices that do not reach each other.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Context, Gate, PATIENCE, assert_clean, claim, done, double, eventually, raw, within};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use trunnion_backend_cuda::{CudaBackend, CudaEvent, CudaImport, CudaOptions, CudaResource};
use trunnion_cuda_double::Device;
use trunnion_cuda_raw::{Address, Handle as Raw, Pieces};
use trunnion_driver_rig::clients::{bytes, words};
use trunnion_driver_rig::transfers::counting;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::kernel::{Interface, KernelHandle, Source, SourceKernel};
use trunnion_runtime_core::service::Settings;
use trunnion_runtime_core::timeline::Point;

const BYTES: usize = 4096;
const WORDS: usize = BYTES / 4;
const GRANULARITY: usize = 2 << 20;

/// `y[i] += x[i]`, as the compiler would write it for `add(const unsigned *x, unsigned *y)`.
const ADD: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 add_param_0, .param .u64 add_param_1)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [add_param_0];
    ld.param.u64 %rd2, [add_param_1];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    cvta.to.global.u64 %rd4, %rd1;
    add.s64 %rd5, %rd4, %rd3;
    ld.global.u32 %r5, [%rd5];
    cvta.to.global.u64 %rd6, %rd2;
    add.s64 %rd7, %rd6, %rd3;
    ld.global.u32 %r6, [%rd7];
    add.s32 %r7, %r6, %r5;
    st.global.u32 [%rd7], %r7;
    ret;
}
";

fn backend(options: &CudaOptions) -> CudaBackend {
    // So few that each lists the others.
    static FEW: Once = Once::new();
    FEW.call_once(|| double().set_device_count(32).unwrap());
    CudaBackend::new(options.clone().library(double().path()))
}

fn start(device: &Device, options: &CudaOptions) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(7000);
    let mut settings = Settings::default();
    settings.wait_timeout = PATIENCE / 2;
    let backend = backend(options);
    let opened = backend.open(device.ordinal() as u32, &OpenSettings::default()).unwrap();
    let id = DeviceId { backend: backend.name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init_with(id, opened, &settings).unwrap()
}

/// Two devices, of which one is to use the other's memory.
struct Pair {
    devices: [Device; 2],
    here: Client,
    there: Client,
}

impl Pair {
    fn new(options: &CudaOptions) -> Self {
        backend(options);
        let devices = [claim(), claim()];
        Self { devices, here: start(&devices[0], options), there: start(&devices[1], options) }
    }

    /// Nothing is left, and nothing wrong was done.
    fn end(self) {
        for client in [self.here, self.there] {
            client.shutdown(PATIENCE / 2);
        }
        self.devices.iter().for_each(assert_clean);
    }

    fn calls(&self, function: &str) -> u64 {
        self.devices[0].calls(function).unwrap()
    }
}

fn adder(client: &Client) -> KernelHandle {
    // SAFETY: it is launched on as many words as both buffers have.
    let source = unsafe { Source::ptx(ADD) };
    let interface = Interface::new().read().partition(256);
    client.prepare(SourceKernel::new("add", interface).workgroup_size([64, 1, 1]).source(source)).unwrap()
}

fn add(client: &Client, from: &Handle, to: &Handle) -> Point {
    client.launch(&adder(client), Grid::x((WORDS / 64) as u32), [from, to]).unwrap()
}

/// The primary context of a device in use.
fn context_of(client: &Client) -> Raw {
    let buffer = client.zeros(64).unwrap();
    client.get_resource::<CudaResource>(&buffer).unwrap().context().cast()
}

/// How memory of the program's own is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    Allocated,
    Mapped,
    /// Mapped in two pieces, whose seam is in the midst of it.
    Seamed,
    Pooled,
}

const MADE: [Made; 4] = [Made::Allocated, Made::Mapped, Made::Seamed, Made::Pooled];

/// Memory of the program's own on a device, each word of it 7. It keeps the device's context, since it may outlive every client.
struct Own {
    made: Made,
    context: Context,
    address: Address,
    /// What is mapped.
    pieces: Option<Pieces>,
    /// The last: who is told that it is freed finds the context let go of, too.
    _freed: Freed,
}

/// Counts that it was dropped.
struct Freed(Arc<AtomicU32>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Own {
    fn new(made: Made, device: &Device, freed: &Arc<AtomicU32>) -> Self {
        let (context, mut address, mut pieces) = (Context::of(device), 0, None);
        // SAFETY: the places are for addresses, and the memory is as large as what is written.
        context.within(|| unsafe {
            match made {
                Made::Allocated => done(raw().cuMemAlloc_v2(&mut address, BYTES)),
                Made::Pooled => done(raw().cuMemAllocAsync(&mut address, BYTES, ptr::null_mut())),
                Made::Mapped | Made::Seamed => {
                    let mapped = pieces.insert(mapped(&context, made));
                    address = if made == Made::Seamed { seam(mapped) - (BYTES / 2) as Address } else { mapped.address };
                }
            }
            done(raw().cuMemsetD32_v2(address, 7, WORDS));
            done(raw().cuCtxSynchronize());
        });
        Self { made, context, address, pieces, _freed: Freed(freed.clone()) }
    }
}

/// As many pieces as it takes, which nobody holds.
fn mapped(context: &Context, made: Made) -> Pieces {
    let count = if made == Made::Seamed { 2 } else { 1 };
    let mut pieces = Pieces::reserve(raw(), context.ordinal(), count).unwrap().unwrap();
    (0..count).for_each(|_| pieces.add().unwrap());
    pieces.let_go().unwrap();
    pieces
}

/// Where the second piece begins.
fn seam(pieces: &Pieces) -> Address {
    pieces.address + pieces.size as Address
}

impl Drop for Own {
    fn drop(&mut self) {
        let (made, address, pieces) = (self.made, self.address, self.pieces.take());
        // SAFETY: the devices are done with it.
        self.context.within(|| unsafe {
            match made {
                Made::Allocated => done(raw().cuMemFree_v2(address)),
                Made::Pooled => {
                    done(raw().cuMemFreeAsync(address, ptr::null_mut()));
                    done(raw().cuCtxSynchronize());
                }
                Made::Mapped | Made::Seamed => pieces.map_or(Ok(()), |pieces| pieces.give_back()).unwrap(),
            }
        });
    }
}

fn import(client: &Client, own: Own) -> Result<Handle> {
    // SAFETY: the memory is there until its owner is dropped, and each test orders what is done with it.
    client.import(unsafe { CudaImport::new(own.address, BYTES as u64, own) })
}

/// A buffer of one device, for another one.
fn lend(from: &Client, buffer: &Handle, to: &Client) -> Result<Handle> {
    // SAFETY: each test orders what is done with it.
    to.import(unsafe { CudaImport::of(from.export::<CudaResource>(buffer)?) })
}

#[test]
fn a_buffer_of_one_device_is_read_and_written_by_another_where_it_is() {
    for is_mapped in [true, false] {
        let pair = Pair::new(&CudaOptions::default().vmm(is_mapped));
        let (here, there) = (&pair.here, &pair.there);
        let theirs = there.create_from_slice(&counting(GRANULARITY)).unwrap();
        context_of(here);
        pair.devices[0].forget_calls().unwrap();
        let lent = lend(there, &theirs, here).unwrap();
        let calls = ["cuMemSetAccess", "cuCtxEnablePeerAccess"].map(|function| pair.calls(function));
        assert_eq!(calls, [u64::from(is_mapped), u64::from(!is_mapped)]);
        let own = here.empty(GRANULARITY as u64).unwrap();
        here.copy(&lent, &own).unwrap();
        assert_eq!(bytes(here, &own), counting(GRANULARITY));
        here.fill(&own, &[9]).unwrap();
        here.copy(&own.slice(..1000).unwrap(), &lent.slice(1000..2000).unwrap()).unwrap();
        here.fill(&lent.slice(..500).unwrap(), &[5]).unwrap();
        here.write_slice(&lent.slice(500..1000).unwrap(), &[4; 500]).unwrap();
        here.sync().unwrap().wait().unwrap();
        let expected = [vec![5; 500], vec![4; 500], vec![9; 1000], counting(GRANULARITY)[2000..].to_vec()].concat();
        assert!(bytes(there, &theirs) == expected);
        drop((lent, own, theirs));
        pair.end();
    }
}

#[test]
fn a_kernel_adds_what_another_device_has_however_that_was_made() {
    for made in MADE {
        let pair = Pair::new(&CudaOptions::default());
        let (here, freed) = (&pair.here, Arc::default());
        let lent = import(here, Own::new(made, &pair.devices[1], &freed)).unwrap();
        let sums = here.create_from_slice(&[1; BYTES]).unwrap();
        add(here, &lent, &sums);
        assert_eq!(words(here, &sums), [0x0101_0108; WORDS], "{made:?}");
        add(here, &sums, &lent);
        assert_eq!(words(here, &lent), [0x0101_010f; WORDS], "{made:?}");
        drop(lent);
        eventually("the memory is let go of", || freed.load(Ordering::Relaxed) == 1);
        drop(sums);
        pair.end();
    }
}

#[test]
fn devices_take_turns_on_the_same_bytes_by_events() {
    let pair = Pair::new(&CudaOptions::default());
    let (here, there) = (&pair.here, &pair.there);
    let pass = |from: &Client, point: Point, to: &Client| {
        let event = Arc::try_unwrap(from.export_event::<CudaEvent>(point).unwrap()).unwrap();
        to.wait(to.import_event(event).unwrap()).unwrap();
    };
    let (theirs, sums) = (there.zeros(BYTES as u64).unwrap(), here.zeros(BYTES as u64).unwrap());
    let lent = lend(there, &theirs, here).unwrap();
    let gate = Gate::new(&pair.devices[1]);
    // SAFETY: recorded, and destroyed at the end of the test.
    let opened = there.import_event(unsafe { CudaEvent::new(gate.raw_event(), ()) }).unwrap();
    there.wait(opened).unwrap();
    // Theirs, ours, theirs and ours again, each handed to its device before the first of it is done.
    pass(there, there.fill(&theirs, &[2, 0, 0, 0]).unwrap(), here);
    pass(here, add(here, &lent, &sums), there);
    pass(there, there.fill(&theirs, &[3, 0, 0, 0]).unwrap(), here);
    let last = add(here, &lent, &sums);
    here.flush().unwrap();
    assert!(!here.is_done(last).unwrap());
    gate.open();
    assert_eq!(words(here, &sums), [5; WORDS]);
    drop((gate, lent, sums, theirs));
    pair.end();
}

#[test]
fn memory_stays_while_another_device_uses_it() {
    for is_mapped in [true, false] {
        let pair = Pair::new(&CudaOptions::default().vmm(is_mapped));
        let Pair { devices, here, there } = pair;
        let theirs = there.create_from_slice(&counting(GRANULARITY)).unwrap();
        let lent = lend(&there, &theirs, &here).unwrap();
        drop(theirs);
        there.shutdown(PATIENCE / 2);
        drop(there);
        assert!(devices[1].memory_used().unwrap() >= GRANULARITY as u64);
        assert_eq!(bytes(&here, &lent), counting(GRANULARITY));
        drop(lent);
        eventually("the memory is given back", || devices[1].memory_used() == Ok(0));
        here.shutdown(PATIENCE / 2);
        drop(here);
        devices.iter().for_each(assert_clean);
    }
}

#[test]
fn a_device_that_is_not_reached_is_named_and_reaches_back_if_it_can() {
    for made in MADE {
        let pair = Pair::new(&CudaOptions::default());
        let [here, there] = pair.devices;
        here.set_reaches(there, false).unwrap();
        let freed = Arc::default();
        let error = import(&pair.here, Own::new(made, &there, &freed)).unwrap_err();
        let (owner, this) = (there.ordinal(), here.ordinal());
        let words =
            format!("memory of device {owner}, which device {this} does not reach: its bytes go through the host");
        assert!(matches!(&error, Error::Driver { message, .. } if *message == words), "{made:?}: {error}");
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        // The other way goes.
        let lent = import(&pair.there, Own::new(made, &here, &freed)).unwrap();
        assert_eq!(bytes(&pair.there, &lent), [7, 0, 0, 0].repeat(WORDS));
        drop(lent);
        pair.end();
    }
}

/// What the driver is asked when memory is imported, each with the number of the call that is to fail.
const ASKED: [(Made, &str, u64); 9] = [
    (Made::Allocated, "cuDeviceCanAccessPeer", 1),
    (Made::Allocated, "cuPointerGetAttribute", 5),
    (Made::Allocated, "cuCtxEnablePeerAccess", 1),
    (Made::Seamed, "cuPointerGetAttribute", 5),
    (Made::Seamed, "cuPointerGetAttribute", 6),
    (Made::Seamed, "cuPointerGetAttribute", 7),
    (Made::Mapped, "cuMemSetAccess", 1),
    (Made::Pooled, "cuPointerGetAttribute", 6),
    (Made::Pooled, "cuMemPoolSetAccess", 1),
];

#[test]
fn a_call_that_is_refused_is_named_and_the_next_import_works() {
    let pair = Pair::new(&CudaOptions::default());
    let [device, other] = pair.devices;
    let freed = Arc::default();
    let own = |made| Own::new(made, &other, &freed);
    for (made, function, nth) in ASKED {
        for code in [1, 2, 217, 711, 999, 12_345] {
            device.fail(function, nth, code).unwrap();
            let error = import(&pair.here, own(made)).unwrap_err();
            assert!(format!("{error:?}").contains(function), "{made:?}, {function}, {code}: {error:?}");
        }
        device.fail(function, 1, 0).unwrap();
        let (lent, sums) = (import(&pair.here, own(made)).unwrap(), pair.here.zeros(BYTES as u64).unwrap());
        add(&pair.here, &lent, &sums);
        assert_eq!(words(&pair.here, &sums), [7; WORDS], "{made:?}");
    }
    // What is not told of memory that is mapped is no guess.
    device.fail("cuMemRetainAllocationHandle", 1, 999).unwrap();
    let error = import(&pair.here, own(Made::Mapped)).unwrap_err();
    assert!(error.to_string().contains("it is of no context, no mapping and no pool"), "{error}");
    pair.end();
}

#[test]
fn a_device_that_dies_while_it_is_asked_is_lost() {
    const LAUNCH_FAILED: u32 = 719;
    for function in ["cuDeviceCanAccessPeer", "cuMemRetainAllocationHandle", "cuCtxEnablePeerAccess"] {
        let Pair { devices: [device, other], here, there } = Pair::new(&CudaOptions::default());
        let own = Own::new(Made::Allocated, &other, &Arc::default());
        device.fail(function, 1, LAUNCH_FAILED).unwrap();
        let error = import(&here, own).unwrap_err();
        assert!(error.is_device_lost() && error.to_string().contains(function), "{function}: {error}");
        // The other one is not.
        assert_eq!(bytes(&there, &there.create_from_slice(&[3; 64]).unwrap()), [3; 64]);
        for client in [here, there] {
            client.shutdown(PATIENCE / 2);
        }
        device.reset().unwrap();
        assert_clean(&other);
    }
}

#[test]
fn access_that_somebody_else_asked_for_is_kept() {
    let pair = Pair::new(&CudaOptions::default());
    let (ours, theirs) = (context_of(&pair.here), context_of(&pair.there));
    // SAFETY: both contexts are in use.
    within(ours, || unsafe { done(raw().cuCtxEnablePeerAccess(theirs, 0)) });
    for _ in 0..2 {
        let own = Own::new(Made::Allocated, &pair.devices[1], &Arc::default());
        let (lent, sums) = (import(&pair.here, own).unwrap(), pair.here.zeros(BYTES as u64).unwrap());
        add(&pair.here, &lent, &sums);
        assert_eq!(words(&pair.here, &sums), [7; WORDS]);
    }
    pair.here.sync().unwrap().wait().unwrap();
    // It is there to be given back, by who asked for it.
    // SAFETY: as above.
    within(ours, || unsafe { done(raw().cuCtxDisablePeerAccess(theirs)) });
    pair.end();
}

#[test]
fn a_device_whose_context_was_made_anew_is_reached_as_before() {
    let options = CudaOptions::default().vmm(false);
    let Pair { devices, here, there } = Pair::new(&options);
    let mut there = Some(there);
    for _ in 0..2 {
        let client = there.take().unwrap_or_else(|| start(&devices[1], &options));
        let theirs = client.create_from_slice(&[2; BYTES]).unwrap();
        let (lent, sums) = (lend(&client, &theirs, &here).unwrap(), here.zeros(BYTES as u64).unwrap());
        add(&here, &lent, &sums);
        assert_eq!(bytes(&here, &sums), [2; BYTES]);
        drop((lent, theirs));
        client.shutdown(PATIENCE / 2);
        drop(client);
        eventually("the context ends", || devices[1].is_retained() == Ok(false));
    }
    here.shutdown(PATIENCE / 2);
    drop(here);
    devices.iter().for_each(assert_clean);
}

#[test]
fn a_device_lists_those_it_reaches() {
    let backend = backend(&CudaOptions::default());
    let [one, other] = [claim(), claim()];
    let listed = |device: &Device, other: &Device| {
        let devices = backend.enumerate().unwrap();
        let details = &devices[device.ordinal() as usize].details;
        let peers = details.iter().find(|(name, _)| name == "peers").map_or("", |(_, peers)| peers);
        assert!(!peers.split(' ').any(|peer| peer == device.ordinal().to_string()), "{peers}");
        peers.split(' ').any(|peer| peer == other.ordinal().to_string())
    };
    assert!(listed(&one, &other) && listed(&other, &one));
    one.set_reaches(other, false).unwrap();
    assert!(!listed(&one, &other) && listed(&other, &one));
    [one, other].iter().for_each(assert_clean);
}
