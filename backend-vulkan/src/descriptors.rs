//! What a launch is bound to: pushed into the command buffer where the device has push descriptors, else written into a set from a pool
//! that comes back when the batch is finished.

use crate::device::Device;
use crate::failure::failed;
use crate::kernel::Pipeline;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::ptr;
use smallvec::SmallVec;
use trunnion_backend_core::loss::Loss;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::kernel::INLINE_BUFFERS;

/// Sets in a pool.
const SETS: u32 = 64;

/// Storage buffers in a pool, unless one set needs more.
const BUFFERS: u32 = SETS * 8;

/// The ranges a launch is bound to: its buffers, then the uniform block of its parameters where there is one.
pub(crate) type Ranges = SmallVec<[vk::DescriptorBufferInfo; INLINE_BUFFERS]>;

/// Pools that no batch uses.
#[derive(Debug)]
pub(crate) struct Pools {
    device: Arc<Device>,
    spare: Vec<SetPool>,
}

/// A descriptor pool that is filled from the start and emptied as a whole.
#[derive(Debug)]
pub(crate) struct SetPool {
    device: Arc<Device>,
    raw: vk::DescriptorPool,
    most_buffers: u32,
    sets: u32,
    buffers: u32,
}

impl Pools {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), spare: Vec::new() }
    }

    /// A set for the pipeline, from the last of a batch's pools, or from one more.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn set(
        &mut self,
        of_batch: &mut Vec<SetPool>,
        pipeline: &Pipeline,
        loss: &Loss,
    ) -> Result<vk::DescriptorSet> {
        let needs = pipeline.buffers();
        if !of_batch.last().is_some_and(|pool| pool.has_room(needs)) {
            let spare = self.spare.iter().rposition(|pool| pool.has_room(needs));
            of_batch.push(match spare {
                Some(i) => self.spare.swap_remove(i),
                None => SetPool::new(&self.device, needs, loss)?,
            });
        }
        let last = of_batch.len() - 1;
        of_batch[last].set(pipeline, loss)
    }

    /// Takes back pools whose sets nobody uses any more.
    pub(crate) fn give(&mut self, pools: &mut Vec<SetPool>) {
        self.spare.extend(pools.drain(..).filter_map(SetPool::emptied));
    }
}

impl SetPool {
    fn new(device: &Arc<Device>, buffers: u32, loss: &Loss) -> Result<Self> {
        let most_buffers = buffers.max(BUFFERS);
        let sizes = [
            vk::DescriptorPoolSize { ty: vk::DescriptorType::STORAGE_BUFFER, descriptor_count: most_buffers },
            vk::DescriptorPoolSize { ty: vk::DescriptorType::UNIFORM_BUFFER, descriptor_count: SETS },
        ];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(SETS).pool_sizes(&sizes);
        // SAFETY: a valid description, and the device is alive.
        let raw = unsafe { device.raw.create_descriptor_pool(&info, None) }
            .map_err(|result| loss.note(failed("vkCreateDescriptorPool", result)))?;
        Ok(Self { device: device.clone(), raw, most_buffers, sets: 0, buffers: 0 })
    }

    fn has_room(&self, buffers: u32) -> bool {
        self.sets < SETS && self.most_buffers - self.buffers >= buffers
    }

    fn set(&mut self, pipeline: &Pipeline, loss: &Loss) -> Result<vk::DescriptorSet> {
        let layouts = [pipeline.set_layout()];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.raw).set_layouts(&layouts);
        let mut set = vk::DescriptorSet::null();
        // SAFETY: the pool is used by nobody else, and one set is written to where one is. The function is called by its pointer since the
        // crate's own form allocates a vector for the answer.
        let result = unsafe {
            (self.device.raw.fp_v1_0().allocate_descriptor_sets)(self.device.raw.handle(), &info, &raw mut set)
        };
        if result != vk::Result::SUCCESS {
            return Err(loss.note(failed("vkAllocateDescriptorSets", result)));
        }
        self.sets += 1;
        self.buffers += pipeline.buffers();
        Ok(set)
    }

    /// Without its sets; dropped when the driver cannot empty it.
    fn emptied(mut self) -> Option<Self> {
        (self.sets, self.buffers) = (0, 0);
        // SAFETY: nobody uses the sets any more, as whoever gives a pool back knows.
        unsafe { self.device.raw.reset_descriptor_pool(self.raw, vk::DescriptorPoolResetFlags::empty()) }.ok()?;
        Some(self)
    }
}

impl Drop for SetPool {
    fn drop(&mut self) {
        // SAFETY: as for `emptied`.
        unsafe { self.device.raw.destroy_descriptor_pool(self.raw, None) };
    }
}

/// Calls `act` with what writes these ranges into a set, or pushes them.
fn with_writes<R>(
    set: vk::DescriptorSet,
    ranges: &Ranges,
    pipeline: &Pipeline,
    act: impl FnOnce(&[vk::WriteDescriptorSet<'_>]) -> R,
) -> R {
    let buffers = (pipeline.buffers() as usize).min(ranges.len());
    let (buffers, uniform) = ranges.split_at(buffers);
    let mut writes: SmallVec<[vk::WriteDescriptorSet<'_>; 2]> = SmallVec::new();
    let write = |binding: usize, kind, infos| {
        let write = vk::WriteDescriptorSet::default().dst_set(set).dst_binding(binding as u32);
        write.descriptor_type(kind).buffer_info(infos)
    };
    // One write goes on through bindings of the same kind that follow each other.
    if !buffers.is_empty() {
        writes.push(write(0, vk::DescriptorType::STORAGE_BUFFER, buffers));
    }
    if !uniform.is_empty() {
        writes.push(write(buffers.len(), vk::DescriptorType::UNIFORM_BUFFER, uniform));
    }
    act(&writes)
}

/// Binds the ranges for the next dispatch: pushed, or by `set`, which nothing was bound to yet.
///
/// # Safety
/// The command buffer is being recorded, and the buffers stay until it is finished.
pub(crate) unsafe fn bind(
    device: &Device,
    command: vk::CommandBuffer,
    pipeline: &Pipeline,
    set: vk::DescriptorSet,
    ranges: &Ranges,
) {
    let (point, layout) = (vk::PipelineBindPoint::COMPUTE, pipeline.layout());
    if let Some(push) = device.push_descriptor.as_ref().filter(|_| pipeline.pushes()) {
        // SAFETY: the layout's set is one for pushing; the rest is the caller's promise.
        return with_writes(set, ranges, pipeline, |writes| unsafe {
            push.cmd_push_descriptor_set(command, point, layout, 0, writes);
        });
    }
    // SAFETY: the set is new and of the pipeline's layout, and the rest is the caller's promise.
    unsafe {
        with_writes(set, ranges, pipeline, |writes| device.raw.update_descriptor_sets(writes, &[]));
        (device.raw.fp_v1_0().cmd_bind_descriptor_sets)(command, point, layout, 0, 1, &set, 0, ptr::null());
    }
}
