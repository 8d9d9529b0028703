//! Text in quotation marks, and numbers, as the line formats of recordings and traces write them.

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

#[cfg(test)]
mod tests {
    use super::*;

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
