//! Words of text formats: text in quotation marks and numbers, as recordings and traces write them; sizes and counts, as options do.

use alloc::string::String;
use core::fmt::Write;
use core::str::{Chars, FromStr};

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

/// A size in bytes, which may end in `KiB`, `MiB` or `GiB`; `None` for what is none or too large.
pub fn size(word: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((word.strip_suffix(unit)?, *shift))).unwrap_or((word, 0));
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
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
            [("0", 0), ("7", 7), ("3KiB", 3 << 10), ("3 MiB", 3 << 20), ("16777215GiB", 0xff_ffff << 30)]
        {
            assert_eq!(size(word), Some(bytes), "{word}");
        }
        for bad in ["", "-1", "1.5MiB", "4kb", "MiB", "17179869184GiB", "18446744073709551616"] {
            assert_eq!(size(bad), None, "{bad}");
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
