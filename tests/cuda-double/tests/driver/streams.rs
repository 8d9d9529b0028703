//! Streams and events: what is ordered, and that what nothing orders is reported whatever order it ran in.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, PushKernelArg, sys};
use trunnion_cuda_double::ReportKind;

use crate::gpu::{Gpu, code, raw, shape};

const COUNT: usize = 2048;

/// Adds one to every number, on a stream.
fn add(kernel: &CudaFunction, stream: &Arc<CudaStream>, numbers: &CudaSlice<i32>) {
    let address = numbers.leak_address(stream);
    unsafe { stream.launch_builder(kernel).arg(&address).arg(&(COUNT as i32)).launch(shape(COUNT as u32 / 128, 128)) }
        .unwrap();
}

/// The address of a slice without the waits and events that `cudarc` would add for it.
trait Address {
    fn leak_address(&self, stream: &Arc<CudaStream>) -> u64;
}

impl Address for CudaSlice<i32> {
    fn leak_address(&self, stream: &Arc<CudaStream>) -> u64 {
        use cudarc::driver::DevicePtr;
        let (address, guard) = self.device_ptr(stream);
        core::mem::forget(guard);
        address
    }
}

#[test]
fn an_event_orders_streams_and_its_absence_is_reported_under_every_seed() {
    for seed in 0..20 {
        let gpu = Gpu::claim_with_events_off();
        gpu.device.set_delays(seed).unwrap();
        // Kept to the end: unloading a module waits for everything.
        let kernel = gpu.kernel("memory", "add_one");
        let (first, second) = (gpu.context.new_stream().unwrap(), gpu.context.new_stream().unwrap());
        let numbers = first.clone_htod(&vec![0i32; COUNT]).unwrap();
        first.synchronize().unwrap();
        for waits in [true, false] {
            add(&kernel, &first, &numbers);
            if waits {
                second.wait(&first.record_event(None).unwrap()).unwrap();
            }
            add(&kernel, &second, &numbers);
            gpu.context.synchronize().unwrap();
            if waits {
                assert_eq!(first.clone_dtoh(&numbers).unwrap(), vec![2; COUNT], "seed {seed}");
                gpu.clean();
            } else {
                gpu.noticed(ReportKind::StreamRace, &["add_one", "nothing orders the two", "PTX line"]);
            }
        }
        gpu.device.reset().unwrap();
        drop((numbers, kernel, first, second));
        gpu.release();
    }
}

#[test]
fn waiting_on_the_host_orders_too() {
    let gpu = Gpu::claim_with_events_off();
    let kernel = gpu.kernel("memory", "add_one");
    let (first, second) = (gpu.context.new_stream().unwrap(), gpu.context.new_stream().unwrap());
    let numbers = first.clone_htod(&vec![0i32; COUNT]).unwrap();
    add(&kernel, &first, &numbers);
    first.synchronize().unwrap();
    add(&kernel, &second, &numbers);
    second.record_event(None).unwrap().synchronize().unwrap();
    add(&kernel, &first, &numbers);
    gpu.context.synchronize().unwrap();
    assert_eq!(first.clone_dtoh(&numbers).unwrap(), vec![3; COUNT]);
    gpu.clean();
}

#[test]
fn the_stream_without_a_name_and_blocking_streams_wait_for_each_other() {
    let gpu = Gpu::claim_with_events_off();
    gpu.device.set_delays(7).unwrap();
    let mut blocking = core::ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuStreamCreate(&raw mut blocking, 0) }), 0);
    let numbers = gpu.context.default_stream().clone_htod(&vec![1u8; 1 << 16]).unwrap();
    let address = {
        use cudarc::driver::DevicePtr;
        numbers.device_ptr(gpu.context.default_stream().as_ref()).0
    };
    let null = core::ptr::null_mut();
    for value in 0..10u8 {
        assert_eq!(raw(unsafe { sys::cuMemsetD8Async(address, value, 1 << 16, blocking) }), 0);
        assert_eq!(raw(unsafe { sys::cuMemsetD8Async(address, value + 100, 1 << 16, null) }), 0);
    }
    assert_eq!(gpu.context.default_stream().clone_dtoh(&numbers).unwrap(), vec![109; 1 << 16]);
    gpu.clean();
    // A stream that does not wait is not ordered.
    let free = gpu.context.new_stream().unwrap();
    assert_eq!(raw(unsafe { sys::cuMemsetD8Async(address, 1, 1 << 16, null) }), 0);
    assert_eq!(raw(unsafe { sys::cuMemsetD8Async(address, 2, 1 << 16, free.cu_stream()) }), 0);
    gpu.context.synchronize().unwrap();
    gpu.noticed(ReportKind::StreamRace, &["fill", "writes"]);
    assert_eq!(raw(unsafe { sys::cuStreamDestroy_v2(blocking) }), 0);
}

