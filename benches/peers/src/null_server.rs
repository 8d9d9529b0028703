//! A server of the peer's that does nothing, to measure what is around it.

use cubecl_common::bytes::Bytes;
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle, ServiceId};
use cubecl_common::profile::{ProfileDuration, TimingMethod};
use cubecl_environment::future::DynFut;
use cubecl_environment::stream::StreamId;
use cubecl_ir::features::Features;
use cubecl_ir::metadata::Info;
use cubecl_ir::settings::{Dim3, ExecutionMode, KernelSettings};
use cubecl_ir::{
    AddressType, DeviceIdentity, DeviceProperties, ElemType, HardwareProperties, MemoryDeviceProperties, Scope,
    TargetProperties, UIntKind,
};
use cubecl_server::allocator::ContiguousMemoryLayoutPolicy;
use cubecl_server::execution::LaunchMode;
use cubecl_server::id::KernelId;
use cubecl_server::kernel::{CubeKernel, KernelDefinition, KernelMetadata};
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{ManagedMemoryHandle, MemoryAllocationMode, StreamMemoryReport};
use cubecl_server::server::{
    BufferBinding, CopyDescriptor, CubeCount, KernelArguments, ProfileError, ProfilingToken, Server,
    ServerCommunication, ServerError, ServerStorage, ServerUtilities,
};
use cubecl_server::storage::{BytesResource, BytesStorage, ManagedResource};
use std::hint::black_box;
use std::sync::Arc;

/// Does nothing; everything is done as soon as it is asked for.
#[derive(Debug)]
pub struct NullServer {
    launches: u64,
    utilities: Arc<ServerUtilities>,
}

impl NullServer {
    fn new(device: DeviceId) -> Self {
        let hardware = HardwareProperties {
            load_width: 128,
            vector_register_count: None,
            plane_size_min: 32,
            plane_size_max: 32,
            max_bindings: 16,
            max_shared_memory_size: 48 << 10,
            max_cube_count: (65_535, 65_535, 65_535),
            max_units_per_cube: 1024,
            max_cube_dim: (1024, 1024, 64),
            num_streaming_multiprocessors: None,
            num_tensor_cores: None,
            min_tensor_cores_dim: None,
            num_cpu_cores: None,
            last_level_cache_size: None,
            max_vector_size: 4,
            cube_mma_reserved_shared_memory: 0,
        };
        let identity = DeviceIdentity { name: "null".into(), fingerprint: "null".into(), physical: None };
        let memory = MemoryDeviceProperties::new(1 << 30, 256);
        let properties = DeviceProperties::new(Features::default(), memory, hardware, TimingMethod::System, identity);
        let (utilities, _) = ServerUtilities::init(
            ServiceId::of::<Self>(device),
            "null",
            properties,
            TargetProperties::default(),
            Arc::new(ServerLogger::default()),
            ContiguousMemoryLayoutPolicy::new(256),
        );
        Self { launches: 0, utilities: Arc::new(utilities) }
    }
}

impl DeviceService for NullServer {
    fn init(device: DeviceId) -> Self {
        Self::new(device)
    }
    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone()
    }
}

impl ServerCommunication for NullServer {}

impl Server for NullServer {
    fn initialize_memory(&mut self, _: ManagedMemoryHandle, _: u64, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }
    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }
    fn utilities(&self) -> Arc<ServerUtilities> {
        self.utilities.clone()
    }
    fn read(&mut self, _: Vec<CopyDescriptor>, _: StreamId) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn write(&mut self, _: Vec<(CopyDescriptor, Bytes)>, _: StreamId) {}
    fn sync(&mut self, _: Vec<BufferBinding>, _: StreamId) -> DynFut<Result<(), ServerError>> {
        Box::pin(async { Ok(()) })
    }
    fn check(&mut self, _: Vec<BufferBinding>, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }
    #[inline(never)]
    unsafe fn launch(
        &mut self,
        _: Box<dyn CubeKernel>,
        _: CubeCount,
        arguments: KernelArguments,
        _: StreamId,
        _: LaunchMode,
    ) {
        self.launches += black_box(&arguments).resources.len() as u64;
    }
    fn flush(&mut self, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }
    fn memory_report(&mut self, _: StreamId) -> Option<StreamMemoryReport> {
        None
    }
    fn memory_cleanup(&mut self, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }
    fn start_profile(&mut self, _: StreamId) -> Result<ProfilingToken, ServerError> {
        Err(ServerError::TornDown)
    }
    fn end_profile(&mut self, _: StreamId, _: ProfilingToken) -> Result<ProfileDuration, ProfileError> {
        Err(ProfileError::NotRegistered { backtrace: cubecl_environment::backtrace::BackTrace::capture() })
    }
    fn allocation_mode(&mut self, _: MemoryAllocationMode, _: StreamId) {}
}

impl ServerStorage for NullServer {
    type Storage = BytesStorage;

    fn get_resource(&mut self, _: BufferBinding, _: StreamId) -> Result<ManagedResource<BytesResource>, ServerError> {
        Err(ServerError::TornDown)
    }
}

/// A kernel that no server compiles.
#[derive(Debug)]
pub struct Kernel;

impl KernelMetadata for Kernel {
    fn id(&self) -> KernelId {
        KernelId::new::<Self>()
    }
    fn address_type(&self) -> ElemType {
        ElemType::UInt(UIntKind::U32)
    }
}

impl CubeKernel for Kernel {
    fn define(&self) -> KernelDefinition {
        let settings = KernelSettings::new(Dim3::new_single(), ExecutionMode::Checked, AddressType::U32);
        KernelDefinition { body: Scope::root(settings.clone()), settings, info: Info::default() }
    }
}
