//! What a test answers, and the macros it checks with: each failure names the place, what was expected and what was seen.

use core::fmt;
use core::panic::Location;
use trunnion_runtime_core::error::Error;

/// What a test answers.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a test did not pass.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Something was seen that the contract does not allow.
    Failed(String),
    /// The device cannot be put into the state the test is about.
    Skipped(String),
}

impl Failure {
    /// A failure at the caller's place.
    #[track_caller]
    pub fn new(message: impl fmt::Display) -> Self {
        Self::Failed(format!("{}: {message}", Location::caller()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

impl From<Error> for Failure {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::new(format_args!("unexpected error: {}", shortened(format!("{error:?}"))))
    }
}

impl From<std::io::Error> for Failure {
    #[track_caller]
    fn from(error: std::io::Error) -> Self {
        Self::new(format_args!("the test's own file or process failed: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    #[track_caller]
    fn from(error: serde_json::Error) -> Self {
        Self::new(format_args!("serialisation failed: {error}"))
    }
}

/// Long values say how long they are instead of filling the screen.
pub fn shortened(text: String) -> String {
    const MOST: usize = 400;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// The bytes of plain elements.
pub fn raw<T: bytemuck::NoUninit>(elems: &[T]) -> &[u8] {
    bytemuck::cast_slice(elems)
}

/// `count` bytes that differ from their neighbours and from those of another seed.
pub fn pattern(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

/// Fails unless the condition holds; the message is formatted as by `format!`.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format_args!($($message)+)));
        }
    };
}

/// Fails unless both are equal, naming both.
#[macro_export]
macro_rules! ensure_eq {
    ($seen:expr, $expected:expr $(, $($message:tt)+)?) => {
        match (&$seen, &$expected) {
            (seen, expected) => {
                if *seen != *expected {
                    #[allow(unused_mut, unused_assignments, reason = "the message is optional")]
                    let mut about = String::new();
                    $( about = format!("{}: ", format_args!($($message)+)); )?
                    return Err($crate::Failure::new(format_args!(
                        "{about}`{}` is {}, expected {}",
                        stringify!($seen),
                        $crate::check::shortened(format!("{seen:?}")),
                        $crate::check::shortened(format!("{expected:?}"))
                    )));
                }
            }
        }
    };
}

/// The error of a result that must be one of this pattern; fails naming what came instead.
#[macro_export]
macro_rules! ensure_err {
    ($result:expr, $($pattern:tt)+) => {
        match $result {
            Err(error) if matches!(&error, $($pattern)+) => error,
            other => {
                return Err($crate::Failure::new(format_args!(
                    "`{}` answered {}, expected Err({})",
                    stringify!($result),
                    $crate::check::shortened(format!("{:?}", other.map(|_| "a value"))),
                    stringify!($($pattern)+)
                )));
            }
        }
    };
}
