//! Options of a backend's own, as text: how they are set, a wrong one is refused and changed ones are shown, the same for every backend.
//!
//! A backend has a table of its options: each one's name, and what is valid for it.

use crate::error::{Error, Result};
use crate::id::BackendName;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::fmt;

/// Sets one option from text. `assign` is given name and value without spaces around them; it answers `None`, and changes nothing, where
/// there is no such option or it cannot have the value.
///
/// # Errors
/// [`Error::UnknownOption`], [`Error::BadOption`]: see [`refusal`].
pub fn set<O>(
    mut options: O,
    backend: BackendName,
    table: &[(&str, &str)],
    (name, value): (&str, &str),
    assign: impl FnOnce(&mut O, &str, &str) -> Option<()>,
) -> Result<O> {
    match assign(&mut options, name.trim(), value.trim()) {
        Some(()) => Ok(options),
        None => Err(refusal(backend, table, name, value)),
    }
}

/// Sets options from text, as they stand in a configuration, in the order of their names.
///
/// # Errors
/// What `set` answers to the first one that is wrong.
pub fn apply<O>(options: O, given: &BTreeMap<String, String>, set: impl Fn(O, &str, &str) -> Result<O>) -> Result<O> {
    given.iter().try_fold(options, |known, (name, value)| set(known, name, value))
}

/// The error for an option that could not be set: [`Error::BadOption`] where the table has one of this name, else
/// [`Error::UnknownOption`].
pub fn refusal(backend: BackendName, table: &[(&str, &str)], name: &str, value: &str) -> Error {
    let option = name.trim().to_string();
    match table.iter().find(|(known, _)| *known == option) {
        Some((_, valid)) => {
            Error::BadOption { backend, option, value: value.trim().to_string(), valid: (*valid).to_string() }
        }
        None => {
            let known = table.iter().map(|(known, _)| (*known).to_string()).collect();
            Error::UnknownOption { backend, option, known }
        }
    }
}

/// Writes the options whose text is not that of the default, as `name = value`, in the table's order.
///
/// # Errors
/// What the formatter answers.
pub fn write_changed(
    f: &mut fmt::Formatter<'_>,
    table: &[(&str, &str)],
    text: impl Fn(&str) -> String,
    default: impl Fn(&str) -> String,
) -> fmt::Result {
    let mut first = true;
    for (name, _) in table {
        let value = text(name);
        if value != default(name) {
            write!(f, "{}{name} = {value}", if first { "" } else { ", " })?;
            first = false;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const BACKEND: BackendName = match BackendName::new("some") {
        Some(name) => name,
        None => panic!("four bytes are a name"),
    };
    const TABLE: [(&str, &str); 2] = [("count", "a whole number"), ("size", "bytes")];

    fn set_count(options: u32, name: &str, value: &str) -> Result<u32> {
        set(options, BACKEND, &TABLE, (name, value), |count, name, value| {
            *count = if name == "count" { value.parse().ok()? } else { return None };
            Some(())
        })
    }

    #[test]
    fn an_option_is_set_without_the_spaces_around_it_or_refused_with_what_is_valid() {
        assert_eq!(set_count(1, " count", "7 "), Ok(7));
        let bad = Error::BadOption {
            backend: BACKEND,
            option: "count".to_string(),
            value: "x".to_string(),
            valid: "a whole number".to_string(),
        };
        assert_eq!(set_count(1, "count ", " x"), Err(bad));
        let known = vec!["count".to_string(), "size".to_string()];
        let unknown = Error::UnknownOption { backend: BACKEND, option: "counts".to_string(), known };
        assert_eq!(set_count(1, "counts", "7"), Err(unknown));
    }

    #[test]
    fn the_first_wrong_option_of_several_is_the_one_refused() {
        let given = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(apply(1, &given(&[("count", "9")]), set_count), Ok(9));
        let error = apply(1, &given(&[("z", "1"), ("a", "1"), ("count", "9")]), set_count).unwrap_err();
        assert!(matches!(&error, Error::UnknownOption { option, .. } if option == "a"), "{error}");
    }
}
