//! Reproducers: a run that was written down, run again on any device.
//!
//! A device opened with the layer `record=FILE` (`TRUNNION_LAYERS=record=run.trunnion`) writes down what it is asked. The file is read
//! here and run on another device, or on the same one after a change:
//!
//! ```
//! use trunnion::layers::program::{KernelTable, Program};
//! let text = "trunnion-program 1\n1 s0 reserve b0 4 auto\n2 s0 fill b0[0..4] 2a\nend 2\n";
//! let replayed = trunnion::replay(&Program::parse(text)?, &trunnion::open("host")?, &KernelTable::new())?;
//! assert_eq!(replayed.buffers[0].1.bytes, [0x2a; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What the lines of the file mean is on the page of [`layers::program`](crate::layers::program). Host functions are found by name in
//! the table.

use crate::layers::program::{ParseError, Program};
use alloc::string::{String, ToString};
use std::path::Path;

pub use crate::layers::program::replay;

/// Why a file is no program.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadProgramError {
    /// It cannot be read.
    #[error("{path}: {message}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's message.
        message: String,
    },
    /// A line is wrong.
    #[error("{path}: {error}")]
    Wrong {
        /// The file.
        path: String,
        /// The line, and what is wrong with it.
        #[source]
        error: ParseError,
    },
}

/// Reads a program from a file.
///
/// # Errors
/// [`ReadProgramError`].
pub fn read_program(path: impl AsRef<Path>) -> Result<Program, ReadProgramError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| ReadProgramError::Unreadable { path: name.clone(), message: error.to_string() })?;
    Program::parse(&text).map_err(|error| ReadProgramError::Wrong { path: name, error })
}
