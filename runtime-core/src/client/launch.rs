//! Preparing and launching kernels.

use super::Client;
use crate::error::{Error, Result, SourceForm};
use crate::grid::{Grid, workgroups};
use crate::handle::Handle;
use crate::kernel::{Arguments, BufferInterface, HostUse, INLINE_BUFFERS, Kernel, KernelHandle, MAX_PARAMETERS};
use crate::server::{Bounds, Launch};
use crate::service::{BoundsPolicy, Core};
use crate::timeline::{Moment, Point};
use alloc::sync::Arc;
use smallvec::SmallVec;

impl Client {
    /// Checks a kernel against the device, reading its interface from the source where that can be read. Kernels with the same id are
    /// prepared once. Nothing is compiled yet. Kernels known by their content are kept as long as the device; a function that nobody
    /// holds, and what it captured, goes when a few hundred others were prepared after it.
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

    /// Runs a kernel, asynchronously, after everything it depends on. An access outside a buffer does no harm.
    ///
    /// A failure to compile, to find memory or to run lies on the buffers the kernel would have written. Inside a scope of another
    /// [`LaunchMode`](crate::kernel::LaunchMode) nothing runs: see [`launch_mode`](Self::launch_mode).
    ///
    /// Equivalent to: `cuLaunchKernel`; `vkCmdDispatch`; `dispatch_workgroups`.
    ///
    /// # Errors
    /// [`Error::ForeignKernel`], [`Error::ForeignHandle`], [`Error::GridTooLarge`], [`Error::BufferCount`], [`Error::ParameterSize`],
    /// [`Error::BufferSize`], [`Error::Misaligned`], [`Error::Overlap`]: nothing was submitted. The device's fault.
    #[inline]
    pub fn launch(&self, kernel: &KernelHandle, grid: Grid, args: impl Arguments) -> Result<Point> {
        args.visit(|buffers, parameters| self.launch_as(kernel, grid, buffers, parameters, Bounds::Checked))
    }

    /// [`launch`](Self::launch) without bounds checks, unless the device's settings ask for them.
    ///
    /// # Safety
    /// Every access of the kernel MUST stay inside the buffers it is given.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    #[inline]
    pub unsafe fn launch_unchecked(&self, kernel: &KernelHandle, grid: Grid, args: impl Arguments) -> Result<Point> {
        args.visit(|buffers, parameters| self.launch_as(kernel, grid, buffers, parameters, Bounds::Unchecked))
    }

