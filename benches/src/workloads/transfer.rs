//! Moving bytes to the host's device and back, beside `memcpy`; to others, beside their bare API.

use crate::harness::{Case, Run, Target, interleave};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

const LARGE: usize = 64 << 20;
const SMALL: usize = 4 << 10;

pub fn transfer(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let client = super::start::open_host()?;
    let size = if run.quick { LARGE / 16 } else { LARGE };
    let source: Vec<u8> = (0..size).map(|i| i as u8).collect();
    let mut target = vec![1u8; size];
    let mut back = vec![1u8; size];
    let buffer = client.create_from_slice(&source)?;

    let upload = || {
        let start = Instant::now();
        client.write_slice(&buffer, &source).expect("the slice is written");
        client.sync().and_then(|done| done.wait()).expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e3
    };
    let copy = || timed_copy(&source, &mut target);
    let (ours, peer) = interleave(run.rounds(21), upload, copy);
    run.report(Case {
        case: "host-upload-64MiB",
        ours,
        unit: "ms",
        peer: Some(("memcpy", peer)),
        target: Some(Target::Ratio(1.1)),
    });

    let download = || {
        let start = Instant::now();
        client.read_into(&buffer, &mut back).expect("the bytes are read");
        start.elapsed().as_secs_f64() * 1e3
    };
    let (ours, peer) = interleave(run.rounds(21), download, || timed_copy(&source, &mut target));
    assert_eq!(back, source);
    run.report(Case {
        case: "host-download-64MiB",
        ours,
        unit: "ms",
        peer: Some(("memcpy", peer)),
        target: Some(Target::Ratio(1.1)),
    });

    // As many places as uploads, so that neither side finds its target in the cache.
    let uploads = run.repeat(10_000).min(size / SMALL);
    let small: Vec<_> = (0..uploads).map(|_| client.empty(SMALL as u64)).collect::<Result<_, _>>()?;
    let upload = || {
        let start = Instant::now();
        for (i, handle) in small.iter().enumerate() {
            client.write_slice(handle, &source[i * SMALL % size..][..SMALL]).expect("the slice is written");
        }
        client.sync().and_then(|done| done.wait()).expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e9 / uploads as f64
    };
    let copy = || {
        let start = Instant::now();
        for i in 0..uploads {
            let at = i * SMALL % size;
            target[at..at + SMALL].copy_from_slice(black_box(&source[at..at + SMALL]));
        }
        black_box(&target);
        start.elapsed().as_secs_f64() * 1e9 / uploads as f64
    };
    let (ours, peer) = interleave(run.rounds(21), upload, copy);
    run.report(Case {
        case: "host-upload-4KiB",
        ours,
        unit: "ns",
        peer: Some(("memcpy", peer)),
        target: Some(Target::Ratio(1.1)),
    });
    super::vulkan::transfer(run)
}

fn timed_copy(source: &[u8], target: &mut [u8]) -> f64 {
    let start = Instant::now();
    target.copy_from_slice(black_box(source));
    black_box(&target);
    start.elapsed().as_secs_f64() * 1e3
}
