//! A configuration: the text of a file, and behind a line of dashes variables, one a line. Whatever they say, there is a configuration
//! whose values are within their limits, or an error that names what is wrong.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::time::Duration;
use trunnion::{Config, ConfigError, executor};

const SEPARATOR: &str = "\n----\n";

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let (file, variables) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let variables: Vec<(String, String)> = variables
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    match Config::from_sources(Some(("fuzz.toml", file)), variables.into_iter()) {
        Ok(config) => check(&config),
        Err(error) => names_what_is_wrong(&error, text),
    }
    Corpus::Keep
});

fn check(config: &Config) {
    let backend = config.device().map_or("host", |device| device.backend());
    assert!(!backend.is_empty());
    let settings = config.settings(backend);
    let ring = settings.executor.ring_bytes;
    assert!((executor::Config::MIN_RING_BYTES..=executor::Config::MAX_RING_BYTES).contains(&ring), "{ring}");
    assert!(settings.wait_timeout > Duration::ZERO);
    assert_ne!(settings.open.memory_budget, Some(0));
    assert_ne!(settings.open.kernel_cache.as_deref(), Some(""));
    if let Some(device) = config.device() {
        assert_eq!(device.to_string().parse().as_ref(), Ok(device));
    }
    let layers = config.server_layers();
    assert_eq!(layers.to_string().parse().as_ref(), Ok(layers));
}

/// An error shows what it is about, and is not much longer than that and the list of what is valid.
fn names_what_is_wrong(error: &ConfigError, text: &str) {
    let shown = error.to_string();
    assert!(!shown.is_empty() && shown.len() < 4 * text.len() + 4096, "{} bytes", shown.len());
    match error {
        ConfigError::BadValue { key, value, .. } => assert!(shown.contains(&**key) && shown.contains(&**value)),
        ConfigError::UnknownKey { key, known, .. } => assert!(shown.contains(&**key) && !known.is_empty()),
        _ => {}
    }
}
