//! What a kernel may do with its buffers on the host, and what comes of what it may not.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{Functions, all, fault_of, host, part};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::{Driver, DriverGrid};
use trunnion_backend_host::HostOptions;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::{Error, KernelFault};
use trunnion_runtime_core::kernel::{HostUse, Interface};
use trunnion_runtime_core::server::Bounds;

#[test]
fn each_workgroup_has_its_own_part_cut_at_the_end_and_empty_behind_it() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 32]);
    let kernel = rig.kernel("mark", Interface::new().partition(16), |group| {
        let id = group.id()[0];
        let range = group.part_range::<u32>(0)?;
        let part = group.part::<u32>(0)?;
        assert_eq!(range.len(), part.len());
        assert_eq!(range.start, (4 * id as usize).min(10));
        part.fill(1 + id);
        Ok(())
    });
    // Ten elements: two whole parts, one of two, and three without any.
    rig.run(&kernel, [6, 1, 1], &[part(&page, 0, 40)]).unwrap();
    assert_eq!(rig.read_u32(part(&page, 0, 48)), [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 0, 0]);
}

#[test]
fn a_part_of_no_bytes_and_a_buffer_of_none_are_empty() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[7; 16]);
    let kernel =
        rig.kernel("none", Interface::new().partition(0).partition(64).read().atomic().claim(Access::Write), |group| {
            assert!(
                group.part::<u32>(0)?.is_empty()
                    && group.part::<u64>(1)?.is_empty()
                    && group.read::<u64>(2)?.is_empty()
            );
            assert!(group.atomic(3)?.is_empty() && group.claim::<u32>(4, 0..0)?.is_empty());
            Ok(())
        });
    let none = part(&page, 64, 0);
    rig.run(&kernel, [3, 1, 1], &[all(&page), none, none, none, none]).unwrap();
}

#[test]
fn a_part_is_given_once() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let kernel = rig.kernel("twice", Interface::new().partition(16), |group| {
        group.part::<u32>(0)?;
        group.part::<u32>(0).map(|_| ())
    });
    let (_, fault) = fault_of(rig.run(&kernel, [1, 1, 1], &[all(&page)]), "twice");
    assert_eq!(fault, KernelFault::ClaimOverlap { binding: 0, range: 0..16 });
}

#[test]
fn every_workgroup_of_a_grid_runs_once_with_its_place_in_it() {
    for threads in [0, 1] {
        let mut rig = host(HostOptions::default().threads(threads));
        let grid = [7, 5, 30];
        let page = rig.driver.allocate(7 * 5 * 30 * 4 + 56).unwrap();
        let kernel = rig.kernel("ids", Interface::new().atomic().parameters(4), move |group| {
            let [x, y, z] = group.id();
            assert_eq!((group.grid(), group.parameters::<u32>()?), (grid, 9));
            let linear = x + 7 * (y + 5 * z);
            assert_eq!(u64::from(linear), group.linear_id());
            group.atomic(0)?[linear as usize].fetch_add(1 + linear, Ordering::Relaxed);
            Ok(())
        });
        let mut stream = rig.driver.open_stream().unwrap();
        for seq in 1..=20 {
            let buffer = [part(&page, 0, 7 * 5 * 30 * 4)];
            rig.launch_with(&mut stream, seq, &kernel, DriverGrid::Static(grid), &buffer, &9_u32.to_ne_bytes())
                .unwrap();
        }
        rig.driver.submit(&mut stream, 20).unwrap();
        assert!(rig.finish(&mut stream, 20).failed.is_empty());
        let expected: Vec<u32> = (0..7 * 5 * 30).map(|linear| 20 * (1 + linear)).collect();
        assert_eq!(rig.read_u32(part(&page, 0, 7 * 5 * 30 * 4)), expected);
    }
}

