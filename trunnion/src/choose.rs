//! Choosing a device when the program runs, and opening it.

use crate::backend::{Backend, backend};
use crate::backends::backends;
use crate::client::Client;
use crate::config::Config;
use crate::device::{Device, Which};
use crate::discovery::{Discovery, enumerate, rank};
use crate::error::Error;
use crate::errors::OpenError;
use crate::id::DeviceId;
use crate::server::Opened;
use crate::sink::FileSink;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;

/// The device the configuration asks for, else the best there is, started unless it runs: [`open_with`] of [`Config::load`].
///
/// # Errors
/// As for [`open_with`], and [`ConfigError`](crate::ConfigError) for a configuration that is not valid.
pub fn default_client() -> Result<Client, OpenError> {
    open_with(&Config::load()?)
}

/// A device, by name (`"host"`, `"host:1"`, `"vulkan:llvmpipe"`), as a [`Device`] or as a [`DeviceId`], started unless it runs, with the
/// settings of [`Config::load`].
///
/// ```
/// let client = trunnion::open("host")?;
/// assert_eq!(client.device_id().to_string(), "host:0");
/// # Ok::<(), trunnion::OpenError>(())
/// ```
///
/// # Errors
/// As for [`default_client`], and [`ParseDeviceError`](crate::ParseDeviceError) for text that names no device.
pub fn open<D>(device: D) -> Result<Client, OpenError>
where
    D: TryInto<Device>,
    OpenError: From<D::Error>,
{
    let device = device.try_into()?;
    open_with(&Config::load()?.backend(device))
}

/// The device a configuration asks for, else the best there is; started with the configuration's settings, and its layers around its
/// server, unless it runs: a device that runs is given as it is, and [`Client::settings`] tells how that was started.
///
/// # Errors
/// [`Error::UnknownBackend`] and [`OpenError::NoMatch`] list what there is; [`Error::NoDevice`] says how many devices there are;
/// [`Error::BackendUnavailable`] and [`OpenError::NoDevices`] say why there can be none; [`ConfigError`](crate::ConfigError) says where an
/// option that the backend does not take was read, [`Error::UnknownOption`] and [`Error::BadOption`] where it came from the builder;
/// [`Error::File`] says why the file that `memory_trace` names cannot be written.
pub fn open_with(config: &Config) -> Result<Client, OpenError> {
    let device = choose(config.device(), &backends())?;
    let settings = config.settings(device.backend.as_str());
    let open = || {
        let mut opened = backend(device.backend.as_str())?.open(device.index, &settings.open)?;
        if let Some(file) = config.memory_trace_file() {
            trace_memory(&mut opened, device, file)?;
        }
        Ok(config.server_layers().around(opened))
    };
    Client::init_with(device, &settings, open).map_err(|error| config.located(error))
}

/// Has a server that was not started write what is asked of its memory to a file.
fn trace_memory(opened: &mut Opened, device: DeviceId, file: &str) -> Result<(), Error> {
    let unsupported = || Error::Unsupported { what: "memory_trace".into(), backend: device.backend };
    let server = opened.server.memory().and_then(|memory| memory.recording()).ok_or_else(unsupported)?;
    server.start_recording(Box::new(FileSink::create_another(file)?))
}

