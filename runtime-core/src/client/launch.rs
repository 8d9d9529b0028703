//! Preparing and launching kernels.

use super::Client;
use crate::error::{Error, Result, SourceForm};
use crate::grid::Grid;
use crate::handle::Handle;
use crate::kernel::{Args, HostUse, INLINE_BUFFERS, Kernel, KernelHandle, MAX_PARAMETERS};
use crate::server::{Bounds, CompileStatistics, Launch};
use crate::service::BoundsPolicy;
use crate::timeline::Point;
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::SmallVec;

impl Client {
    /// Checks a kernel against the device, reading its interface from the source where that can be read. Kernels with the same id are
    /// prepared once. Nothing is compiled yet.
    ///
    /// # Errors
    /// [`Error::NoSource`], [`Error::TooManyResources`], [`Error::InvalidKernel`]; [`Error::Compile`] where reading the source shows it.
    pub fn prepare(&self, kernel: impl Kernel) -> Result<KernelHandle> {
        self.prepare_shared(Arc::new(kernel))
    }

    /// [`prepare`](Self::prepare) for a kernel that is shared.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub fn prepare_shared(&self, kernel: Arc<dyn Kernel>) -> Result<KernelHandle> {
        self.service.prepare(kernel)
    }

    /// Compiles every kernel that was prepared and not compiled yet, and says how many those were.
    ///
    /// # Errors
    /// What did not compile, each once; the others are compiled. The device's fault.
    pub fn compile_queued(&self) -> Result<u64> {
        let before = self.compile_statistics()?;
        let mut failed = Vec::new();
        let bounds = self.bounds(Bounds::Checked);
        for kernel in self.service.prepared() {
            match self.service.call("compile_queued", move |core, _| core.server.compile(&kernel, bounds))? {
                Err(error) if error.is_device_lost() => return Err(error),
                Err(error) => failed.push(error),
                Ok(()) => {}
            }
        }
        match failed.pop() {
            None => {
                let after = self.compile_statistics()?;
                Ok(after.compiled + after.from_disk - before.compiled - before.from_disk)
            }
            Some(one) if failed.is_empty() => Err(one),
            Some(last) => {
                failed.push(last);
                Err(Error::Several(failed))
            }
        }
    }

    /// What the cache of compiled code did since the device started.
    ///
    /// # Errors
    /// The device's fault.
    pub fn compile_statistics(&self) -> Result<CompileStatistics> {
        self.service.call("compile_statistics", |core, _| core.server.compile_statistics())
    }

    /// Runs a kernel, asynchronously, after everything it depends on. An access outside a buffer does no harm.
    ///
    /// A failure to compile, to find memory or to run lies on the buffers the kernel would have written.
    ///
    /// Equivalent to: `cuLaunchKernel`; `vkCmdDispatch`; `dispatch_workgroups`.
    ///
    /// # Errors
    /// [`Error::ForeignKernel`], [`Error::ForeignHandle`], [`Error::GridTooLarge`], [`Error::BufferCount`], [`Error::ParameterSize`],
    /// [`Error::BufferSize`], [`Error::Misaligned`], [`Error::Overlap`]: nothing was submitted. The device's fault.
    pub fn launch<'a>(&self, kernel: &KernelHandle, grid: Grid, args: impl Into<Args<'a>>) -> Result<Point> {
        self.launch_as(kernel, grid, &args.into(), Bounds::Checked)
    }

    /// [`launch`](Self::launch) without bounds checks, unless the device's settings ask for them.
    ///
    /// # Safety
    /// Every access of the kernel MUST stay inside the buffers it is given.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    pub unsafe fn launch_unchecked<'a>(&self, kernel: &KernelHandle, grid: Grid, args: impl Into<Args<'a>>) -> Result<Point> {
        self.launch_as(kernel, grid, &args.into(), Bounds::Unchecked)
    }

    /// Checks a launch once, to be launched many times.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    pub fn prepare_launch<'a>(&self, kernel: &KernelHandle, grid: Grid, args: impl Into<Args<'a>>) -> Result<PreparedLaunch> {
        let args = args.into();
        self.check_launch(kernel, &grid, &args)?;
        Ok(PreparedLaunch {
            client: self.clone(),
            kernel: kernel.clone(),
            grid,
            buffers: args.buffers.iter().map(|handle| (*handle).clone()).collect(),
            parameters: SmallVec::from_slice(args.parameters),
        })
    }

    fn launch_as(&self, kernel: &KernelHandle, grid: Grid, args: &Args<'_>, bounds: Bounds) -> Result<Point> {
        self.check_launch(kernel, &grid, args)?;
        self.enqueue_launch(kernel, grid, args.buffers.iter().copied(), args.parameters, self.bounds(bounds))
    }

    fn bounds(&self, asked: Bounds) -> Bounds {
        match self.service.settings.bounds {
            BoundsPolicy::Auto => asked,
            BoundsPolicy::Enforce => Bounds::Checked,
            BoundsPolicy::Validate => Bounds::Validated,
        }
    }

    /// Everything about a launch that can be known here.
    fn check_launch(&self, kernel: &KernelHandle, grid: &Grid, args: &Args<'_>) -> Result<()> {
        let service = self.service.id;
        if kernel.service() != service {
            return Err(Error::ForeignKernel { kernel: kernel.name().into(), owner: kernel.service(), service });
        }
        let (limits, interface) = (&self.service.limits, kernel.interface());
        grid.check(limits.max_grid)?;
        if let Grid::Dynamic(counts) = grid {
            self.local(counts)?;
            if counts.size_in_used() < 12 {
                return Err(Error::WrongLength { what: "dynamic grid".into(), got: counts.size_in_used(), expected: 12 });
            }
            aligned("offset of the dynamic grid", counts, 4)?;
        }
        if args.buffers.len() != interface.buffers.len() {
            return Err(Error::BufferCount { kernel: kernel.name().into(), got: args.buffers.len(), expected: interface.buffers.len() });
        }
        if args.parameters.len() != interface.parameters as usize {
            let (got, expected) = (args.parameters.len(), interface.parameters as usize);
            return Err(Error::ParameterSize { kernel: kernel.name().into(), got, expected });
        }
        for (index, (handle, buffer)) in args.buffers.iter().zip(&interface.buffers).enumerate() {
            self.local(handle)?;
            let got = handle.size_in_used();
            if got < buffer.min_size || got > limits.max_binding {
                return Err(buffer_size(kernel, index, got, buffer.min_size, limits.max_binding));
            }
            aligned("offset of a buffer", handle, limits.binding_alignment)?;
            if buffer.access.writes() {
                self.check_overlap(kernel, args, index)?;
            }
        }
        Ok(())
    }

    /// A written buffer may overlap no other, unless the kernel says it works in place.
    #[inline]
    fn check_overlap(&self, kernel: &KernelHandle, args: &Args<'_>, written: usize) -> Result<()> {
        let interface = kernel.interface();
        for (other, handle) in args.buffers.iter().enumerate() {
            if other == written || !handle.overlap(args.buffers[written]) {
                continue;
            }
            // On the host, safe code may share bytes it writes only as atomics.
            let shareable = kernel.source().form() != SourceForm::Host
                || [other, written].iter().all(|i| interface.buffers[*i].host == HostUse::Atomic);
            if !(interface.in_place && shareable) {
                let (first, second) = (other.min(written), other.max(written));
                return Err(Error::Overlap { what: kernel.name().into(), first, second });
            }
        }
        Ok(())
    }

    /// Queues a launch that was checked. What it carries lies inline in the queue: the smallest of a few sizes that holds it.
    fn enqueue_launch<'a>(
        &self,
        kernel: &KernelHandle,
        grid: Grid,
        buffers: impl ExactSizeIterator<Item = &'a Handle>,
        parameters: &[u8],
        bounds: Bounds,
    ) -> Result<Point> {
        if grid.is_empty() {
            return self.record();
        }
        match (buffers.len(), parameters.len()) {
            (..=4, ..=32) => self.enqueue_sized::<4, 32>(kernel, grid, buffers, parameters, bounds),
            (..=4, _) => self.enqueue_sized::<4, MAX_PARAMETERS>(kernel, grid, buffers, parameters, bounds),
            (_, ..=32) => self.enqueue_sized::<INLINE_BUFFERS, 32>(kernel, grid, buffers, parameters, bounds),
            _ => self.enqueue_sized::<INLINE_BUFFERS, MAX_PARAMETERS>(kernel, grid, buffers, parameters, bounds),
        }
    }

    fn enqueue_sized<'a, const B: usize, const P: usize>(
        &self,
        kernel: &KernelHandle,
        grid: Grid,
        buffers: impl Iterator<Item = &'a Handle>,
        parameters: &[u8],
        bounds: Bounds,
    ) -> Result<Point> {
        let kernel = kernel.clone();
        let buffers: SmallVec<[Handle; B]> = buffers.cloned().collect();
        let parameters: SmallVec<[u8; P]> = SmallVec::from_slice(parameters);
        self.enqueue(move |core, at| {
            let launch = Launch { kernel: &kernel, grid: &grid, buffers: &buffers, parameters: &parameters, bounds };
            core.server.launch(at, &launch);
        })
    }
}

