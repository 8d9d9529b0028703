//! Recording, graphs, and what a recording forbids.

use alloc::sync::Arc;
use core::ptr;

use cudarc::driver::{CudaStream, DevicePtr, PushKernelArg, sys};
use trunnion_cuda_double::ReportKind;

use crate::gpu::{Gpu, block, code, raw};

/// A call of the driver, which may allocate, and its code.
type Call<'a> = &'a dyn Fn(&mut u64) -> u32;

fn begin(stream: &Arc<CudaStream>) {
    assert_eq!(code(stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL)), 0);
}

/// Ends a recording: its code, and its graph.
fn end(stream: &Arc<CudaStream>) -> (u32, sys::CUgraph) {
    let mut graph = ptr::null_mut();
    (raw(unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }), graph)
}

fn instantiate(graph: sys::CUgraph) -> sys::CUgraphExec {
    let mut executable = ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }), 0);
    executable
}

fn node_count(graph: sys::CUgraph) -> usize {
    let mut count = 0;
    assert_eq!(raw(unsafe { sys::cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count) }), 0);
    count
}

#[test]
fn what_is_recorded_is_not_done_until_the_graph_is_launched() {
    let gpu = Gpu::claim_with_events_off();
    let kernel = gpu.kernel("memory", "add_one");
    let numbers = gpu.stream.clone_htod(&[0i32; 8]).unwrap();
    let address = numbers.device_ptr(&gpu.stream).0;
    begin(&gpu.stream);
    for _ in 0..3 {
        unsafe { gpu.stream.launch_builder(&kernel).arg(&address).arg(&8i32).launch(block(8)) }.unwrap();
    }
    let (code, graph) = end(&gpu.stream);
    assert_eq!((code, node_count(graph)), (0, 3));
    assert_eq!(gpu.stream.clone_dtoh(&numbers).unwrap(), [0; 8]);
    let executable = instantiate(graph);
    for _ in 0..4 {
        assert_eq!(raw(unsafe { sys::cuGraphLaunch(executable, gpu.stream.cu_stream()) }), 0);
    }
    assert_eq!(gpu.stream.clone_dtoh(&numbers).unwrap(), [12; 8]);
    assert_eq!(raw(unsafe { sys::cuGraphDestroy(graph) }), 0);
    assert_eq!(raw(unsafe { sys::cuGraphExecDestroy(executable) }), 0);
    assert_eq!(raw(unsafe { sys::cuGraphLaunch(executable, gpu.stream.cu_stream()) }), 400);
    gpu.clean();
}

#[test]
fn streams_fork_and_join_in_a_recording() {
    let gpu = Gpu::claim_with_events_off();
    let side = gpu.context.new_stream().unwrap();
    let numbers = gpu.stream.alloc_zeros::<i32>(16).unwrap();
    let address = numbers.device_ptr(&gpu.stream).0;
    gpu.context.synchronize().unwrap();
    let fill = |stream: &Arc<CudaStream>, at: u64, value| unsafe {
        assert_eq!(raw(sys::cuMemsetD32Async(at, value, 8, stream.cu_stream())), 0);
    };
    // The second halves meet, and only sometimes something orders them.
    for joins_early in [true, false] {
        begin(&gpu.stream);
        fill(&gpu.stream, address, 1);
        side.wait(&gpu.stream.record_event(None).unwrap()).unwrap();
        fill(&side, address + 32, 2);
        let joined = side.record_event(None).unwrap();
        if joins_early {
            gpu.stream.wait(&joined).unwrap();
        }
        fill(&gpu.stream, address + 32, 3);
        if !joins_early {
            gpu.stream.wait(&joined).unwrap();
        }
        let (code, graph) = end(&gpu.stream);
        assert_eq!((code, node_count(graph)), (0, 3));
        let executable = instantiate(graph);
        for _ in 0..3 {
            assert_eq!(raw(unsafe { sys::cuGraphLaunch(executable, gpu.stream.cu_stream()) }), 0);
        }
        gpu.stream.synchronize().unwrap();
        if joins_early {
            let found = gpu.stream.clone_dtoh(&numbers).unwrap();
            assert_eq!((found[0], found[15]), (1, 3));
            gpu.clean();
        } else {
            gpu.noticed(ReportKind::StreamRace, &["fill"]);
        }
    }
    // Not joined at all.
    begin(&gpu.stream);
    side.wait(&gpu.stream.record_event(None).unwrap()).unwrap();
    fill(&side, address, 2);
    assert_eq!(end(&gpu.stream).0, 904);
    fill(&side, address, 2);
    gpu.context.synchronize().unwrap();
}

