//! The words of a line: how it is cut, and how numbers, texts and enums are written in it.

use super::content;
use super::defect::{Defect, cut};
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::server::Bounds;
pub(super) use trunnion_runtime_core::text::push_quoted;
use trunnion_runtime_core::text::{self, NotQuoted};

pub(super) type Result<T> = core::result::Result<T, Defect>;

/// The words of a line, which single spaces part. Spaces inside quotation marks part nothing.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    rest: Option<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn of(line: &'a str) -> Self {
        Self { rest: (!line.is_empty()).then_some(line) }
    }

    /// The next word.
    pub(super) fn next(&mut self, what: &'static str) -> Result<&'a str> {
        self.try_next().ok_or(Defect::Missing { what })
    }

    /// The next word, if there is one; an empty one where a space too many stands.
    pub(super) fn try_next(&mut self) -> Option<&'a str> {
        let rest = self.rest.take()?;
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.bytes().position(|byte| {
            let ends = byte == b' ' && !quoted;
            quoted ^= byte == b'"' && !escaped;
            escaped = quoted && byte == b'\\' && !escaped;
            ends
        });
        let Some(end) = end else { return Some(rest) };
        self.rest = Some(&rest[end + 1..]);
        Some(&rest[..end])
    }

    /// Nothing may follow.
    pub(super) fn end(mut self) -> Result<()> {
        match self.try_next() {
            None => Ok(()),
            Some(found) => Err(Defect::TooMuch { found: cut(found) }),
        }
    }
}

/// A word that is none of those that are valid.
pub(super) fn unknown(what: &'static str, found: &str, valid: &'static str) -> Defect {
    Defect::Unknown { what, found: cut(found), valid }
}

/// A number in decimal digits alone.
pub(super) fn number<T: FromStr>(what: &'static str, word: &str) -> Result<T> {
    let valid = "a number in decimal digits that is not too large";
    text::digits(word).ok_or_else(|| unknown(what, word, valid))
}

/// A number behind a letter or a name.
pub(super) fn tagged<T: FromStr>(what: &'static str, tag: &str, word: &str, valid: &'static str) -> Result<T> {
    word.strip_prefix(tag).and_then(|digits| number(what, digits).ok()).ok_or_else(|| unknown(what, word, valid))
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(word: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match content::read_hex(word, &mut bytes) {
        Some(()) => Ok(bytes),
        None => Err(unknown("sequence of bytes", word, "pairs of hexadecimal digits")),
    }
}

/// Counts by axis: `64x1x1`.
pub(super) fn counts(what: &'static str, word: &str) -> Result<[u32; 3]> {
    let mut parts = word.split('x');
    let mut next = || parts.next().and_then(|part| number(what, part).ok());
    match (next(), next(), next(), parts.next()) {
        (Some(x), Some(y), Some(z), None) => Ok([x, y, z]),
        _ => Err(unknown(what, word, "three counts, as in `64x1x1`")),
    }
}

/// The text in quotation marks.
pub(super) fn quoted(word: &str) -> Result<String> {
    let valid = "text in quotation marks, with \\\" \\\\ \\n \\t and \\u{…}";
    text::unquoted(word).map_err(|why| match why {
        NotQuoted::Malformed => unknown("text", word, valid),
        NotQuoted::TooLong => Defect::TextTooLong,
    })
}

/// The names of the values of an enum.
macro_rules! names {
    ($name:ident, $read:ident, $type:ty, $what:literal, $valid:literal, $($word:literal = $value:path),*) => {
        pub(super) fn $read(word: &str) -> Result<$type> {
            match word {
                $($word => Ok($value),)*
                _ => Err(unknown($what, word, $valid)),
            }
        }

        /// `None` for a value the format does not know.
        #[allow(unreachable_patterns, reason = "some of the enums may grow")]
        pub(super) fn $name(value: $type) -> Option<&'static str> {
            match value {
                $($value => Some($word),)*
                _ => None,
            }
        }
    };
}

