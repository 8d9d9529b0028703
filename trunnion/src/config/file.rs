//! What a TOML file says, with the lines it says it in.

use super::{Entry, keys, suggest};
use crate::errors::{ConfigError, Origin};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The settings of a file. What is wrong with one stands in its place.
pub(super) fn entries(path: &str, text: &str, backends: &[String]) -> Vec<Result<Entry, ConfigError>> {
    let file = File { path, text, backends };
    match DeTable::parse(text) {
        Ok(table) => {
            table.get_ref().iter().flat_map(|(key, value)| file.top(key.get_ref(), key.span(), value)).collect()
        }
        Err(error) => {
            let origin = file.origin(error.span().unwrap_or(0..0));
            vec![Err(ConfigError::Syntax { origin, message: error.message().to_string() })]
        }
    }
}

struct File<'a> {
    path: &'a str,
    text: &'a str,
    backends: &'a [String],
}

impl File<'_> {
    fn origin(&self, span: Range<usize>) -> Origin {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        Origin::File { path: self.path.to_string(), line: 1 + before.iter().filter(|byte| **byte == b'\n').count() }
    }

    /// A key at the top: a setting, or the table of a backend's options.
    fn top(&self, key: &str, span: Range<usize>, value: &Spanned<DeValue<'_>>) -> Vec<Result<Entry, ConfigError>> {
        let origin = self.origin(span);
        if keys::NAMES.contains(&key) {
            return vec![self.scalar(origin, key.to_string(), None, key, value, "a string, a number or a boolean")];
        }
        if !self.backends.iter().any(|backend| backend.to_lowercase() == key) {
            let tables = self.backends.iter().map(|backend| backend.to_lowercase());
            let known: Vec<_> = keys::NAMES.iter().map(|name| name.to_string()).chain(tables).collect();
            let near = suggest::near(key, &known);
            return vec![Err(ConfigError::UnknownKey { origin, key: key.to_string(), known, near })];
        }
        match value.get_ref() {
            DeValue::Table(options) => options.iter().map(|(name, value)| self.option(key, name, value)).collect(),
            other => vec![Err(bad_value(origin, key, other, format!("a table: [{key}]")))],
        }
    }

    fn option(
        &self,
        backend: &str,
        name: &Spanned<toml::de::DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Entry, ConfigError> {
        let written = format!("{backend}.{}", name.get_ref());
        let valid = "a string, a number, a boolean or a list of them";
        self.scalar(self.origin(name.span()), written, Some(backend.to_string()), name.get_ref(), value, valid)
    }

    fn scalar(
        &self,
        origin: Origin,
        written: String,
        backend: Option<String>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        valid: &str,
    ) -> Result<Entry, ConfigError> {
        match as_text(value.get_ref(), backend.is_some()) {
            Some(value) => Ok(Entry { origin, written, backend, key: key.to_string(), value }),
            None => Err(bad_value(origin, &written, value.get_ref(), valid.to_string())),
        }
    }
}

/// A value as a variable would have it: a list, where one is allowed, with commas.
fn as_text(value: &DeValue<'_>, lists: bool) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().trim_start_matches('+').to_string()),
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Array(list) if lists => {
            let items: Option<Vec<_>> = list.iter().map(|item| as_text(item.get_ref(), false)).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}

fn bad_value(origin: Origin, key: &str, value: &DeValue<'_>, valid: String) -> ConfigError {
    let shown = match value {
        DeValue::Datetime(datetime) => datetime.to_string(),
        other => as_text(other, true).unwrap_or_else(|| format!("a {}", other.type_str())),
    };
    ConfigError::BadValue { origin, key: key.to_string(), value: shown, valid }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<Entry, ConfigError>> {
        entries("t.toml", text, &[String::from("host"), String::from("MyNpu")])
    }

    fn values(text: &str) -> Vec<(String, String)> {
        read(text).into_iter().map(|entry| entry.unwrap()).map(|entry| (entry.written, entry.value)).collect()
    }

    #[test]
    fn scalars_are_read_as_a_variable_would_have_them() {
        let read =
            values("ring = 0x2000\nspin = '5us'\nbackend = \"host:1\"\nmemory_budget = 1_000\nkernel_cache = false\n");
        let expected = [
            ("backend", "host:1"),
            ("kernel_cache", "false"),
            ("memory_budget", "1000"),
            ("ring", "8192"),
            ("spin", "5us"),
        ];
        let expected = expected.map(|(key, value)| (key.to_string(), value.to_string()));
        let mut read = read;
        read.sort();
        assert_eq!(read, expected);
    }

    #[test]
    fn options_stand_in_the_table_of_their_backend_and_lists_get_commas() {
        let mut read = values(
            "host.separate_memory = true\n[mynpu]\nclock = 1.5\n[host.extra]\n".split("[host.extra]").next().unwrap(),
        );
        read.sort();
        assert_eq!(read, [("host.separate_memory".into(), "true".into()), ("mynpu.clock".into(), "1.5".into())]);
        assert_eq!(values("[host]\nmax_grid = [7, 8, 9]\n"), [("host.max_grid".into(), "7,8,9".into())]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, has) in [
            ("\n\nrings = 1\n", 3, "did you mean `ring`?"),
            ("[hots]\n", 1, "did you mean `host`?"),
            ("[vulkan]\nx = 1", 1, "there is no setting `vulkan`; there are: backend, bounds"),
            ("#\nhost = 3\n", 2, "`host` cannot be `3`; valid: a table: [host]"),
            ("[host]\nx = { a = 1 }\n", 2, "`host.x` cannot be `a table`"),
            ("ring = [1]\n", 1, "`ring` cannot be `1`"),
            ("ring = 2020-01-01\n", 1, "`ring` cannot be `2020-01-01`"),
            ("ring = 1\nring = 2\n", 2, "duplicate key"),
            ("ring = \n", 1, ""),
            ("ring = 1\n[[host]]\na = 1\n", 2, "`host` cannot be"),
        ] {
            let error = read(text).into_iter().find_map(Result::err).unwrap_or_else(|| panic!("{text}")).to_string();
            assert!(error.starts_with(&format!("t.toml:{line}: ")) && error.contains(has), "{text}: {error}");
        }
    }
}
