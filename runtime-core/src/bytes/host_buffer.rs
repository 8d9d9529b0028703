//! Host memory of a fixed size, zeroed and aligned: what a device reads into before it becomes `Bytes`.

use crate::error::{Error, OutOfMemory, Result, Rung};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// The alignment of the memory, made by using words of this size.
type Word = u128;
const WORD: usize = size_of::<Word>();

/// Host memory of a fixed size that a device reads into, and that becomes [`Bytes`](super::Bytes) without a copy.
///
/// It begins at a multiple of 16 bytes, so that it can be viewed as any number type.
///
/// Equivalent to: memory of `malloc` handed to `cudaMemcpy`, not `cudaMallocHost`: it is pageable.
pub struct HostBuffer {
    // Holds at least `len` bytes.
    words: Vec<Word>,
    len: usize,
}

impl HostBuffer {
    /// Zeroed memory of `len` bytes.
    ///
    /// Large buffers come zeroed from the operating system, so that only the bytes used cost time.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] for a size no allocation can have, [`Error::OutOfMemory`] when the allocator refuses.
    pub fn zeroed(len: usize) -> Result<Self> {
        let count = len.div_ceil(WORD);
        // The largest allocation Rust allows. Below it the allocator decides.
        if count > isize::MAX as usize / WORD {
            return Err(Error::SizeOverflow { what: alloc::format!("host buffer of {len} bytes").into() });
        }
        // `vec!` takes the allocator's zeroed path but aborts when it fails, so the size is tried first. An allocation
        // nobody uses may be optimized away, along with its failure; `black_box` uses it.
        let mut trial: Vec<Word> = Vec::new();
        if let Err(error) = trial.try_reserve_exact(count) {
            return Err(Error::OutOfMemory(Box::new(OutOfMemory {
                requested: len as u64,
                tried: vec![Rung::Grow],
                driver: Some(alloc::format!("host memory: {error}")),
                ..OutOfMemory::default()
            })));
        }
        drop(core::hint::black_box(trial));
        Ok(Self { words: vec![0; count], len })
    }

    /// A copy of `bytes`, made in one pass.
    pub fn copy_from_slice(bytes: &[u8]) -> Self {
        let (whole, rest) = bytes.as_chunks::<WORD>();
        let mut words: Vec<Word> = Vec::with_capacity(bytes.len().div_ceil(WORD));
        words.extend(whole.iter().map(|chunk| Word::from_ne_bytes(*chunk)));
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            words.push(Word::from_ne_bytes(last));
        }
        Self { words, len: bytes.len() }
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn zeroed_memory_is_zero_aligned_and_exactly_as_long_as_asked() {
        for len in [0, 1, 15, 16, 17, 4096, 1_000_003] {
            let buffer = HostBuffer::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.is_empty(), len == 0);
            assert_eq!(buffer.as_slice().len(), len);
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
            assert_eq!(buffer.as_slice().as_ptr() as usize % 16, 0);
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut buffer = HostBuffer::zeroed(19).unwrap();
        buffer.as_mut_slice()[18] = 7;
        buffer.as_mut_slice()[0] = 3;
        assert_eq!(buffer.as_slice()[0], 3);
        assert_eq!(buffer.as_slice()[18], 7);
        assert_eq!(buffer.as_mut_slice().len(), 19);
    }

    #[test]
    fn a_copy_of_a_slice_equals_it_at_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..100).collect();
        for start in 0..17 {
            for end in start..100 {
                let copy = HostBuffer::copy_from_slice(&bytes[start..end]);
                assert_eq!(copy.as_slice(), &bytes[start..end]);
            }
        }
    }

    #[test]
    fn a_size_no_allocation_can_have_is_an_overflow() {
        for len in [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize] {
            match HostBuffer::zeroed(len) {
                Err(error @ Error::SizeOverflow { .. }) => assert!(error.to_string().contains(&len.to_string())),
                other => panic!("{len}: {other:?}"),
            }
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_size_the_allocator_refuses_is_an_error_and_not_an_abort() {
        match HostBuffer::zeroed(1 << 62) {
            Err(error @ Error::OutOfMemory(_)) => assert!(error.to_string().contains(&(1_u64 << 62).to_string())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn debug_output_shows_the_length_and_not_the_content() {
        assert_eq!(alloc::format!("{:?}", HostBuffer::copy_from_slice(&[1, 2])), "HostBuffer { len: 2, .. }");
    }
}
