//! No thread of the backend's wakes while nothing happens, whatever it waits for; and what ends wakes who waits for that.

#![cfg(target_os = "linux")]
#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Gate, Rig, all, assert_clean, claim, double, eventually, in_time};
use trunnion_backend_core::driver::Driver;
use trunnion_backend_cuda::{CudaEvent, CudaOptions};
use trunnion_driver_rig::threads;
use trunnion_runtime_core::foreign::Foreign;

const MIB: u64 = 1 << 20;

/// All threads of the backend's sleep on.
fn assert_quiet(what: &str) {
    threads::assert_quiet(&["trunnion-cuda", "trunnion-free"], what);
}

/// The only test of this file: the threads of another one would wake.
#[test]
fn nothing_wakes_while_nothing_happens_and_what_is_kept_is_given_back_when_that_ends_which_it_is_kept_for() {
    let options = CudaOptions::default().library(double().path());
    let [mut here, mut there] = [claim(), claim()].map(|device| Rig::new(device, &options));
    let page = here.page_of_bytes(&[0; 256]);
    let [gate, other] = [&here, &there].map(|rig| Gate::new(&rig.device));
    let device = here.device;
    let used = || device.memory_used().unwrap();

    // What waits for an event of somebody else, and what for one of a device that has not handed it out to its stream.
    let [mut waiting, mut held] = [(); 2].map(|()| here.driver.open_stream().unwrap());
    here.driver.import_event(&mut waiting, &gate.event()).unwrap();
    here.driver.submit(&mut waiting, 1).unwrap();
    let mut makes = there.driver.open_stream().unwrap();
    there.driver.import_event(&mut makes, &other.event()).unwrap();
    there.driver.submit(&mut makes, 1).unwrap();
    let event = there.driver.export_event(&mut makes, 2).unwrap().downcast::<CudaEvent>().unwrap();
    let event = Foreign::new(std::sync::Arc::into_inner(event).unwrap());
    here.driver.import_event(&mut held, &event).unwrap();
    here.fill(&mut held, 1, all(&page), &[1]);
    here.driver.submit(&mut held, 1).unwrap();
    let large = here.driver.allocate(2 * MIB).unwrap();
    let before = used();
    in_time(&gate, || {
        here.driver.release(large);
        assert_quiet("what is kept while streams wait");
    });
    assert_eq!(used(), before);

    // Each of the two ends by itself, and who looks lets what was kept go.
    gate.open();
    here.finish(&mut waiting, 1);
    in_time(&other, || assert_quiet("what is kept while one stream waits"));
    assert_eq!(used(), before);
    there.driver.submit(&mut makes, 2).unwrap();
    in_time(&other, || assert_quiet("a stream that waits for another device's"));
    other.open();
    here.finish(&mut held, 1);
    there.finish(&mut makes, 2);
    eventually("what was kept is given back", || used() < before);
    assert_eq!(here.read(all(&page)), [1; 256]);

    // Work of the device's own, which nobody has seen the end of.
    for seq in 2..=20 {
        let large = here.driver.allocate(2 * MIB).unwrap();
        here.fill(&mut held, seq, all(&page), &[seq as u8]);
        here.driver.submit(&mut held, seq).unwrap();
        let before = used();
        here.driver.release(large);
        here.finish(&mut held, seq);
        eventually("what was kept is given back", || used() < before);
    }
    assert_quiet("nothing is under way");
    [waiting, held].into_iter().for_each(|stream| here.driver.close_stream(stream));
    there.driver.close_stream(makes);
    let devices = [here.device, there.device];
    drop((page, gate, other, event, here, there));
    devices.iter().for_each(assert_clean);
}
