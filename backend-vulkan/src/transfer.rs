//! Recording transfers: copies between rows, fills, and bytes that come from the host or go to it through staging blocks.
//!
//! `vkCmdCopyBuffer` takes regions of any size at any place, so whatever has to be byte-exact is a copy. `vkCmdFillBuffer` takes whole words
//! only: it fills the words of a range whose pattern fits a word, and copies fill the rest.

use crate::blocks::{LONGEST, Piece};
use crate::device::Device;
use crate::storage::VulkanPage;
use crate::stream::{Read, Supplies, VulkanStream};
use alloc::vec::Vec;
use ash::vk;
use core::ops::Range;
use smallvec::SmallVec;
use trunnion_backend_core::driver::Place;
use trunnion_backend_core::rows::for_each_pair;
use trunnion_runtime_core::bytes::{Bytes, BytesProperty, HostBuffer};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Pattern;

/// Regions handed to the driver in one call.
const REGIONS: usize = 1024;

/// Bytes of a pattern that is no word are repeated this far before they are copied.
const REPEATED: u64 = 64 << 10;

/// Where bytes are: a buffer, and an offset in it.
type Spot = (vk::Buffer, u64);

/// Collects the regions of copies, and records as many at a time as lie between the same two buffers.
struct Copies<'a> {
    device: &'a Device,
    command: vk::CommandBuffer,
    regions: &'a mut Vec<vk::BufferCopy>,
    between: (vk::Buffer, vk::Buffer),
}

impl<'a> Copies<'a> {
    fn new(device: &'a Device, command: vk::CommandBuffer, regions: &'a mut Vec<vk::BufferCopy>) -> Self {
        regions.clear();
        Self { device, command, regions, between: (vk::Buffer::null(), vk::Buffer::null()) }
    }

    fn add(&mut self, (from, from_offset): Spot, (to, to_offset): Spot, size: u64) {
        if self.between != (from, to) || self.regions.len() == REGIONS {
            self.record();
            self.between = (from, to);
        }
        self.regions.push(vk::BufferCopy { src_offset: from_offset, dst_offset: to_offset, size });
    }

    fn record(&mut self) {
        if !self.regions.is_empty() {
            let (from, to) = self.between;
            // SAFETY: the command buffer is being recorded, and whoever added the regions knows that they lie in their buffers, which stay
            // until the batch is finished.
            unsafe { self.device.raw.cmd_copy_buffer(self.command, from, to, self.regions) };
            self.regions.clear();
        }
    }
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        self.record();
    }
}

/// Where byte `offset` of a place lies in its page.
fn spot(place: Place<'_, VulkanPage>, offset: u64) -> Spot {
    (place.page.buffer(), place.offset + offset)
}

/// Calls `part` with what of `range`, bytes of a transfer, lies in one block: the block's number among those of the transfer, where the
/// bytes begin in it, where they begin in the range, and how many they are.
fn in_blocks(range: Range<u64>, mut part: impl FnMut(usize, u64, u64, u64)) {
    let mut at = range.start;
    while at < range.end {
        let (block, inside) = (at / LONGEST, at % LONGEST);
        let size = (LONGEST - inside).min(range.end - at);
        // As many blocks as the host has bytes for.
        part(block as usize, inside, at - range.start, size);
        at += size;
    }
}

