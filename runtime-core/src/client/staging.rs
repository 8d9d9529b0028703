//! Uploads through staging memory: page-locked where the driver has such memory, plain elsewhere, and bounded.

use super::Client;
use super::memory::check_dense;
use crate::bytes::{Bytes, BytesProperty};
use crate::error::Result;
use crate::handle::Handle;
use crate::layout::{MemoryLayout, Rows, TensorDescriptor};
use crate::server::Region;
use crate::staging::{StagingBuffer, StagingUsage};
use alloc::vec::Vec;

impl Client {
    /// Copies bytes into staging memory, in place of where they are, so that writing them to the device is fast: page-locked memory
    /// where the driver has any. Bytes that are page-locked already stay as they are; with `file_only`, so do all but those of a file.
    /// What comes of a file is read straight into staging memory, the bytes of each view alone.
    ///
    /// All of them are staged together, or none. The memory is in use until the last view of the bytes is dropped, which a write does when
    /// it is done.
    ///
    /// # Errors
    /// [`Error::StagingFull`](crate::error::Error::StagingFull) for more than the setting `staging_limit` at once, and when earlier staging
    /// did not end in time; [`Error::File`](crate::error::Error::File); the device's fault; [`Error::Reentrant`](crate::error::Error::Reentrant)
    /// where it would have to wait, inside the device's own work. Nothing was then replaced.
    pub fn staging<'a>(&self, bytes: impl IntoIterator<Item = &'a mut Bytes>, file_only: bool) -> Result<()> {
        let wanted = |bytes: &&mut Bytes| match bytes.property() {
            BytesProperty::Pinned => false,
            BytesProperty::File => !bytes.is_empty(),
            _ => !bytes.is_empty() && !file_only,
        };
        let wanted: Vec<&mut Bytes> = bytes.into_iter().filter(wanted).collect();
        let sizes: Vec<usize> = wanted.iter().map(|bytes| bytes.len()).collect();
        let mut buffers = self.service.staging_buffers(&sizes)?;
        for (bytes, buffer) in wanted.iter().zip(&mut buffers) {
            bytes.copy_into(buffer.as_mut_slice())?;
        }
        wanted.into_iter().zip(buffers).for_each(|(bytes, buffer)| *bytes = buffer.into_bytes());
        Ok(())
    }

    /// Staging memory of these sizes, to be filled and then written to the device: all of it or none. Page-locked memory is kept for the
    /// next request of its size, and goes back to the driver where another size needs the room.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), trunnion_runtime_core::error::Error> {
    /// # let client = trunnion_runtime_core::client::Client::open("host", 0)?;
    /// for mut buffer in client.reserve_staging(&[4096, 100])? {
    ///     buffer.as_mut_slice().fill(7);
    ///     client.create(buffer.into_bytes())?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Equivalent to: `cuMemHostAlloc`; a staging buffer of Vulkan.
    ///
    /// # Errors
    /// As for [`staging`](Self::staging).
    pub fn reserve_staging(&self, sizes: &[usize]) -> Result<Vec<StagingBuffer>> {
        self.service.staging_buffers(sizes)
    }

    /// [`create_from_slice`](Self::create_from_slice) through staging memory. A slice larger than half of the setting `staging_limit` goes
    /// in pieces: one is filled while another is on its way.
    ///
    /// # Errors
    /// As for [`create_from_slice`](Self::create_from_slice) and [`staging`](Self::staging).
    pub fn create_from_slice_pinned(&self, data: &[u8]) -> Result<Handle> {
        let handle = self.empty(data.len() as u64)?;
        self.write_pinned(&Region::whole(&handle), data)?;
        Ok(handle)
    }

    /// [`create_tensors_from_slices`](Self::create_tensors_from_slices) through staging memory, in pieces as for
    /// [`create_from_slice_pinned`](Self::create_from_slice_pinned).
    ///
    /// # Errors
    /// As for [`create_tensors_from_slices`](Self::create_tensors_from_slices) and [`staging`](Self::staging).
    pub fn create_tensors_from_slices_pinned(
        &self,
        tensors: &[(TensorDescriptor, &[u8])],
    ) -> Result<Vec<MemoryLayout>> {
        tensors.iter().try_for_each(|(tensor, data)| check_dense(tensor, data.len()))?;
        let descriptors: Vec<TensorDescriptor> = tensors.iter().map(|(tensor, _)| tensor.clone()).collect();
        let layouts = self.empty_tensors(&descriptors)?;
        for ((tensor, data), layout) in tensors.iter().zip(&layouts) {
            let handle = layout.memory.clone();
            let rows = Rows::new(&tensor.shape, &layout.strides, tensor.elem.size(), handle.size_in_used())?;
            self.write_pinned(&Region { handle, rows: Some(rows) }, data)?;
        }
        Ok(layouts)
    }

    /// What staging did on this device: how much is in use, and how often memory was page-locked, plain, or refused.
    pub fn staging_usage(&self) -> StagingUsage {
        self.service.staging.usage()
    }

    /// Writes a slice that is as long as the region, through staging memory.
    fn write_pinned(&self, region: &Region, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let (rows, alignment) = (region.rows(), self.service.limits.copy_alignment);
        let limit = self.service.staging.usage().limit.unwrap_or(u64::MAX);
        let half = limit / 2;
        let most = (half - half % alignment).max(alignment);
        // A piece is a transfer of its own, and must begin and end where one may.
        let mut is_fit = most <= limit && most < rows.size();
        if is_fit {
            cut(&rows, 0, most, &mut |offset, piece| {
                is_fit &= offset.is_multiple_of(alignment) && piece.extent().is_multiple_of(alignment);
                Ok(())
            })?;
        }
        if !is_fit {
            return self.write_piece(region.clone(), data);
        }
        let mut rest = data;
        cut(&rows, 0, most, &mut |offset, rows| {
            let size = (rows.size() as usize).min(rest.len());
            let (piece, after) = rest.split_at(size);
            rest = after;
            let handle = region.handle.slice(offset..offset + rows.extent())?;
            self.write_piece(Region { handle, rows: Some(rows) }, piece)
        })
    }

    fn write_piece(&self, region: Region, data: &[u8]) -> Result<()> {
        for mut buffer in self.service.staging_buffers(&[data.len()])? {
            buffer.as_mut_slice().copy_from_slice(data);
            self.write_region(region.clone(), buffer.into_bytes())?;
        }
        Ok(())
    }
}