    /// Checks a launch once, to be launched many times.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    pub fn prepare_launch(&self, kernel: &KernelHandle, grid: Grid, args: impl Arguments) -> Result<PreparedLaunch> {
        args.visit(|buffers, parameters| {
            self.check_shape(kernel, &grid, buffers.len(), parameters.len())?;
            self.check_buffers(kernel, &grid, buffers)?;
            check_tensors(kernel, buffers, parameters)?;
            Ok(PreparedLaunch {
                client: self.clone(),
                kernel: kernel.clone(),
                grid,
                buffers: buffers.iter().map(|handle| (*handle).clone()).collect(),
                parameters: SmallVec::from_slice(parameters),
            })
        })
    }

    fn launch_as(
        &self,
        kernel: &KernelHandle,
        grid: Grid,
        buffers: &[&Handle],
        parameters: &[u8],
        bounds: Bounds,
    ) -> Result<Point> {
        self.check_shape(kernel, &grid, buffers.len(), parameters.len())?;
        if !kernel.interface().tensor_maps.is_empty() {
            check_tensors(kernel, buffers, parameters)?;
        }
        let bounds = self.bounds(bounds);
        // Nearly every launch has a few buffers and short parameters: in a form of its own size it moves no byte it does not need.
        if parameters.len() <= SHORT_PARAMETERS {
            match buffers.len() {
                1 => return self.launch_few::<1>(kernel, grid, buffers, parameters, bounds),
                2 => return self.launch_few::<2>(kernel, grid, buffers, parameters, bounds),
                3 => return self.launch_few::<3>(kernel, grid, buffers, parameters, bounds),
                4 => return self.launch_few::<4>(kernel, grid, buffers, parameters, bounds),
                5 => return self.launch_few::<5>(kernel, grid, buffers, parameters, bounds),
                _ => {}
            }
        }
        self.launch_many(kernel, grid, buffers, parameters, bounds)
    }

    fn launch_many(
        &self,
        kernel: &KernelHandle,
        grid: Grid,
        buffers: &[&Handle],
        parameters: &[u8],
        bounds: Bounds,
    ) -> Result<Point> {
        self.check_buffers(kernel, &grid, buffers)?;
        if self.service.launches.are_watched() || grid.is_empty() {
            return self.launch_unusual(kernel, &grid, buffers, parameters, bounds);
        }
        self.launch_checked(kernel, grid, buffers, parameters, bounds)
    }

    /// Queues a launch that was checked.
    pub(super) fn launch_checked(
        &self,
        kernel: &KernelHandle,
        grid: Grid,
        buffers: &[&Handle],
        parameters: &[u8],
        bounds: Bounds,
    ) -> Result<Point> {
        let kernel = kernel.clone();
        let buffers: SmallVec<[Handle; INLINE_BUFFERS]> = buffers.iter().map(|handle| (*handle).clone()).collect();
        let parameters: SmallVec<[u8; MAX_PARAMETERS]> = SmallVec::from_slice(parameters);
        self.enqueue(move |core, at| {
            let launch = Launch { kernel: &kernel, grid: &grid, buffers: &buffers, parameters: &parameters, bounds };
            core.server.launch(at, &launch);
        })
    }

    #[inline]
    fn launch_few<const N: usize>(
        &self,
        kernel: &KernelHandle,
        grid: Grid,
        buffers: &[&Handle],
        parameters: &[u8],
        bounds: Bounds,
    ) -> Result<Point> {
        let Some(few) = buffers.first_chunk::<N>() else {
            return self.launch_many(kernel, grid, buffers, parameters, bounds);
        };
        self.check_few(kernel, &grid, few)?;
        if self.service.launches.are_watched() || !grid.is_plain(self.service.limits.max_grid) && grid.is_empty() {
            return self.launch_unusual(kernel, &grid, few, parameters, bounds);
        }
        let (length, stream) = (parameters.len(), self.stream());
        let seq = self.service.submit_with(move || {
            let (kernel, buffers, short) = (kernel.clone(), few.map(Handle::clone), short(parameters));
            move |core: &mut Core, seq| {
                let parameters = short.get(..length).unwrap_or_default();
                let launch = Launch { kernel: &kernel, grid: &grid, buffers: &buffers, parameters, bounds };
                core.server.launch(Moment { stream, seq }, &launch);
            }
        })?;
        Ok(Point { service: self.service.id, stream, seq })
    }

    pub(super) fn bounds(&self, asked: Bounds) -> Bounds {
        match self.service.settings.bounds {
            BoundsPolicy::Auto => asked,
            BoundsPolicy::Enforce => Bounds::Checked,
            BoundsPolicy::Validate => Bounds::Validated,
        }
    }

    /// What can be known of a launch without looking at its buffers.
    #[inline]
    fn check_shape(&self, kernel: &KernelHandle, grid: &Grid, buffers: usize, parameters: usize) -> Result<()> {
        if kernel.service() != self.service.id {
            return Err(self.foreign_kernel(kernel));
        }
        if !grid.is_plain(self.service.limits.max_grid) {
            self.check_grid(grid)?;
        }
        let interface = kernel.interface();
        if buffers != interface.buffers.len() {
            return Err(Error::BufferCount {
                kernel: kernel.name().into(),
                got: buffers,
                expected: interface.buffers.len(),
            });
        }
        if parameters != interface.parameters as usize {
            let (kernel, expected) = (kernel.name().into(), interface.parameters as usize);
            return Err(Error::ParameterSize { kernel, got: parameters, expected });
        }
        Ok(())
    }

    /// Checks as many buffers as the interface has, without a branch a condition: what is wrong, if anything is, is named apart.
    #[inline]
    fn check_few<const N: usize>(&self, kernel: &KernelHandle, grid: &Grid, buffers: &[&Handle; N]) -> Result<()> {
        let (limits, mut wrong) = (&*self.service.limits, false);
        let interface: Option<&[BufferInterface; N]> = kernel.interface().buffers.as_slice().try_into().ok();
        let Some(interface) = interface else { return self.check_buffers(kernel, grid, buffers) };
        for i in 0..N {
            let (size, start) = (buffers[i].size_in_used(), buffers[i].range().start);
            wrong |= (buffers[i].service() != self.service.id)
                | (size < interface[i].min_size)
                | (size > limits.max_binding)
                | (start & (limits.binding_alignment - 1) != 0);
        }
        for &written in kernel.written() {
            for i in 0..N {
                wrong |= i != written && buffers[i].overlap(buffers[written]);
            }
        }
        for &(index, part) in kernel.covering() {
            wrong |= !covers(grid, part, buffers[index]);
        }
        if wrong { self.check_buffers(kernel, grid, buffers) } else { Ok(()) }
    }

    /// Checks buffers one by one and names the first that is wrong.
    #[inline(never)]
    fn check_buffers(&self, kernel: &KernelHandle, grid: &Grid, buffers: &[&Handle]) -> Result<()> {
        let limits = &self.service.limits;
        for (index, (handle, buffer)) in buffers.iter().zip(&kernel.interface().buffers).enumerate() {
            self.local(handle)?;
            let got = handle.size_in_used();
            if got < buffer.min_size || got > limits.max_binding {
                return Err(buffer_size(kernel, index, got, buffer.min_size, limits.max_binding));
            }
            let (value, alignment) = (handle.range().start, limits.binding_alignment);
            // No bytes begin nowhere.
            if got > 0 && !value.is_multiple_of(alignment) {
                let what = alloc::format!("kernel `{}`, offset of buffer {index} in its allocation", kernel.name());
                return Err(Error::Misaligned { what: what.into(), value, alignment });
            }
        }
        for &written in kernel.written() {
            let overlaps = |other: &usize| *other != written && buffers[*other].overlap(buffers[written]);
            if let Some(other) =
                (0..buffers.len()).find(|other| overlaps(other) && !may_overlap(kernel, *other, written))
            {
                return Err(Error::Overlap {
                    what: kernel.name().into(),
                    first: other.min(written),
                    second: other.max(written),
                });
            }
        }
        for &(index, part) in kernel.covering() {
            if !covers(grid, part, buffers[index]) {
                let why = alloc::format!(
                    "replaced whole as declared, {part} bytes by each workgroup, they need a larger grid than {grid:?}"
                );
                return Err(Error::BufferSize {
                    kernel: kernel.name().into(),
                    index,
                    got: buffers[index].size_in_used(),
                    why,
                });
            }
        }
        Ok(())
    }

    #[cold]
    fn foreign_kernel(&self, kernel: &KernelHandle) -> Error {
        Error::ForeignKernel { kernel: kernel.name().into(), owner: kernel.service(), service: self.service.id }
    }

    #[cold]
    fn check_grid(&self, grid: &Grid) -> Result<()> {
        let Grid::Dynamic(counts) = grid else { return grid.check(self.service.limits.max_grid) };
        self.local(counts)?;
        if counts.size_in_used() < 12 {
            return Err(Error::WrongLength { what: "dynamic grid".into(), got: counts.size_in_used(), expected: 12 });
        }
        let (value, alignment) = (counts.range().start, 4);
        match value % alignment {
            0 => Ok(()),
            _ => Err(Error::Misaligned { what: "offset of the dynamic grid".into(), value, alignment }),
        }
    }
}

