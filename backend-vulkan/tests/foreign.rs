//! Memory and events of somebody else on every device there is: buffers, file descriptors, semaphores.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;
use trunnion_backend_vulkan::ash::vk;
use trunnion_backend_vulkan::{
    VulkanBackend, VulkanEvent, VulkanImport, VulkanOptions, VulkanResource, validation_messages,
};
use trunnion_driver_rig::clients::{bytes, on_new_stream, pattern};
use trunnion_driver_rig::eventually;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::{Client, Resource};
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::foreign::Event;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::service::Settings;

const SOON: Duration = Duration::from_secs(10);

/// Logical devices of one adapter.
struct Adapter<'a> {
    backend: &'a VulkanBackend,
    index: u32,
    has_validation: bool,
}

impl Adapter<'_> {
    fn start(&self, options: &[(&str, &str)]) -> Client {
        static NEXT: AtomicU32 = AtomicU32::new(1000);
        let mut settings = Settings::default();
        settings.wait_timeout = SOON;
        let mut open = OpenSettings::default();
        open.options.extend(options.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        if self.has_validation {
            open.options.insert("validation".into(), "true".into());
        }
        let opened = self.backend.open(self.index, &open).unwrap();
        let device = DeviceId { backend: self.backend.name(), index: NEXT.fetch_add(1, Ordering::Relaxed) };
        Client::try_init_with(device, opened, &settings).unwrap()
    }
}

