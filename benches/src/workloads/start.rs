//! From nothing to the first result.

use crate::harness::{Case, Run, Target, interleave};
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use trunnion_backend_host::{HostBackend, HostOptions};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result as CoreResult;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

/// A client on a host device that nobody else of this process uses.
pub fn open_host() -> Result<Client, Box<dyn Error>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let backend = BackendName::new("bench").ok_or("the name is too long")?;
    let device = DeviceId { backend, index: NEXT.fetch_add(1, Ordering::Relaxed) };
    let opened = HostBackend::new(HostOptions::default()).open(0, &OpenSettings::default())?;
    Ok(Client::try_init(device, opened)?)
}

/// Adds one to 64 numbers in each workgroup's part.
pub fn increment() -> SourceKernel {
    SourceKernel::new("increment", Interface::new().partition(256)).source(Source::host(|group| {
        group.part::<u32>(0)?.iter_mut().for_each(|x| *x = x.wrapping_add(1));
        Ok(())
    }))
}

/// Adds one to 64 numbers on the device.
pub fn once(client: &Client) -> CoreResult<u32> {
    let kernel = client.prepare(increment())?;
    let buffer = client.create_from_slice(&[0; 256])?;
    client.launch(&kernel, Grid::x(1), [&buffer])?;
    Ok(client.read_one(&buffer)?.cast::<u32>()?[0])
}

pub fn first_result(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let ours = || {
        let start = Instant::now();
        let client = open_host().expect("the host starts");
        assert_eq!(once(&client).expect("the host computes"), 1);
        start.elapsed().as_secs_f64() * 1e3
    };
    // The host's bare API is a thread that does the same.
    let bare = || {
        let start = Instant::now();
        let numbers = std::thread::spawn(|| {
            let mut numbers = vec![0u32; 64];
            numbers.iter_mut().for_each(|x| *x += 1);
            numbers
        });
        assert_eq!(numbers.join().expect("it ends")[0], 1);
        start.elapsed().as_secs_f64() * 1e3
    };
    let (ours, bare) = interleave(run.rounds(51), ours, bare);
    let over = ours.iter().zip(&bare).map(|(ours, bare)| ours - bare).collect();
    run.report(Case {
        case: "host",
        ours: over,
        unit: "ms over a bare thread",
        peer: None,
        target: Some(Target::Value(5.0)),
    });
    super::vulkan::start(run)
}
