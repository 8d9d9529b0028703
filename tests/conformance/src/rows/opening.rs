//! C1, C2, C9: devices are found, opened once a process, and those that cannot start say why.

use crate::check::{Failure, Outcome};
use crate::context::{Context, ready};
use crate::factory::Variant;
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use trunnion_runtime_core::backend::{self, Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::properties::{DeviceInfo, DeviceKind};
use trunnion_runtime_core::server::Opened;

tests! {
    C1 a_device_is_started_once_a_process .alone();
    C1 eight_threads_that_load_at_once_share_one_server .alone();
    C1 an_unknown_backend_lists_the_known_ones;
    C1 a_bad_index_names_the_device_and_how_many_there_are;
    C1 a_backend_that_cannot_start_says_why;
    C1 a_device_that_runs_keeps_its_settings_and_tells_them;
    C1 a_device_that_failed_to_start_can_be_started_again;
    C2 a_ready_made_server_is_registered;
    C2 a_second_server_on_a_device_is_refused_and_the_first_goes_on;
    C2 init_gives_the_running_server_without_making_another;
    C9 devices_are_listed_by_backend_and_kind;
    C9 listing_devices_starts_no_server;
    C9 a_backend_without_devices_is_left_out;
}

fn a_device_is_started_once_a_process(cx: &Context) -> Outcome {
    let first = cx.registered()?;
    let second = cx.registered()?;
    ensure_eq!(first.service_id(), second.service_id());
    let loaded = Client::load(cx.registered_device()?)?;
    ensure_eq!(loaded.service_id(), first.service_id());
    let later = ready(Client::load_async(first.device_id()))??;
    ensure_eq!(later.service_id(), first.service_id());
    let bytes = first.create_from_slice(&[1, 2, 3, 4])?;
    ensure_eq!(second.read_one(&bytes)?.as_slice()?, [1, 2, 3, 4]);
    Ok(())
}

fn eight_threads_that_load_at_once_share_one_server(cx: &Context) -> Outcome {
    let device = cx.registered_device()?;
    let start = std::sync::Barrier::new(8);
    let loaded: Vec<Result<Client>> = std::thread::scope(|scope| {
        let load = || {
            start.wait();
            Client::load(device)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(loaded.len(), 8);
    let clients = loaded.into_iter().collect::<Result<Vec<_>>>()?;
    for client in &clients {
        ensure_eq!(client.service_id(), clients[0].service_id());
    }
    Ok(())
}

fn an_unknown_backend_lists_the_known_ones(cx: &Context) -> Outcome {
    let error = ensure_err!(Client::open("no-such-backend", 0), Error::UnknownBackend { .. });
    let Error::UnknownBackend { name, known } = &error else { return Ok(()) };
    ensure_eq!(name, "no-such-backend");
    ensure!(known.iter().any(|name| name == cx.factory().backend()), "{known:?} lacks {}", cx.factory().backend());
    ensure!(error.to_string().contains(cx.factory().backend()), "the message lists no backends: {error}");
    Ok(())
}

fn a_bad_index_names_the_device_and_how_many_there_are(cx: &Context) -> Outcome {
    let device = DeviceId { backend: cx.backend()?, index: 9_999 };
    let there = backend::backend(cx.factory().backend())?.enumerate()?.len();
    let error = ensure_err!(Client::load(device), Error::NoDevice { .. });
    ensure_eq!(error, Error::NoDevice { device, count: there as u32 });
    ensure!(error.is_refusal(), "a bad index is no refusal");
    Ok(())
}

/// A third party's backend that finds one device or none, and starts none.
struct Stub {
    name: BackendName,
    devices: bool,
    opened: AtomicU32,
}

impl Backend for Stub {
    fn name(&self) -> BackendName {
        self.name
    }

    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        match self.devices {
            true => {
                let device = DeviceId { backend: self.name, index: 0 };
                Ok(vec![DeviceInfo::new(device, DeviceKind::Other, "stub", "none", "none")])
            }
            false => Err(Error::BackendUnavailable { backend: self.name, why: "libstub.so: no such file".into() }),
        }
    }

    fn open(&self, _: u32, _: &OpenSettings) -> Result<Opened> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Err(Error::BackendUnavailable { backend: self.name, why: "the driver lacks `stubCreateStream`".into() })
    }
}

fn stub(devices: bool) -> Outcome<Arc<Stub>> {
    // Names are the process's, and a test may run on several backends.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("stub-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let name = BackendName::new(&name).ok_or_else(|| Failure::new("no name"))?;
    let stub = Arc::new(Stub { name, devices, opened: AtomicU32::new(0) });
    backend::register(stub.clone())?;
    Ok(stub)
}

fn a_backend_that_cannot_start_says_why(_: &Context) -> Outcome {
    let stub = stub(true)?;
    let error = ensure_err!(Client::open(stub.name.as_str(), 0), Error::BackendUnavailable { .. });
    let text = error.to_string();
    ensure!(
        text.contains("stubCreateStream") && text.contains(stub.name.as_str()),
        "the message says neither who nor why: {text}"
    );
    // Nothing is left behind that keeps the next attempt from being made.
    ensure_err!(Client::open(stub.name.as_str(), 0), Error::BackendUnavailable { .. });
    ensure_eq!(stub.opened.load(Ordering::Relaxed), 2);
    ensure_err!(backend::register(stub.clone()), Error::BackendUnavailable { .. });
    Ok(())
}

fn a_device_that_runs_keeps_its_settings_and_tells_them(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    (settings.wait_timeout, settings.open.memory_budget) = (Duration::from_secs(7), Some(64 << 20));
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let mut others = settings.clone();
    (others.wait_timeout, others.open.memory_budget) = (Duration::from_secs(3), None);
    let again = Client::load_with(client.device_id(), &others)?;
    let made = || Err(Error::BackendUnavailable { backend: client.device_id().backend, why: "it runs already".into() });
    let given = Client::init_with(client.device_id(), &others, made)?;
    for client in [&client, &again, &given] {
        let kept = client.settings();
        ensure_eq!((kept.wait_timeout, kept.open.memory_budget), (Duration::from_secs(7), Some(64 << 20)));
    }
    Ok(())
}

fn a_device_that_failed_to_start_can_be_started_again(cx: &Context) -> Outcome {
    let device = cx.device()?;
    let failure = Error::BackendUnavailable { backend: device.backend, why: "not yet".into() };
    ensure_eq!(Client::init(device, || Err(failure.clone())).err(), Some(failure));
    let client = Client::init(device, || {
        cx.opened(&Variant::plain(), &OpenSettings::default())
            .map_err(|failure| Error::BackendUnavailable { backend: device.backend, why: failure.to_string() })
    })?;
    ensure_eq!(client.device_id(), device);
    client.sync()?.wait()?;
    Ok(())
}

fn a_ready_made_server_is_registered(cx: &Context) -> Outcome {
    let device = cx.device()?;
    let client = Client::try_init(device, cx.opened(&Variant::plain(), &OpenSettings::default())?)?;
    ensure_eq!(client.device_id(), device);
    ensure_eq!(Client::load(device)?.service_id(), client.service_id());
    Ok(())
}

fn a_second_server_on_a_device_is_refused_and_the_first_goes_on(cx: &Context) -> Outcome {
    let device = cx.device()?;
    let client = Client::try_init(device, cx.opened(&Variant::plain(), &OpenSettings::default())?)?;
    let bytes = client.create_from_slice(b"kept")?;
    let second = Client::try_init(device, cx.opened(&Variant::plain(), &OpenSettings::default())?);
    ensure_eq!(ensure_err!(second, Error::AlreadyRunning { .. }), Error::AlreadyRunning { device });
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, b"kept");
    Ok(())
}

fn init_gives_the_running_server_without_making_another(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let mut made = false;
    let again = Client::init(client.device_id(), || {
        made = true;
        Err(Error::BackendUnavailable { backend: client.device_id().backend, why: "it runs already".into() })
    })?;
    ensure!(!made, "another server was made");
    ensure_eq!(again.service_id(), client.service_id());
    Ok(())
}

fn devices_are_listed_by_backend_and_kind(cx: &Context) -> Outcome {
    let backend = cx.backend()?;
    let all = Client::enumerate_all_devices();
    let ours: Vec<_> = all.iter().filter(|info| info.device.backend == backend).collect();
    ensure!(!ours.is_empty(), "no device of {backend} in {all:?}");
    for (index, info) in ours.iter().enumerate() {
        ensure_eq!(info.device.index as usize, index);
        ensure!(Client::enumerate_devices(info.kind).contains(info), "{info:?} is not among those of its kind");
        ensure!(Client::device_count(info.kind) >= 1, "none of kind {:?}", info.kind);
    }
    let later: Vec<_> =
        ready(Client::enumerate_async())?.into_iter().filter(|info| info.device.backend == backend).collect();
    ensure_eq!(later.iter().collect::<Vec<_>>(), ours);
    ensure!(Client::device_count_total() >= ours.len(), "fewer devices in all than of one backend");
    Ok(())
}

fn listing_devices_starts_no_server(_: &Context) -> Outcome {
    let stub = stub(true)?;
    let listed = Client::enumerate_all_devices();
    ensure!(
        listed.iter().any(|info| info.device.backend == stub.name),
        "the device of a third party's backend is not listed"
    );
    ensure!(Client::device_count(DeviceKind::Other) >= 1, "it is not counted");
    ensure_eq!(stub.opened.load(Ordering::Relaxed), 0);
    Ok(())
}

fn a_backend_without_devices_is_left_out(cx: &Context) -> Outcome {
    let stub = stub(false)?;
    let listed = Client::enumerate_all_devices();
    ensure!(listed.iter().all(|info| info.device.backend != stub.name), "a backend that has no device lists one");
    let ours = cx.backend()?;
    ensure!(listed.iter().any(|info| info.device.backend == ours), "the others are gone");
    Ok(())
}
