//! What becomes of a launch.

use core::fmt;

/// What becomes of a launch: decided when it is issued, not when its turn comes.
///
/// In every mode the arguments are checked alike, and the answer is a point of the stream. In the modes other than
/// [`Execute`](Self::Execute) the launch is discarded: it touches neither the bytes of a buffer nor the failures that lie on them,
/// also where its kernel does not compile, and nothing of it is timed.
///
/// A mode other than `Execute` is asked for by a scope, of a stream with `Client::launch_mode`, of the process with
/// `Client::process_launch_mode`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LaunchMode {
    /// The kernel runs.
    #[default]
    Execute,
    /// The kernel is compiled when the launch's turn comes, unless that was done.
    CompileOnly,
    /// The kernel is put on the list of those that `Client::compile_queued` compiles together.
    Queue,
}

impl fmt::Display for LaunchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Execute => "execute",
            Self::CompileOnly => "compile only",
            Self::Queue => "queue",
        })
    }
}
