//! X2, X4: picking a backend, and configuration.

use alloc::sync::Arc;
use core::time::Duration;
use trunnion::backend::{Backend, OpenSettings};
use trunnion::error::{Error, Result};
use trunnion::id::{BackendName, DeviceId};
use trunnion::memory_pools::trace::Trace;
use trunnion::properties::{DeviceInfo, DeviceKind};
use trunnion::server::Opened;
use trunnion::service::BoundsPolicy;
use trunnion::{Config, ConfigError, Device, OpenError, Origin};
use trunnion_conformance::{Context, Failure, Outcome, ensure, ensure_eq, ensure_err, tests};

tests! {
    X2 a_device_is_opened_by_name;
    X2 an_unknown_name_lists_the_backends_there_are;
    X2 text_that_names_no_device_is_refused;
    X2 a_bad_index_and_a_name_no_adapter_has_say_what_there_is;
    X2 without_a_name_the_best_device_is_opened .child();
    X2 the_environment_picks_the_backend .child();
    X2 a_backend_picked_in_the_environment_that_is_none_is_named .env(&[("TRUNNION_BACKEND", "no-such-backend")]);
    X2 a_backend_picked_in_the_environment_is_opened .env(&[("TRUNNION_BACKEND", "host:0"), ("TRUNNION_WAIT_TIMEOUT", "77s")]);
    X2 devices_are_discovered_best_first;
    X2 a_third_partys_backend_is_listed_and_opened_like_the_others .child();
    X2 clients_of_several_backends_live_in_one_program .child();
    X4 the_builder_says_what_a_device_is_started_with;
    X4 the_environment_counts_before_the_file_and_the_file_before_the_defaults;
    X4 the_builder_counts_before_the_environment;
    X4 an_unknown_key_lists_what_is_valid;
    X4 a_bad_value_names_its_place_and_what_is_valid;
    X4 a_file_that_is_no_toml_says_in_which_line;
    X4 a_variable_that_is_zero_is_off;
    X4 layers_are_put_around_the_server_of_a_device_that_is_opened .env(&[("TRUNNION_LAYERS", "validate,fault=fill:2:refused")]);
    X4 layers_of_the_builder_count_before_those_of_the_environment .env(&[("TRUNNION_LAYERS", "fault=1:lost")]);
    X4 a_trace_of_the_memory_is_written_from_the_start .child();
    X4 a_trace_that_cannot_be_written_stops_the_start .env(&[("TRUNNION_MEMORY_TRACE", "/nowhere/memory.trace")]);
    X4 options_of_a_backend_reach_it_and_are_checked_by_it;
    X4 a_file_named_in_the_environment_is_read .env(&[("TRUNNION_CONFIG", "/nowhere/trunnion.toml")]);
    X4 a_configuration_turned_off_is_not_read .env(&[("TRUNNION_CONFIG", "0")]);
    X4 an_unknown_variable_stops_the_start .env(&[("TRUNNION_MEMORY_BUDGETS", "1GiB")]);
    X4 a_dry_run_asked_for_in_the_environment_is_one
        .env(&[("TRUNNION_DRY_RUN", "1"), ("TRUNNION_STAGING_LIMIT", "1000"), ("TRUNNION_LAYERS", "validate")]);
    X4 settings_of_the_environment_reach_the_device
        .env(&[("TRUNNION_MEMORY_BUDGET", "8MiB"), ("TRUNNION_WAIT_TIMEOUT", "150ms"), ("TRUNNION_HOST_DEVICES", "3")]);
}

type Found<T> = core::result::Result<T, Failure>;

fn opened<T>(result: core::result::Result<T, OpenError>) -> Found<T> {
    result.map_err(|error| Failure::new(format!("unexpected error: {error}")))
}

fn variables(list: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>().into_iter()
}

fn config(file: Option<&str>, list: &[(&str, &str)]) -> core::result::Result<Config, ConfigError> {
    Config::from_sources(file.map(|text| ("trunnion.toml", text)), variables(list))
}

fn valid(file: Option<&str>, list: &[(&str, &str)]) -> Found<Config> {
    config(file, list).map_err(|error| Failure::new(format!("unexpected error: {error}")))
}

// ---- X2

