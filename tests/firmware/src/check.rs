//! Checks: a name that is a sentence, and a function that says what is wrong.

use alloc::format;
use alloc::string::String;
use core::fmt::{Debug, Display};
use core::panic::Location;
use semihosting::println;
use trunnion_runtime_core::error::{Error, Result};

/// Something a board relies on.
pub struct Check {
    /// What it is, as a sentence.
    pub name: &'static str,
    /// Finds out whether it is so.
    pub run: fn() -> Outcome,
}

/// What a check found.
pub type Outcome<T = ()> = core::result::Result<T, Wrong>;

/// Something is not as it should be: what, and where that was seen.
pub struct Wrong {
    what: String,
    place: &'static Location<'static>,
}

impl Wrong {
    /// Something is wrong where this is called.
    #[track_caller]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), place: Location::caller() }
    }
}

impl From<Error> for Wrong {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::new(format!("an error that should not be: {error}"))
    }
}

/// Two values are equal.
#[track_caller]
pub fn same<T: PartialEq<U> + Debug, U: Debug>(got: T, expected: U) -> Outcome {
    if got == expected { Ok(()) } else { Err(Wrong::new(format!("{got:?}, and not {expected:?}"))) }
}

/// Something holds; if it does not, `said` is what there is instead.
#[track_caller]
pub fn holds(is_so: bool, said: impl Display) -> Outcome {
    if is_so { Ok(()) } else { Err(Wrong::new(format!("{said}"))) }
}

/// A call fails, with an error of this kind.
#[track_caller]
pub fn fails<T>(result: Result<T>, kind: impl FnOnce(&Error) -> bool) -> Outcome<Error> {
    match result {
        Ok(_) => Err(Wrong::new("it went well, which it should not")),
        Err(error) if kind(error.root()) => Ok(error),
        Err(error) => Err(Wrong::new(format!("another error than expected: {error}"))),
    }
}

/// How many checks found what they look for, and how many did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that did.
    pub passed: u32,
    /// Those that did not.
    pub failed: u32,
}

impl Tally {
    /// Runs a check and says on a line of its own what came of it.
    pub fn run(&mut self, check: &Check) {
        match (check.run)() {
            Ok(()) => {
                self.passed += 1;
                println!("ok     {}", check.name);
            }
            Err(Wrong { what, place }) => {
                self.failed += 1;
                println!("FAILED {}\n       {}:{}: {what}", check.name, place.file(), place.line());
            }
        }
    }
}
