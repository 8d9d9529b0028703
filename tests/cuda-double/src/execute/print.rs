//! What `printf` in a kernel makes of its format.

use crate::codes::Fault;

/// A part of what is printed.
pub(super) enum Piece {
    Ready(String),
    /// A text of the device, by address.
    Text(u64),
}

/// Fills a format in, with arguments that `read(size, offset)` gives; and how many there were.
pub(super) fn format(
    format: &str,
    mut read: impl FnMut(usize, u64) -> Result<u64, Fault>,
) -> Result<(Vec<Piece>, usize), Fault> {
    let (mut pieces, mut at, mut count) = (Vec::new(), 0u64, 0);
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        pieces.push(Piece::Ready(rest[..percent].to_owned()));
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            pieces.push(Piece::Ready("%".to_owned()));
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic() && !"lhzjt".contains(c));
        let Some(end) = end else { break };
        let (options, kind) = (&rest[..end], rest.as_bytes()[end]);
        rest = &rest[end + 1..];
        let wide = options.contains(['l', 'z', 'j', 't']) || matches!(kind, b's' | b'p') || b"eEfFgGaA".contains(&kind);
        let size = if wide { 8 } else { 4 };
        at = at.next_multiple_of(size as u64);
        let value = read(size, at)?;
        at += size as u64;
        count += 1;
        pieces.push(match kind {
            b's' => Piece::Text(value),
            _ => Piece::Ready(padded(number(value, wide, kind, options), options)),
        });
    }
    pieces.push(Piece::Ready(rest.to_owned()));
    Ok((pieces, count))
}

fn number(value: u64, wide: bool, kind: u8, options: &str) -> String {
    let float = f64::from_bits(value);
    let digits = options.split_once('.').and_then(|(_, digits)| digits.trim_end_matches('l').parse().ok()).unwrap_or(6);
    match kind {
        b'd' | b'i' if wide => (value as i64).to_string(),
        b'd' | b'i' => (value as i32).to_string(),
        b'x' => format!("{value:x}"),
        b'X' => format!("{value:X}"),
        b'o' => format!("{value:o}"),
        b'c' => char::from(value as u8).to_string(),
        b'p' => format!("0x{value:x}"),
        b'e' | b'E' => format!("{float:.digits$e}"),
        b'f' | b'F' => format!("{float:.digits$}"),
        b'g' | b'G' => format!("{float}"),
        _ => value.to_string(),
    }
}

fn padded(text: String, options: &str) -> String {
    let width = options.trim_start_matches(['-', '+', ' ', '#', '0']);
    let width = width.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    if options.starts_with('-') {
        format!("{text:<width$}")
    } else if options.starts_with('0') {
        format!("{text:0>width$}")
    } else {
        format!("{text:>width$}")
    }
}

/// The whole text, with those of the device read.
pub(super) fn with_texts(
    pieces: Vec<Piece>,
    mut text: impl FnMut(u64) -> Result<String, Fault>,
) -> Result<String, Fault> {
    let mut whole = String::new();
    for piece in pieces {
        match piece {
            Piece::Ready(ready) => whole.push_str(&ready),
            Piece::Text(address) => whole.push_str(&text(address)?),
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::{Piece, format};

    #[test]
    fn arguments_are_read_at_their_own_alignment() {
        let mut asked = Vec::new();
        let (pieces, count) = format("a=%d b=%lld c=%.2f d=%3u%%", |size, at| {
            asked.push((size, at));
            Ok([7, (-8i64) as u64, 1.5f64.to_bits(), 9][asked.len() - 1])
        })
        .unwrap();
        let text: String = pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Ready(text) => text,
                Piece::Text(_) => "?".to_owned(),
            })
            .collect();
        assert_eq!(text, "a=7 b=-8 c=1.50 d=  9%");
        assert_eq!((asked, count), (vec![(4, 0), (8, 8), (8, 16), (4, 24)], 4));
    }
}