/// The device that is asked for, else the best there is.
fn choose(asked: Option<&Device>, backends: &[Arc<dyn Backend>]) -> Result<DeviceId, OpenError> {
    let Some(asked) = asked else {
        let Discovery { devices, unavailable } = Discovery::of(backends);
        return devices.first().map(|best| best.device).ok_or(OpenError::NoDevices { unavailable });
    };
    let Some(backend) = backends.iter().find(|known| known.name().as_str().eq_ignore_ascii_case(asked.backend()))
    else {
        let known = backends.iter().map(|known| known.name().to_string()).collect();
        return Err(Error::UnknownBackend { name: asked.backend().into(), known }.into());
    };
    let name = backend.name();
    match asked.which() {
        // Whether there is one, the backend says when it opens it: its options may have changed how many there are.
        Which::Index(index) => Ok(DeviceId { backend: name, index: *index }),
        Which::Best => {
            let devices = enumerate(&**backend)?;
            let best = devices.iter().min_by_key(|device| rank(device.kind)).map(|best| best.device);
            best.ok_or_else(|| Error::NoDevice { device: DeviceId { backend: name, index: 0 }, count: 0 }.into())
        }
        Which::Named(part) => {
            let part = part.to_lowercase();
            let devices = enumerate(&**backend)?;
            let named = devices.iter().find(|device| device.adapter.to_lowercase().contains(&part));
            named.map(|named| named.device).ok_or_else(|| OpenError::NoMatch {
                asked: asked.to_string(),
                devices: devices
                    .iter()
                    .map(|device| alloc::format!("{} ({})", device.device, device.adapter))
                    .collect(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::OpenSettings;
    use crate::error::Result;
    use crate::id::BackendName;
    use crate::properties::{DeviceInfo, DeviceKind};
    use alloc::string::String;
    use alloc::vec::Vec;

    /// A backend that can be looked at and not opened.
    struct Shelf(&'static str, core::result::Result<Vec<(DeviceKind, &'static str)>, &'static str>);

    impl Shelf {
        fn id(&self, index: usize) -> DeviceId {
            DeviceId { backend: self.name(), index: index as u32 }
        }
    }

    impl Backend for Shelf {
        fn name(&self) -> BackendName {
            BackendName::new(self.0).unwrap()
        }

        fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
            match &self.1 {
                Ok(devices) => {
                    let info = |(i, (kind, name)): (usize, &(DeviceKind, &str))| {
                        DeviceInfo::new(self.id(i), *kind, *name, "driver", "api")
                    };
                    Ok(devices.iter().enumerate().map(info).collect())
                }
                Err(why) => Err(Error::Driver { call: "load".into(), code: -3, message: (*why).into() }),
            }
        }

        fn open(&self, index: u32, _: &OpenSettings) -> Result<Opened> {
            Err(Error::NoDevice { device: self.id(index as usize), count: 0 })
        }
    }

    fn shelves() -> Vec<Arc<dyn Backend>> {
        use DeviceKind::*;
        alloc::vec![
            Arc::new(Shelf("cuda", Err("no libcuda"))),
            Arc::new(Shelf(
                "vulkan",
                Ok(alloc::vec![(Cpu, "llvmpipe (LLVM 19)"), (IntegratedGpu, "Iris Xe"), (DiscreteGpu, "Arc A770")])
            )),
            Arc::new(Shelf("wgpu", Ok(alloc::vec![(DiscreteGpu, "Arc A770"), (VirtualGpu, "virtio"), (Other, "odd")]))),
            Arc::new(Shelf("Host", Ok(alloc::vec![(Cpu, "processor")]))),
            Arc::new(Shelf("bare", Ok(Vec::new()))),
        ]
    }

    fn chosen(text: &str) -> core::result::Result<String, OpenError> {
        choose(Some(&Device::parse(text).unwrap()), &shelves()).map(|id| id.to_string())
    }

    #[test]
    fn devices_are_listed_best_first_and_the_order_of_backends_breaks_ties() {
        let found = Discovery::of(&shelves());
        let order: Vec<_> = found.devices.iter().map(|device| device.device.to_string()).collect();
        assert_eq!(order, ["vulkan:2", "wgpu:0", "vulkan:1", "wgpu:1", "wgpu:2", "vulkan:0", "Host:0"]);
        assert_eq!(choose(None, &shelves()).unwrap().to_string(), "vulkan:2");
    }

    #[test]
    fn a_gpu_is_better_than_the_host_and_the_host_than_a_driver_on_the_same_processor() {
        use DeviceKind::*;
        let host: Arc<dyn Backend> = Arc::new(Shelf("host", Ok(alloc::vec![(Cpu, "processor")])));
        let vulkan = |devices| -> Arc<dyn Backend> { Arc::new(Shelf("vulkan", Ok(devices))) };
        let best = |devices| choose(None, &[host.clone(), vulkan(devices)]).unwrap().to_string();
        assert_eq!(best(alloc::vec![(Cpu, "llvmpipe")]), "host:0");
        assert_eq!(best(alloc::vec![(Cpu, "llvmpipe"), (VirtualGpu, "virtio")]), "vulkan:1");
    }

    #[test]
    fn a_backend_alone_means_its_best_device() {
        assert_eq!(chosen("vulkan").unwrap(), "vulkan:2");
        assert_eq!(chosen("host").unwrap(), "Host:0");
    }

    #[test]
    fn an_index_is_left_to_the_backend_to_judge() {
        assert_eq!(chosen("vulkan:0").unwrap(), "vulkan:0");
        assert_eq!(chosen("vulkan:99").unwrap(), "vulkan:99");
    }

    #[test]
    fn part_of_a_name_means_the_first_adapter_with_it_whatever_the_capitals() {
        assert_eq!(chosen("VULKAN:LLVMpipe").unwrap(), "vulkan:0");
        assert_eq!(chosen("vulkan:xe").unwrap(), "vulkan:1");
        assert_eq!(chosen("wgpu:a").unwrap(), "wgpu:0");
    }

    #[test]
    fn a_backend_there_is_none_of_is_refused_with_those_there_are() {
        let error = chosen("metal:0").unwrap_err();
        let known = ["cuda", "vulkan", "wgpu", "Host", "bare"].map(String::from).to_vec();
        assert_eq!(error, Error::UnknownBackend { name: "metal".into(), known }.into());
    }

    #[test]
    fn a_name_no_adapter_has_is_refused_with_the_devices_there_are() {
        let OpenError::NoMatch { asked, devices } = chosen("vulkan:radeon").unwrap_err() else { panic!("no match") };
        assert_eq!((asked.as_str(), devices.len()), ("vulkan:radeon", 3));
        assert_eq!(devices[1], "vulkan:1 (Iris Xe)");
    }

    #[test]
    fn a_backend_that_is_not_available_is_named_with_its_reason() {
        let error = chosen("cuda").unwrap_err().to_string();
        assert!(error.contains("backend cuda is not available") && error.contains("no libcuda"), "{error}");
        let error = choose(None, &shelves()[..1]).unwrap_err().to_string();
        assert!(error.contains("there is no device; backend cuda") && error.contains("no libcuda"), "{error}");
    }

    #[test]
    fn a_backend_without_devices_says_so() {
        assert!(matches!(chosen("bare"), Err(OpenError::Runtime(Error::NoDevice { count: 0, .. }))));
    }

    #[test]
    fn the_table_has_a_line_for_each_device_and_each_missing_backend() {
        let table = Discovery::of(&shelves()).to_string();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 1 + 7 + 1);
        assert!(lines[0].starts_with("device    kind            adapter"), "{table}");
        assert!(lines[1].starts_with("vulkan:2  discrete GPU    Arc A770"), "{table}");
        assert!(lines[8].contains("no libcuda"), "{table}");
    }
}
