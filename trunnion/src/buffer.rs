//! Typed buffers: device memory whose bytes are elements of one Rust type.

use crate::client::Client;
use crate::error::{Error, OutOfMemory, Result};
use crate::handle::Handle;
use crate::timeline::Point;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytemuck::Pod;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::ops::{Bound, Deref, RangeBounds};

/// Device memory that holds elements of type `T`, with the client it was made with. Cheap to clone; a clone is the same memory.
///
/// It dereferences to its [`Handle`], so a `&Buffer<T>` can be given wherever a `&Handle` can; [`args!`](crate::args) takes buffers of
/// several types. It may hold no elements. `T` must have a size: a buffer of `()` does not compile.
///
/// ```
/// use trunnion::Buffer;
/// let client = trunnion::open("host")?;
/// let buffer = Buffer::from_slice(&client, &[1.0f32, 2.0, 3.0])?;
/// buffer.slice(1..)?.write(&[5.0, 6.0])?;
/// assert_eq!(buffer.read()?, [1.0, 5.0, 6.0]);
/// # Ok::<(), trunnion::OpenError>(())
/// ```
///
/// Equivalent to: a `thrust::device_vector`; a `wgpu::Buffer` with its element type.
pub struct Buffer<T> {
    client: Client,
    handle: Handle,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> Buffer<T> {
    /// Bytes of an element.
    const SIZE: u64 = {
        assert!(size_of::<T>() > 0, "the elements of a buffer have a size");
        size_of::<T>() as u64
    };

    fn of(client: &Client, handle: Handle) -> Self {
        Self { client: client.clone(), handle, elements: PhantomData }
    }

    /// A buffer with these elements. They are copied before the call returns.
    ///
    /// # Errors
    /// As for [`Client::create_from_slice`].
    pub fn from_slice(client: &Client, elements: &[T]) -> Result<Self> {
        // The size is asked for so that a type without one is refused when it is compiled.
        bytes_of::<T>(elements.len())?;
        Ok(Self::of(client, client.create_from_slice(bytemuck::cast_slice(elements))?))
    }

    /// A buffer of `len` elements, all bytes zero.
    ///
    /// # Errors
    /// As for [`Client::zeros`], and [`Error::SizeOverflow`].
    pub fn zeroed(client: &Client, len: usize) -> Result<Self> {
        Ok(Self::of(client, client.zeros(bytes_of::<T>(len)?)?))
    }

    /// A buffer of `len` elements that are not defined until they are written.
    ///
    /// # Errors
    /// As for [`Client::empty`], and [`Error::SizeOverflow`].
    pub fn empty(client: &Client, len: usize) -> Result<Self> {
        Ok(Self::of(client, client.empty(bytes_of::<T>(len)?)?))
    }

    /// Device memory looked at as elements.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`] unless it is this client's; [`Error::Misaligned`] when its size is not a multiple of the element's, or its
    /// offset not one of the element's alignment.
    pub fn try_from_handle(client: &Client, handle: Handle) -> Result<Self> {
        let (owner, service) = (handle.service(), client.service_id());
        if owner != service {
            return Err(Error::ForeignHandle { owner, service });
        }
        let aligned = [
            ("size of a buffer's memory", handle.size_in_used(), Self::SIZE),
            ("offset of a buffer's memory", handle.range().start, align_of::<T>() as u64),
        ];
        for (what, value, alignment) in aligned {
            if !value.is_multiple_of(alignment) {
                return Err(Error::Misaligned { what: what.into(), value, alignment });
            }
        }
        Ok(Self::of(client, handle))
    }

    /// The memory, without its type.
    pub fn into_handle(self) -> Handle {
        self.handle
    }

    /// The memory. A `&Buffer<T>` becomes it by itself where a `&Handle` is expected.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The client it was made with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        // What is on a device may be more than the host can count only where nothing could read it: then it counts as the most there can be.
        usize::try_from(self.handle.size_in_used() / Self::SIZE).unwrap_or(usize::MAX)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.handle.is_empty()
    }

