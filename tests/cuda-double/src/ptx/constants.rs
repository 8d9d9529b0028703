//! Numbers as PTX writes them.

/// A whole number without a sign: decimal, `0x`, `0b` or octal, with or without the suffix `U`.
pub(super) fn unsigned(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let hex = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    if let Some(digits) = hex {
        return u64::from_str_radix(digits.strip_suffix('U').unwrap_or(digits), 16).ok();
    }
    let digits = text.strip_suffix('U').unwrap_or(text);
    if let Some(digits) = digits.strip_prefix("0b").or(digits.strip_prefix("0B")) {
        return u64::from_str_radix(digits, 2).ok();
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return u64::from_str_radix(&digits[1..], 8).ok();
    }
    digits.parse().ok()
}

/// A floating-point number by its bits: `0f` and eight digits, `0d` and sixteen.
fn float(text: &str) -> Option<u64> {
    let (digits, count) = match text.get(..2)? {
        "0f" | "0F" => (&text[2..], 8),
        "0d" | "0D" => (&text[2..], 16),
        _ => return None,
    };
    (digits.len() == count).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Any number, as the bits that a register would hold.
pub(super) fn number(text: &str, negative: bool) -> Option<u64> {
    if let Some(bits) = float(text) {
        return (!negative).then_some(bits);
    }
    unsigned(text).map(|value| if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::{number, unsigned};

    #[test]
    fn numbers_are_read_in_every_notation() {
        assert_eq!(unsigned("0x1F"), Some(31));
        assert_eq!(unsigned("017"), Some(15));
        assert_eq!(unsigned("0"), Some(0));
        assert_eq!(unsigned("4294967295U"), Some(0xFFFF_FFFF));
        assert_eq!(number("0f3F800000", false), Some(0x3F80_0000));
        assert_eq!(number("0d3FF0000000000000", false), Some(0x3FF0_0000_0000_0000));
        assert_eq!(number("1", true), Some(u64::MAX));
        assert_eq!(number("0f3F80", false), None);
        assert_eq!(number("x1", false), None);
    }
}
