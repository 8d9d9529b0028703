//! Sizes and times that can be off.

use core::time::Duration;
use trunnion_runtime_core::text::{size, time};

/// Whether a value turns its setting off.
pub(super) fn is_off(text: &str) -> bool {
    matches!(text, "0" | "off" | "false")
}

/// A number of bytes, or off.
pub(super) fn size_or_off(text: &str) -> Option<Option<u64>> {
    if is_off(text) { Some(None) } else { size(text).map(|bytes| (bytes > 0).then_some(bytes)) }
}

/// A time, none where it is off.
pub(super) fn time_or_off(text: &str) -> Option<Duration> {
    if is_off(text) { Some(Duration::ZERO) } else { time(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_no_size_and_no_time() {
        for off in ["0", "off", "false"] {
            assert_eq!((size_or_off(off), time_or_off(off)), (Some(None), Some(Duration::ZERO)), "{off}");
        }
        assert_eq!((size_or_off("0KiB"), time_or_off("0s")), (Some(None), Some(Duration::ZERO)));
        assert_eq!((size_or_off("3KiB"), time_or_off("3ms")), (Some(Some(3 << 10)), Some(Duration::from_millis(3))));
        assert_eq!((size_or_off("none"), time_or_off("3")), (None, None));
    }
}
