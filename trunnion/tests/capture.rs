//! Kernels that hold what holds them.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]
#![cfg(feature = "host")]

use std::sync::Arc;
use std::time::Duration;
use trunnion::kernel::LaunchMode;
use trunnion::prelude::*;

#[test]
fn a_kernel_that_holds_a_client_of_its_device_goes_with_the_shutdown() {
    let held = Arc::new(());
    for launched in [false, true] {
        let client = trunnion::open("host").unwrap();
        let (inside, token) = (client.clone(), held.clone());
        let kernel = SourceKernel::new("holder", Interface::new().partition(4)).source(Source::host(move |group| {
            let _ = (&inside, &token);
            group.part::<u8>(0)?.fill(1);
            Ok(())
        }));
        let kernel = client.prepare(kernel).unwrap();
        if launched {
            let bytes = client.empty(4).unwrap();
            client.launch(&kernel, Grid::x(1), [&bytes]).unwrap();
            assert_eq!(client.read_one(&bytes).unwrap().as_slice().unwrap(), [1; 4]);
        }
        {
            let _scope = client.launch_mode(LaunchMode::Queue).unwrap();
            client.launch(&kernel, Grid::x(1), [&client.empty(4).unwrap()]).unwrap();
        }
        drop(kernel);
        assert_eq!(Arc::strong_count(&held), 2, "the device remembers the kernel");
        assert_eq!(client.shutdown(Duration::from_secs(5)).abandoned, 0);
        drop(client);
        assert_eq!(Arc::strong_count(&held), 1, "launched: {launched}");
    }
}
