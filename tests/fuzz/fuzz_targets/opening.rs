//! A host device with options, `name = value` one a line: it opens, works or answers errors, and ends.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::time::Duration;
use trunnion::backend::{Backend, OpenSettings};
use trunnion::executor::Execution;
use trunnion::layout::TensorDescriptor;
use trunnion::service::Settings;
use trunnion::{Bytes, Client, DeviceId, ElemType};
use trunnion_backend_host::{HostBackend, HostOptions, NAME};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let mut options = HostOptions::default();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        // Work that is told late is with the device when that is dropped, and its memory is then never given back.
        if ["delay", "reorder"].contains(&name.trim()) {
            return Corpus::Reject;
        }
        options = options.clone().set(name, value).unwrap_or(options);
    }
    use_device(options);
    Corpus::Keep
});

/// A few operations that no option forbids; whether there is memory for them the options say.
fn use_device(options: HostOptions) {
    let opened = HostBackend::new(options).open(0, &OpenSettings::default()).expect("there is a first device");
    let mut settings = Settings::default();
    settings.executor.execution = Execution::Inline;
    let device = DeviceId { backend: NAME, index: 0 };
    let client = Client::try_init_with(device, opened, &settings).expect("the last one was dropped");
    let limits = client.limits();
    assert!(limits.max_allocation <= limits.memory && limits.row_pitch.is_power_of_two());
    if let Ok(a) = client.zeros(48) {
        let read = client.read_one(&a);
        assert!(read.is_err() || read.is_ok_and(|bytes| bytes.as_slice().is_ok_and(|bytes| bytes == [0; 48])));
    }
    let tensor = TensorDescriptor::optimized([2, 3], ElemType::F32);
    let layout = client.create_tensor(&tensor, Bytes::from_vec(vec![7; 24]));
    if let Ok(layout) = &layout
        && layout.memory.size_in_used() < 1 << 20
    {
        client.sync_buffers(&[&layout.memory]).ok();
    }
    drop(layout);
    client.shutdown(Duration::from_secs(5));
}
