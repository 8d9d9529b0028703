//! Sizes and times as text.

use core::time::Duration;

/// Whether a value turns its setting off.
pub(super) fn is_off(text: &str) -> bool {
    matches!(text, "0" | "off" | "false")
}

/// A number of bytes: `4096`, `512MiB`.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
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

/// A number of bytes, or off.
pub(super) fn size_or_off(text: &str) -> Option<Option<u64>> {
    if is_off(text) { Some(None) } else { size(text).map(|bytes| (bytes > 0).then_some(bytes)) }
}

/// A time: `30s`, `500ms`, `50us`.
pub(super) fn time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// A time, none where it is off.
pub(super) fn time_or_off(text: &str) -> Option<Duration> {
    if is_off(text) { Some(Duration::ZERO) } else { time(text) }
}

/// A whole number, and the unit after it.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_have_a_binary_unit() {
        assert_eq!(size("0"), Some(0));
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("3KiB"), Some(3 << 10));
        assert_eq!(size(" 512 MiB "), Some(512 << 20));
        assert_eq!(size("2GiB"), Some(2 << 30));
        assert_eq!(size("16777215TiB"), Some(16_777_215 << 40));
        for bad in [
            "",
            " ",
            "MiB",
            "-1",
            "+1",
            "1.5GiB",
            "1MB",
            "1mib",
            "1 2",
            "16777216TiB",
            "18446744073709551616",
            "0x10",
            "1_000",
        ] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time("30s"), Some(Duration::from_secs(30)));
        assert_eq!(time("500 ms"), Some(Duration::from_millis(500)));
        assert_eq!(time("50us"), Some(Duration::from_micros(50)));
        assert_eq!(time("0s"), Some(Duration::ZERO));
        assert_eq!(time("18446744073709551615s"), Some(Duration::from_secs(u64::MAX)));
        for bad in ["", "0", "30", "s", "-1s", "1.5s", "1min", "1S", "1 s s", "é", "1é"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
