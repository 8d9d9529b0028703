//! Recording launches: pipeline, bindings, parameters, dispatch. What is bound already is not bound again.

use crate::descriptors::{self, Ranges};
use crate::grid::{COUNTS, FOUND, SLOT};
use crate::kernel::{MAX_PARAMETERS, Parameters, Pipeline};
use crate::storage::VulkanPage;
use crate::stream::{Supplies, VulkanStream};
use alloc::sync::Arc;
use ash::vk;
use trunnion_backend_core::driver::Place;
use trunnion_runtime_core::error::{Error, Result};

/// What the next dispatch of a command buffer finds bound.
#[derive(Default)]
pub(crate) struct Bound {
    /// The pipeline, which the batch holds.
    pipeline: vk::Pipeline,
    ranges: Ranges,
}

/// How many workgroups, as a stream takes it.
pub(crate) enum Counts<'a> {
    Known([u32; 3]),
    /// In device memory; with the pipeline that checks them.
    InMemory(Place<'a, VulkanPage>, &'a Arc<Pipeline>),
}

/// A launch with everything it needs at hand, so that recording it cannot fail.
struct Ready<'a> {
    code: &'a Arc<Pipeline>,
    ranges: Ranges,
    /// Null where what is bound stays, or is pushed.
    set: vk::DescriptorSet,
    parameters: &'a [u8],
}

