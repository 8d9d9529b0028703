//! Vulkan devices of this machine, by the names of their adapters.
//!
//! A variant lowers limits through the options of the backend. What no option does, such as losing the device or telling late what is done,
//! a shim between backend and loader does.

use alloc::collections::BTreeMap;
use ash::vk;
use core::ops::Range;
use core::ptr::NonNull;
use core::time::Duration;
use std::sync::OnceLock;
use trunnion_backend_vulkan::{VulkanBackend, VulkanImport, VulkanOptions, VulkanResource, validation_messages};
use trunnion_conformance::outside::Owner;
use trunnion_conformance::program::Random;
use trunnion_conformance::{Context, Factory, Outcome, Outside, Refusal, Variant, tests};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::server::Opened;
use trunnion_vulkan_shim::{Plan, Shim};

tests! {
    M12 a_wrong_call_is_made_on_purpose .hidden();
}

/// Every device is opened with the validation layer where this variable is 1.
pub const VALIDATION: &str = "CONFORMANCE_VALIDATION";

/// The memory type that page-locked memory has to itself where some of it is to be refused.
const PINNED: u32 = 1;

/// A Vulkan device.
pub struct Vulkan {
    name: &'static str,
    adapter: &'static str,
    /// Of one instance, whatever the variant, where there is no shim.
    backend: VulkanBackend,
    index: OnceLock<Result<u32, String>>,
}

impl Vulkan {
    /// Mesa's driver for processors.
    pub fn llvmpipe() -> Self {
        Self::of("vulkan:llvmpipe", "llvmpipe")
    }

    /// The driver for processors that comes with Chromium.
    pub fn swiftshader() -> Self {
        Self::of("vulkan:swiftshader", "SwiftShader")
    }

    fn of(name: &'static str, adapter: &'static str) -> Self {
        Self { name, adapter, backend: VulkanBackend::new(VulkanOptions::default()), index: OnceLock::new() }
    }

    /// The device's index among those there are, or why it is not among them.
    fn found(&self) -> &Result<u32, String> {
        self.index.get_or_init(|| {
            let devices = self.backend.enumerate().map_err(|error| error.to_string())?;
            let mine = devices.iter().find(|info| info.adapter.contains(self.adapter));
            let names = || devices.iter().map(|info| info.adapter.as_str()).collect::<Vec<_>>().join(", ");
            mine.map(|info| info.device.index).ok_or_else(|| format!("no device is called so; there are: {}", names()))
        })
    }
}

impl Factory for Vulkan {
    fn name(&self) -> &str {
        self.name
    }

    fn backend(&self) -> &str {
        "vulkan"
    }

    fn index(&self) -> u32 {
        self.found().clone().unwrap_or_default()
    }

    fn available(&self) -> Result<(), String> {
        self.found().clone().map(drop)
    }