fn a_device_is_opened_by_name(cx: &Context) -> Outcome {
    let name = cx.factory().backend();
    let client = opened(trunnion::open(name))?;
    ensure_eq!(client.device_id().backend.as_str(), name);
    for text in [format!("{name}:0"), name.to_uppercase()] {
        ensure_eq!(opened(trunnion::open(text.as_str()))?.service_id(), client.service_id(), "{text}");
    }
    ensure_eq!(opened(trunnion::open(client.device_id()))?.service_id(), client.service_id());
    let word = client.info().adapter.split_whitespace().next().unwrap_or_default().to_lowercase();
    ensure_eq!(
        opened(trunnion::open(format!("{name}:{word}").as_str()))?.device_id().backend,
        client.device_id().backend,
        "{word}"
    );
    Ok(())
}

fn an_unknown_name_lists_the_backends_there_are(cx: &Context) -> Outcome {
    let Err(error) = trunnion::open("abacus") else { return Err(Failure::new("a backend `abacus` was opened")) };
    ensure!(matches!(&error, OpenError::Runtime(Error::UnknownBackend { name, .. }) if name == "abacus"), "{error:?}");
    ensure!(error.to_string().contains(cx.factory().backend()), "{error}");
    Ok(())
}

fn text_that_names_no_device_is_refused(cx: &Context) -> Outcome {
    for text in ["", ":0", " "] {
        let result = trunnion::open(text);
        ensure!(result.is_err(), "{text:?} opened {:?}", result.map(|client| client.name()));
    }
    let name = cx.factory().backend();
    ensure!(Device::parse(&format!("{name}:")).is_err(), "`{name}:` names a device");
    Ok(())
}

fn a_bad_index_and_a_name_no_adapter_has_say_what_there_is(cx: &Context) -> Outcome {
    let name = cx.factory().backend();
    let error = trunnion::open(format!("{name}:4000000").as_str()).err();
    ensure!(
        matches!(&error, Some(OpenError::Runtime(Error::NoDevice { device, .. })) if device.index == 4_000_000),
        "{error:?}"
    );
    let error = trunnion::open(format!("{name}:no adapter is called so").as_str()).err();
    ensure!(matches!(&error, Some(OpenError::NoMatch { devices, .. }) if !devices.is_empty()), "{error:?}");
    Ok(())
}

fn without_a_name_the_best_device_is_opened(_: &Context) -> Outcome {
    let best = trunnion::devices().first().map(|info| info.device);
    let client = opened(trunnion::open_with(&Config::new()))?;
    ensure_eq!(Some(client.device_id()), best);
    ensure_eq!(opened(trunnion::default_client())?.service_id(), client.service_id());
    Ok(())
}

fn the_environment_picks_the_backend(cx: &Context) -> Outcome {
    let name = cx.factory().backend();
    let picked = valid(None, &[("TRUNNION_BACKEND", name)])?;
    ensure_eq!(picked.device(), Some(&Device::best(name)));
    ensure_eq!(opened(trunnion::open_with(&picked))?.device_id().backend.as_str(), name);
    ensure_eq!(valid(None, &[("TRUNNION_BACKEND", "host:3")])?.device(), Some(&Device::index("host", 3)));
    ensure_eq!(valid(None, &[("TRUNNION_BACKEND", "0")])?.device(), None);
    Ok(())
}

fn a_backend_picked_in_the_environment_that_is_none_is_named(cx: &Context) -> Outcome {
    let error = trunnion::default_client().err();
    ensure!(
        matches!(&error, Some(OpenError::Runtime(Error::UnknownBackend { name, .. })) if name == "no-such-backend"),
        "{error:?}"
    );
    // What is asked for by name does not depend on it.
    opened(trunnion::open(cx.factory().backend()))?;
    Ok(())
}

fn a_backend_picked_in_the_environment_is_opened(_: &Context) -> Outcome {
    let client = opened(trunnion::default_client())?;
    ensure_eq!(client.device_id().to_string(), "host:0");
    let bytes = client.create_from_slice(&[1, 2, 3])?;
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [1, 2, 3]);
    Ok(())
}

fn devices_are_discovered_best_first(cx: &Context) -> Outcome {
    let found = trunnion::discover();
    ensure!(found.devices.iter().any(|info| info.device.backend.as_str() == cx.factory().backend()), "{found}");
    let rank = |kind| match kind {
        DeviceKind::DiscreteGpu => 0,
        DeviceKind::IntegratedGpu => 1,
        DeviceKind::VirtualGpu => 2,
        DeviceKind::Cpu => 4,
        _ => 3,
    };
    ensure!(found.devices.windows(2).all(|pair| rank(pair[0].kind) <= rank(pair[1].kind)), "{found}");
    let table = found.to_string();
    for info in &found.devices {
        ensure!(
            table.contains(&info.device.to_string()) && table.contains(&info.adapter),
            "{} is not in\n{table}",
            info.device
        );
    }
    Ok(())
}

