//! Encoding transfers: copies between rows, fills, and bytes that come from the host or go to it through staging blocks.
//!
//! The driver copies rows of equal length at equal distances in one call, so pieces that lie so are put together as they come.

use crate::batch::{Batch, Read};
use crate::blocks::{LONGEST, Piece};
use crate::operation::{End, Operation, Transfer};
use crate::storage::CudaPage;
use crate::stream::{CudaStream, Supplies};
use core::ops::Range;
use core::ptr::NonNull;
use smallvec::SmallVec;
use trunnion_backend_core::driver::Place;
use trunnion_backend_core::rows::for_each_pair;
use trunnion_runtime_core::bytes::{Bytes, BytesProperty, HostBuffer};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Pattern;

/// Puts pieces together to rectangles.
struct Rectangles<'a> {
    batch: &'a mut Batch,
    seq: u64,
    max_pitch: u64,
    open: Option<Transfer>,
}

impl<'a> Rectangles<'a> {
    fn new(batch: &'a mut Batch, seq: u64, max_pitch: u64) -> Self {
        Self { batch, seq, max_pitch, open: None }
    }

    fn add(&mut self, from: End, to: End, bytes: usize) {
        if let Some(open) = &mut self.open {
            if extend(open, from, to, bytes, self.max_pitch) {
                return;
            }
            let whole = *open;
            self.batch.push(self.seq, Operation::Transfer(whole));
        }
        self.open = Some(Transfer::line(from, to, bytes));
    }
}

impl Drop for Rectangles<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.open.take() {
            self.batch.push(self.seq, Operation::Transfer(last));
        }
    }
}

/// Makes a piece the next row of a rectangle, where it lies so.
fn extend(open: &mut Transfer, from: End, to: End, bytes: usize, max_pitch: u64) -> bool {
    let distances = match (distance(open.from, from), distance(open.to, to)) {
        (Some(from), Some(to)) if bytes == open.row => (from, to),
        _ => return false,
    };
    let (from_pitch, to_pitch) = match open.rows {
        1 => distances,
        _ => (open.from_pitch, open.to_pitch),
    };
    let fits = |pitch: usize| pitch >= bytes && pitch as u64 <= max_pitch;
    if !fits(from_pitch) || !fits(to_pitch) {
        return false;
    }
    if distances != (open.rows * from_pitch, open.rows * to_pitch) {
        return false;
    }
    (open.rows, open.from_pitch, open.to_pitch) = (open.rows + 1, from_pitch, to_pitch);
    true
}

/// How far a place lies behind another of the same memory.
fn distance(first: End, second: End) -> Option<usize> {
    match (first, second) {
        (End::Device(first), End::Device(second)) => usize::try_from(second.checked_sub(first)?).ok(),
        (End::Host(first), End::Host(second)) => second.addr().get().checked_sub(first.addr().get()),
        _ => None,
    }
}

/// Where byte `offset` of a place lies.
fn spot(place: Place<'_, CudaPage>, offset: u64) -> End {
    End::Device(place.page.address() + place.offset + offset)
}

/// Calls `part` with what of `range`, bytes of a transfer, lies in one block: the block's number among those of the transfer, where the
/// bytes begin in it, where they begin in the range, and how many they are.
fn in_blocks(range: Range<u64>, mut part: impl FnMut(usize, usize, u64, usize)) {
    let longest = LONGEST as u64;
    let mut at = range.start;
    while at < range.end {
        let (block, inside) = (at / longest, at % longest);
        let size = (longest - inside).min(range.end - at);
        // As many blocks as the host has bytes for.
        part(block as usize, inside as usize, at - range.start, size as usize);
        at += size;
    }
}

