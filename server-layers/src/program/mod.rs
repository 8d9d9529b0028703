//! The portable program: what a device was asked, so that any device can be asked again.
//!
//! A [`Program`] is a list of [`Step`]s on numbered buffers, streams and kernels. It has a text form, which [`Program::parse`] reads and
//! `Display` writes, and [`replay`] runs it on a client. The recorder ([`Record`](crate::Record)) writes it as the calls come; tests make
//! it from random numbers.
//!
//! ```
//! use trunnion_server_layers::program::Program;
//! let text = "trunnion-program 1\n1 s0 reserve b0 16 auto\n2 s0 fill b0[0..16] 2a\nend 2\n";
//! let program = Program::parse(text)?;
//! assert_eq!((program.steps.len(), program.to_string().as_str()), (2, text));
//! # Ok::<(), trunnion_server_layers::program::ParseError>(())
//! ```
//!
#![doc = include_str!("../../REPRODUCER.md")]

mod check;
mod compare;
mod content;
mod defect;
mod kernels;
mod order;
mod parse;
mod play;
mod step;
mod text;
mod token;

pub use check::Checker;
pub use compare::{Difference, Observed, Place, Replayed};
pub use content::Content;
pub use defect::{Defect, ParseError};
pub use kernels::{KernelInfo, KernelTable, Unresolved};
pub use play::{FRESH, Player, ReplayError, replay};
pub use step::{Call, Counts, LaunchCall, Program, Step, View};
pub(crate) use text::Writer;
pub use trunnion_runtime_core::sink::Sink;

/// The version of the text form that is written, and the latest that is read.
pub const VERSION: u32 = 1;

/// The most bytes in a line of the text form, without its end.
pub const MAX_LINE: usize = 1 << 18;

pub use trunnion_runtime_core::text::MAX_TEXT;

/// The most views in one call. A read of more is several reads of the same number.
pub const MAX_VIEWS: usize = 256;

/// The most dimensions in which the rows of a view are counted.
pub const MAX_DIMENSIONS: usize = 16;

/// The most bytes that a buffer has, or that a range ends at.
pub const MAX_SIZE: u64 = 1 << 48;

/// The most bytes that a repeated or random content stands for.
pub const MAX_MADE: u64 = 1 << 30;
