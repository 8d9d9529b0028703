//! The `args!` macro: buffers of different types, and parameters, as the arguments of one launch.

/// The arguments of a launch: buffers in the order of the kernel's interface, then, after a semicolon, the parameters.
///
/// Buffers are given as `&Handle` or `&Buffer<T>`, whatever their `T`; the parameters as a reference to plain data. It is
/// [`Args`](crate::kernel::Args) written shorter: `args![&x, &y; &factor]` is `Args::new().buffer(&x).buffer(&y).parameters(&factor)`.
///
/// ```
/// use trunnion::{Args, Buffer, Handle, args};
/// fn gather<'a>(values: &'a Buffer<f32>, indices: &'a Buffer<u32>, output: &'a Handle, count: &'a u32) -> Args<'a> {
///     args![values, indices, output; count]
/// }
/// # let _ = gather;
/// ```
///
/// Equivalent to: the `kernelParams` of `cuLaunchKernel`; a descriptor set and push constants; a bind group.
#[macro_export]
macro_rules! args {
    ($($buffer:expr),* $(,)?) => {
        $crate::kernel::Args::new()$(.buffer($buffer))*
    };
    ($($buffer:expr),* $(,)?; $parameters:expr) => {
        $crate::kernel::Args::new()$(.buffer($buffer))*.parameters($parameters)
    };
}
