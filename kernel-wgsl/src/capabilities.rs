//! What code may use beyond the core of WGSL.

use naga::valid;

/// What a device can do beyond the core of WGSL. Code that uses what is not here does not compile; by default nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// `f16`, in buffers and parameters too (`enable f16;`).
    ///
    /// Equivalent to: `shaderFloat16` with `storageBuffer16BitAccess` and `uniformAndStorageBuffer16BitAccess`.
    pub float16: bool,
    /// `f64`.
    ///
    /// Equivalent to: `shaderFloat64`.
    pub float64: bool,
    /// `i64` and `u64`.
    ///
    /// Equivalent to: `shaderInt64`.
    pub int64: bool,
    /// Atomic `i64` and `u64` in buffers.
    ///
    /// Equivalent to: `shaderBufferInt64Atomics`.
    pub int64_atomics: bool,
    /// Additions to atomic `f32` in buffers.
    ///
    /// Equivalent to: `shaderBufferFloat32AtomicAdd` of `VK_EXT_shader_atomic_float`.
    pub float32_atomics: bool,
    /// Operations of subgroups, a bit each as `VkSubgroupFeatureFlagBits` has them: 1 basic, 2 vote, 4 arithmetic, 8 ballot, 16 shuffle,
    /// 32 shuffle relative, 128 quad. Other bits mean nothing.
    pub subgroup_operations: u32,
}

impl Capabilities {
    /// A validator that allows what is here.
    pub(crate) fn validator(self, more: valid::Capabilities) -> valid::Validator {
        use valid::Capabilities as Can;
        let operations = valid::SubgroupOperationSet::from_bits_truncate(self.subgroup_operations as u8);
        let basic = operations.contains(valid::SubgroupOperationSet::BASIC);
        // Packing two `f16` into 32 bits is core, and every device does it.
        let can = [
            (true, Can::SHADER_FLOAT16_IN_FLOAT32 | more),
            (self.float16, Can::SHADER_FLOAT16),
            (self.float64, Can::FLOAT64),
            (self.int64, Can::SHADER_INT64),
            (self.int64_atomics, Can::SHADER_INT64_ATOMIC_ALL_OPS | Can::SHADER_INT64_ATOMIC_MIN_MAX),
            (self.float32_atomics, Can::SHADER_FLOAT32_ATOMIC),
            (!operations.is_empty(), Can::SUBGROUP),
            (basic, Can::SUBGROUP_BARRIER),
        ];
        let can = can.into_iter().filter(|(has, _)| *has).fold(Can::empty(), |all, (_, one)| all | one);
        let mut validator = valid::Validator::new(valid::ValidationFlags::all(), can);
        validator.subgroup_stages(valid::ShaderStages::COMPUTE).subgroup_operations(operations);
        validator
    }
}
