//! What a warm launch costs: calls of the driver, allocations, and, under valgrind in a release build, instructions of the host.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::kernels::{Compiled, ptx};
use rig::{Rig, claim, double, each_with, part};
use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use trunnion_backend_core::driver::{Driver, DriverGrid};
use trunnion_backend_cuda::{CudaBackend, CudaOptions, CudaPage, CudaStream};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::kernel::{Interface, KernelHandle, SourceKernel};
use trunnion_runtime_core::service::Settings;

/// Adds its parameter to the first element of its first buffer; takes four buffers and 16 bytes of parameters, and no lengths.
const BUMP: &str = "
.version 8.0
.target sm_70
.address_size 64
.visible .entry bump(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .align 4 .b8 p[16]) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [a];
    ld.param.u32 %r1, [p];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r2, [%rd2];
    add.u32 %r3, %r2, %r1;
    st.global.u32 [%rd2], %r3;
    ret;
}
";

/// What it adds, and what it does not look at.
const PARAMETERS: [u8; 16] = [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];

/// Launches of a full batch.
const BATCH: u64 = 64;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with a count of what all threads ask of it while a test wants that. The double has an allocator of its own.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What all threads of the process allocate while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
    work();
    COUNTS.store(false, Ordering::SeqCst);
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

fn bump() -> SourceKernel {
    ptx("bump", BUMP, Interface::new().claim(Access::ReadWrite).read().read().read().parameters(16))
}

/// Four buffers, a kernel over them and a stream.
struct Bench {
    page: CudaPage,
    kernel: Compiled,
    stream: CudaStream,
    seq: u64,
}

impl Bench {
    fn new(rig: &mut Rig) -> Self {
        let kernel = rig.compile(bump()).unwrap();
        Self { page: rig.page_of(&[0; 64]), kernel, stream: rig.driver.open_stream().unwrap(), seq: 0 }
    }

    /// A batch of so many launches, from encoding them to taking it out.
    fn batch(&mut self, rig: &mut Rig, launches: u64) {
        self.counted_submission(rig, launches);
        self.counted_end(rig);
    }

    #[inline(never)]
    fn counted_submission(&mut self, rig: &mut Rig, launches: u64) {
        let buffers = [0, 64, 128, 192].map(|offset| part(&self.page, offset, 64));
        for _ in 0..launches {
            self.seq += 1;
            let grid = DriverGrid::Static([1, 1, 1]);
            rig.launch_with(&mut self.stream, self.seq, &self.kernel, grid, &buffers, &PARAMETERS).unwrap();
        }
        rig.driver.submit(&mut self.stream, self.seq).unwrap();
    }

    #[inline(never)]
    fn counted_end(&mut self, rig: &mut Rig) {
        assert_eq!(rig.finish(&mut self.stream, self.seq).failed, []);
    }

    fn end(self, rig: &mut Rig) {
        assert_eq!(rig.first(&self.page), self.seq as u32);
        rig.driver.close_stream(self.stream);
    }
}