impl VulkanStream {
    /// Encodes a launch as operation `seq`.
    ///
    /// # Safety
    /// As for [`Driver::launch`](trunnion_backend_core::driver::Driver::launch).
    ///
    /// # Errors
    /// What the driver answers; nothing was then encoded.
    pub(crate) unsafe fn launch(
        &mut self,
        supplies: &mut Supplies,
        seq: u64,
        code: &Arc<Pipeline>,
        counts: Counts<'_>,
        buffers: &[Place<'_, VulkanPage>],
        parameters: &[u8],
    ) -> Result<()> {
        // First what may fail, then what is recorded.
        let command = self.command(&supplies.loss)?;
        if matches!(counts, Counts::InMemory(..)) {
            // The check of the counts is bound in between.
            self.bound = Bound::default();
        }
        let mut ranges = ranges(supplies, code, buffers);
        ranges.extend(self.uniform(supplies, code, parameters)?);
        let set = self.set(supplies, code, &ranges)?;
        let launch = Ready { code, ranges, set, parameters };
        match counts {
            Counts::Known([x, y, z]) => {
                self.bind(command, launch);
                // SAFETY: the command buffer is being recorded, the pipeline and what it needs are bound, the counts within the limits.
                unsafe { supplies.device.raw.cmd_dispatch(command, x, y, z) };
                Ok(())
            }
            Counts::InMemory(place, checker) => self.launch_counted(supplies, command, seq, place, checker, launch),
        }
    }

    /// Records a launch whose counts are in memory.
    fn launch_counted(
        &mut self,
        supplies: &mut Supplies,
        command: vk::CommandBuffer,
        seq: u64,
        place: Place<'_, VulkanPage>,
        checker: &Arc<Pipeline>,
        launch: Ready<'_>,
    ) -> Result<()> {
        if place.size < COUNTS {
            return Err(Error::OutOfRange { what: "grid in memory".into(), range: 0..COUNTS, size: place.size });
        }
        let alignment = supplies.device.limits.min_storage_buffer_offset_alignment;
        let slot = self.open.downloads.take(&mut supplies.blocks, SLOT, alignment)?;
        let (buffer, offset) = (self.open.downloads.buffer(slot), slot.offset);
        let ranges = Ranges::from_iter([vk::DescriptorBufferInfo { buffer, offset, range: SLOT }]);
        let set = self.set(supplies, checker, &ranges)?;

        let raw = &supplies.device.raw;
        let region = [vk::BufferCopy::default().src_offset(place.offset).dst_offset(offset + FOUND).size(COUNTS)];
        // SAFETY: the command buffer is being recorded; both ranges lie in their buffers, which stay until the batch is finished.
        unsafe { raw.cmd_copy_buffer(command, place.page.buffer(), buffer, &region) };
        self.counts_barrier();
        self.bind(command, Ready { code: checker, ranges, set, parameters: &[] });
        // SAFETY: the pipeline and its slot are bound.
        unsafe { raw.cmd_dispatch(command, 1, 1, 1) };
        self.counts_barrier();
        self.bind(command, launch);
        // SAFETY: as above; what the check left in the slot is within the limits.
        unsafe { raw.cmd_dispatch_indirect(command, buffer, offset) };
        self.open.grids.push((seq, slot.after(FOUND)));
        Ok(())
    }

    /// The parameters as a uniform block, where the pipeline has them so.
    fn uniform(
        &mut self,
        supplies: &mut Supplies,
        code: &Pipeline,
        parameters: &[u8],
    ) -> Result<Option<vk::DescriptorBufferInfo>> {
        let Parameters::Uniform(bytes) = code.parameters() else { return Ok(None) };
        let size = u64::from(bytes).max(parameters.len() as u64).next_multiple_of(16);
        let alignment = supplies.device.limits.min_uniform_buffer_offset_alignment;
        let piece = self.open.uploads.take(&mut supplies.blocks, size, alignment)?;
        // SAFETY: the piece was just taken, and is as long.
        unsafe { self.open.uploads.write(piece, parameters)? };
        let buffer = self.open.uploads.buffer(piece);
        Ok(Some(vk::DescriptorBufferInfo::default().buffer(buffer).offset(piece.offset).range(size)))
    }

    /// A descriptor set for a launch, where it needs a new one.
    fn set(&mut self, supplies: &mut Supplies, code: &Pipeline, ranges: &Ranges) -> Result<vk::DescriptorSet> {
        if code.pushes() || ranges.is_empty() || self.bound.is(code, ranges) {
            return Ok(vk::DescriptorSet::null());
        }
        supplies.pools.set(&mut self.open.sets, code, &supplies.loss)
    }

    /// Binds a launch's pipeline, buffers and parameters.
    fn bind(&mut self, command: vk::CommandBuffer, launch: Ready<'_>) {
        let Ready { code, ranges, set, parameters } = launch;
        let device = code.device();
        if self.bound.pipeline != code.raw() {
            // SAFETY: the command buffer is being recorded, and the batch holds the pipeline until it is finished.
            unsafe { device.raw.cmd_bind_pipeline(command, vk::PipelineBindPoint::COMPUTE, code.raw()) };
            self.open.hold(code);
        }
        if !self.bound.is(code, &ranges) {
            if !ranges.is_empty() {
                // SAFETY: as above; the buffers stay until the batch is finished, and the set is new.
                unsafe { descriptors::bind(device, command, code, set, &ranges) };
            }
            self.bound = Bound { pipeline: code.raw(), ranges };
        }
        if let Parameters::Pushed(bytes) = code.parameters() {
            let length = (bytes as usize).next_multiple_of(4).min(MAX_PARAMETERS as usize);
            let mut padded;
            let pushed = match parameters.len() == length {
                true => parameters,
                false => {
                    padded = [0; MAX_PARAMETERS as usize];
                    let given = parameters.len().min(length);
                    padded[..given].copy_from_slice(&parameters[..given]);
                    &padded[..length]
                }
            };
            let stage = vk::ShaderStageFlags::COMPUTE;
            // SAFETY: as above; the layout has a range of this length.
            unsafe { device.raw.cmd_push_constants(command, code.layout(), stage, 0, pushed) };
        }
    }
}

/// What the buffers are bound as. Too few bytes for one element are bound as none, where nothing else lies.
fn ranges(supplies: &Supplies, code: &Pipeline, buffers: &[Place<'_, VulkanPage>]) -> Ranges {
    let range = |(i, place): (usize, &Place<'_, VulkanPage>)| match place.size >= code.fewest(i) {
        true => vk::DescriptorBufferInfo { buffer: place.page.buffer(), offset: place.offset, range: place.size },
        false => vk::DescriptorBufferInfo { buffer: supplies.nothing.buffer(), offset: 0, range: 1 },
    };
    buffers.iter().enumerate().map(range).collect()
}

impl Bound {
    /// Whether these ranges are bound for this pipeline.
    fn is(&self, code: &Pipeline, ranges: &Ranges) -> bool {
        let same = |(a, b): (&vk::DescriptorBufferInfo, &vk::DescriptorBufferInfo)| {
            (a.buffer, a.offset, a.range) == (b.buffer, b.offset, b.range)
        };
        self.pipeline == code.raw() && self.ranges.len() == ranges.len() && self.ranges.iter().zip(ranges).all(same)
    }
}