/// A third party's backend: another name for a device of the backend under test.
struct Alias {
    name: BackendName,
    inside: Arc<dyn Backend>,
}

impl Backend for Alias {
    fn name(&self) -> BackendName {
        self.name
    }

    fn enumerate(&self) -> Result<Vec<DeviceInfo>> {
        let device = DeviceId { backend: self.name, index: 0 };
        Ok(vec![DeviceInfo::new(device, DeviceKind::Other, "Third Party NPU", "1.0", "alias")])
    }

    fn open(&self, index: u32, settings: &OpenSettings) -> Result<Opened> {
        if let Some((name, value)) = settings.options.iter().find(|(name, _)| *name != "clock") {
            return Err(Error::BackendUnavailable {
                backend: self.name,
                why: format!("`{name} = {value}`: valid: clock"),
            });
        }
        self.inside.open(index, &OpenSettings { options: Default::default(), ..settings.clone() })
    }
}

fn register_alias(cx: &Context) -> Found<()> {
    let inside = trunnion::backends().into_iter().find(|backend| backend.name().as_str() == cx.factory().backend());
    let (Some(inside), Some(name)) = (inside, BackendName::new("third-party")) else {
        return Err(Failure::new("the backend under test is not registered"));
    };
    trunnion::register(Arc::new(Alias { name, inside: inside.clone() }))?;
    let again = trunnion::register(Arc::new(Alias { name, inside }));
    ensure_err!(again, Error::BackendUnavailable { .. });
    Ok(())
}

fn a_third_partys_backend_is_listed_and_opened_like_the_others(cx: &Context) -> Outcome {
    register_alias(cx)?;
    ensure!(trunnion::devices().iter().any(|info| info.adapter == "Third Party NPU"), "it is not listed");
    for text in ["third-party", "third-party:0", "third-party:npu"] {
        let client = opened(trunnion::open(text))?;
        ensure_eq!(client.device_id().to_string(), "third-party:0", "{text}");
        let bytes = client.create_from_slice(&[4; 9])?;
        ensure_eq!(client.read_one(&bytes)?.as_slice()?, [4; 9]);
    }
    // A kind that comes before CPUs, where there is no GPU, is the best.
    let is_gpu = |info: &DeviceInfo| !matches!(info.kind, DeviceKind::Other | DeviceKind::Cpu);
    if !trunnion::devices().iter().any(is_gpu) {
        ensure_eq!(opened(trunnion::open_with(&Config::new()))?.device_id().backend.as_str(), "third-party");
    }
    // It is configured like them.
    let options = valid(Some("[third-party]\nclock = 5\n"), &[])?.settings("third-party").open.options;
    ensure_eq!(options.get("clock").map(String::as_str), Some("5"));
    let wrong = Config::new().backend(Device::best("third-party")).option("third-party", "volts", "3");
    let error = trunnion::open_with(&wrong).map(|client| client.name());
    // The running device is given as it is; a new one is not started with it.
    ensure_eq!(error.is_ok(), false, "{error:?}");
    Ok(())
}

fn clients_of_several_backends_live_in_one_program(cx: &Context) -> Outcome {
    register_alias(cx)?;
    let (a, b) = (opened(trunnion::open(cx.factory().backend()))?, opened(trunnion::open("third-party"))?);
    ensure!(a.service_id() != b.service_id(), "two backends share a server");
    let all = [a.clone(), b.clone()];
    for client in &all {
        client.sync()?.wait()?;
    }
    let there = a.to_client(&a.create_from_slice(&[7; 70])?, &b)?;
    ensure_eq!(b.read_one(&there)?.as_slice()?, [7; 70]);
    Ok(())
}

// ---- X4

