//! Host bytes: what is written to a device, and what is read back from one.
//!
//! [`Bytes`] is a view of memory that something else keeps: a vector, a buffer a device read into, memory the caller
//! shares, a file, or a device's memory that is copied when it is first looked at. Cloning, slicing and splitting copy
//! nothing. [`HostBuffer`] is the memory a device reads into before it becomes `Bytes`.
//!
//! - [`host_buffer`](HostBuffer): zeroed, aligned, of a fixed size.
//! - [`source`](BytesProperty): where bytes come from.
//! - [`lazy`](LazySource): bytes loaded on first access, and once.
//! - `file`: a range of a file, read on first access.
//! - [`view`](Bytes): the handle people hold.

#[cfg(feature = "std")]
mod file;
mod host_buffer;
mod lazy;
mod source;
mod view;

pub use host_buffer::HostBuffer;
pub use lazy::LazySource;
pub use source::BytesProperty;
pub use view::Bytes;
