//! Finding, choosing and opening devices, in this process and in ones with another environment.
#![cfg(feature = "host")]

mod process;

use process::{Scratch, describe, in_process};
use trunnion::prelude::*;
use trunnion::{Error, OpenError};

#[test]
fn a_device_opens_by_text_by_value_and_by_id_and_is_then_the_same() {
    let by_text = trunnion::open("HOST:0").unwrap();
    let by_id = trunnion::open(by_text.device_id()).unwrap();
    let by_value = trunnion::open(Device::best("host")).unwrap();
    let by_adapter = trunnion::open(Device::named("host", by_text.info().adapter.to_uppercase())).unwrap();
    for client in [by_id, by_value, by_adapter] {
        assert_eq!(client.service_id(), by_text.service_id());
    }
}

#[test]
fn what_cannot_be_opened_is_named_with_what_can() {
    let error = trunnion::open("metal").unwrap_err();
    assert!(
        matches!(&error, OpenError::Runtime(Error::UnknownBackend { name, known }) if name == "metal" && known[0] == "host"),
        "{error}"
    );
    let error = trunnion::open("host:70").unwrap_err();
    assert!(matches!(error, OpenError::Runtime(Error::NoDevice { .. })), "{error}");
    let error = trunnion::open("host:no such processor").unwrap_err();
    assert!(matches!(&error, OpenError::NoMatch { devices, .. } if devices[0].starts_with("host:0 (")), "{error}");
    let error = trunnion::open("host:").unwrap_err();
    assert!(matches!(error, OpenError::Name(_)), "{error}");
    let config = Config::new().backend(Device::index("host", 5)).option("host", "treads", "2");
    let error = trunnion::open_with(&config).unwrap_err().to_string();
    assert!(error.contains("`treads`") && error.contains("threads"), "{error}");
}

// ---- in another process, with another environment

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child() {
    describe();
}

#[test]
fn the_environment_chooses_and_configures() {
    let here = Scratch::new("environment");
    let said = in_process(&here.0, &[]);
    assert!(said.contains("devices: 1\nopened: host:0; 8 MiB: yes"), "{said}");
    let said = in_process(&here.0, &[("TRUNNION_BACKEND", "host:2"), ("TRUNNION_HOST_DEVICES", "3")]);
    assert!(said.contains("devices: 3\nopened: host:2"), "{said}");
    let said = in_process(&here.0, &[("TRUNNION_MEMORY_BUDGET", "4MiB")]);
    assert!(said.contains("opened: host:0; 8 MiB: no"), "{said}");
    let said = in_process(&here.0, &[("TRUNNION_EXECUTION", "inline"), ("TRUNNION_SPIN", "0")]);
    assert!(said.contains("opened: host:0; 8 MiB: yes"), "{said}");
}

#[test]
fn the_environment_is_refused_where_it_is_wrong() {
    let here = Scratch::new("wrong");
    for (name, value, has) in [
        ("TRUNNION_BACKEND", "metal:0", "refused: there is no backend `metal`; there are: host"),
        ("TRUNNION_BACKEND", "host:1", "refused: there is no device host:1: the backend has 1"),
        ("TRUNNION_BACKEND", "host:", "refused: environment: `TRUNNION_BACKEND` cannot be `host:`"),
        ("TRUNNION_BAKEND", "host", "did you mean `TRUNNION_BACKEND`?"),
        (
            "TRUNNION_HOST_DEVICES",
            "none",
            "refused: environment: `TRUNNION_HOST_DEVICES` cannot be `none`; valid: a count of at least 1",
        ),
        ("TRUNNION_CONFIG", "nowhere.toml", "refused: nowhere.toml: "),
    ] {
        let said = in_process(&here.0, &[(name, value)]);
        assert!(said.contains(has) && said.contains("devices: 1"), "{name}: {said}");
    }
}

#[test]
fn a_file_in_the_current_directory_counts_unless_another_is_named_or_none() {
    let here = Scratch::new("file");
    let file = "backend = 'host:1'\nmemory_budget = '4MiB'\n[host]\ndevices = 2\n";
    std::fs::write(here.0.join("trunnion.toml"), file).unwrap();
    std::fs::write(here.0.join("other.toml"), "ring = 'round'\n").unwrap();
    let said = in_process(&here.0, &[]);
    assert!(said.contains("devices: 2\nopened: host:1; 8 MiB: no"), "{said}");
    let said = in_process(&here.0, &[("TRUNNION_BACKEND", "0"), ("TRUNNION_MEMORY_BUDGET", "0")]);
    assert!(said.contains("devices: 2\nopened: host:0; 8 MiB: yes"), "{said}");
    let said = in_process(&here.0, &[("TRUNNION_CONFIG", "0")]);
    assert!(said.contains("devices: 1\nopened: host:0; 8 MiB: yes"), "{said}");
    std::fs::write(here.0.join("options.toml"), "[host]\ndevices = 1\ntreads = 2\n").unwrap();
    let said = in_process(&here.0, &[("TRUNNION_CONFIG", "options.toml")]);
    assert!(
        said.contains("refused: options.toml:3: there is no setting `host.treads`, did you mean `host.threads`?"),
        "{said}"
    );
    std::fs::write(here.0.join("options.toml"), "[host]\n\nrow_pitch = 3\n").unwrap();
    let said = in_process(&here.0, &[("TRUNNION_CONFIG", "options.toml")]);
    assert!(said.contains("refused: options.toml:3: `host.row_pitch` cannot be `3`; valid: a size that is"), "{said}");
    let said = in_process(&here.0, &[("TRUNNION_HOST_TREADS", "2")]);
    assert!(
        said.contains("environment: there is no setting `TRUNNION_HOST_TREADS`, did you mean `TRUNNION_HOST_THREADS`?"),
        "{said}"
    );
    let said = in_process(&here.0, &[("TRUNNION_CONFIG", "other.toml")]);
    assert!(
        said.contains("refused: other.toml:1: `ring` cannot be `round`; valid: a size from 4KiB to 1GiB"),
        "{said}"
    );
}