fn the_builder_says_what_a_device_is_started_with(_: &Context) -> Outcome {
    let config = Config::new()
        .backend(Device::index("host", 0))
        .memory_budget(1 << 20)
        .kernel_cache("/tmp/kernels")
        .wait_timeout(Duration::from_secs(3))
        .drop_timeout(Duration::from_secs(4))
        .bounds(BoundsPolicy::Validate)
        .ring(8192)
        .spin(Duration::ZERO)
        .option("host", "threads", "1");
    let settings = config.settings("host");
    ensure_eq!(
        (settings.wait_timeout.as_secs(), settings.drop_timeout.as_secs(), settings.bounds),
        (3, 4, BoundsPolicy::Validate)
    );
    ensure_eq!(
        (settings.open.memory_budget, settings.open.kernel_cache.as_deref()),
        (Some(1 << 20), Some("/tmp/kernels"))
    );
    ensure_eq!((settings.executor.ring_bytes, settings.executor.spin), (8192, Duration::ZERO));
    ensure_eq!(settings.open.options.get("threads").map(String::as_str), Some("1"));
    ensure!(config.settings("another").open.options.is_empty(), "options of one backend reach another");
    Ok(())
}

fn the_environment_counts_before_the_file_and_the_file_before_the_defaults(_: &Context) -> Outcome {
    let file = "wait_timeout = '500ms'\ndrop_timeout = '1s'\n";
    let settings = valid(Some(file), &[("TRUNNION_WAIT_TIMEOUT", "9s"), ("PATH", "/bin"), ("TRUNNION_RING", "")])?
        .settings("host");
    ensure_eq!((settings.wait_timeout, settings.drop_timeout), (Duration::from_secs(9), Duration::from_secs(1)));
    let default = Config::new().settings("host");
    ensure_eq!((settings.executor.ring_bytes, settings.bounds), (default.executor.ring_bytes, default.bounds));
    Ok(())
}

fn the_builder_counts_before_the_environment(_: &Context) -> Outcome {
    let config =
        valid(Some("backend = 'host:1'"), &[("TRUNNION_BACKEND", "host:2"), ("TRUNNION_MEMORY_BUDGET", "1GiB")])?;
    ensure_eq!(config.device(), Some(&Device::index("host", 2)));
    let config = config.backend(Device::index("host", 0)).memory_budget(None);
    ensure_eq!((config.device(), config.settings("host").open.memory_budget), (Some(&Device::index("host", 0)), None));
    Ok(())
}

fn an_unknown_key_lists_what_is_valid(_: &Context) -> Outcome {
    let error = ensure_err!(config(None, &[("TRUNNION_WAIT_TIMOUT", "1s")]), ConfigError::UnknownKey { .. });
    let text = error.to_string();
    ensure!(
        text.contains("TRUNNION_WAIT_TIMOUT")
            && text.contains("TRUNNION_WAIT_TIMEOUT")
            && text.contains("TRUNNION_BACKEND"),
        "{text}"
    );
    let error = ensure_err!(config(Some("\n\nbackends = 'host'"), &[]), ConfigError::UnknownKey { .. });
    let text = error.to_string();
    ensure!(text.contains("trunnion.toml:3") && text.contains("backend") && text.contains("memory_budget"), "{text}");
    ensure_err!(config(Some("[no-such-backend]\nx = 1"), &[]), ConfigError::UnknownKey { .. });
    Ok(())
}

fn a_bad_value_names_its_place_and_what_is_valid(_: &Context) -> Outcome {
    for (name, value, says) in [
        ("TRUNNION_BOUNDS", "sometimes", "enforce"),
        ("TRUNNION_WAIT_TIMEOUT", "0", "at least 1"),
        ("TRUNNION_WAIT_TIMEOUT", "soon", "ms"),
        ("TRUNNION_MEMORY_BUDGET", "lots", "MiB"),
        ("TRUNNION_MEMORY_BUDGET", "-5", "MiB"),
        ("TRUNNION_EXECUTION", "threads", "inline"),
        ("TRUNNION_RING", "1", "4KiB"),
        ("TRUNNION_BACKEND", ":", "backend:index"),
        ("TRUNNION_LAYERS", "validat", "`validate`"),
        ("TRUNNION_LAYERS", "fault=launch:3:lots", "oom, refused, late, never, lost, panic"),
    ] {
        let error = ensure_err!(config(None, &[(name, value)]), ConfigError::BadValue { .. });
        let text = error.to_string();
        ensure!(text.contains(name) && text.contains(value) && text.contains(says), "{name}={value}: {text}");
    }
    let error = ensure_err!(config(Some("# first\nbounds = 7"), &[]), ConfigError::BadValue { .. });
    ensure!(error.to_string().contains("trunnion.toml:2"), "{error}");
    Ok(())
}