    fn start(&self, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal> {
        let index = self.found().clone().map_err(Refusal::Unavailable)?;
        let mut settings = settings.clone();
        settings.options.extend(options(variant));
        match plan(variant) {
            None => Ok(self.backend.open(index, &settings)?),
            Some(plan) => shimmed(plan, index, variant, &settings),
        }
    }

    trunnion_conformance::resource_type!(VulkanResource);

    fn import(&self, client: &Client, memory: &Outside, range: Range<usize>, owner: Owner) -> Result<Handle> {
        client.import(lent(memory, range, owner))
    }

    fn keeps_code(&self) -> bool {
        true
    }

    fn one_at_a_time(&self) -> bool {
        // The layer finds its own state in a table without a lock, which changes when a device is made or destroyed
        // (KhronosGroup/Vulkan-ValidationLayers issue 4391).
        is_validated()
    }

    fn complaints(&self) -> Vec<String> {
        validation_messages()
    }
}

/// A range of memory that a test has, as a device takes it.
#[allow(unsafe_code, reason = "an address is taken on trust")]
fn lent(memory: &Outside, range: Range<usize>, owner: Owner) -> VulkanImport {
    assert!(range.start <= range.end && range.end <= memory.size(), "the test has no such range");
    // SAFETY: the range is inside the memory, and so are the pages it lies in; the memory is initialized, can be written through a shared
    // reference and stays as long as its clone is held; the test orders its own use against the device's.
    unsafe {
        let first = NonNull::new(memory.pointer().add(range.start)).unwrap_or(NonNull::dangling());
        VulkanImport::from_host(first, range.len() as u64, (owner, memory.clone()))
    }
}

fn is_validated() -> bool {
    std::env::var(VALIDATION).is_ok_and(|value| value == "1")
}

/// What the backend's own options do. Its device has one kind of memory.
fn options(variant: &Variant) -> BTreeMap<String, String> {
    let mut options = variant.limits();
    if variant.separate_memory {
        options.insert("staging".to_string(), "true".to_string());
    }
    if is_validated() {
        options.insert("validation".to_string(), "true".to_string());
    }
    options
}

/// What only a shim does, as far as it must be known from the start.
fn plan(variant: &Variant) -> Option<Plan> {
    let Variant { delay, reorder, fail_compile, lose_after, refuse_allocation, refuse_pin, .. } = variant;
    let mut plan = Plan::new();
    match (*delay, *reorder) {
        (None, None) => {}
        (delay, reorder) => {
            let delay = delay.unwrap_or(Duration::from_micros(100));
            plan =
                plan.delay(move |semaphore, value| reorder.map_or(delay, |seed| later(delay, seed, semaphore, value)));
        }
    }
    if let Some(name) = fail_compile {
        plan = plan.fail_pipeline(name, vk::Result::ERROR_INVALID_SHADER_NV);
    }
    if refuse_pin.is_some() {
        // Page-locked memory is then of a type of its own, and can be told from that of the device.
        let host = vk::MemoryPropertyFlags::HOST_VISIBLE
            | vk::MemoryPropertyFlags::HOST_COHERENT
            | vk::MemoryPropertyFlags::HOST_CACHED;
        plan = plan.memory_types([(vk::MemoryPropertyFlags::DEVICE_LOCAL, 0), (host, 0)]);
    }
    let [lose, allocation] = [lose_after, refuse_allocation].map(Option::is_some);
    (delay.is_some() || reorder.is_some() || fail_compile.is_some() || refuse_pin.is_some() || lose || allocation)
        .then_some(plan)
}

/// Up to twice as late, for each value of each semaphore as the seed says.
fn later(delay: Duration, seed: u64, semaphore: u32, value: u64) -> Duration {
    let mut random = Random::new(seed ^ (u64::from(semaphore) << 40) ^ value);
    delay + delay.mul_f64(random.below(1000) as f64 / 1000.0)
}

fn shimmed(plan: Plan, index: u32, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal> {
    let shim = Shim::new(plan).map_err(|error| Refusal::Unavailable(error.to_string()))?;
    // SAFETY: the shim's functions are those of the system's loader with what the plan does around them, and work on when it is dropped.
    #[allow(unsafe_code, reason = "a loader is vouched for")]
    let backend = unsafe { VulkanBackend::with_entry(shim.entry(), VulkanOptions::default()) };
    let opened = backend.open(index, settings)?;
    // Counted from here: what it takes to open a device is the backend's affair.
    let nth = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    if let Some(batches) = variant.lose_after {
        shim.fail("vkQueueSubmit", nth(batches + 1), vk::Result::ERROR_DEVICE_LOST);
    }
    if let Some(count) = variant.refuse_allocation {
        shim.fail("vkAllocateMemory", nth(count), vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    }
    if let Some(count) = variant.refuse_pin {
        shim.fail_allocation(PINNED, nth(count), vk::Result::ERROR_OUT_OF_HOST_MEMORY);
    }
    Ok(opened)
}

/// Not a test of a promise: what the validation layer must complain of, so that a run without complaints is known to mean something.
#[allow(unsafe_code, reason = "a call that is wrong")]
fn a_wrong_call_is_made_on_purpose(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 64])?;
    let resource = client.get_resource::<VulkanResource>(&bytes)?;
    let nothing = vk::BufferCreateInfo::default().usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: not as the specification has it, which forbids buffers of no bytes; drivers make them all the same.
    if let Ok(buffer) = unsafe { resource.device().create_buffer(&nothing, None) } {
        // SAFETY: made above, and used by nobody.
        unsafe { resource.device().destroy_buffer(buffer, None) };
    }
    Ok(())
}