names!(
    mode_name,
    mode,
    AllocationMode,
    "allocation mode",
    "auto, persistent, dedicated",
    "auto" = AllocationMode::Auto,
    "persistent" = AllocationMode::Persistent,
    "dedicated" = AllocationMode::Dedicated
);
names!(
    bounds_name,
    bounds,
    Bounds,
    "treatment of accesses out of bounds",
    "checked, unchecked, validated",
    "checked" = Bounds::Checked,
    "unchecked" = Bounds::Unchecked,
    "validated" = Bounds::Validated
);
names!(
    access_name,
    access,
    Access,
    "access",
    "read, write, readwrite, overwrite",
    "read" = Access::Read,
    "write" = Access::Write,
    "readwrite" = Access::ReadWrite,
    "overwrite" = Access::Overwrite
);
names!(
    form_name,
    form,
    SourceForm,
    "form of a source",
    "host, wgsl, spirv, cuda-c, ptx, cubin",
    "host" = SourceForm::Host,
    "wgsl" = SourceForm::Wgsl,
    "spirv" = SourceForm::SpirV,
    "cuda-c" = SourceForm::CudaC,
    "ptx" = SourceForm::Ptx,
    "cubin" = SourceForm::Cubin
);

#[cfg(test)]
mod tests {
    use super::super::MAX_TEXT;
    use super::*;
    use alloc::vec;

    fn words(line: &str) -> Vec<&str> {
        let mut words = Words::of(line);
        core::iter::from_fn(|| words.try_next()).collect()
    }

    #[test]
    fn a_line_is_cut_at_single_spaces_outside_quotation_marks() {
        assert_eq!(words("a bc d"), ["a", "bc", "d"]);
        assert_eq!(words(r#"a "b c" d"#), ["a", r#""b c""#, "d"]);
        assert_eq!(words(r#""a \" b" c"#), [r#""a \" b""#, "c"]);
        assert_eq!(words(r#""a \\" c"#), [r#""a \\""#, "c"]);
        assert_eq!(words("a  b"), ["a", "", "b"]);
        assert_eq!(words("a "), ["a", ""]);
        assert_eq!(words(""), Vec::<&str>::new());
    }

    #[test]
    fn text_comes_back_as_it_was_and_long_text_is_cut() {
        for text in ["", "plain", "a \"b\" \\ c\nd\te", "é\u{0}\u{7f}\u{1F600}", "\r"] {
            let mut line = String::new();
            push_quoted(&mut line, text);
            assert!(!line.contains(['\n', '\r']));
            assert_eq!(words(&line), [line.as_str()]);
            assert_eq!(quoted(&line).unwrap(), text);
        }
        let mut line = String::new();
        push_quoted(&mut line, &"é".repeat(MAX_TEXT));
        assert_eq!(quoted(&line).unwrap().len(), MAX_TEXT);
    }

    #[test]
    fn text_that_was_not_quoted_so_is_refused() {
        for bad in
            ["", "\"", "a", "\"a", "\"a\\\"", "\"a\"b\"", "\"\\x\"", "\"\\u{110000}\"", "\"\\u{+41}\"", "\"\\u41\""]
        {
            assert!(quoted(bad).is_err(), "{bad}");
        }
        assert_eq!(quoted(&alloc::format!("\"{}\"", "a".repeat(MAX_TEXT + 1))), Err(Defect::TextTooLong));
    }

    #[test]
    fn numbers_are_digits_alone() {
        assert_eq!(number::<u32>("count", "42"), Ok(42));
        for bad in ["", "+1", "-1", "1_0", " 1", "4294967296", "0x1"] {
            assert!(number::<u32>("count", bad).is_err(), "{bad}");
        }
        assert_eq!(counts("counts", "4x2x1"), Ok([4, 2, 1]));
        for bad in ["4x2", "4x2x1x1", "4x+2x1", "x"] {
            assert!(counts("counts", bad).is_err(), "{bad}");
        }
        assert_eq!(hex("00ff"), Ok(vec![0, 255]));
    }
}
