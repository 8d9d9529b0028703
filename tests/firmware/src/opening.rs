//! Devices are found and opened.

use crate::check::{Check, Outcome, fails, holds, same};
use crate::device::{DEVICES, MEMORY, device, open, open_with};
use alloc::format;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::properties::DeviceKind;
use trunnion_runtime_core::service::Settings;

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "the processor is found as several devices, none of them started", run: found },
    Check { name: "a device says what it is and how much it has", run: properties },
    Check { name: "what runs nobody's thread is the default, in a small ring", run: defaults },
    Check { name: "a device opened twice is one device", run: twice },
    Check { name: "a device or a backend that is not there is named, with what is", run: not_there },
    Check { name: "an option that is none lists those that are", run: options },
];

fn found() -> Outcome {
    same(Client::device_count(DeviceKind::Cpu), DEVICES as usize)?;
    let all = Client::enumerate_all_devices();
    same(all.iter().map(|info| info.device.index).collect::<alloc::vec::Vec<_>>(), [0, 1, 2])
}

fn properties() -> Outcome {
    let client = open()?;
    same(client.target_properties().architecture.as_str(), "arm")?;
    same(client.target_properties().load_width, 4)?;
    same(client.target_properties().compute_units, 1)?;
    same((client.limits().memory, client.limits().max_allocation), (MEMORY, MEMORY))?;
    same(&client.features().sources[..], [SourceForm::Host])?;
    holds(client.features().host_visible, "its memory is not the host's")?;
    same(client.name(), "arm (host:0)")
}

fn defaults() -> Outcome {
    let settings = Settings::default();
    same(settings.executor.execution, Execution::Inline)?;
    same(settings.executor.ring_bytes, 16 << 10)
}

fn twice() -> Outcome {
    let (one, other) = (open()?, Client::open("host", 0)?);
    same(one.service_id(), other.service_id())?;
    holds(one.service_id() != Client::open("host", 1)?.service_id(), "two devices are one")
}

fn not_there() -> Outcome {
    let error = fails(Client::load(device(DEVICES)), |e| matches!(e, Error::NoDevice { .. }))?;
    same(format!("{error}"), "there is no device host:3: the backend has 3")?;
    let error = fails(Client::open("cuda", 0), |e| matches!(e, Error::UnknownBackend { .. }))?;
    holds(format!("{error}").contains("host"), error)
}

fn options() -> Outcome {
    let error = fails(open_with(&[("treads", "1")]), |e| matches!(e, Error::UnknownOption { .. }))?;
    holds(format!("{error}").contains("threads"), &error)?;
    let error = fails(open_with(&[("memory", "9GB")]), |e| matches!(e, Error::BadOption { .. }))?;
    holds(format!("{error}").contains("`9GB`"), &error)?;
    same(open_with(&[("memory", "64KiB")])?.limits().memory, 64 << 10)
}