#[test]
fn of_two_workgroups_that_claim_one_range_the_second_fails_the_launch() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let won = Arc::new(AtomicUsize::new(0));
    let wins = won.clone();
    let kernel = rig.kernel("both", Interface::new().claim(Access::Write), move |group| {
        group.claim::<u32>(0, 2..6)?.fill(1);
        wins.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    for round in 1..=50 {
        let (_, fault) = fault_of(rig.run(&kernel, [2, 1, 1], &[all(&page)]), "both");
        assert_eq!(fault, KernelFault::ClaimOverlap { binding: 0, range: 8..24 });
        assert_eq!(won.load(Ordering::SeqCst), round);
    }
}

#[test]
fn claims_that_do_not_overlap_are_all_given_in_any_order() {
    let mut rig = host(HostOptions::default());
    let page = rig.driver.allocate(4096 * 4).unwrap();
    let kernel = rig.kernel("scatter", Interface::new().claim(Access::Overwrite), |group| {
        // 509 is prime, so that this is every number once.
        let place = (group.id()[0] as usize * 37) % 509;
        group.claim::<u32>(0, place * 8..place * 8 + 8)?.fill(1 + place as u32);
        Ok(())
    });
    rig.run(&kernel, [509, 1, 1], &[part(&page, 0, 509 * 32)]).unwrap();
    let expected: Vec<u32> = (0..509).flat_map(|place| [1 + place; 8]).collect();
    assert_eq!(rig.read_u32(part(&page, 0, 509 * 32)), expected);
}

#[test]
fn a_claim_outside_the_buffer_names_the_buffer_and_its_size() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let kernel =
        rig.kernel("outside", Interface::new().claim(Access::Write), |group| group.claim::<u32>(0, 3..6).map(|_| ()));
    let (_, fault) = fault_of(rig.run(&kernel, [1, 1, 1], &[part(&page, 0, 20)]), "outside");
    assert_eq!(fault, KernelFault::OutOfBounds { binding: 0, range: 12..24, size: 20 });
}

#[test]
fn shared_memory_is_each_workgroups_own_zeroed_and_given_once() {
    let mut rig = host(HostOptions::default());
    let page = rig.driver.allocate(2048).unwrap();
    let kernel = rig.kernel("shared", Interface::new().partition(4).shared(40), |group| {
        let shared = group.shared::<u64>()?;
        assert_eq!(shared.len(), 5);
        assert!(shared.iter().all(|word| *word == 0), "shared memory was not zeroed");
        shared.fill(1 + group.linear_id());
        std::thread::yield_now();
        assert!(shared.iter().all(|word| *word == 1 + group.linear_id()), "another workgroup wrote into it");
        group.part::<u32>(0)?[0] = shared.iter().sum::<u64>() as u32;
        assert!(matches!(group.shared::<u8>(), Err(KernelFault::ClaimOverlap { binding: 1, .. })));
        Ok(())
    });
    rig.run(&kernel, [500, 1, 1], &[part(&page, 0, 2000)]).unwrap();
    assert_eq!(rig.read_u32(part(&page, 0, 2000)), (1..=500).map(|id| 5 * id).collect::<Vec<u32>>());
}

