//! Errors as people read them: what is wrong, the line of the text, and a caret under the place.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::error::Error as _;
use core::fmt;
use naga::front::wgsl::ParseError;
use naga::valid::ValidationError;
use naga::{Span, WithSpan};
use trunnion_runtime_core::error::Error;

/// The most characters of a line that are shown, and how many of those stand before the place.
const SHOWN: usize = 120;
const BEFORE: usize = 60;

/// The most places that are shown, and the most notes.
const PLACES: usize = 4;
const NOTES: usize = 8;

/// The most characters of a message, which may have names of the text in it.
const MESSAGE: usize = 500;

/// A text that is no WGSL.
pub(crate) fn not_parsed(kernel: &str, text: &str, error: &ParseError) -> Error {
    let places: Vec<_> = error.labels().map(|(span, label)| (span, label.to_string())).collect();
    compile(kernel, text, error.message(), &places, error.notes())
}

/// A text whose meaning is wrong.
pub(crate) fn not_valid(kernel: &str, text: &str, error: &WithSpan<ValidationError>) -> Error {
    let mut message = error.as_inner().to_string();
    let mut cause = error.as_inner().source();
    // That it is in the one entry point there is says nothing.
    if let (ValidationError::EntryPoint { .. }, Some(inner)) = (error.as_inner(), cause) {
        (message, cause) = (inner.to_string(), inner.source());
    }
    while let Some(inner) = cause {
        // Some errors say what is inside them, others leave it to their source.
        let inner_text = inner.to_string();
        if !message.ends_with(&inner_text) {
            message = format!("{}: {inner_text}", message.trim_end_matches('.'));
        }
        cause = inner.source();
    }
    let places: Vec<_> = error.spans().cloned().collect();
    compile(kernel, text, &message, &places, core::iter::empty())
}

/// An error of the compiler that names no place.
pub(crate) fn not_compiled(kernel: &str, message: impl fmt::Display) -> Error {
    Error::Compile { kernel: kernel.into(), message: cut(&message.to_string()), line: None }
}

/// A kernel that contradicts what is asked of kernels, or what it declares.
pub(crate) fn invalid(kernel: &str, why: impl fmt::Display) -> Error {
    Error::InvalidKernel { kernel: kernel.into(), why: cut(&why.to_string()) }
}

fn compile<'a>(
    kernel: &str,
    text: &str,
    message: &str,
    places: &[(Span, String)],
    notes: impl Iterator<Item = &'a str>,
) -> Error {
    let mut message = cut(message);
    let mut line = None;
    let ranges = places.iter().filter_map(|(span, label)| Some((span.to_range()?, label)));
    for (range, label) in ranges.take(PLACES) {
        let place = Place::of(text, range.start, range.end);
        line.get_or_insert(place.line);
        message.push_str(&format!("\n{place}"));
        // Some places are labelled with what only the compiler's authors know.
        if !label.is_empty() && label != "see msg" && !label.starts_with("naga::") {
            message.push_str(&format!(" {}", cut(label)));
        }
    }
    for note in notes.take(NOTES) {
        message.push_str(&format!("\nnote: {}", cut(note)));
    }
    Error::Compile { kernel: kernel.into(), message, line }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// Some characters of a line.
struct Place {
    /// Counted from 1.
    line: u32,
    shown: String,
    /// How many of the shown characters stand before the place, and how many it has.
    before: usize,
    marked: usize,
}

impl Place {
    /// The place of a range of bytes; as much of it as stands in its first line. Any range has one, whatever it is of.
    fn of(text: &str, start: usize, end: usize) -> Self {
        let start = text.floor_char_boundary(start.min(text.len()));
        let end = text.ceil_char_boundary(end.clamp(start, text.len()));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[..line_start].bytes().filter(|byte| *byte == b'\n').count() + 1;
        let rest = &text[start..];
        let line_end = start + rest.find('\n').unwrap_or(rest.len());
        let (mut before, marked) =
            (text[line_start..start].chars().count(), text[start..end.min(line_end)].chars().count());
        // A long line is shown from somewhere before the place.
        let skipped = if before > SHOWN - BEFORE { before - BEFORE } else { 0 };
        let mut shown: String = text[line_start..line_end].chars().skip(skipped).take(SHOWN).map(plain).collect();
        before -= skipped;
        if skipped > 0 {
            shown.insert(0, '…');
            before += 1;
        }
        let marked = marked.clamp(1, (shown.chars().count().saturating_sub(before)).max(1));
        Self { line: u32::try_from(line).unwrap_or(u32::MAX), shown: shown.trim_end().into(), before, marked }
    }
}

/// A character as it is shown: tabs stay, other control characters would move the caret.
fn plain(character: char) -> char {
    if character.is_control() && character != '\t' { ' ' } else { character }
}

/// Two lines: that of the text behind its number, and the caret.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        writeln!(f, "{number} | {}", self.shown)?;
        write!(f, "{:width$} | ", "", width = number.len())?;
        for character in self.shown.chars().chain(core::iter::repeat(' ')).take(self.before) {
            write!(f, "{}", if character == '\t' { '\t' } else { ' ' })?;
        }
        (0..self.marked).try_for_each(|_| f.write_str("^"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_place_of_its_line() {
        let text = "first\n\tlet ä = nö + 1;\nlast";
        let start = text.find("nö").unwrap();
        assert_eq!(Place::of(text, start, start + 3).to_string(), "2 | \tlet ä = nö + 1;\n  | \t        ^^");
        assert_eq!(Place::of(text, text.len(), text.len() + 9).to_string(), "3 | last\n  |     ^");
        assert_eq!(Place::of("", 5, 2).to_string(), "1 | \n  | ^");
    }

    #[test]
    fn a_range_that_ends_in_another_line_is_marked_to_the_end_of_its_own() {
        assert_eq!(Place::of("ab\ncd\n", 1, 5).to_string(), "1 | ab\n  |  ^");
    }

    #[test]
    fn of_a_long_line_the_place_is_shown() {
        let text = "x".repeat(5_000) + "y" + &"z".repeat(5_000);
        let shown = Place::of(&text, 5_000, 5_001).to_string();
        let (line, caret) = shown.split_once('\n').unwrap();
        assert!(line.chars().count() < SHOWN + 8);
        assert_eq!(line.chars().position(|c| c == 'y'), caret.chars().position(|c| c == '^'));
    }

    #[test]
    fn a_range_inside_a_character_is_widened_to_it() {
        for (start, end) in [(1, 1), (1, 2), (0, 1), (2, 3)] {
            assert!(Place::of("äö", start, end).to_string().contains('^'));
        }
    }
}