#[test]
fn what_a_recording_forbids_ends_it() {
    let gpu = Gpu::claim_with_events_off();
    let (stream, raw_stream) = (&gpu.stream, gpu.stream.cu_stream());
    let mut address = 0;
    let other = gpu.context.new_stream().unwrap();
    let outside = other.record_event(None).unwrap();
    let status = || {
        let mut status = sys::CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
        assert_eq!(raw(unsafe { sys::cuStreamIsCapturing(raw_stream, &raw mut status) }), 0);
        status as u32
    };
    let forbidden: [(&str, u32, Call<'_>); 6] = [
        ("allocating", 900, &|address| raw(unsafe { sys::cuMemAlloc_v2(address, 64) })),
        ("waiting for the stream", 900, &|_| raw(unsafe { sys::cuStreamSynchronize(raw_stream) })),
        ("waiting for everything", 900, &|_| raw(unsafe { sys::cuCtxSynchronize() })),
        ("asking another stream", 900, &|_| raw(unsafe { sys::cuStreamQuery(other.cu_stream()) })),
        ("waiting for an event outside", 905, &|_| code(stream.wait(&outside))),
        ("asking about a recorded event", 907, &|_| {
            let event = stream.record_event(None).unwrap();
            raw(unsafe { sys::cuEventQuery(event.cu_event()) })
        }),
    ];
    for (what, expected, call) in forbidden {
        begin(stream);
        assert_eq!(status(), 1, "{what}");
        assert_eq!(call(&mut address), expected, "{what}");
        assert_eq!(status(), 2, "{what}");
        assert_eq!(raw(unsafe { sys::cuMemsetD8Async(0x2_0000_0000, 0, 0, raw_stream) }), 0, "{what}");
        assert_eq!(end(stream), (901, ptr::null_mut()), "{what}");
        assert_eq!(status(), 0, "{what}");
    }
    // The stream without a name would depend on a blocking one that records.
    let mut blocking = ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuStreamCreate(&raw mut blocking, 0) }), 0);
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_eq!(raw(unsafe { sys::cuStreamBeginCapture_v2(blocking, mode) }), 0);
    assert_eq!(raw(unsafe { sys::cuStreamSynchronize(ptr::null_mut()) }), 906);
    let mut graph = ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuStreamEndCapture(blocking, &raw mut graph) }), 901);
    // Without a name there is nothing to record on, and nothing ends that did not begin.
    assert_eq!(raw(unsafe { sys::cuStreamBeginCapture_v2(ptr::null_mut(), mode) }), 900);
    assert_eq!(end(stream).0, 401);
}

