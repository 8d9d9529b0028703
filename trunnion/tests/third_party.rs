//! A third party's backend. The one test has a process of its own, so that `register` is the first call there is.
#![cfg(feature = "host")]

extern crate alloc;

use alloc::sync::Arc;
use trunnion::backend::{Backend, OpenSettings};
use trunnion::id::BackendName;
use trunnion::prelude::*;
use trunnion::properties::DeviceInfo;
use trunnion::server::Opened;
use trunnion::{Error, Result};

/// A third party's backend: the host's under another name, with a condition on its options.
struct Lent;

impl Backend for Lent {
    fn name(&self) -> BackendName {
        BackendName::new("lent").unwrap()
    }

    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        let device = DeviceId { backend: self.name(), index: 0 };
        Ok(vec![DeviceInfo::new(device, trunnion::properties::DeviceKind::Other, "Lent Device 9", "lent 1", "lent")])
    }

    fn open(&self, index: u32, settings: &OpenSettings) -> Result<Opened> {
        let host = trunnion::backend::backend("host")?;
        assert!(settings.options.keys().all(|name| name == "threads"), "{settings:?}");
        host.open(index, settings)
    }
}

#[test]
fn a_third_partys_backend_is_listed_chosen_and_configured_like_the_others() {
    trunnion::register(Arc::new(Lent)).unwrap();
    let again = trunnion::register(Arc::new(Lent)).unwrap_err();
    assert!(matches!(again, Error::BackendUnavailable { .. }), "{again}");
    let names: Vec<_> = trunnion::backends().iter().map(|backend| backend.name().to_string()).collect();
    assert_eq!(names.last().map(String::as_str), Some("lent"), "the built-in ones come first: {names:?}");
    let mut devices: Vec<_> = trunnion::devices().iter().map(|device| device.device.to_string()).collect();
    // Which other devices there are, the machine says.
    devices.retain(|device| ["lent:0", "host:0"].contains(&device.as_str()));
    assert_eq!(devices, ["lent:0", "host:0"], "any other kind is better than a CPU");

    let file = "backend = 'lent:device'\n[lent]\nthreads = 1\n";
    let variables = [("TRUNNION_LENT_THREADS".to_string(), "2".to_string())];
    let config = Config::from_sources(Some(("t.toml", file)), variables.into_iter()).unwrap();
    assert_eq!(config.settings("lent").open.options["threads"], "2");
    let client = trunnion::open_with(&config).unwrap();
    assert_eq!(client.device_id().to_string(), "lent:0");
    assert_eq!(Buffer::from_slice(&client, &[1u8]).unwrap().read().unwrap(), [1]);
}