#[test]
fn a_warm_launch_is_one_call_of_the_driver_and_no_allocation() {
    if !alone("a_warm_launch_is_one_call_of_the_driver_and_no_allocation") {
        return;
    }
    each_with(&CudaOptions::default(), |rig| {
        let mut bench = Bench::new(rig);
        (0..4).for_each(|_| bench.batch(rig, BATCH));
        let batches = [1, BATCH, 2, BATCH];
        // What each launch allocates shows in every run. A thread allocates as it starts, which on a busy machine comes late.
        let run = |bench: &mut Bench, rig: &mut Rig| {
            rig.device.forget_calls().unwrap();
            allocations(|| batches.iter().for_each(|&launches| bench.batch(rig, launches)))
        };
        let allocated: Vec<_> = (0..5).map_while(|_| Some(run(&mut bench, rig)).filter(|&count| count > 0)).collect();
        assert!(allocated.len() < 5, "allocations of each run: {allocated:?}");
        let batches = batches.len() as u64;
        let calls = rig.device.all_calls().unwrap();
        let count = |name: &str| calls.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
        assert_eq!(count("cuLaunchKernel"), 2 * BATCH + 3, "{calls:?}");
        // One behind each batch.
        assert_eq!(count("cuEventRecord"), batches, "{calls:?}");
        // The thread that sleeps for the stream is the only one that waits. It may have been late for the last batch that is not counted.
        assert!(count("cuEventSynchronize") <= batches + 1, "{calls:?}");
        // Who asks on a thread of its own says before that nobody's recording is meant, and takes it back: some of that may be under way
        // where counting starts and where it ends.
        assert!(count("cuThreadExchangeStreamCaptureMode").abs_diff(2 * count("cuEventQuery")) <= 2, "{calls:?}");
        let known = [
            "cuCtxPopCurrent_v2",
            "cuCtxPushCurrent_v2",
            "cuCtxSetCurrent",
            "cuEventQuery",
            "cuEventRecord",
            "cuEventSynchronize",
            "cuLaunchKernel",
            "cuThreadExchangeStreamCaptureMode",
        ];
        let other: Vec<_> = calls.iter().filter(|(name, _)| !known.contains(&name.as_str())).collect();
        assert!(other.is_empty(), "{other:?}");
        bench.end(rig);
    });
}

#[test]
fn a_warm_launch_with_counts_in_memory_is_a_copy_an_event_and_a_launch() {
    each_with(&CudaOptions::default(), |rig| {
        let mut bench = Bench::new(rig);
        let counts = rig.page_of(&[1, 1, 1]);
        let mut launch = |rig: &mut Rig| {
            bench.seq += 1;
            let buffers = [0, 64, 128, 192].map(|offset| part(&bench.page, offset, 64));
            let grid = DriverGrid::Dynamic(part(&counts, 0, 12));
            rig.launch_with(&mut bench.stream, bench.seq, &bench.kernel, grid, &buffers, &PARAMETERS).unwrap();
            rig.driver.submit(&mut bench.stream, bench.seq).unwrap();
            assert_eq!(rig.finish(&mut bench.stream, bench.seq).failed, []);
        };
        (0..4).for_each(|_| launch(rig));
        rig.device.forget_calls().unwrap();
        (0..10).for_each(|_| launch(rig));
        for (name, expected) in [
            ("cuLaunchKernel", 10),
            ("cuMemcpyDtoHAsync_v2", 10),
            ("cuEventRecord", 20),
            ("cuMemHostAlloc", 0),
            ("cuStreamSynchronize", 0),
            ("cuCtxSynchronize", 0),
        ] {
            assert_eq!(rig.device.calls(name).unwrap(), expected, "{name}");
        }
        bench.end(rig);
    });
}

/// From encoding a launch to taking its batch out, on the thread that drives the device.
#[test]
fn a_warm_launch_takes_at_most_1000_instructions_beside_the_drivers() {
    const NAME: &str = "a_warm_launch_takes_at_most_1000_instructions_beside_the_drivers";
    let Some(each) = instructions(NAME, 20 * BATCH, 120 * BATCH, |count| {
        each_with(&CudaOptions::default(), |rig| {
            let mut bench = Bench::new(rig);
            (0..4).for_each(|_| bench.batch(rig, BATCH));
            for _ in 0..count / BATCH {
                let told = rig.notified.load(Ordering::SeqCst);
                bench.counted_submission(rig, BATCH);
                while rig.notified.load(Ordering::SeqCst) == told {
                    std::thread::yield_now();
                }
                bench.counted_end(rig);
            }
            bench.end(rig);
        });
    }) else {
        return;
    };
    println!("{each:.0} instructions a launch, in a batch of {BATCH}");
    assert!((1.0..=1000.0).contains(&each), "{each} instructions a launch");
}

/// From `Client::launch` to the driver, everything on the caller's thread: this crate's part and that of the layers above it.
#[test]
fn a_warm_launch_of_a_client_takes_at_most_5000_instructions_beside_the_drivers() {
    const NAME: &str = "a_warm_launch_of_a_client_takes_at_most_5000_instructions_beside_the_drivers";
    let Some(each) = instructions(NAME, 1_000, 6_000, launches_of_a_client) else { return };
    println!("{each:.0} instructions a launch, from the client on");
    assert!((1.0..=5000.0).contains(&each), "{each} instructions a launch");
}

