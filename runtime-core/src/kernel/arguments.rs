//! The arguments of a launch, as the caller gives them.

use crate::handle::Handle;
use smallvec::SmallVec;

/// How many buffers a launch carries without an allocation.
pub const INLINE_BUFFERS: usize = 16;

/// The most bytes of parameters a launch carries.
pub const MAX_PARAMETERS: usize = 256;

/// The arguments of a launch: buffers in the order of the kernel's interface, then parameters. Implemented by what callers have at hand:
///
/// - an array of handles, or of what is one (`AsRef<Handle>`), where there are no parameters: `client.launch(&kernel, grid, [&a, &b])`;
/// - a pair of buffers and parameters: `client.launch(&kernel, grid, ([&a, &b], &parameters))`;
/// - [`Args`], put together step by step.
pub trait Arguments {
    /// Calls `with` with the buffers and the bytes of the parameters.
    fn visit<R>(&self, with: impl FnOnce(&[&Handle], &[u8]) -> R) -> R;
}

impl<H: AsRef<Handle>, const N: usize> Arguments for [&H; N] {
    #[inline]
    fn visit<R>(&self, with: impl FnOnce(&[&Handle], &[u8]) -> R) -> R {
        with(&self.map(|buffer| buffer.as_ref()), &[])
    }
}

impl Arguments for &[&Handle] {
    #[inline]
    fn visit<R>(&self, with: impl FnOnce(&[&Handle], &[u8]) -> R) -> R {
        with(self, &[])
    }
}

impl<B: Arguments, P: bytemuck::Pod> Arguments for (B, &P) {
    #[inline]
    fn visit<R>(&self, with: impl FnOnce(&[&Handle], &[u8]) -> R) -> R {
        self.0.visit(|buffers, _| with(buffers, bytemuck::bytes_of(self.1)))
    }
}

impl Arguments for Args<'_> {
    #[inline]
    fn visit<R>(&self, with: impl FnOnce(&[&Handle], &[u8]) -> R) -> R {
        with(&self.buffers, self.parameters)
    }
}

/// Arguments put together step by step, borrowed from the caller.
#[derive(Clone, Debug, Default)]
pub struct Args<'a> {
    buffers: SmallVec<[&'a Handle; INLINE_BUFFERS]>,
    parameters: &'a [u8],
}

impl<'a> Args<'a> {
    /// No arguments.
    pub const fn new() -> Self {
        Self { buffers: SmallVec::new_const(), parameters: &[] }
    }

    /// One more buffer.
    #[inline]
    pub fn buffer(mut self, handle: &'a Handle) -> Self {
        self.buffers.push(handle);
        self
    }

    /// The parameters: one block of plain data.
    ///
    /// Equivalent to: the by-value struct of a CUDA kernel; a uniform block or immediates in WGSL.
    #[inline]
    pub fn parameters<P: bytemuck::Pod>(self, parameters: &'a P) -> Self {
        self.parameter_bytes(bytemuck::bytes_of(parameters))
    }

    /// The parameters as bytes.
    #[inline]
    pub fn parameter_bytes(mut self, parameters: &'a [u8]) -> Self {
        self.parameters = parameters;
        self
    }
}

impl<'a, const N: usize> From<[&'a Handle; N]> for Args<'a> {
    #[inline]
    fn from(buffers: [&'a Handle; N]) -> Self {
        Self { buffers: SmallVec::from_slice(&buffers), parameters: &[] }
    }
}

impl<'a> From<&[&'a Handle]> for Args<'a> {
    #[inline]
    fn from(buffers: &[&'a Handle]) -> Self {
        Self { buffers: SmallVec::from_slice(buffers), parameters: &[] }
    }
}
