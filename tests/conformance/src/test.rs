//! A test: a function, the row of the contract it belongs to, and how it is run.

use crate::check::Outcome;
use crate::context::Context;
use core::time::Duration;

/// How long a test may take unless it says otherwise: far longer than any takes on a busy machine, since it ends only what hangs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A test of one row.
#[derive(Clone, Debug)]
pub struct Test {
    /// The row of the contract, such as `M5`.
    pub row: &'static str,
    /// What it promises, as a sentence.
    pub name: &'static str,
    /// How long it may take.
    pub limit: Duration,
    /// It has a process of its own.
    pub child: bool,
    /// What the child process finds in its environment.
    pub env: &'static [(&'static str, &'static str)],
    /// It is run only as a child process of another test.
    pub hidden: bool,
    /// It touches what the process has one of, so no other such test runs at the same time.
    pub alone: bool,
    /// The test itself.
    pub run: fn(&Context) -> Outcome,
}

impl Test {
    /// A test with the usual limit, in this process.
    pub const fn new(row: &'static str, name: &'static str, run: fn(&Context) -> Outcome) -> Self {
        Self { row, name, limit: LIMIT, child: false, env: &[], hidden: false, alone: false, run }
    }

    /// It may take this many seconds.
    pub const fn seconds(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// It has a process of its own.
    pub const fn child(mut self) -> Self {
        self.child = true;
        self
    }

    /// It has a process of its own with these variables.
    pub const fn env(mut self, env: &'static [(&'static str, &'static str)]) -> Self {
        self.child = true;
        self.env = env;
        self
    }

    /// It is run only by another test, as a child process.
    pub const fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// It is not run at the same time as another test that says so.
    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Its name in lists and filters: `ROW::name`.
    pub fn path(&self) -> String {
        format!("{}::{}", self.row, self.name)
    }
}

/// Makes `tests()`, which lists this file's tests: `ROW function;`, with the builder's methods after the name where needed.
#[macro_export]
macro_rules! tests {
    ($($row:ident $name:ident $(.$method:ident($($argument:expr),*))*;)*) => {
        /// The tests of this file.
        pub fn tests() -> Vec<$crate::Test> {
            vec![$($crate::Test::new(stringify!($row), stringify!($name), $name)$(.$method($($argument),*))*),*]
        }
    };
}
