//! Asking the server inside about what is somebody else's.

use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::server::{ForeignServer, Server};

/// What the capability of the server inside answers. A layer offers the capability only where the server inside does.
pub(crate) fn ask_foreign<S: Server + ?Sized, T>(
    inside: &mut S,
    ask: impl FnOnce(&mut dyn ForeignServer) -> Result<T>,
) -> Result<T> {
    let gone = Error::Busy { what: "the server inside takes nothing that is somebody else's".into() };
    inside.foreign().map_or(Err(gone), ask)
}
