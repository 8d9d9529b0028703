//! The bytes of a program: given, made by rule, or missing with a reason.

use super::MAX_MADE;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Result;

/// The bytes that a call carries, or that it brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The bytes themselves.
    Bytes(Arc<[u8]>),
    /// A pattern of 1, 2, 4, 8 or 16 bytes, again and again.
    Repeat(Arc<[u8]>),
    /// Bytes that look random and follow from this seed.
    Random(u64),
    /// Nothing was written: an access in place that ended before it was granted.
    Nothing,
    /// There are no bytes: whoever promised them failed, or a failure lay on what was read.
    Failed(String),
    /// There were bytes, and the program does not have them.
    Lost(String),
}

impl Content {
    /// These bytes, in the shortest form there is for them.
    pub fn of(bytes: &[u8]) -> Self {
        match repeated(bytes) {
            Some(pattern) => Self::Repeat(pattern.into()),
            None => Self::Bytes(bytes.into()),
        }
    }

    /// Whether it says which bytes there are.
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Bytes(_) | Self::Repeat(_) | Self::Random(_))
    }

    /// Whether it can stand for this many bytes.
    pub fn fits(&self, size: u64) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64 == size,
            Self::Repeat(pattern) => size <= MAX_MADE && size.is_multiple_of(pattern.len().max(1) as u64),
            Self::Random(_) => size <= MAX_MADE,
            Self::Nothing | Self::Failed(_) | Self::Lost(_) => true,
        }
    }

    /// The bytes, `size` of them; `None` where there are none, or another number.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](trunnion_runtime_core::error::Error::OutOfMemory) when there is no host memory for them.
    pub fn bytes(&self, size: u64) -> Result<Option<Bytes>> {
        if !self.is_known() || !self.fits(size) {
            return Ok(None);
        }
        let Ok(length) = usize::try_from(size) else { return Ok(None) };
        let mut buffer = HostBuffer::zeroed(length)?;
        let into = buffer.as_mut_slice();
        match self {
            Self::Bytes(bytes) => into.copy_from_slice(bytes),
            Self::Repeat(pattern) => {
                into.chunks_exact_mut(pattern.len().max(1)).for_each(|part| part.copy_from_slice(pattern))
            }
            Self::Random(seed) => random(*seed, into),
            Self::Nothing | Self::Failed(_) | Self::Lost(_) => {}
        }
        Ok(Some(Bytes::from_buffer(buffer)))
    }
}

/// The shortest pattern that `bytes` are a repetition of, where there is one that is worth writing.
pub(super) fn repeated(bytes: &[u8]) -> Option<&[u8]> {
    let is_repeated = |period: &usize| {
        bytes.len() >= 2 * period
            && bytes.len() as u64 <= MAX_MADE
            && bytes.len().is_multiple_of(*period)
            && bytes.iter().zip(&bytes[*period..]).all(|(a, b)| a == b)
    };
    [1, 2, 4, 8, 16].into_iter().find(is_repeated).map(|period| &bytes[..period])
}

/// Fills with the bytes of a seed: xorshift64*, little-endian, so that they are the same on every machine.
fn random(seed: u64, into: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for chunk in into.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let next = state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes();
        chunk.copy_from_slice(&next[..chunk.len()]);
    }
}

/// Appends bytes as hexadecimal digits.
pub(super) fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    text.reserve(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Appends the bytes that hexadecimal digits stand for; `None` where there is another character or an odd number of them.
pub(super) fn read_hex(text: &str, into: &mut Vec<u8>) -> Option<()> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |character: u8| char::from(character).to_digit(16).map(|digit| digit as u8);
    into.reserve(pairs.len());
    for [high, low] in pairs {
        into.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn bytes_that_repeat_are_kept_as_what_repeats() {
        assert_eq!(Content::of(&[0; 100]), Content::Repeat(Arc::from([0])));
        assert_eq!(Content::of(&[1, 2, 1, 2]), Content::Repeat(Arc::from([1, 2])));
        assert_eq!(Content::of(&[1, 2, 1]), Content::Bytes(Arc::from([1, 2, 1])));
        assert_eq!(Content::of(&[7]), Content::Bytes(Arc::from([7])));
        assert_eq!(Content::of(&[]), Content::Bytes(Arc::from([])));
    }

    #[test]
    fn content_gives_the_bytes_it_stands_for_and_none_of_another_length() {
        let given = |content: &Content, size| content.bytes(size).unwrap().map(|bytes| bytes.to_vec::<u8>().unwrap());
        let repeat = Content::Repeat(Arc::from([1, 2]));
        assert_eq!(given(&repeat, 6), Some(vec![1, 2, 1, 2, 1, 2]));
        assert_eq!(given(&repeat, 5), None);
        assert_eq!(given(&Content::Bytes(Arc::from([9])), 1), Some(vec![9]));
        assert_eq!(given(&Content::Bytes(Arc::from([9])), 2), None);
        assert_eq!(given(&Content::Random(3), 4).unwrap(), given(&Content::Random(3), 12).unwrap()[..4]);
        assert_ne!(given(&Content::Random(3), 12), given(&Content::Random(4), 12));
        assert_eq!(given(&Content::Random(3), MAX_MADE + 1), None);
        assert_eq!(given(&Content::Lost("gone".into()), 1), None);
    }

    #[test]
    fn hexadecimal_digits_come_back_and_nothing_else_is_taken_for_them() {
        let (mut text, mut bytes) = (String::new(), vec![]);
        push_hex(&mut text, &[0x00, 0x7F, 0xA5, 0xFF]);
        assert_eq!(text, "007fa5ff");
        read_hex(&text, &mut bytes).unwrap();
        assert_eq!(bytes, [0x00, 0x7F, 0xA5, 0xFF]);
        for bad in ["0", "0g", "+1", "é0", " 0"] {
            assert_eq!(read_hex(bad, &mut vec![]), None, "{bad}");
        }
    }
}