#[test]
fn a_histogram_of_atomic_elements_counts_everything() {
    let mut rig = host(HostOptions::default());
    let values: Vec<u32> = (0..64_000).map(|i| (i * 7919) % 16).collect();
    let (input, bins) = (rig.page_of(&values), rig.page_of(&[0; 16]));
    let kernel = rig.kernel("histogram", Interface::new().read().atomic(), |group| {
        let bins = group.atomic(1)?;
        let start = group.id()[0] as usize * 1000;
        for value in &group.read::<u32>(0)?[start..start + 1000] {
            bins[*value as usize].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    rig.run(&kernel, [64, 1, 1], &[part(&input, 0, 256_000), all(&bins)]).unwrap();
    assert_eq!(rig.read_u32(all(&bins)), [4000; 16]);
}

#[test]
fn atomic_elements_need_aligned_whole_words() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let kernel = rig.kernel("odd", Interface::new().atomic(), |group| group.atomic(0).map(|_| ()));
    for (offset, size) in [(0, 6), (2, 8)] {
        let (_, fault) = fault_of(rig.run(&kernel, [1, 1, 1], &[part(&page, offset, size)]), "odd");
        assert!(
            matches!(fault, KernelFault::WrongType { size: 4, alignment: 4, bytes, .. } if bytes == size as usize),
            "{fault:?}"
        );
    }
}

#[test]
fn a_buffer_is_used_only_as_declared() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let interface = Interface::new().read().partition(4).claim(Access::Write).atomic();
    let places = [part(&page, 0, 16), part(&page, 16, 16), part(&page, 32, 16), part(&page, 48, 16)];
    let names = ["a shared slice", "a partition", "claimed ranges", "atomic elements"];
    for (binding, declared) in names.into_iter().enumerate() {
        for (way, used) in names.into_iter().enumerate() {
            let kernel = rig.kernel("use", interface.clone(), move |group| match way {
                0 => group.read::<u32>(binding).map(|_| ()),
                1 => group.part::<u32>(binding).map(|_| ()),
                2 => group.claim::<u32>(binding, 0..1).map(|_| ()),
                _ => group.atomic(binding).map(|_| ()),
            });
            let result = rig.run(&kernel, [1, 1, 1], &places);
            if way == binding {
                result.unwrap();
            } else {
                let (_, fault) = fault_of(result, "use");
                assert_eq!(fault, KernelFault::WrongUse { binding, used: used.into(), declared: declared.into() });
            }
        }
    }
    let kernel = rig.kernel("missing", interface, |group| group.read::<u32>(4).map(|_| ()));
    let (_, fault) = fault_of(rig.run(&kernel, [1, 1, 1], &places), "missing");
    assert!(matches!(fault, KernelFault::WrongUse { binding: 4, .. }));
}

#[test]
fn overlapping_buffers_must_both_be_atomic_or_both_only_read() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let overlapping = [part(&page, 0, 32), part(&page, 28, 32)];
    let beside = [part(&page, 0, 32), part(&page, 32, 32)];
    let ways = [
        Interface::new().read(),
        Interface::new().partition(4),
        Interface::new().claim(Access::Write),
        Interface::new().atomic(),
    ];
    for first in &ways {
        for second in &ways {
            let mut interface = first.clone();
            interface.buffers.extend_from_slice(&second.buffers);
            let uses = [interface.buffers[0].host, interface.buffers[1].host];
            let kernel = rig.kernel("pair", interface.in_place(), |_| Ok(()));
            rig.run(&kernel, [1, 1, 1], &beside).unwrap();
            let result = rig.run(&kernel, [1, 1, 1], &overlapping);
            if uses == [HostUse::Atomic; 2] || uses == [HostUse::Slice; 2] {
                result.unwrap();
            } else {
                assert_eq!(result, Err(Error::Overlap { what: "pair".into(), first: 0, second: 1 }));
            }
        }
    }
}

#[test]
fn a_kernel_that_could_store_to_what_it_says_it_only_reads_does_not_compile() {
    let mut rig = host(HostOptions::default());
    let interface = Interface::new().buffer(Access::Read, HostUse::Atomic);
    // Built by hand where `prepare` refuses it already.
    let kernel =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rig.prepare_function("sly", interface, |_| Ok(()))));
    if let Ok(kernel) = kernel {
        let error = rig.driver.compile(&kernel, Bounds::Unchecked, None).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidKernel { kernel, why } if kernel == "sly" && why.contains("Read")),
            "{error}"
        );
    }
}

#[test]
fn a_fault_stops_the_launch_and_names_the_workgroup_and_the_next_operation_runs() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[0; 16]);
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    let bad = rig.kernel("bad", Interface::new(), move |group| {
        count.fetch_add(1, Ordering::SeqCst);
        if group.id() == [3, 1, 0] { Err(KernelFault::Message("no".into())) } else { Ok(()) }
    });
    let good = rig.kernel("good", Interface::new().partition(4), |group| {
        group.part::<u32>(0)?[0] = 5;
        Ok(())
    });
    let mut stream = rig.driver.open_stream().unwrap();
    rig.launch(&mut stream, 1, &bad, [1000, 1000, 1], &[]).unwrap();
    rig.launch(&mut stream, 2, &good, [1, 1, 1], &[all(&page)]).unwrap();
    rig.driver.submit(&mut stream, 2).unwrap();
    let outcome = rig.finish(&mut stream, 2);
    let [(1, Error::KernelFailed { kernel, workgroup: [3, 1, 0], fault: KernelFault::Message(message) })] =
        outcome.failed.as_slice()
    else {
        panic!("{:?}", outcome.failed);
    };
    assert_eq!((kernel.as_str(), message.as_str()), ("bad", "no"));
    assert!(ran.load(Ordering::SeqCst) < 1_000_000, "the launch was not stopped early");
    assert_eq!(rig.read_u32(part(&page, 0, 8)), [5, 0]);
}