// Every function here is unsafe for the same reason: what it encodes uses places, which MUST stay until the batch is finished.
impl CudaStream {
    /// Encodes a copy as operation `seq`.
    ///
    /// # Safety
    /// As for [`Driver::copy`](trunnion_backend_core::driver::Driver::copy); the rows lie in their places.
    pub(crate) unsafe fn copy(
        &mut self,
        supplies: &Supplies,
        seq: u64,
        (source, source_rows): (Place<'_, CudaPage>, &Rows),
        (target, target_rows): (Place<'_, CudaPage>, &Rows),
    ) {
        let mut copies = Rectangles::new(&mut self.open, seq, supplies.device.max_pitch);
        for_each_pair(source_rows, target_rows, |from, to, size| {
            copies.add(spot(source, from), spot(target, to), size as usize);
        });
    }

    /// Encodes a write of bytes, which are resident and as many as the rows have, as operation `seq`.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    ///
    /// # Errors
    /// What the driver answers; nothing was then encoded.
    pub(crate) unsafe fn write(
        &mut self,
        supplies: &mut Supplies,
        seq: u64,
        data: Bytes,
        (target, rows): (Place<'_, CudaPage>, &Rows),
    ) -> Result<()> {
        let bytes = data.as_slice()?;
        let max_pitch = supplies.device.max_pitch;
        let dense = Rows::single(bytes.len() as u64);
        let is_direct = data.property() == BytesProperty::Pinned
            && !supplies.device.options.staging
            && supplies.device.pinned.holds(bytes);
        if is_direct {
            let start = End::Host(NonNull::from(bytes).cast());
            let mut copies = Rectangles::new(&mut self.open, seq, max_pitch);
            for_each_pair(&dense, rows, |from, to, size| {
                copies.add(start.after(from as usize), spot(target, to), size as usize);
            });
            drop(copies);
            self.open.pinned.push(data);
            return Ok(());
        }
        let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
        for chunk in bytes.chunks(LONGEST) {
            let piece = self.open.arena.take(&mut supplies.blocks, chunk.len())?;
            // SAFETY: the piece was just taken.
            unsafe { piece.write(chunk) };
            pieces.push(piece);
        }
        let mut copies = Rectangles::new(&mut self.open, seq, max_pitch);
        for_each_pair(&dense, rows, |from, to, size| {
            in_blocks(from..from + size, |block, inside, behind, size| {
                copies.add(End::Host(pieces[block].start()).after(inside), spot(target, to + behind), size);
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
    /// As for [`write`](Self::write).
    pub(crate) unsafe fn read(
        &mut self,
        supplies: &mut Supplies,
        (seq, index): (u64, usize),
        (source, rows): (Place<'_, CudaPage>, &Rows),
        into: HostBuffer,
    ) -> Result<()> {
        let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
        let mut left = into.len();
        while left > 0 {
            let size = left.min(LONGEST);
            pieces.push(self.open.arena.take(&mut supplies.blocks, size)?);
            left -= size;
        }
        let mut copies = Rectangles::new(&mut self.open, seq, supplies.device.max_pitch);
        for_each_pair(rows, &Rows::single(into.len() as u64), |from, to, size| {
            in_blocks(to..to + size, |block, inside, behind, size| {
                copies.add(spot(source, from + behind), End::Host(pieces[block].start()).after(inside), size);
            });
        });
        drop(copies);
        self.open.reads.push(Read { seq, index, into, pieces });
        Ok(())
    }

    /// Encodes a fill of a whole place as operation `seq`.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    pub(crate) unsafe fn fill(&mut self, seq: u64, target: Place<'_, CudaPage>, pattern: Pattern) {
        let address = target.page.address() + target.offset;
        Fill::plan(address, target.size, pattern.bytes()).steps(|step| {
            self.open.push(
                seq,
                match step {
                    Step::Byte { to, byte, count } => Operation::Bytes { to, byte, count },
                    Step::Word { to, word, count } => Operation::Words { to, word, count },
                    Step::Copy { from, to, count } => {
                        Operation::Transfer(Transfer::line(End::Device(from), End::Device(to), count))
                    }
                },
            );
        });
    }
}

/// How a range of addresses is filled with a pattern.
#[derive(Clone, Copy, Debug)]
struct Fill<'a> {
    address: u64,
    size: u64,
    pattern: &'a [u8],
}

/// A part of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Byte { to: u64, byte: u8, count: usize },
    Word { to: u64, word: u32, count: usize },
    Copy { from: u64, to: u64, count: usize },
}

impl<'a> Fill<'a> {
    fn plan(address: u64, size: u64, pattern: &'a [u8]) -> Self {
        // The shortest pattern that says the same.
        let same = |length: usize| pattern.chunks(length).all(|part| part == &pattern[..length]);
        let length = (0..=4).map(|log| 1 << log).find(|length| *length <= pattern.len() && same(*length));
        Self { address, size, pattern: &pattern[..length.unwrap_or(pattern.len())] }
    }

    /// The byte at an address within.
    fn byte(&self, at: u64) -> u8 {
        self.pattern[((at - self.address) % self.pattern.len() as u64) as usize]
    }

    fn bytes(&self, range: Range<u64>, step: &mut impl FnMut(Step)) {
        range.for_each(|to| step(Step::Byte { to, byte: self.byte(to), count: 1 }));
    }

    /// Calls `step` with the fill's parts, in order.
    fn steps(&self, mut step: impl FnMut(Step)) {
        let end = self.address + self.size;
        let words = self.address.next_multiple_of(4)..end & !3;
        match *self.pattern {
            _ if self.size == 0 => {}
            [byte] => step(Step::Byte { to: self.address, byte, count: self.size as usize }),
            _ if self.pattern.len() <= 4 && words.start < words.end => {
                self.bytes(self.address..words.start, &mut step);
                let word = u32::from_ne_bytes(core::array::from_fn(|i| self.byte(words.start + i as u64)));
                step(Step::Word { to: words.start, word, count: ((words.end - words.start) / 4) as usize });
                self.bytes(words.end..end, &mut step);
            }
            _ => {
                // What is there is copied behind itself, twice as much each time.
                let mut filled = self.size.min(self.pattern.len() as u64);
                self.bytes(self.address..self.address + filled, &mut step);
                while filled < self.size {
                    let count = filled.min(self.size - filled);
                    step(Step::Copy { from: self.address, to: self.address + filled, count: count as usize });
                    filled += count;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use trunnion_driver_rig::transfers;

    /// What a fill leaves in 64 bytes of 0xEE.
    fn filled(offset: u64, size: u64, pattern: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xEE; 64];
        Fill::plan(offset, size, pattern).steps(|step| match step {
            Step::Byte { to, byte, count } => bytes[to as usize..to as usize + count].fill(byte),
            Step::Word { to, word, count } => {
                assert!(to % 4 == 0 && count > 0, "{step:?}");
                for at in 0..count {
                    bytes[to as usize + 4 * at..][..4].copy_from_slice(&word.to_ne_bytes());
                }
            }
            Step::Copy { from, to, count } => {
                assert!(from + count as u64 <= to, "{step:?} overlaps itself");
                bytes.copy_within(from as usize..from as usize + count, to as usize);
            }
        });
        bytes
    }

    #[test]
    fn a_fill_is_byte_exact_for_every_pattern_offset_and_size() {
        transfers::fills_are_byte_exact_for_every_pattern_offset_and_size(filled);
    }

    #[test]
    fn a_long_fill_takes_few_calls() {
        let calls = |pattern: &[u8]| {
            let mut calls = 0;
            Fill::plan(256, 1 << 20, pattern).steps(|_| calls += 1);
            calls
        };
        assert_eq!([calls(&[5]), calls(&[5; 16]), calls(&[1, 2]), calls(&[1, 2, 3, 4])], [1; 4]);
        assert_eq!(calls(&[1, 2, 3, 4, 5, 6, 7, 8]), 8 + 17);
    }

    #[test]
    fn a_long_transfer_is_cut_where_blocks_end() {
        let mut parts = Vec::new();
        let longest = LONGEST as u64;
        in_blocks(longest - 3..2 * longest + 5, |block, inside, behind, size| {
            parts.push((block, inside, behind, size));
        });
        assert_eq!(parts, [(0, LONGEST - 3, 0, 3), (1, 0, 3, LONGEST), (2, 0, longest + 3, 5)]);
        in_blocks(5..5, |_, _, _, _| panic!("no bytes are no part"));
    }

    /// What copies between rows become, and how many calls that is.
    fn rectangles(source: &Rows, target: &Rows, max_pitch: u64) -> Vec<Transfer> {
        let mut batch = Batch::default();
        let mut copies = Rectangles::new(&mut batch, 1, max_pitch);
        for_each_pair(source, target, |from, to, size| {
            copies.add(End::Device(1000 + from), End::Device(5000 + to), size as usize);
        });
        drop(copies);
        let transfers = batch.operations().iter().map(|(_, operation)| match operation {
            Operation::Transfer(transfer) => *transfer,
            _ => panic!("a copy is transfers"),
        });
        transfers.collect()
    }

    #[test]
    fn rows_at_equal_distances_are_one_call_and_no_byte_is_copied_elsewhere() {
        let dense = Rows::single(24);
        let padded = Rows { row: 6, outer: vec![(4, 16)] };
        let nested = Rows { row: 2, outer: vec![(3, 64), (4, 8)] };
        let repeated = Rows { row: 6, outer: vec![(4, 0)] };
        for (source, target, calls) in [
            (&dense, &dense, 1),
            (&dense, &padded, 1),
            (&padded, &dense, 1),
            (&padded, &padded, 1),
            (&nested, &dense, 3),
            (&repeated, &dense, 4),
        ] {
            let found = rectangles(source, target, u64::from(u32::MAX));
            assert_eq!(found.len(), calls, "{source:?} to {target:?}: {found:?}");
            let mut expected = Vec::new();
            for_each_pair(source, target, |from, to, size| {
                expected.extend((0..size).map(|i| (1000 + from + i, 5000 + to + i)));
            });
            let mut copied = Vec::new();
            for transfer in found {
                let (End::Device(from), End::Device(to)) = (transfer.from, transfer.to) else { panic!("of a device") };
                for row in 0..transfer.rows {
                    let (from, to) = (from + (row * transfer.from_pitch) as u64, to + (row * transfer.to_pitch) as u64);
                    copied.extend((0..transfer.row as u64).map(|i| (from + i, to + i)));
                }
            }
            assert_eq!(copied, expected, "{source:?} to {target:?}");
        }
        assert_eq!(rectangles(&padded, &dense, 15).len(), 4);
    }
}