/// A launch that was checked once and can be made many times.
#[derive(Clone, Debug)]
pub struct PreparedLaunch {
    client: Client,
    kernel: KernelHandle,
    grid: Grid,
    buffers: SmallVec<[Handle; INLINE_BUFFERS]>,
    parameters: SmallVec<[u8; MAX_PARAMETERS]>,
}

impl PreparedLaunch {
    /// Launches it on the client's stream.
    ///
    /// # Errors
    /// The device's fault.
    pub fn launch(&self) -> Result<Point> {
        let bounds = self.client.bounds(Bounds::Checked);
        self.client.enqueue_launch(&self.kernel, self.grid.clone(), self.buffers.iter(), &self.parameters, bounds)
    }

    /// Replaces the parameters of the launches that follow.
    ///
    /// # Errors
    /// [`Error::ParameterSize`]; the old ones stay.
    pub fn set_parameters<P: bytemuck::Pod>(&mut self, parameters: &P) -> Result<()> {
        let bytes = bytemuck::bytes_of(parameters);
        if bytes.len() != self.parameters.len() {
            let (kernel, got, expected) = (self.kernel.name().into(), bytes.len(), self.parameters.len());
            return Err(Error::ParameterSize { kernel, got, expected });
        }
        self.parameters.copy_from_slice(bytes);
        Ok(())
    }
}

#[inline]
fn aligned(what: &'static str, handle: &Handle, alignment: u64) -> Result<()> {
    let value = handle.range().start;
    if value.is_multiple_of(alignment) { Ok(()) } else { Err(Error::Misaligned { what: what.into(), value, alignment }) }
}

#[cold]
fn buffer_size(kernel: &KernelHandle, index: usize, got: u64, least: u64, most: u64) -> Error {
    let why = if got < least {
        alloc::format!("the kernel needs at least {least}")
    } else {
        alloc::format!("the device binds at most {most}")
    };
    Error::BufferSize { kernel: kernel.name().into(), index, got, why }
}
