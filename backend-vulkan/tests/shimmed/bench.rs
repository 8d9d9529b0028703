//! A client of a device behind a shim.

use crate::subject;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trunnion_backend_vulkan::ash::vk;
use trunnion_backend_vulkan::{NAME, VulkanBackend, VulkanOptions};
use trunnion_runtime_core::backend::Backend;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{DeviceId, StreamId};
use trunnion_runtime_core::kernel::{KernelHandle, SourceKernel};
use trunnion_runtime_core::service::Settings;
use trunnion_vulkan_shim::{Command, Plan, Shim, Submission, require};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Bench {
    pub shim: Shim,
    pub client: Client,
    /// What a batch gathers behind; see [`batch`](Bench::batch).
    gate: Handle,
}

/// The adapters there are. Fails where `TRUNNION_REQUIRE` asks for one that is not among them.
pub fn adapters() -> Vec<String> {
    let found = VulkanBackend::new(VulkanOptions::default()).enumerate().unwrap_or_else(|why| {
        println!("skipped: {why}");
        Vec::new()
    });
    let names: Vec<String> = found.into_iter().map(|info| info.adapter).collect();
    require(&names);
    names
}

/// A shim that shows one adapter.
pub fn shim(plan: Plan, adapter: &str) -> Shim {
    let adapter = adapter.to_string();
    let named = move |said: &vk::PhysicalDeviceProperties| {
        said.device_name_as_c_str().is_ok_and(|name| name.to_string_lossy() == adapter)
    };
    Shim::new(plan.devices(named)).unwrap()
}

/// Opens the device that a shim shows.
pub fn open(shim: &Shim, options: &VulkanOptions) -> Result<Client> {
    open_with(shim, options, &Settings::default())
}

pub fn open_with(shim: &Shim, options: &VulkanOptions, settings: &Settings) -> Result<Client> {
    static INDEX: AtomicU32 = AtomicU32::new(0);
    // SAFETY: the shim hands on to the system's loader what it does not change, and its functions work as long as the process runs.
    let backend = unsafe { VulkanBackend::with_entry(shim.entry(), options.clone()) };
    let opened = subject::open(&backend)?;
    // Every test's device is one of its own.
    let device = DeviceId { backend: NAME, index: INDEX.fetch_add(1, Ordering::Relaxed) };
    Client::try_init_with(device, opened, settings)
}

/// Ends a client's device, and whoever held it.
pub fn close(client: Client) {
    client.shutdown(PATIENCE);
    drop(client);
}

/// Nothing is left in the driver, and nothing was done that the API forbids. What ends on a thread of its own may take a moment.
pub fn assert_clean(shim: &Shim, what: &str) {
    let begun = Instant::now();
    while !shim.alive().is_empty() && begun.elapsed() < PATIENCE / 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let alive: Vec<String> = shim.alive().iter().map(ToString::to_string).collect();
    assert_eq!((alive, shim.complaints()), (Vec::new(), Vec::new()), "{what}");
}

/// Runs a test on each device, as the plan shows it.
pub fn each(plan: impl Fn() -> Plan, options: &VulkanOptions, test: impl Fn(&Bench)) {
    for adapter in adapters() {
        println!("on {adapter} with {options}");
        let shim = shim(plan(), &adapter);
        let client = open(&shim, options).unwrap();
        let gate = client.create_from_slice(&[0; 256]).unwrap();
        let bench = Bench { shim, client, gate };
        test(&bench);
        let Bench { shim, client, gate } = bench;
        drop(gate);
        close(client);
        assert_clean(&shim, &adapter);
    }
}

impl Bench {
    /// A buffer of numbers, there on the device.
    pub fn buffer(&self, words: &[u32]) -> Handle {
        let handle = self.client.create_from_slice(&bytes_of(words)).unwrap();
        self.settle();
        handle
    }

    pub fn buffers<const N: usize>(&self) -> [Handle; N] {
        core::array::from_fn(|_| self.buffer(&[0; 64]))
    }

    /// The client on a stream of its own.
    pub fn other_stream(&self) -> Client {
        let mut other = self.client.clone();
        other.set_stream(StreamId::new());
        other
    }

    /// Everything asked for is done, and the client knows.
    pub fn settle(&self) {
        self.client.sync().unwrap().wait().unwrap();
    }

    /// What is handed to the driver while the host sees nothing finish: the work of `encode` gathers in one batch, behind one that
    /// nothing else has to do with.
    pub fn gathered(&self, encode: impl FnOnce(&Client)) -> Vec<Submission> {
        self.settle();
        let held = self.shim.hold();
        self.shim.take_submissions();
        self.client.fill(&self.gate, &[1]).unwrap();
        self.client.flush().unwrap();
        assert_eq!(self.shim.take_submissions().len(), 1, "what nothing is unfinished before is submitted at once");
        encode(&self.client);
        self.client.flush().unwrap();
        let submissions = self.shim.take_submissions();
        drop(held);
        self.settle();
        submissions
    }

    /// The one batch that comes of it.
    pub fn batch(&self, encode: impl FnOnce(&Client)) -> Submission {
        let mut all = self.gathered(encode);
        assert_eq!(all.len(), 1, "{}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        all.remove(0)
    }

    pub fn read(&self, handle: &Handle) -> Vec<u32> {
        words_of(self.client.read_one(handle).unwrap().as_slice().unwrap())
    }
}

/// Reads `x` and writes `y`.
pub const STEP: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn step(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&x) && id.x < arrayLength(&y) { y[id.x] = x[id.x] + 1u; }
}";

/// The kernel that reads one buffer and writes another; compiled, so that nothing of it happens in a batch.
pub fn step(bench: &Bench) -> KernelHandle {
    let kernel = bench.client.prepare(SourceKernel::wgsl("step", STEP)).unwrap();
    let [a, b] = bench.buffers();
    launch(&bench.client, &kernel, &a, &b);
    bench.settle();
    kernel
}

pub fn launch(client: &Client, step: &KernelHandle, from: &Handle, to: &Handle) {
    client.launch(step, Grid::x(1), [from, to]).unwrap();
}

pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// What a submission does to bytes, with `|` for each full barrier: one that work before and after it takes part in.
pub fn outline(submission: &Submission) -> String {
    let word = |command: &Command| match command {
        Command::Dispatch { .. } => Some("launch"),
        Command::DispatchIndirect { .. } => Some("counted"),
        Command::Copy { .. } => Some("copy"),
        Command::Fill { .. } => Some("fill"),
        Command::Barrier(barrier) => {
            let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
            (barrier.from.contains(work) && barrier.to.contains(work)).then_some("|")
        }
        _ => None,
    };
    submission.commands.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}
