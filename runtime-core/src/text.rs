//! Words of text formats: text in quotation marks and numbers, as recordings and traces write them; sizes, times and counts, as options
//! and configurations do.

use alloc::string::String;
use core::fmt::Write;
use core::str::{Chars, FromStr};
use core::time::Duration;

/// The most bytes a quoted text has.
pub const MAX_TEXT: usize = 4096;

/// Why a word is no quoted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotQuoted {
    /// It has no marks around it, or something in it that [`push_quoted`] does not write.
    Malformed,
    /// The text has more than [`MAX_TEXT`] bytes.
    TooLong,
}

/// Appends text in quotation marks, cut to the most bytes a text may have: on one line, whatever it holds.
pub fn push_quoted(line: &mut String, text: &str) {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    line.push('"');
    for character in text[..end].chars() {
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            '\n' => line.push_str("\\n"),
            '\t' => line.push_str("\\t"),
            control if control.is_control() => _ = write!(line, "\\u{{{:x}}}", u32::from(control)),
            other => line.push(other),
        }
    }
    line.push('"');
}

/// The text that stands in quotation marks.
///
/// # Errors
/// [`NotQuoted`] says what is wrong with the word.
pub fn unquoted(word: &str) -> Result<String, NotQuoted> {
    let inside = word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(NotQuoted::Malformed)?;
    let mut text = String::new();
    let mut characters = inside.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => escaped(&mut characters).ok_or(NotQuoted::Malformed)?,
            '"' => return Err(NotQuoted::Malformed),
            plain => plain,
        });
        if text.len() > MAX_TEXT {
            return Err(NotQuoted::TooLong);
        }
    }
    Ok(text)
}

/// The character that an escape stands for, without its backslash.
fn escaped(characters: &mut Chars<'_>) -> Option<char> {
    match characters.next()? {
        'n' => Some('\n'),
        't' => Some('\t'),
        'u' => {
            let (code, rest) = characters.as_str().strip_prefix('{')?.split_once('}')?;
            *characters = rest.chars();
            code.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
            u32::from_str_radix(code, 16).ok().and_then(char::from_u32)
        }
        plain @ ('"' | '\\') => Some(plain),
        _ => None,
    }
}

/// A number in decimal digits alone; `None` for what is none or too large.
pub fn digits<T: FromStr>(word: &str) -> Option<T> {
    (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())).then(|| word.parse().ok()).flatten()
}

/// A count of at least 1; `None` for what is none.
pub fn at_least_one(word: &str) -> Option<u32> {
    word.parse().ok().filter(|count| *count > 0)
}

/// A size in bytes, which may end in `KiB`, `MiB`, `GiB` or `TiB`; `None` for what is none or too large.
pub fn size(word: &str) -> Option<u64> {
    let (number, unit) = measure(word)?;
    let shift = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// A time, which ends in `us`, `ms` or `s`; `None` for what is none.
pub fn time(word: &str) -> Option<Duration> {
    let (number, unit) = measure(word)?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// A whole number, and the unit after it.
fn measure(word: &str) -> Option<(u64, &str)> {
    let word = word.trim();
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    Some((digits(&word[..end])?, word[end..].trim_start()))
}

/// Counts of at least 1 by axis, written `x,y,z` or as one number for all three; `None` for what is none.
pub fn axes(word: &str) -> Option<[u32; 3]> {
    let mut counts = word.split(',').map(|count| at_least_one(count.trim()));
    let x = counts.next()??;
    let axes = match counts.next() {
        None => [x; 3],
        Some(y) => [x, y?, counts.next()??],
    };
    counts.next().is_none().then_some(axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_with_or_without_a_unit() {
        for (word, bytes) in
            [("0", 0), ("7", 7), ("3KiB", 3 << 10), (" 3 MiB", 3 << 20), ("16777215TiB", 0xff_ffff << 40)]
        {
            assert_eq!(size(word), Some(bytes), "{word}");
        }
        let no_numbers = ["", " ", "MiB", "-1", "+1", "1.5MiB", "0x10", "1_000"];
        let no_units = ["1MB", "1mib", "4kb", "1 2"];
        let too_large = ["16777216TiB", "17179869184GiB", "18446744073709551616"];
        for bad in [&no_numbers[..], &no_units, &too_large].concat() {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_are_numbers_with_a_unit() {
        assert_eq!(time("50us"), Some(Duration::from_micros(50)));
        assert_eq!(time(" 500 ms"), Some(Duration::from_millis(500)));
        assert_eq!(time("0s"), Some(Duration::ZERO));
        assert_eq!(time("18446744073709551615s"), Some(Duration::from_secs(u64::MAX)));
        for bad in ["", "0", "30", "s", "-1s", "+1s", "1.5s", "1min", "1S", "1 s s", "é", "1é"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }

    #[test]
    fn axes_are_three_counts_or_one_for_all() {
        assert_eq!(axes("9"), Some([9; 3]));
        assert_eq!(axes("1, 2,3"), Some([1, 2, 3]));
        for bad in ["", "0", "1,2", "1,0,3", "1,2,3,4", "1,2,", "x"] {
            assert_eq!(axes(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_comes_back_as_it_was_on_one_line() {
        for text in ["", "plain", "a \"b\" \\ c\nd\te", "é\u{0}\u{7f}\u{1F600}", "\r"] {
            let mut line = String::new();
            push_quoted(&mut line, text);
            assert!(!line.contains(['\n', '\r']));
            assert_eq!(unquoted(&line).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_was_not_written_so_is_told_apart_from_what_is_too_long() {
        for bad in ["", "\"", "a", "\"a\"b\"", "\"\\x\"", "\"\\u{+41}\"", "\"\\u{}\"", "\"\\u{110000}\"", "\"a\\\""] {
            assert_eq!(unquoted(bad), Err(NotQuoted::Malformed), "{bad}");
        }
        assert_eq!(unquoted(&alloc::format!("\"{}\"", "a".repeat(MAX_TEXT + 1))), Err(NotQuoted::TooLong));
    }
}
