//! The arguments of a launch, as the caller gives them.

use crate::handle::Handle;
use smallvec::SmallVec;

/// How many buffers a launch carries without an allocation.
pub const INLINE_BUFFERS: usize = 16;

/// The most bytes of parameters a launch carries.
pub const MAX_PARAMETERS: usize = 256;

/// The arguments of a launch: buffers in the order of the kernel's interface, then parameters. Borrowed from the caller.
///
/// An array of handles is arguments too: `client.launch(&kernel, grid, [&a, &b])`.
#[derive(Clone, Debug, Default)]
pub struct Args<'a> {
    pub(crate) buffers: SmallVec<[&'a Handle; INLINE_BUFFERS]>,
    pub(crate) parameters: &'a [u8],
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