#[test]
#[cfg(feature = "std")]
fn a_panic_in_a_kernel_is_a_failure_of_its_launch_and_of_nothing_else() {
    let mut rig = host(HostOptions::default());
    let page = rig.page_of(&[1; 16]);
    let kernel = rig.kernel("panics", Interface::new().partition(4).shared(64), |group| {
        let shared = group.shared::<u32>()?;
        shared.fill(3);
        if group.id()[0] == 2 {
            panic!("workgroup {} gives up", group.id()[0]);
        }
        Ok(())
    });
    for _ in 0..20 {
        let (workgroup, fault) = fault_of(rig.run(&kernel, [4, 1, 1], &[all(&page)]), "panics");
        assert_eq!((workgroup, fault), ([2, 0, 0], KernelFault::Panicked("workgroup 2 gives up".into())));
    }
    let fine = rig.kernel("fine", Interface::new().shared(64), |group| {
        assert_eq!(group.shared::<u32>()?, [0; 16]);
        Ok(())
    });
    rig.run(&fine, [100, 1, 1], &[]).unwrap();
}

#[test]
fn a_dynamic_grid_is_read_when_the_launch_runs() {
    let mut rig =
        host(HostOptions::default().limits(LimitOptions { max_grid: Some([10, 8, 6]), ..LimitOptions::default() }));
    let (counts, bins) = (rig.page_of(&[0; 16]), rig.page_of(&[0; 16]));
    let kernel = rig.kernel("count", Interface::new().atomic(), |group| {
        group.atomic(0)?[0].fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut launch = |grid: [u32; 3]| {
        let mut stream = rig.driver.open_stream().unwrap();
        let bytes: Vec<u8> = grid.iter().flat_map(|count| count.to_ne_bytes()).collect();
        let place = part(&counts, 4, 12);
        // The counts are written by the stream itself, after the launch was encoded with other ones in place.
        rig.write(&mut stream, 1, &bytes, place);
        rig.launch_with(&mut stream, 2, &kernel, DriverGrid::Dynamic(place), &[all(&bins)], &[]).unwrap();
        rig.driver.submit(&mut stream, 2).unwrap();
        let failed = rig.finish(&mut stream, 2).failed;
        (rig.read_u32(all(&bins))[0], failed)
    };
    assert_eq!(launch([2, 3, 4]), (24, vec![]));
    assert_eq!(launch([0, 3, 4]), (24, vec![]));
    assert_eq!(launch([10, 8, 6]), (504, vec![]));
    assert_eq!(launch([1, 9, 1]), (504, vec![(2, Error::GridTooLarge { axis: 'y', requested: 9, limit: 8 })]));
}

#[test]
fn a_launch_that_turns_out_dearer_or_cheaper_than_the_last_is_still_whole() {
    let mut rig = host(HostOptions::default());
    let page = rig.driver.allocate(4096).unwrap();
    let kernel = rig.kernel("varies", Interface::new().partition(4).parameters(4), |group| {
        let work = group.parameters::<u32>()?;
        let part = group.part::<u32>(0)?;
        part[0] = std::hint::black_box((0..work).fold(part[0], |sum, k| sum.wrapping_add(std::hint::black_box(k))));
        part[0] = 7 + work;
        Ok(())
    });
    for (round, work) in [10_u32, 10, 20_000, 1, 1, 5000, 0].into_iter().enumerate() {
        let mut stream = rig.driver.open_stream().unwrap();
        let groups = 1000 - 100 * round as u32;
        let place = part(&page, 0, u64::from(groups) * 4);
        rig.launch_with(&mut stream, 1, &kernel, DriverGrid::Static([groups, 1, 1]), &[place], &work.to_ne_bytes())
            .unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        assert!(rig.finish(&mut stream, 1).failed.is_empty());
        assert_eq!(rig.read_u32(place), vec![7 + work; groups as usize]);
    }
}