/// Whether the tensors whose shapes are in the parameters lie in their buffers.
#[cold]
fn check_tensors(kernel: &KernelHandle, buffers: &[&Handle], parameters: &[u8]) -> Result<()> {
    for map in &kernel.interface().tensor_maps {
        let size = buffers.get(map.buffer).map_or(0, |handle| handle.size_in_used());
        map.shape(kernel.name(), parameters, size)?;
    }
    Ok(())
}

/// Parameters of at most this many bytes are short.
const SHORT_PARAMETERS: usize = 32;

/// Short parameters by value. Two moves that may overlap, each of half the bytes or more, cost less than a call of `memcpy`.
#[inline]
fn short(parameters: &[u8]) -> [u8; SHORT_PARAMETERS] {
    let mut short = [0; SHORT_PARAMETERS];
    match parameters.len() {
        16..=SHORT_PARAMETERS => copy_ends::<16>(&mut short, parameters),
        8..16 => copy_ends::<8>(&mut short, parameters),
        4..8 => copy_ends::<4>(&mut short, parameters),
        _ => short.iter_mut().zip(parameters).for_each(|(to, from)| *to = *from),
    }
    short
}

/// Copies the first and the last `N` of at least `N` and at most `2 * N` bytes.
#[inline]
fn copy_ends<const N: usize>(to: &mut [u8; SHORT_PARAMETERS], from: &[u8]) {
    let last = from.len() - N;
    if let (Some(head), Some(tail)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        to[..N].copy_from_slice(head);
        to[last..last + N].copy_from_slice(tail);
    }
}

/// Whether the workgroups' parts cover a buffer that is declared to be replaced whole. What a dynamic grid does shows when it runs.
#[inline]
fn covers(grid: &Grid, part: u64, buffer: &Handle) -> bool {
    match *grid {
        Grid::Static(x, y, z) => {
            let groups = workgroups([x, y, z]);
            groups == 0 || groups.saturating_mul(part) >= buffer.size_in_used()
        }
        Grid::Dynamic(_) => true,
    }
}

/// Whether two arguments, one of them written, may be the same bytes. On the host, safe code may share bytes it writes only as atomics.
#[cold]
fn may_overlap(kernel: &KernelHandle, first: usize, second: usize) -> bool {
    let interface = kernel.interface();
    let atomic = [first, second].iter().all(|i| interface.buffers[*i].host == HostUse::Atomic);
    interface.in_place && (atomic || kernel.source().form() != SourceForm::Host)
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
        let buffers: SmallVec<[&Handle; INLINE_BUFFERS]> = self.buffers.iter().collect();
        self.client.launch_as(&self.kernel, self.grid.clone(), &buffers, &self.parameters, Bounds::Checked)
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

#[cold]
fn buffer_size(kernel: &KernelHandle, index: usize, got: u64, least: u64, most: u64) -> Error {
    let why = if got < least {
        alloc::format!("the kernel needs at least {least}")
    } else {
        alloc::format!("the device binds at most {most}")
    };
    Error::BufferSize { kernel: kernel.name().into(), index, got, why }
}