    /// Some of its elements: the same memory.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], in bytes, when the range begins after its end or leaves the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let bytes = |index: usize, more: u64| (index as u64).checked_add(more)?.checked_mul(Self::SIZE);
        let start = match range.start_bound() {
            Bound::Included(index) => bytes(*index, 0),
            Bound::Excluded(index) => bytes(*index, 1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(index) => bytes(*index, 1),
            Bound::Excluded(index) => bytes(*index, 0),
            Bound::Unbounded => Some(self.handle.size_in_used()),
        };
        // `u64::MAX` is outside of any buffer.
        let range = start.unwrap_or(u64::MAX)..end.unwrap_or(u64::MAX);
        Ok(Self::of(&self.client, self.handle.slice(range)?))
    }

    /// Replaces its elements, in the order of the stream. They are copied before the call returns.
    ///
    /// # Errors
    /// As for [`Client::write_slice`]: [`Error::WrongLength`], in bytes, unless there are as many.
    pub fn write(&self, elements: &[T]) -> Result<Point> {
        self.client.write_slice(&self.handle, bytemuck::cast_slice(elements))
    }

    /// Makes every element equal to `value`.
    ///
    /// # Errors
    /// As for [`Client::fill`]: [`Error::WrongLength`] for elements of another size than 1, 2, 4, 8 or 16 bytes.
    pub fn fill(&self, value: T) -> Result<Point> {
        self.client.fill(&self.handle, bytemuck::bytes_of(&value))
    }

    /// Copies the elements of another buffer of the same device over these.
    ///
    /// # Errors
    /// As for [`Client::copy`]: [`Error::WrongLength`], in bytes, unless there are as many.
    pub fn copy_from(&self, source: &Buffer<T>) -> Result<Point> {
        self.client.copy(&source.handle, &self.handle)
    }

    /// The elements, after every write of any stream that was issued before.
    ///
    /// # Errors
    /// As for [`Client::read`]; [`Error::OutOfMemory`] when the host has no room for them.
    pub fn read(&self) -> Result<Vec<T>> {
        let refuse = |()| {
            let driver = Some("the host has no memory for the elements".into());
            Error::OutOfMemory(Box::new(OutOfMemory {
                requested: self.handle.size_in_used(),
                driver,
                ..OutOfMemory::default()
            }))
        };
        let mut elements = bytemuck::allocation::try_zeroed_vec(self.len()).map_err(refuse)?;
        self.read_into(&mut elements)?;
        Ok(elements)
    }

    /// [`read`](Self::read) into a slice.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and [`Error::WrongLength`], in bytes, unless the slice is as long.
    pub fn read_into(&self, elements: &mut [T]) -> Result<()> {
        self.client.read_into(&self.handle, bytemuck::cast_slice_mut(elements))
    }

    /// [`read`](Self::read) as a future. What it reads is what the device holds after everything issued before this call.
    ///
    /// # Errors
    /// As for [`Client::read_async`]; the future's as for [`read`](Self::read).
    pub fn read_async(&self) -> Result<impl Future<Output = Result<Vec<T>>> + use<T>> {
        let reading = self.client.read_async(&[&self.handle])?;
        Ok(async move { reading.await?.pop().unwrap_or_default().to_vec() })
    }

    /// A copy of these elements on another device of the process.
    ///
    /// # Errors
    /// As for [`Client::to_client`].
    pub fn to_client(&self, target: &Client) -> Result<Self> {
        Ok(Self::of(target, self.client.to_client(&self.handle, target)?))
    }
}

fn bytes_of<T: Pod>(len: usize) -> Result<u64> {
    (len as u64)
        .checked_mul(Buffer::<T>::SIZE)
        .ok_or_else(|| Error::SizeOverflow { what: alloc::format!("buffer of {len} elements").into() })
}

impl<T> Deref for Buffer<T> {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl<T> AsRef<Handle> for Buffer<T> {
    fn as_ref(&self) -> &Handle {
        &self.handle
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), handle: self.handle.clone(), elements: PhantomData }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({:?})", core::any::type_name::<T>(), self.handle)
    }
}