/// Runs a test on each adapter. What the validation layer has to say fails it.
fn each(test: impl Fn(&Adapter<'_>)) {
    let _turn = trunnion_vulkan_shim::turn();
    let validated = VulkanOptions::default().validation(true);
    let mut backend = VulkanBackend::new(validated);
    let has_validation = backend.enumerate().is_ok();
    if !has_validation {
        backend = VulkanBackend::new(VulkanOptions::default());
    }
    let devices = backend.enumerate().unwrap_or_else(|why| {
        eprintln!("skipped: {why}");
        Vec::new()
    });
    trunnion_vulkan_shim::require(&devices.iter().map(|info| &info.adapter).collect::<Vec<_>>());
    for (info, index) in devices.iter().zip(0..) {
        eprintln!("on {}", info.adapter);
        test(&Adapter { backend: &backend, index, has_validation });
    }
    assert_eq!(validation_messages(), Vec::<String>::new());
}

/// The device's memory of `size` bytes in a logical device, as a program of its own would make it, mapped.
struct Own {
    resource: Resource<VulkanResource>,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    mapped: *mut u8,
    freed: Arc<AtomicU32>,
}

// SAFETY: the pointer is used by one thread at a time.
unsafe impl Send for Own {}

impl Own {
    fn new(client: &Client, size: u64, freed: &Arc<AtomicU32>) -> Self {
        let resource = client.get_resource::<VulkanResource>(&client.zeros(64).unwrap()).unwrap();
        let (device, instance) = (resource.device(), resource.instance());
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST
            | vk::BufferUsageFlags::INDIRECT_BUFFER;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: handles of this device, each used as it was made.
        unsafe {
            let buffer = device.create_buffer(&info, None).unwrap();
            let needs = device.get_buffer_memory_requirements(buffer);
            let types = instance.get_physical_device_memory_properties(resource.physical_device());
            let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            let suits = |index: &u32| {
                needs.memory_type_bits & (1 << index) != 0
                    && types.memory_types[*index as usize].property_flags.contains(wanted)
            };
            let kind = (0..types.memory_type_count).find(suits).unwrap();
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
            let memory = device.allocate_memory(&info, None).unwrap();
            device.bind_buffer_memory(buffer, memory, 0).unwrap();
            let mapped = device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()).unwrap().cast();
            Self { resource, buffer, memory, mapped, freed: freed.clone() }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the device is done with both.
        unsafe {
            self.resource.device().destroy_buffer(self.buffer, None);
            self.resource.device().free_memory(self.memory, None);
        }
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_buffer_of_the_programs_own_is_used_where_it_is() {
    each(|adapter| {
        let client = adapter.start(&[]);
        let freed = Arc::new(AtomicU32::new(0));
        let alignment = client.limits().binding_alignment;
        let own = Own::new(&client, 4096 + alignment, &freed);
        let (buffer, memory, mapped) = (own.buffer, own.memory, own.mapped);
        // SAFETY: a buffer of this device, with these bytes, which is the device's until its owner is dropped.
        let wrong = unsafe { VulkanImport::from_buffer(buffer, memory, 1, 64, ()) };
        let error = client.import(wrong).unwrap_err();
        assert!(matches!(error, Error::Misaligned { value: 1, .. }), "{error}");
        // SAFETY: as above.
        let import = unsafe { VulkanImport::from_buffer(buffer, memory, alignment, 4096, own) };
        let handle = client.import(import).unwrap();
        client.write_slice(&handle, &pattern(4096, 1)).unwrap();
        let copy = client.empty(4096).unwrap();
        client.copy(&handle, &copy).unwrap();
        assert_eq!(bytes(&client, &copy), pattern(4096, 1));
        client.sync().unwrap().wait().unwrap();
        // SAFETY: mapped, and the device is done with it.
        let seen = unsafe { std::slice::from_raw_parts(mapped.add(alignment as usize), 4096) };
        assert_eq!(seen, pattern(4096, 1));
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        drop(handle);
        eventually("the buffer is let go of", || freed.load(Ordering::Relaxed) == 1);
        client.shutdown(SOON);
    });
}

/// Whole pages of the host.
#[repr(align(4096))]
struct Pages([AtomicU8; 2 * 4096]);

#[test]
fn host_memory_is_used_where_it_is_mapped_or_not() {
    each(|adapter| {
        for staging in ["false", "true"] {
            let client = adapter.start(&[("staging", staging)]);
            let pages = Arc::new(Pages([const { AtomicU8::new(1) }; 2 * 4096]));
            let first = NonNull::from(&pages.0).cast::<u8>();
            // SAFETY: two pages, which stay with the owner and are used by the device and this thread in turn.
            let import = unsafe { VulkanImport::from_host(first, 5000, pages.clone()) };
            let handle = match client.import(import) {
                Ok(handle) => handle,
                Err(error) => {
                    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                    return eprintln!("skipped: {error}");
                }
            };
            assert_eq!(bytes(&client, &handle), [1; 5000]);
            client.write_slice(&handle.slice(256..4352).unwrap(), &pattern(4096, 7)).unwrap();
            client.sync().unwrap().wait().unwrap();
            let seen: Vec<u8> = pages.0.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
            assert_eq!(seen[256..4352], pattern(4096, 7));
            assert!(seen[..256].iter().chain(&seen[4352..]).all(|byte| *byte == 1));
            drop(handle);
            eventually("the pages are let go of", || Arc::strong_count(&pages) == 1);
            client.shutdown(SOON);
        }
    });
}

#[test]
fn two_logical_devices_share_memory_by_file_descriptor() {
    each(|adapter| {
        let (here, there) = (adapter.start(&[("export_memory", "true")]), adapter.start(&[]));
        let whole = here.create_from_slice(&pattern(10_000, 3)).unwrap();
        let start = here.limits().binding_alignment * 4;
        let part = whole.slice(start..start + 4096).unwrap();
        let exported = match here.export::<VulkanResource>(&part).unwrap().export_fd() {
            Ok(fd) => fd,
            Err(error) => {
                assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                return eprintln!("skipped: {error}");
            }
        };
        assert_eq!(exported.size, 4096);
        let again = exported.try_clone().unwrap();
        // SAFETY: exported just now; what follows is ordered by waiting.
        let theirs = there.import(unsafe { VulkanImport::from_fd(exported) }).unwrap();
        let mut expected = pattern(10_000, 3)[start as usize..start as usize + 4096].to_vec();
        assert_eq!(bytes(&there, &theirs), expected);
        there.fill(&theirs.slice(256..512).unwrap(), &[9]).unwrap();
        there.sync().unwrap().wait().unwrap();
        expected[256..512].fill(9);
        assert_eq!(bytes(&here, &part), expected);
        // The other way round, ordered by an event of the host.
        let written = here.fill(&part, &[4]).unwrap();
        let event = here.export_event::<Event>(written).unwrap();
        there.wait(there.import_event((*event).clone()).unwrap()).unwrap();
        assert_eq!(bytes(&there, &theirs), [4; 4096]);
        // Imported, let go of, and imported again; the memory outlives who exported it.
        drop((theirs, whole, part));
        here.shutdown(SOON);
        // SAFETY: as above.
        let theirs = there.import(unsafe { VulkanImport::from_fd(again) }).unwrap();
        assert_eq!(bytes(&there, &theirs), [4; 4096]);
        there.shutdown(SOON);
    });
}

#[test]
fn what_cannot_be_shared_by_file_descriptor_is_named() {
    each(|adapter| {
        let (client, plain) = (adapter.start(&[("export_memory", "true")]), adapter.start(&[]));
        let error =
            plain.export::<VulkanResource>(&plain.zeros(64).unwrap()).unwrap().export_fd().map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let Ok(fd) = client.export::<VulkanResource>(&client.zeros(256).unwrap()).unwrap().export_fd() else { return };
        let mut another = fd.try_clone().unwrap();
        another.device[0][0] ^= 1;
        let mut far = fd.try_clone().unwrap();
        far.size = far.buffer + 1;
        let mut odd = fd.try_clone().unwrap();
        odd.offset += 1;
        let mut strange = fd.try_clone().unwrap();
        strange.memory_type = 77;
        for (fd, text) in [(another, "device"), (far, "bytes"), (odd, "multiple"), (strange, "memory type 77")] {
            // SAFETY: refused before it is used.
            let error = plain.import(unsafe { VulkanImport::from_fd(fd) }).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    });
}

#[test]
fn a_stream_waits_on_the_device_for_a_semaphore_of_the_programs_own() {
    each(|adapter| {
        let client = adapter.start(&[]);
        let resource = client.get_resource::<VulkanResource>(&client.zeros(64).unwrap()).unwrap();
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores.
        let semaphore = unsafe { resource.device().create_semaphore(&info, None) }.unwrap();
        let held = Arc::new(());
        // SAFETY: of this device, and destroyed at the end of the test.
        let event = unsafe { VulkanEvent::new(semaphore, 5, held.clone()) };
        let point = client.import_event(event).unwrap();
        let waiting = on_new_stream(&client);
        waiting.wait(point).unwrap();
        let buffer = waiting.zeros(64).unwrap();
        let filled = waiting.fill(&buffer, &[3]).unwrap();
        waiting.flush().unwrap();
        let signal = |value| {
            let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
            // SAFETY: a value above the last one.
            unsafe { resource.device().signal_semaphore(&info) }.unwrap();
        };
        signal(4);
        std::thread::sleep(Duration::from_millis(30));
        assert!(!client.is_done(point).unwrap() && !client.is_done(filled).unwrap());
        assert_eq!(Arc::strong_count(&held), 2);
        signal(5);
        client.done(filled).unwrap().wait().unwrap();
        assert_eq!(bytes(&client, &buffer), [3; 64]);
        eventually("the event is let go of", || {
            client.memory_usage().unwrap();
            Arc::strong_count(&held) == 1
        });
        // SAFETY: nothing waits for it any more.
        unsafe { resource.device().destroy_semaphore(semaphore, None) };
        drop(resource);
        client.shutdown(SOON);
    });
}

#[test]
fn a_point_is_handed_out_as_a_value_of_a_semaphore() {
    each(|adapter| {
        let client = adapter.start(&[]);
        let bytes = client.zeros(64).unwrap();
        let resource = client.get_resource::<VulkanResource>(&bytes).unwrap();
        let wait = |event: &VulkanEvent, timeout: Duration| {
            let (semaphores, values) = ([event.semaphore()], [event.value()]);
            let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
            // SAFETY: the event keeps the semaphore.
            unsafe { resource.device().wait_semaphores(&info, timeout.as_nanos() as u64) }.is_ok()
        };
        // Of work that is under way, of work that is done, and of work that is held back.
        let event = client.export_event::<VulkanEvent>(client.fill(&bytes, &[1]).unwrap()).unwrap();
        assert!(wait(&event, SOON));
        let done = client.record().unwrap();
        client.done(done).unwrap().wait().unwrap();
        assert!(wait(&client.export_event::<VulkanEvent>(done).unwrap(), SOON));
        let ((event, point), _) = client
            .with_resource::<VulkanResource, _>(&bytes, Access::ReadWrite, |_, _| {
                let held = on_new_stream(&client);
                let point = held.fill(&bytes, &[2]).unwrap();
                let event = client.export_event::<VulkanEvent>(point).unwrap();
                assert!(!wait(&event, Duration::from_millis(30)), "the event happened before its point");
                // A queue that waited for what is behind it would wait for ever.
                let twin = client.export_event::<VulkanEvent>(point).unwrap();
                let twin = Arc::try_unwrap(twin).unwrap();
                let error = client.import_event(twin).unwrap_err();
                assert!(matches!(error, Error::Busy { .. }), "{error}");
                (event, point)
            })
            .unwrap();
        assert!(wait(&event, SOON));
        assert!(client.is_done(point).unwrap());
        let error = client.export_event::<u32>(point).unwrap_err();
        assert!(matches!(error, Error::ServiceMismatch { .. }), "{error}");
        client.shutdown(SOON);
        drop(resource);
    });
}

#[test]
fn an_event_of_another_logical_device_is_refused() {
    each(|adapter| {
        let (here, there) = (adapter.start(&[]), adapter.start(&[]));
        let buffer = here.zeros(64).unwrap();
        let event = here.export_event::<VulkanEvent>(here.fill(&buffer, &[1]).unwrap()).unwrap();
        // Two devices of one adapter have nothing in common, and a semaphore of the one is no handle of the other.
        let error = there.import_event(Arc::try_unwrap(event).unwrap()).unwrap_err();
        assert!(matches!(error, Error::Incompatible { .. }) && error.to_string().contains("another"), "{error}");
        let theirs = there.create_from_slice(&[5; 8]).unwrap();
        assert_eq!((bytes(&there, &theirs), bytes(&here, &buffer)), (vec![5; 8], vec![1; 64]));
        here.shutdown(SOON);
        there.shutdown(SOON);
    });
}

#[test]
fn memory_and_events_of_other_types_are_named() {
    each(|adapter| {
        let client = adapter.start(&[]);
        let error = client.import_event(5u64).unwrap_err();
        assert!(matches!(&error, Error::ServiceMismatch { expected, .. } if expected == "u64"), "{error}");
        assert!(error.to_string().contains("VulkanEvent"), "{error}");
    });
}
