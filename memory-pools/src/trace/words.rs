//! The words of a line: how it is cut, and how numbers, texts and names are written in it.

use super::defect::{Defect, cut};
use alloc::string::String;
use core::str::FromStr;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::pool_layout::Placement;
pub(super) use trunnion_runtime_core::text::push_quoted;
use trunnion_runtime_core::text::{self, NotQuoted};
use trunnion_runtime_core::timeline::Moment;

pub(super) type Result<T = ()> = core::result::Result<T, Defect>;

/// The words of a line, which single spaces part. A text in quotation marks is a line's last.
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
        let Some((word, rest)) = rest.split_once(' ') else { return Some(rest) };
        self.rest = Some(rest);
        Some(word)
    }

    /// The next word, if it begins so.
    pub(super) fn next_if(&mut self, start: &str) -> Option<&'a str> {
        if self.rest.is_some_and(|rest| rest.starts_with(start)) { self.try_next() } else { None }
    }

    /// What is left, which is a text in quotation marks.
    pub(super) fn quoted(&mut self, what: &'static str) -> Result<String> {
        quoted(self.rest.take().ok_or(Defect::Missing { what })?)
    }

    /// Nothing may follow.
    pub(super) fn end(&mut self) -> Result {
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

/// A stream: `s7`.
pub(super) fn stream(word: &str) -> Result<StreamId> {
    let digits = word.strip_prefix('s').and_then(|digits| number("stream", digits).ok());
    digits.map(StreamId::from_raw).ok_or_else(|| unknown("stream", word, "s and a number, as in `s7`"))
}

/// A moment of a stream: `s7@12`.
pub(super) fn moment(word: &str) -> Result<Moment> {
    let parts = word.split_once('@').and_then(|(of, seq)| Some((stream(of).ok()?, number("moment", seq).ok()?)));
    parts
        .map(|(stream, seq)| Moment { stream, seq })
        .ok_or_else(|| unknown("moment", word, "a stream and a number, as in `s7@12`"))
}

/// A placement.
pub(super) fn placement(word: &str) -> Result<Placement> {
    match word {
        "fit" => Ok(Placement::Fit),
        "slabs" => Ok(Placement::Slabs),
        "linear" => Ok(Placement::Linear),
        "exclusive" => Ok(Placement::Exclusive),
        _ => Err(unknown("placement", word, "fit, slabs, linear, exclusive")),
    }
}

/// A placement's name. One that came after this version of the text is written as the one that takes whatever comes.
pub(super) fn placement_name(placement: Placement) -> &'static str {
    #[allow(unreachable_patterns, reason = "the enum may grow")]
    match placement {
        Placement::Slabs => "slabs",
        Placement::Linear => "linear",
        Placement::Exclusive => "exclusive",
        Placement::Fit | _ => "fit",
    }
}

/// An allocation mode.
pub(super) fn mode(word: &str) -> Result<AllocationMode> {
    match word {
        "auto" => Ok(AllocationMode::Auto),
        "persistent" => Ok(AllocationMode::Persistent),
        "dedicated" => Ok(AllocationMode::Dedicated),
        _ => Err(unknown("allocation mode", word, "auto, persistent, dedicated")),
    }
}

/// A mode's name. One that came after this version of the text is written as the one that is most like it.
pub(super) fn mode_name(mode: AllocationMode) -> &'static str {
    #[allow(unreachable_patterns, reason = "the enum may grow")]
    match mode {
        AllocationMode::Persistent => "persistent",
        AllocationMode::Dedicated => "dedicated",
        AllocationMode::Auto | _ => "auto",
    }
}

/// The text in quotation marks.
fn quoted(word: &str) -> Result<String> {
    let valid = "text in quotation marks, with \\\" \\\\ \\n \\t and \\u{…}";
    text::unquoted(word).map_err(|why| match why {
        NotQuoted::Malformed => unknown("text", word, valid),
        NotQuoted::TooLong => Defect::TextTooLong,
    })
}

#[cfg(test)]
mod tests {
    use super::super::MAX_TEXT;
    use super::*;

    #[test]
    fn text_comes_back_as_it_was_and_long_text_is_cut() {
        for text in ["", "plain", "a \"b\" \\ c\nd\te", "é\u{0}\u{7f}\u{1F600}", "\r"] {
            let mut line = String::new();
            push_quoted(&mut line, text);
            assert!(!line.contains(['\n', '\r']));
            assert_eq!(quoted(&line).unwrap(), text);
        }
        let mut line = String::new();
        push_quoted(&mut line, &"é".repeat(MAX_TEXT));
        assert_eq!(quoted(&line).unwrap().len(), MAX_TEXT);
    }

    #[test]
    fn text_that_was_not_quoted_so_is_refused() {
        for bad in
            ["", "\"", "a", "\"a", "\"a\\\"", "\"a\"b\"", "\"\\x\"", "\"\\u{110000}\"", "\"\\u{+41}\"", "\"\\u{}\""]
        {
            assert!(quoted(bad).is_err(), "{bad}");
        }
        assert_eq!(quoted(&alloc::format!("\"{}\"", "a".repeat(MAX_TEXT + 1))), Err(Defect::TextTooLong));
    }

    #[test]
    fn a_text_may_have_spaces_and_is_the_last_of_its_line() {
        let mut words = Words::of("mark \"a b\"  c");
        assert_eq!(words.next("verb"), Ok("mark"));
        assert!(words.quoted("text").is_err());
        let mut words = Words::of("mark \"a  b\"");
        words.next("verb").unwrap();
        assert_eq!(words.quoted("text").as_deref(), Ok("a  b"));
    }

    #[test]
    fn numbers_are_digits_alone() {
        assert_eq!(number::<u32>("count", "42"), Ok(42));
        for bad in ["", "+1", "-1", "1_0", " 1", "4294967296", "0x1"] {
            assert!(number::<u32>("count", bad).is_err(), "{bad}");
        }
        for bad in ["s", "7", "s-1", "s7@", "s7@@1", "@1", "s7@x"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }
}