fn a_file_that_is_no_toml_says_in_which_line(_: &Context) -> Outcome {
    let error = ensure_err!(config(Some("bounds = 'auto'\n\nring = = 3\n"), &[]), ConfigError::Syntax { .. });
    ensure!(error.to_string().contains("trunnion.toml:3"), "{error}");
    Ok(())
}

fn a_variable_that_is_zero_is_off(_: &Context) -> Outcome {
    let file = "memory_budget = '1MiB'\nkernel_cache = '/tmp/kernels'\nbackend = 'host'\nspin = '5ms'\nbounds = 'validate'\ndrop_timeout = '9s'\nlayers = 'delay=1s'\n";
    for off in ["0", "off", "false"] {
        let names = ["MEMORY_BUDGET", "KERNEL_CACHE", "BACKEND", "SPIN", "BOUNDS", "DROP_TIMEOUT", "LAYERS"]
            .map(|name| format!("TRUNNION_{name}"));
        let list: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), off)).collect();
        let config = valid(Some(file), &list)?;
        let settings = config.settings("host");
        ensure_eq!(
            (settings.open.memory_budget, &settings.open.kernel_cache, config.device()),
            (None, &None, None),
            "{off}"
        );
        ensure_eq!(
            (settings.executor.spin, settings.drop_timeout, settings.bounds),
            (Duration::ZERO, Duration::ZERO, BoundsPolicy::Auto),
            "{off}"
        );
        ensure!(config.server_layers().is_empty(), "{off}: {}", config.server_layers());
    }
    Ok(())
}

fn layers_are_put_around_the_server_of_a_device_that_is_opened(cx: &Context) -> Outcome {
    let client = opened(trunnion::open(cx.factory().backend()))?;
    let (a, b, c) = (client.zeros(64)?, client.zeros(64)?, client.zeros(64)?);
    let error = ensure_err!(client.read_one(&b), Error::Driver { .. });
    ensure!(error.to_string().contains("on purpose, in fill 2"), "{error}");
    ensure_eq!(client.read(&[&a, &c])?[1].as_slice()?, [0; 64]);
    // The resource of the backend is found through them.
    cx.factory().get_resource(&client, &a)?;
    ensure_eq!(client.memory_usage()?.live, 192);
    Ok(())
}

fn layers_of_the_builder_count_before_those_of_the_environment(cx: &Context) -> Outcome {
    let config = Config::load().map_err(|error| Failure::new(format!("unexpected error: {error}")))?;
    ensure_eq!(config.server_layers().to_string(), "fault=1:lost");
    let layers = "validate".parse().map_err(|error| Failure::new(format!("{error}")))?;
    let client = opened(trunnion::open_with(&config.layers(layers).backend(Device::best(cx.factory().backend()))))?;
    let a = client.create_from_slice(&[3; 64])?;
    ensure_eq!(client.read_one(&a)?.as_slice()?, [3; 64]);
    client.shutdown(Duration::from_secs(5));
    // The environment's are those of a device that is opened with nothing else said.
    let client = opened(trunnion::open(cx.factory().backend()))?;
    client.empty(64).ok();
    ensure_err!(client.sync().and_then(|done| done.wait()), Error::DeviceLost { .. });
    Ok(())
}

fn a_trace_of_the_memory_is_written_from_the_start(cx: &Context) -> Outcome {
    let path = std::env::temp_dir().join(format!("trunnion-memory-{}.trace", std::process::id()));
    let name = cx.factory().backend();
    let config = Config::new().backend(Device::index(name, 0)).memory_trace(path.display().to_string());
    let client = opened(trunnion::open_with(&config))?;
    let kept = client.zeros(4000)?;
    client.record_memory("a moment")?;
    drop(kept);
    client.sync()?.wait()?;
    client.shutdown(Duration::from_secs(5));
    let text = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    let trace = Trace::parse(&text).map_err(|error| Failure::new(format!("{error}\n{text}")))?;
    let events: Vec<_> =
        text.lines().filter(|line| ["alloc", "snapshot", "free"].iter().any(|word| line.starts_with(word))).collect();
    ensure_eq!((events.len(), trace.requests()), (3, 1), "{text}");
    ensure!(events[1].contains("live:4000") && events[1].ends_with("\"a moment\""), "{text}");
    Ok(())
}

