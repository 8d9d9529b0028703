//! The process's variables, and which file they name.

use super::{Entry, keys, suggest};
use crate::errors::{ConfigError, Origin};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

const PREFIX: &str = "TRUNNION_";
/// Where the configuration is, if not here.
const CONFIG: &str = "TRUNNION_CONFIG";
/// What others read: what tests must find, by the conformance suite; where a machine has its CUDA driver, its compilers and the driver's
/// double, by whoever looks for them, with this crate or without.
const OTHERS: [&str; 4] =
    ["TRUNNION_REQUIRE", "TRUNNION_CUDA_DRIVER", "TRUNNION_CUDA_COMPILERS", "TRUNNION_CUDA_DOUBLE"];
/// The file that is read if none is named.
const DEFAULT_FILE: &str = "trunnion.toml";
/// A configuration larger than this is none.
const MAX_BYTES: u64 = 1 << 20;

/// The process's variables that are for this crate.
pub(super) fn of_process() -> Result<Vec<(String, String)>, ConfigError> {
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(PREFIX));
    ours.map(|(name, value)| match (name.into_string(), value.into_string()) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        (name, value) => Err(ConfigError::BadValue {
            origin: Origin::Environment,
            key: name.unwrap_or_else(|name| name.to_string_lossy().into_owned()),
            value: value.unwrap_or_else(|value| value.to_string_lossy().into_owned()),
            valid: "UTF-8 text".to_string(),
        }),
    })
    .collect()
}

/// The settings that variables make. What is wrong with one stands in its place.
pub(super) fn entries(
    variables: impl Iterator<Item = (String, String)>,
    backends: &[String],
) -> Vec<Result<Entry, ConfigError>> {
    let is_ours = |name: &str| name.starts_with(PREFIX) && name != CONFIG && !OTHERS.contains(&name);
    let ours = variables.filter(|(name, value)| is_ours(name) && !value.is_empty());
    ours.map(|(name, value)| match meaning(&name, backends) {
        Some((backend, key)) => Ok(Entry { origin: Origin::Environment, written: name, backend, key, value }),
        None => {
            let mut known: Vec<_> = keys::NAMES.iter().map(|key| variable(key)).collect();
            known.extend([CONFIG].into_iter().chain(OTHERS).map(String::from));
            // What all have in common does not make two of them alike.
            let ends: Vec<_> = known.iter().map(|name| name[PREFIX.len()..].to_string()).collect();
            let near = suggest::near(&name[PREFIX.len()..], &ends).map(|end| format!("{PREFIX}{end}"));
            known.extend(backends.iter().map(|backend| format!("{}_<OPTION>", variable(backend))));
            Err(ConfigError::UnknownKey { origin: Origin::Environment, key: name, known, near })
        }
    })
    .collect()
}

/// The setting a variable is for; with the backend's name where it is an option of one.
fn meaning(name: &str, backends: &[String]) -> Option<(Option<String>, String)> {
    if let Some(key) = keys::NAMES.iter().find(|key| variable(key) == name) {
        return Some((None, key.to_string()));
    }
    // Of two names that fit, the longer is meant: `my_npu` rather than `my`.
    let fits = |backend: &&String| {
        name.strip_prefix(&variable(backend)).is_some_and(|rest| rest.len() > 1 && rest.starts_with('_'))
    };
    let backend = backends.iter().filter(fits).max_by_key(|backend| backend.len())?;
    Some((Some(backend.to_lowercase()), name[variable(backend).len() + 1..].to_lowercase()))
}

fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// The path and the text of the configuration file, if there is one.
pub(super) fn file(variables: &[(String, String)]) -> Result<Option<(String, String)>, ConfigError> {
    let variables: HashMap<_, _> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    match variables.get(CONFIG).copied().unwrap_or("") {
        "" if !Path::new(DEFAULT_FILE).exists() => Ok(None),
        "" => read(DEFAULT_FILE).map(Some),
        off if super::value::is_off(off) => Ok(None),
        path => read(path).map(Some),
    }
}

fn read(path: &str) -> Result<(String, String), ConfigError> {
    let refuse = |message: String| ConfigError::Unreadable { path: path.to_string(), message };
    let system = |error: std::io::Error| refuse(error.to_string());
    // Looked at before it is opened: opening a pipe waits for its other end.
    if !std::fs::metadata(path).map_err(system)?.is_file() {
        return Err(refuse("not a regular file".to_string()));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(system)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(system)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(refuse(format!("more than {MAX_BYTES} bytes")));
    }
    Ok((path.to_string(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(value: &str) -> Result<Option<(String, String)>, ConfigError> {
        file(&[(CONFIG.to_string(), value.to_string())])
    }

    #[test]
    fn the_file_is_the_one_the_environment_names() {
        let path = std::env::temp_dir().join(format!("trunnion-config-{}.toml", std::process::id()));
        std::fs::write(&path, "ring = 8192\n").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(named(path).unwrap(), Some((path.to_string(), "ring = 8192\n".to_string())));
        std::fs::write(path, alloc::vec![b'#'; MAX_BYTES as usize + 1]).unwrap();
        assert!(named(path).unwrap_err().to_string().contains("more than 1048576 bytes"));
        std::fs::write(path, [0xFF, 0xFE]).unwrap();
        assert!(matches!(named(path), Err(ConfigError::Unreadable { .. })));
        std::fs::remove_file(path).unwrap();
        assert!(matches!(named(path), Err(ConfigError::Unreadable { path: named, .. }) if named == path));
    }

    #[test]
    fn a_file_can_be_turned_off_and_a_directory_is_none() {
        assert_eq!(named("0").unwrap(), None);
        assert!(named(".").unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn the_longest_backend_that_fits_has_the_option() {
        let backends = ["my", "my-npu", "Odd"].map(String::from);
        let meaning = |name| meaning(name, &backends);
        assert_eq!(meaning("TRUNNION_MY_NPU_CLOCK"), Some((Some("my-npu".into()), "clock".into())));
        assert_eq!(meaning("TRUNNION_MY_NP"), Some((Some("my".into()), "np".into())));
        assert_eq!(meaning("TRUNNION_ODD_A_B"), Some((Some("odd".into()), "a_b".into())));
        for none in ["TRUNNION_MY", "TRUNNION_MY_", "TRUNNION_", "TRUNNION_MYX_A", "TRUNNION_ring"] {
            assert_eq!(meaning(none), None, "{none}");
        }
    }
}