/// Cuts rows that begin at `offset` into parts of at most `most` bytes, and hands them on in the order of their bytes. There may be very
/// many, so they are nowhere kept.
///
/// # Errors
/// The first that a part is answered with; the rest are not made.
fn cut(rows: &Rows, offset: u64, most: u64, part: &mut dyn FnMut(u64, Rows) -> Result<()>) -> Result<()> {
    if rows.size() <= most {
        return part(offset, rows.clone());
    }
    let Some((count, stride)) = rows.outer.first().copied() else {
        let mut at = 0;
        while at < rows.row {
            let size = most.min(rows.row - at);
            part(offset + at, Rows::single(size))?;
            at += size;
        }
        return Ok(());
    };
    let inner = Rows { row: rows.row, outer: rows.outer[1..].to_vec() };
    // As many of the outermost dimension at a time as fit.
    let fit = (most / inner.size().max(1)).min(count);
    let step = fit.max(1);
    let mut at = 0;
    while at < count {
        let here = step.min(count - at);
        let start = offset + at * stride;
        if fit == 0 {
            cut(&inner, start, most, part)?;
        } else {
            let mut outer = rows.outer.clone();
            outer[0].0 = here;
            part(start, Rows { row: rows.row, outer })?;
        }
        at += here;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of rows, in their order.
    fn bytes(rows: &Rows, offset: u64) -> Vec<u64> {
        let mut all = Vec::new();
        rows.for_each(|at| all.extend((0..rows.row).map(|byte| offset + at + byte)));
        all
    }

    #[test]
    fn the_parts_are_the_whole_in_its_order_and_none_is_too_large() {
        let all = [
            Rows::single(1),
            Rows::single(100),
            Rows { row: 5, outer: alloc::vec![(7, 8)] },
            Rows { row: 3, outer: alloc::vec![(2, 100), (4, 20), (3, 4)] },
            Rows { row: 17, outer: alloc::vec![(1, 50), (2, 20)] },
        ];
        for rows in all {
            for most in 1..=rows.size() + 1 {
                let mut parts = Vec::new();
                cut(&rows, 0, most, &mut |offset, part| {
                    parts.push((offset, part));
                    Ok(())
                })
                .unwrap();
                assert!(parts.iter().all(|(_, part)| part.size() <= most), "{rows:?} in parts of {most}");
                let together: Vec<u64> = parts.iter().flat_map(|(offset, part)| bytes(part, *offset)).collect();
                assert_eq!(together, bytes(&rows, 0), "{rows:?} in parts of {most}");
                if most >= rows.size() {
                    assert_eq!(parts.len(), 1);
                }
            }
        }
    }
}
