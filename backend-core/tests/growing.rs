//! Pages that grow: what lies in them stays, on both sides of where they ended, and a refusal costs no more than another page.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

mod mock;

use mock::{Fate, Rig, driver, first, io, rig_over};
use trunnion_backend_core::{DriverServer, Dry, ServerSettings};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handles;
use trunnion_runtime_core::id::{ServiceId, StreamId};
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::{MemoryReport, ReportScope};
use trunnion_runtime_core::server::{MemoryServer, Server};
use trunnion_runtime_core::timeline::Moment;

fn settings() -> ServerSettings {
    let pages = PageSizes::growing(4096, 64 << 10, 4);
    let memory_pools = PoolLayout::new(vec![PoolDescription::new("general", Placement::Fit, pages)]).unwrap();
    ServerSettings { memory_pools, ..ServerSettings::default() }
}

fn rig() -> Rig {
    let (driver, script) = driver("mock compiler 1");
    script.get().growth_step = Some(4096);
    rig_over((driver, script), settings())
}

fn report(rig: &Rig) -> MemoryReport {
    rig.server.report(ReportScope::Device)
}

#[test]
fn a_buffer_lies_across_the_end_that_a_page_had_while_work_on_it_is_under_way() {
    let mut rig = rig();
    let (s, t, kernel) = (StreamId::new(), StreamId::new(), rig.kernel("k", io()));
    let a = rig.buffer(s, 3000);
    rig.write(s, &a, 5);
    assert_eq!(rig.script.get().pages, 1);
    // The write is with the driver, or encoded.
    let b = rig.buffer(s, 10_000);
    rig.write(t, &b, 1);
    rig.launch(t, &kernel, &[&a, &b]);
    let (of_a, of_b) = (rig.read(s, &a), rig.read(t, &b));
    rig.run();
    assert_eq!((first(&of_a), first(&of_b)), (Ok(5), Ok(7)));
    assert!(of_b.get().unwrap().unwrap()[0].as_slice().unwrap().iter().all(|byte| *byte == 7));
    let log = rig.log();
    let pages: Vec<_> = log.iter().filter(|line| line.starts_with("page")).collect();
    assert_eq!(pages, ["page of 4096 up to 65536", "page of 4096 grows to 16384"]);
    let total = report(&rig).total();
    assert_eq!((total.pages, total.reserved, rig.script.get().taken), (1, 16_384, 16_384));
    drop((a, b));
    rig.free_dropped();
    rig.server.cleanup().unwrap();
    let pages = rig.script.get().pages;
    assert_eq!((pages, rig.script.get().taken), (0, 0));
}

#[test]
fn a_page_that_does_not_grow_is_followed_by_another() {
    let short = Error::OutOfMemory(Box::default());
    let lasting = Error::Driver { call: "grow".into(), code: 1, message: "no".into() };
    for error in [short, lasting] {
        let mut rig = rig();
        let s = StreamId::new();
        let a = rig.buffer(s, 4096);
        rig.write(s, &a, 3);
        rig.script.next("grow", 0, Fate::Fails(error));
        let b = rig.buffer(s, 4096);
        rig.write(s, &b, 4);
        let (of_a, of_b) = (rig.read(s, &a), rig.read(s, &b));
        rig.run();
        assert_eq!((first(&of_a), first(&of_b), rig.script.get().pages), (Ok(3), Ok(4), 2));
        rig.buffer(s, 4096);
        let grown = rig.log().iter().filter(|line| line.contains("grows")).count();
        assert_eq!((grown, rig.script.get().pages), (2, 2), "the page taken last grows");
    }
}

#[test]
fn what_has_an_allocation_of_its_own_is_asked_for_as_ever() {
    let mut rig = rig();
    let (s, mut held) = (StreamId::new(), Vec::new());
    for mode in [AllocationMode::Dedicated, AllocationMode::Persistent] {
        let (handle, at) = (rig.handles.create(5000).unwrap(), rig.at(s));
        rig.server.reserve(at, &handle, mode);
        held.push(handle);
        assert_eq!(report(&rig).total().pages, held.len() as u64, "{mode}");
        assert_eq!(rig.log().iter().filter(|line| line.starts_with("page")).count(), 0, "{mode}");
    }
}

#[test]
fn a_dry_run_reports_what_a_real_one_does() {
    let mut real = rig();
    let (dry, script) = driver("mock compiler 1");
    script.get().growth_step = Some(4096);
    let mut dry = DriverServer::new(Dry::new(dry), settings());
    let handles = Handles::new(ServiceId::new()).unwrap();
    let s = StreamId::new();
    let mut kept = Vec::new();
    for (number, size) in [3000, 10_000, 60_000, 700, 4096, 30_000].into_iter().enumerate() {
        kept.push(real.buffer(s, size));
        let handle = handles.create(size).unwrap();
        dry.reserve(Moment { stream: s, seq: number as u64 + 1 }, &handle, AllocationMode::Auto);
        kept.push(handle);
        assert_eq!(dry.report(ReportScope::Device).to_string(), report(&real).to_string());
    }
    assert_eq!((report(&real).total().pages, script.get().taken), (3, 0));
}