#[test]
fn host_functions_take_their_turn_on_their_stream() {
    unsafe extern "C" fn count(argument: *mut c_void) {
        let seen = unsafe { &*argument.cast::<[AtomicU32; 3]>() };
        let turn = seen[0].fetch_add(1, Ordering::SeqCst);
        // The first waits until it is let go.
        while seen[2].load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_micros(100));
        }
        thread::sleep(Duration::from_millis(2));
        // Nobody else counted meanwhile.
        seen[1].fetch_add(u32::from(seen[0].load(Ordering::SeqCst) != turn + 1), Ordering::SeqCst);
    }
    let gpu = Gpu::claim();
    let seen = [const { AtomicU32::new(0) }; 3];
    let argument = core::ptr::from_ref(&seen).cast_mut().cast();
    for _ in 0..5 {
        assert_eq!(raw(unsafe { sys::cuLaunchHostFunc(gpu.stream.cu_stream(), Some(count), argument) }), 0);
    }
    assert_eq!(raw(unsafe { sys::cuStreamQuery(gpu.stream.cu_stream()) }), 600);
    seen[2].store(1, Ordering::SeqCst);
    gpu.stream.synchronize().unwrap();
    assert_eq!((seen[0].load(Ordering::SeqCst), seen[1].load(Ordering::SeqCst)), (5, 0));
    assert_eq!(raw(unsafe { sys::cuStreamQuery(gpu.stream.cu_stream()) }), 0);
}

#[test]
fn events_have_times_unless_told_otherwise() {
    let gpu = Gpu::claim();
    let flags = Some(sys::CUevent_flags_enum::CU_EVENT_DEFAULT);
    let start = gpu.stream.record_event(flags).unwrap();
    let end = gpu.stream.record_event(flags).unwrap();
    gpu.stream.synchronize().unwrap();
    assert!(start.elapsed_ms(&end).unwrap() >= 0.0);
    let timeless = gpu.stream.record_event(None).unwrap();
    assert_eq!(code(start.elapsed_ms(&timeless)), 400);
    let mut raw_event = core::ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuEventCreate(&raw mut raw_event, 0) }), 0);
    // One that was never recorded is over.
    assert_eq!(raw(unsafe { sys::cuEventQuery(raw_event) }), 0);
    assert_eq!(raw(unsafe { sys::cuEventDestroy_v2(raw_event) }), 0);
    assert_eq!(raw(unsafe { sys::cuEventDestroy_v2(raw_event) }), 400);
}

#[test]
fn streams_from_many_threads_keep_their_own_order() {
    let gpu = Gpu::claim_with_events_off();
    let kernel = gpu.kernel("memory", "add_one");
    thread::scope(|scope| {
        for _ in 0..6 {
            let (gpu, kernel) = (&gpu, &kernel);
            scope.spawn(move || {
                gpu.context.bind_to_thread().unwrap();
                let stream = gpu.context.new_stream().unwrap();
                let numbers = stream.clone_htod(&vec![0i32; COUNT]).unwrap();
                for _ in 0..5 {
                    add(kernel, &stream, &numbers);
                }
                assert_eq!(stream.clone_dtoh(&numbers).unwrap(), vec![5; COUNT]);
            });
        }
    });
    gpu.clean();
}

#[test]
fn events_come_late_where_a_test_wants_it_and_other_work_does_not() {
    let gpu = Gpu::claim_with_events_off();
    let late = Duration::from_millis(60);
    for seed in [0, 3] {
        gpu.device.set_delays(seed).unwrap();
        gpu.device.set_lateness(late).unwrap();
        let start = Instant::now();
        gpu.stream.record_event(None).unwrap().synchronize().unwrap();
        assert!(start.elapsed() >= late, "seed {seed}: after {:?}", start.elapsed());
    }
    gpu.device.set_lateness(Duration::ZERO).unwrap();
    gpu.clean();
    gpu.release();
}

#[test]
fn a_device_is_retained_as_long_as_somebody_holds_its_primary_context() {
    let gpu = Gpu::claim();
    let device = gpu.device;
    assert!(device.is_retained().unwrap());
    gpu.release();
    assert!(!device.is_retained().unwrap());
}
