//! Options of a backend's own, as text: how a wrong one is refused and how changed ones are shown, the same for every backend.
//!
//! A backend has a table of its options: each one's name, and what is valid for it.

use crate::error::Error;
use crate::id::BackendName;
use alloc::string::{String, ToString};
use core::fmt;

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