/// The instructions of this program's own code that one of many repetitions takes, inside functions whose names have `counted`, by the
/// difference of two runs. `None` where this process is one of them, or where there can be none, which is said.
fn instructions(test: &str, few: u64, many: u64, work: impl FnOnce(u64)) -> Option<f64> {
    const COUNT: &str = "TRUNNION_COUNTED";
    if let Some(count) = std::env::var_os(COUNT) {
        work(count.to_str().unwrap().parse().unwrap());
        return None;
    }
    if cfg!(debug_assertions) {
        eprintln!("skipped: {test}: instructions are those of a release build");
        return None;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: {test}: there is no valgrind");
        return None;
    }
    let run = |count: u64| {
        let output = std::env::temp_dir().join(format!("trunnion-callgrind-{}-{count}", std::process::id()));
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--quiet", "--toggle-collect=*counted_*"]);
        command.arg(format!("--callgrind-out-file={}", output.display()));
        command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
        let ran = command.env(COUNT, count.to_string()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let text = std::fs::read_to_string(&output).unwrap();
        std::fs::remove_file(&output).unwrap();
        own(&text) as f64
    };
    Some((run(many) - run(few)) / (many - few) as f64)
}

/// What callgrind counted in this program's file, and not in libraries: the double's is the driver's.
fn own(profile: &str) -> u64 {
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    let (mut own, mut is_own, mut total) = (None, false, 0);
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(object) = line.strip_prefix("ob=").or(line.strip_prefix("cob=")) {
            // A name stands beside its number the first time only, which may be where something of it is called.
            let (number, name) = object.split_once(' ').unwrap_or((object, ""));
            if name.ends_with(program) {
                own = Some(number.to_string());
            }
            if line.starts_with("ob=") {
                is_own = own.as_deref() == Some(number);
            }
        } else if line.starts_with("calls=") {
            // What the function called is counted where that stands.
            lines.next();
        } else if is_own && line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            total += line.rsplit(' ').next().and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    total
}

/// A client whose calls are carried out on its caller's thread, and so many launches on it that are counted.
fn launches_of_a_client(count: u64) {
    let device = claim();
    let options = CudaOptions::default().library(double().path());
    let opened = CudaBackend::new(options).open(device.ordinal() as u32, &OpenSettings::default()).unwrap();
    let name = const { BackendName::new("budget").unwrap() };
    let mut settings = Settings::default();
    settings.executor.execution = Execution::Inline;
    let client = Client::try_init_with(DeviceId { backend: name, index: 0 }, opened, &settings).unwrap();
    let kernel = client.prepare(bump()).unwrap();
    let buffers: [Handle; 4] = std::array::from_fn(|_| client.zeros(64).unwrap());
    counted_launches(&client, &kernel, &buffers, 0);
    for _ in 0..4 {
        (0..BATCH).for_each(|_| launch(&client, &kernel, &buffers));
        client.sync().unwrap().wait().unwrap();
    }
    counted_launches(&client, &kernel, &buffers, count);
    client.sync().unwrap().wait().unwrap();
    let found = client.read_one(&buffers[0]).unwrap().cast::<u32>().unwrap()[0];
    assert_eq!(u64::from(found), 4 * BATCH + count);
}

#[inline(never)]
fn counted_launches(client: &Client, kernel: &KernelHandle, buffers: &[Handle; 4], count: u64) {
    (0..count).for_each(|_| launch(client, kernel, buffers));
}

#[inline]
fn launch(client: &Client, kernel: &KernelHandle, [a, b, c, d]: &[Handle; 4]) {
    client.launch(kernel, Grid::x(1), ([a, b, c, d], &[1_u32; 4])).unwrap();
}

/// Whether this process runs this one test and nothing else. Where it doesn't, a process that does is run to its end, and must succeed.
fn alone(test: &str) -> bool {
    const ALONE: &str = "TRUNNION_TEST_ALONE";
    if std::env::var(ALONE).is_ok() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}
