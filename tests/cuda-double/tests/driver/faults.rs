//! Failures on demand, counts of calls, and a sweep that lets every call of a scenario fail.

use cudarc::driver::{DriverError, PushKernelArg};

use crate::gpu::{Gpu, block, code};

/// A program: upload, launch, download. What it gives is right, or an error.
fn scenario(gpu: &Gpu) -> Result<Vec<i32>, DriverError> {
    let stream = gpu.context.new_stream()?;
    let module = gpu.context.load_module(cudarc::nvrtc::Ptx::from_src(crate::gpu::text("memory")))?;
    let kernel = module.load_function("add_one")?;
    let mut numbers = stream.clone_htod(&[1i32, 2, 3])?;
    unsafe { stream.launch_builder(&kernel).arg(&mut numbers).arg(&3i32).launch(block(3)) }?;
    stream.clone_dtoh(&numbers)
}

#[test]
fn the_nth_call_of_a_function_fails_and_the_next_works() {
    let gpu = Gpu::claim();
    gpu.device.fail("cuMemAllocAsync", 2, 2).unwrap();
    assert_eq!(code(gpu.stream.alloc_zeros::<u8>(8)), 0);
    assert_eq!(code(gpu.stream.alloc_zeros::<u8>(8)), 2);
    assert_eq!(code(gpu.stream.alloc_zeros::<u8>(8)), 0);
}

#[test]
fn codes_of_work_that_died_stay() {
    let gpu = Gpu::claim();
    gpu.device.fail("cuStreamSynchronize", 1, 719).unwrap();
    assert_eq!(code(gpu.stream.synchronize()), 719);
    assert_eq!(code(gpu.stream.synchronize()), 719);
    assert_eq!(code(gpu.context.synchronize()), 719);
    gpu.device.reset().unwrap();
    assert_eq!(code(gpu.stream.synchronize()), 0);
}

#[test]
fn calls_are_counted_by_name() {
    let gpu = Gpu::claim();
    gpu.device.forget_calls().unwrap();
    let before = gpu.device.calls("cuLaunchKernel").unwrap();
    scenario(&gpu).unwrap();
    assert_eq!((before, gpu.device.calls("cuLaunchKernel").unwrap()), (0, 1));
    let all = gpu.device.all_calls().unwrap();
    assert!(all.contains(&("cuModuleLoadData".to_owned(), 1)), "{all:?}");
    assert_eq!(gpu.device.calls("cuGraphLaunch").unwrap(), 0);
}

#[test]
fn every_call_of_a_scenario_can_fail_in_every_way() {
    let gpu = Gpu::claim();
    gpu.device.forget_calls().unwrap();
    assert_eq!(scenario(&gpu).unwrap(), [2, 3, 4]);
    let calls = gpu.device.all_calls().unwrap();
    let mut tried = 0;
    for (name, count) in calls {
        for nth in 1..=count {
            for failure in [2, 700, 999] {
                gpu.device.fail(&name, nth, failure).unwrap();
                // An error somewhere, or a result that is right in spite of it: never a wrong one.
                match scenario(&gpu) {
                    Ok(found) => assert_eq!(found, [2, 3, 4], "{name} {nth} {failure}"),
                    Err(error) => assert_eq!(error.0 as u32, failure, "{name} {nth}"),
                }
                gpu.device.reset().unwrap();
                // What failed while something was dropped would be told by the next call.
                let _ = gpu.context.check_err();
                tried += 1;
            }
        }
    }
    assert!(tried > 30, "{tried}");
    assert_eq!(scenario(&gpu).unwrap(), [2, 3, 4]);
}

#[test]
fn calls_without_a_context_are_those_of_no_device() {
    let double = trunnion_cuda_double::Double::open().unwrap();
    let _gpu = Gpu::claim();
    let name = "cuDriverGetVersion";
    std::thread::spawn(move || {
        let before = double.without_device().calls(name).unwrap();
        let mut version = 0;
        assert_eq!(unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut version) } as u32, 0);
        assert_eq!(version, 13000);
        assert!(double.without_device().calls(name).unwrap() > before);
    })
    .join()
    .unwrap();
}