#[test]
fn memory_of_a_graph_lives_while_the_graph_runs() {
    let gpu = Gpu::claim_with_events_off();
    let out = gpu.stream.alloc_zeros::<i32>(8).unwrap();
    let target = out.device_ptr(&gpu.stream).0;
    gpu.stream.synchronize().unwrap();
    let before = gpu.device.memory_used().unwrap();
    let (mut address, raw_stream) = (0, gpu.stream.cu_stream());
    begin(&gpu.stream);
    unsafe {
        assert_eq!(raw(sys::cuMemAllocAsync(&raw mut address, 32, raw_stream)), 0);
        assert_eq!(raw(sys::cuMemsetD32Async(address, 5, 8, raw_stream)), 0);
        assert_eq!(raw(sys::cuMemcpyDtoDAsync_v2(target, address, 32, raw_stream)), 0);
        assert_eq!(raw(sys::cuMemFreeAsync(address, raw_stream)), 0);
    }
    let (code, graph) = end(&gpu.stream);
    assert_eq!(code, 0);
    let executable = instantiate(graph);
    for _ in 0..2 {
        assert_eq!(raw(unsafe { sys::cuGraphLaunch(executable, raw_stream) }), 0);
    }
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [5; 8]);
    gpu.clean();
    // Between the launches it is nobody's.
    assert_eq!(raw(unsafe { sys::cuMemsetD32Async(address, 5, 8, raw_stream) }), 1);
    gpu.noticed(ReportKind::BadCall, &["use after free"]);
    assert_eq!(raw(unsafe { sys::cuGraphExecDestroy(executable) }), 0);
    assert_eq!(raw(unsafe { sys::cuGraphDestroy(graph) }), 0);
    assert_eq!(gpu.device.memory_used().unwrap(), before);
}

#[test]
fn graphs_are_built_node_by_node_and_updated() {
    let gpu = Gpu::claim_with_events_off();
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    let text = alloc::ffi::CString::new(crate::gpu::text("memory")).unwrap();
    assert_eq!(raw(unsafe { sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()) }), 0);
    assert_eq!(raw(unsafe { sys::cuModuleGetFunction(&raw mut function, module, c"add_one".as_ptr()) }), 0);
    let numbers = gpu.stream.alloc_zeros::<i32>(8).unwrap();
    let address = numbers.device_ptr(&gpu.stream).0;
    let build = |value: u32, count: i32| unsafe {
        let (mut graph, mut fill, mut kernel) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(raw(sys::cuGraphCreate(&raw mut graph, 0)), 0);
        let what = sys::CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 4, width: 8, height: 1 };
        let context = gpu.context.cu_ctx();
        assert_eq!(raw(sys::cuGraphAddMemsetNode(&raw mut fill, graph, ptr::null(), 0, &raw const what, context)), 0);
        let mut arguments = [(&raw const address).cast_mut().cast(), (&raw const count).cast_mut().cast()];
        let mut what: sys::CUDA_KERNEL_NODE_PARAMS = core::mem::zeroed();
        (what.func, what.kernelParams) = (function, arguments.as_mut_ptr());
        (what.gridDimX, what.gridDimY, what.gridDimZ) = (1, 1, 1);
        (what.blockDimX, what.blockDimY, what.blockDimZ) = (8, 1, 1);
        assert_eq!(raw(sys::cuGraphAddKernelNode_v2(&raw mut kernel, graph, ptr::null(), 0, &raw const what)), 0);
        assert_eq!(raw(sys::cuGraphAddDependencies_v2(graph, &raw const fill, &raw const kernel, ptr::null(), 1)), 0);
        graph
    };
    let graph = build(10, 8);
    let executable = instantiate(graph);
    assert_eq!(raw(unsafe { sys::cuGraphLaunch(executable, gpu.stream.cu_stream()) }), 0);
    assert_eq!(gpu.stream.clone_dtoh(&numbers).unwrap(), [11; 8]);
    let mut result: sys::CUgraphExecUpdateResultInfo = unsafe { core::mem::zeroed() };
    assert_eq!(raw(unsafe { sys::cuGraphExecUpdate_v2(executable, build(20, 4), &raw mut result) }), 0);
    assert_eq!(raw(unsafe { sys::cuGraphLaunch(executable, gpu.stream.cu_stream()) }), 0);
    assert_eq!(gpu.stream.clone_dtoh(&numbers).unwrap(), [21, 21, 21, 21, 20, 20, 20, 20]);
    // Another shape is refused, and says why.
    let mut empty = ptr::null_mut();
    assert_eq!(raw(unsafe { sys::cuGraphCreate(&raw mut empty, 0) }), 0);
    assert_eq!(raw(unsafe { sys::cuGraphExecUpdate_v2(executable, empty, &raw mut result) }), 910);
    assert_eq!(result.result as u32, 2);
    gpu.clean();
}