// Every function here is unsafe for the same reason: what it records uses places, which MUST stay until the batch is finished.
impl VulkanStream {
    /// Encodes a copy.
    ///
    /// # Safety
    /// As for [`Driver::copy`](trunnion_backend_core::driver::Driver::copy); the rows lie in their places.
    ///
    /// # Errors
    /// What the driver answers; nothing was then encoded.
    pub(crate) unsafe fn copy(
        &mut self,
        supplies: &mut Supplies,
        (source, source_rows): (Place<'_, VulkanPage>, &Rows),
        (target, target_rows): (Place<'_, VulkanPage>, &Rows),
    ) -> Result<()> {
        let command = self.command(&supplies.loss)?;
        let mut copies = Copies::new(&supplies.device, command, &mut supplies.regions);
        for_each_pair(source_rows, target_rows, |from, to, size| {
            copies.add(spot(source, from), spot(target, to), size);
        });
        Ok(())
    }

    /// Encodes a write of bytes, which are resident and as many as the rows have.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub(crate) unsafe fn write(
        &mut self,
        supplies: &mut Supplies,
        data: Bytes,
        (target, rows): (Place<'_, VulkanPage>, &Rows),
    ) -> Result<()> {
        let command = self.command(&supplies.loss)?;
        let bytes = data.as_slice()?;
        let dense = Rows::single(bytes.len() as u64);
        let pinned = match data.property() {
            BytesProperty::Pinned => supplies.device.pinned.find(bytes),
            _ => None,
        };
        if let Some((buffer, offset)) = pinned {
            let mut copies = Copies::new(&supplies.device, command, &mut supplies.regions);
            for_each_pair(&dense, rows, |from, to, size| copies.add((buffer, offset + from), spot(target, to), size));
            drop(copies);
            self.open.pinned.push(data);
            return Ok(());
        }
        let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
        for chunk in bytes.chunks(LONGEST as usize) {
            let piece = self.open.uploads.take(&mut supplies.blocks, chunk.len() as u64, 1)?;
            // SAFETY: the piece was just taken, and is as long.
            unsafe { self.open.uploads.write(piece, chunk)? };
            pieces.push(piece);
        }
        let uploads = &self.open.uploads;
        let mut copies = Copies::new(&supplies.device, command, &mut supplies.regions);
        for_each_pair(&dense, rows, |from, to, size| {
            in_blocks(from..from + size, |block, inside, behind, size| {
                let piece = pieces[block].after(inside);
                copies.add((uploads.buffer(piece), piece.offset), spot(target, to + behind), size);
            });
        });
        Ok(())
    }

    /// Encodes a read into `into`, which is as long as the rows are together, as operation `seq` and its part `index`.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub(crate) unsafe fn read(
        &mut self,
        supplies: &mut Supplies,
        (seq, index): (u64, usize),
        (source, rows): (Place<'_, VulkanPage>, &Rows),
        into: HostBuffer,
    ) -> Result<()> {
        let command = self.command(&supplies.loss)?;
        let mut pieces: SmallVec<[(Piece, usize); 1]> = SmallVec::new();
        let mut left = into.len();
        while left > 0 {
            let size = left.min(LONGEST as usize);
            pieces.push((self.open.downloads.take(&mut supplies.blocks, size as u64, 1)?, size));
            left -= size;
        }
        let downloads = &self.open.downloads;
        let mut copies = Copies::new(&supplies.device, command, &mut supplies.regions);
        for_each_pair(rows, &Rows::single(into.len() as u64), |from, to, size| {
            in_blocks(to..to + size, |block, inside, behind, size| {
                let piece = pieces[block].0.after(inside);
                copies.add(spot(source, from + behind), (downloads.buffer(piece), piece.offset), size);
            });
        });
        drop(copies);
        self.open.reads.push(Read { seq, index, into, pieces });
        Ok(())
    }

    /// Encodes a fill of a whole place.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub(crate) unsafe fn fill(
        &mut self,
        supplies: &mut Supplies,
        target: Place<'_, VulkanPage>,
        pattern: Pattern,
    ) -> Result<()> {
        let command = self.command(&supplies.loss)?;
        let plan = Fill::plan(target.offset, target.size, pattern);
        // Edges and long patterns are copied from a block that holds the pattern again and again.
        let block = match plan.repeated {
            0 => None,
            size => {
                let piece = self.open.uploads.take(&mut supplies.blocks, size, 16)?;
                let repeated: SmallVec<[u8; 64]> =
                    pattern.bytes().iter().copied().cycle().take(size as usize).collect();
                // SAFETY: the piece was just taken, and is as long.
                unsafe { self.open.uploads.write(piece, &repeated)? };
                Some((self.open.uploads.buffer(piece), piece.offset))
            }
        };
        let buffer = target.page.buffer();
        if let Some((words, word)) = plan.words {
            let (start, size) = (words.start, words.end - words.start);
            // SAFETY: the command buffer is being recorded; whole words that lie in the place.
            unsafe { supplies.device.raw.cmd_fill_buffer(command, buffer, start, size, word) };
        }
        if let Some((block, offset)) = block {
            let mut copies = Copies::new(&supplies.device, command, &mut supplies.regions);
            for (range, phase) in plan.copied {
                let mut at = range.start;
                while at < range.end {
                    let size = (plan.repeated - phase).min(range.end - at);
                    copies.add((block, offset + phase), (buffer, at), size);
                    at += size;
                }
            }
        }
        Ok(())
    }
}

/// How a range is filled. Offsets are in the buffer.
#[derive(Debug, PartialEq)]
struct Fill {
    /// Whole words, and the word.
    words: Option<(Range<u64>, u32)>,
    /// What is copied from the repeated pattern, each from this far into it.
    copied: SmallVec<[(Range<u64>, u64); 2]>,
    /// How many bytes of the repeated pattern are needed.
    repeated: u64,
}

impl Fill {
    fn plan(offset: u64, size: u64, pattern: Pattern) -> Self {
        let (bytes, end) = (pattern.bytes(), offset + size);
        let whole = offset.next_multiple_of(4)..end & !3;
        let is_word = bytes.chunks(4).all(|word| word == &bytes[..bytes.len().min(4)]);
        if !is_word || whole.start >= whole.end {
            // A whole number of patterns, so that each copy goes on where the one before ended.
            let copied = if size == 0 { SmallVec::new() } else { SmallVec::from_iter([(offset..end, 0)]) };
            return Self { words: None, copied, repeated: size.min(REPEATED) };
        }
        // The pattern begins at `offset`, which need not be a word's first byte.
        let byte = |at: u64| bytes[((at - offset) % bytes.len() as u64) as usize];
        let word = u32::from_ne_bytes(core::array::from_fn(|i| byte(whole.start + i as u64)));
        let edges = [offset..whole.start, whole.end..end];
        let edges = edges.into_iter().filter(|edge| !edge.is_empty());
        let copied: SmallVec<[_; 2]> = edges.map(|edge| (edge.clone(), (edge.start - offset) % 4)).collect();
        // An edge has at most three bytes, from at most three bytes into the pattern.
        let repeated = if copied.is_empty() { 0 } else { 8 };
        Self { words: Some((whole, word)), copied, repeated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use trunnion_driver_rig::transfers;

    /// What a fill leaves in 64 bytes of 0xEE.
    fn filled(offset: u64, size: u64, pattern: &[u8]) -> Vec<u8> {
        let plan = Fill::plan(offset, size, Pattern::new(pattern).unwrap());
        let repeated: Vec<u8> = pattern.iter().copied().cycle().take(plan.repeated as usize).collect();
        let mut bytes = vec![0xEE; 64];
        if let Some((words, word)) = &plan.words {
            assert!(words.start % 4 == 0 && words.end % 4 == 0 && words.start < words.end, "{words:?}");
            for at in words.clone().step_by(4) {
                bytes[at as usize..at as usize + 4].copy_from_slice(&word.to_ne_bytes());
            }
        }
        for (range, phase) in &plan.copied {
            for at in range.clone() {
                assert_eq!(bytes[at as usize], 0xEE, "byte {at} is filled twice");
                bytes[at as usize] = repeated[(phase + at - range.start) as usize];
            }
        }
        bytes
    }

    #[test]
    fn a_fill_is_byte_exact_for_every_pattern_offset_and_size() {
        transfers::fills_are_byte_exact_for_every_pattern_offset_and_size(filled);
    }

    #[test]
    fn words_are_filled_by_the_device_and_only_edges_are_copied() {
        let plan = |offset, size, pattern: &[u8]| Fill::plan(offset, size, Pattern::new(pattern).unwrap());
        let whole = plan(8, 1 << 20, &[0; 16]);
        assert_eq!((whole.words, whole.repeated), (Some((8..8 + (1 << 20), 0)), 0));
        let edged = plan(7, 10, &[1, 2]);
        assert_eq!(edged.words, Some((8..16, u32::from_ne_bytes([2, 1, 2, 1]))));
        assert_eq!(edged.copied.into_vec(), [(7..8, 0), (16..17, 1)]);
        assert_eq!(plan(0, 1 << 20, &[1, 2, 3, 4, 5, 6, 7, 8]).repeated, REPEATED);
    }

    #[test]
    fn a_long_transfer_is_cut_where_blocks_end() {
        let mut parts = Vec::new();
        in_blocks(LONGEST - 3..2 * LONGEST + 5, |block, inside, behind, size| {
            parts.push((block, inside, behind, size));
        });
        assert_eq!(parts, [(0, LONGEST - 3, 0, 3), (1, 0, 3, LONGEST), (2, 0, LONGEST + 3, 5)]);
        in_blocks(5..5, |_, _, _, _| panic!("no bytes are no part"));
    }
}