fn a_trace_that_cannot_be_written_stops_the_start(_: &Context) -> Outcome {
    let error = ensure_err!(trunnion::default_client(), OpenError::Runtime(Error::File { .. }));
    ensure!(error.to_string().starts_with("/nowhere/memory.trace: "), "{error}");
    // Without the trace it opens.
    opened(trunnion::open_with(&Config::new()))?;
    Ok(())
}

fn options_of_a_backend_reach_it_and_are_checked_by_it(cx: &Context) -> Outcome {
    let name = cx.factory().backend();
    let file = format!("[{name}]\nno_such_option = true\n");
    let config = valid(Some(&file), &[])?;
    let settings = config.settings(name);
    ensure_eq!(settings.open.options.get("no_such_option").map(String::as_str), Some("true"));
    let backend = trunnion::backends().into_iter().find(|backend| backend.name().as_str() == name);
    let Some(backend) = backend else { return Err(Failure::new("the backend under test is not registered")) };
    let error = ensure_err!(backend.open(0, &settings.open), Error::UnknownOption { .. });
    ensure!(error.to_string().contains("no_such_option"), "{error}");
    // Whoever opens a device through the configuration is told where that says it.
    let device = Device::index(name, 9_999);
    match trunnion::open_with(&config.backend(device)) {
        Err(OpenError::Config(ConfigError::UnknownKey { origin: Origin::File { line, .. }, key, .. })) => {
            ensure_eq!((line, key), (2, format!("{name}.no_such_option")));
        }
        other => return Err(Failure::new(format!("an unknown option was answered with {other:?}"))),
    }
    let variable = format!("TRUNNION_{}_NO_SUCH_OPTION", name.to_uppercase());
    let settings = valid(Some(&file), &[(&variable, "7")])?.settings(name);
    ensure_eq!(settings.open.options.get("no_such_option").map(String::as_str), Some("7"));
    Ok(())
}

fn a_file_named_in_the_environment_is_read(_: &Context) -> Outcome {
    let error = ensure_err!(Config::load(), ConfigError::Unreadable { .. });
    ensure!(error.to_string().contains("/nowhere/trunnion.toml"), "{error}");
    let error = trunnion::default_client().err();
    ensure!(matches!(error, Some(OpenError::Config(ConfigError::Unreadable { .. }))), "{error:?}");
    Ok(())
}

fn a_configuration_turned_off_is_not_read(_: &Context) -> Outcome {
    let config = Config::load().map_err(|error| Failure::new(format!("unexpected error: {error}")))?;
    ensure_eq!(config.device(), None);
    opened(trunnion::default_client())?;
    Ok(())
}

fn an_unknown_variable_stops_the_start(_: &Context) -> Outcome {
    let error = trunnion::default_client().err();
    let Some(OpenError::Config(error @ ConfigError::UnknownKey { .. })) = error else {
        return Err(Failure::new(format!("an unknown variable was passed over: {error:?}")));
    };
    ensure!(error.to_string().contains("TRUNNION_MEMORY_BUDGET"), "{error}");
    Ok(())
}

fn a_dry_run_asked_for_in_the_environment_is_one(cx: &Context) -> Outcome {
    let client = opened(trunnion::open(cx.factory().backend()))?;
    let handle = client.create_from_slice_pinned(&[7; 5000])?;
    ensure_eq!(client.read_one(&handle)?.as_slice()?, [0; 5000]);
    ensure!(client.info().to_string().contains("dry run"), "{}", client.info());
    ensure_eq!(client.staging_usage().limit, Some(1000));
    ensure!(client.memory_usage()?.reserved >= 5000, "nothing was planned");
    Ok(())
}

fn settings_of_the_environment_reach_the_device(cx: &Context) -> Outcome {
    let name = cx.factory().backend();
    if name != "host" {
        return Err(Failure::Skipped(format!("{name} has no virtual devices")));
    }
    ensure_eq!(trunnion::devices().iter().filter(|info| info.device.backend.as_str() == "host").count(), 3);
    let client = opened(trunnion::open("host:2"))?;
    let (held, over) = (client.zeros(6 << 20)?, client.empty(6 << 20)?);
    let error = ensure_err!(client.read_one(&over), Error::OutOfMemory(_));
    ensure!(matches!(&error, Error::OutOfMemory(details) if details.budget == Some(8 << 20)), "{error:?}");
    drop(held);
    let gate = cx.gate(&client)?;
    let blocked = gate.block(&client)?;
    ensure_err!(client.done(blocked)?.wait(), Error::Timeout { .. });
    gate.open()?;
    Ok(())
}
