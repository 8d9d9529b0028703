//! Launches that do not run: scopes of a launch mode.

use super::Client;
use crate::error::Result;
use crate::grid::Grid;
use crate::handle::Handle;
use crate::kernel::{KernelHandle, LaunchMode};
use crate::server::Bounds;
use crate::service::{self, Reach, Service};
use crate::timeline::Point;
use alloc::sync::Arc;
use core::fmt;

impl Client {
    /// Until the scope ends, launches that are issued on this client's stream are made in this mode.
    ///
    /// A program can so be led through all its launches once, to have its kernels compiled, before it runs:
    ///
    /// ```no_run
    /// use trunnion_runtime_core::client::Client;
    /// use trunnion_runtime_core::error::Result;
    /// use trunnion_runtime_core::kernel::LaunchMode;
    ///
    /// fn warm_up(client: &Client, model: impl Fn(&Client) -> Result<()>) -> Result<()> {
    ///     {
    ///         let _scope = client.launch_mode(LaunchMode::Queue)?;
    ///         model(client)?; // Nothing runs: every buffer stays as it is.
    ///     }
    ///     let compiled = client.compile_queued()?; // All of them together.
    ///     println!("{compiled} kernels are ready");
    ///     model(client) // Now it runs.
    /// }
    /// ```
    ///
    /// Scopes open on the same launches agree on the mode: one that would reach a launch which an open scope of another mode reaches is
    /// refused, whether of this stream or of the process. [`LaunchMode::Execute`] can be asked for too: until that scope ends, nobody
    /// keeps the stream's launches from running. Scopes of one mode nest, and end in any order, on any thread.
    ///
    /// A kernel that does not compile is no error of a discarded launch: [`compile_queued`](Self::compile_queued) names it, and so does
    /// the first launch that is to run.
    ///
    /// # Errors
    /// [`Error::LaunchModeConflict`](crate::error::Error::LaunchModeConflict) names both modes; no scope is then opened.
    pub fn launch_mode(&self, mode: LaunchMode) -> Result<LaunchScope> {
        let reach = Reach::Stream(self.service.id, self.stream());
        LaunchScope::open(reach, mode, Some(self.service.clone()))
    }

    /// As [`launch_mode`](Self::launch_mode), for the launches of every stream of every device of the process.
    ///
    /// # Errors
    /// As for [`launch_mode`](Self::launch_mode): here a scope of any stream can be the other one.
    pub fn process_launch_mode(mode: LaunchMode) -> Result<LaunchScope> {
        LaunchScope::open(Reach::Process, mode, None)
    }

    /// The mode of a launch that is issued now: what the open scopes say, [`LaunchMode::Execute`] where there are none. For code that
    /// would go wrong on bytes that were not computed, a search that follows what it measures for instance.
    pub fn current_launch_mode(&self) -> LaunchMode {
        match self.service.launches.are_watched() {
            true => service::mode_of(self.service.id, self.stream()),
            false => LaunchMode::Execute,
        }
    }

    /// A launch, checked, of an empty grid, or while scopes or recorders are open.
    #[cold]
    #[inline(never)]
    pub(super) fn launch_unusual(
        &self,
        kernel: &KernelHandle,
        grid: &Grid,
        buffers: &[&Handle],
        parameters: &[u8],
        bounds: Bounds,
    ) -> Result<Point> {
        if grid.is_empty() {
            return self.record();
        }
        let mode = self.current_launch_mode();
        let point = match mode {
            LaunchMode::Execute => self.launch_checked(kernel, grid.clone(), buffers, parameters, bounds)?,
            LaunchMode::CompileOnly => {
                let kernel = kernel.clone();
                self.enqueue(move |core, at| {
                    core.server.mark(at);
                    // The server keeps a failure, and whoever needs the code meets it.
                    core.server.compile(&kernel, bounds).ok();
                })?
            }
            LaunchMode::Queue => {
                let point = self.record()?;
                self.service.launches.queue(kernel, bounds);
                point
            }
        };
        self.service.launches.note(kernel, mode);
        Ok(point)
    }
}

/// A launch mode that holds until this is dropped.
#[must_use = "the scope ends when this is dropped"]
pub struct LaunchScope {
    reach: Reach,
    mode: LaunchMode,
    /// The device whose stream it is.
    service: Option<Arc<Service>>,
}

impl LaunchScope {
    fn open(reach: Reach, mode: LaunchMode, service: Option<Arc<Service>>) -> Result<Self> {
        service::open_scope(reach, mode)?;
        service.iter().for_each(|service| service.launches.watch());
        Ok(Self { reach, mode, service })
    }

    /// The mode that holds.
    pub fn mode(&self) -> LaunchMode {
        self.mode
    }
}

impl Drop for LaunchScope {
    fn drop(&mut self) {
        service::close_scope(self.reach);
        self.service.iter().for_each(|service| service.launches.unwatch());
    }
}

impl fmt::Debug for LaunchScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchScope(`{}` for {})", self.mode, self.reach)
    }
}
