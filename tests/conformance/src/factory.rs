//! Where devices to be tested come from.

use crate::outside::{Outside, Owner};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::any::Any;
use core::ops::Range;
use core::time::Duration;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::server::Opened;
use trunnion_runtime_core::timeline::Point;

/// A backend under test.
pub trait Factory: Send + Sync + 'static {
    /// What `--backend` and `TRUNNION_REQUIRE` call it.
    fn name(&self) -> &str;

    /// What the process's table of backends calls it.
    fn backend(&self) -> &str {
        self.name()
    }

    /// Which of the backend's devices is under test.
    fn index(&self) -> u32 {
        0
    }

    /// Whether there is a device here.
    ///
    /// # Errors
    /// Why there is none.
    fn available(&self) -> Result<(), String>;

    /// A server that shares nothing with any other, on a device that behaves as `variant` says.
    ///
    /// # Errors
    /// [`Refusal`].
    fn start(&self, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal>;

    /// `Client::with_resource` with the resource type of this backend.
    ///
    /// # Errors
    /// What that answers.
    fn with_resource(
        &self,
        client: &Client,
        handle: &Handle,
        access: Access,
        task: &mut dyn FnMut(StreamId),
    ) -> Result<Point>;

    /// `Client::get_resource` with the resource type of this backend, boxed, so that it can be held.
    ///
    /// # Errors
    /// What that answers.
    fn get_resource(&self, client: &Client, handle: &Handle) -> Result<Box<dyn Any>>;

    /// `Client::export` with the resource type of this backend, boxed, so that it can be held.
    ///
    /// # Errors
    /// What that answers.
    fn export(&self, client: &Client, _handle: &Handle) -> Result<Box<dyn Any>> {
        Err(Error::Unsupported { what: "export".into(), backend: client.device_id().backend })
    }

    /// `Client::import` of a range of memory that a test has, which is there as long as a clone of it is held. `owner` is dropped with
    /// what the client was given.
    ///
    /// # Errors
    /// What that answers.
    fn import(&self, client: &Client, _memory: &Outside, _range: Range<usize>, _owner: Owner) -> Result<Handle> {
        Err(Error::Unsupported { what: "import".into(), backend: client.device_id().backend })
    }

    /// Whether compiled kernels have a form that can be kept on disk.
    fn keeps_code(&self) -> bool {
        false
    }

    /// Rows the backend does not have, each with the reason: only what the contract allows.
    fn unsupported(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    /// Whether its tests run one after another, because what is below the backend does not bear devices that come and go beside others at work.
    fn one_at_a_time(&self) -> bool {
        false
    }

    /// What something below the backend, such as a layer that checks its calls, has complained of in this process so far. Any complaint fails
    /// the run.
    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Tests, as `ROW::name`, that are known to fail, each with the reason. One that passes fails the run.
    fn expected_failures(&self) -> &[(&'static str, &'static str)] {
        &[]
    }
}

/// Why a server was not started.
#[derive(Debug)]
pub enum Refusal {
    /// The backend has no such variant; the test is skipped with this reason.
    Unavailable(String),
    /// It should have started.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// How a device is to behave; what is `None` or `false` is as the device is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// What rows of an optimized layout are padded to, in bytes.
    pub row_pitch: Option<u64>,
    /// The host cannot reach device memory in place.
    pub separate_memory: bool,
    /// Work is reported as finished only this long after it is.
    pub delay: Option<Duration>,
    /// Work of different streams is reported as finished in another order, drawn from this seed.
    pub reorder: Option<u64>,
    /// Kernels of this name do not compile.
    pub fail_compile: Option<&'static str>,
    /// How many kinds of memory there are, where the backend can have several.
    pub memory_types: Option<u32>,
    /// The device is lost when it has taken this many batches.
    pub lose_after: Option<u64>,
    /// The driver refuses this allocation, counted from 1.
    pub refuse_allocation: Option<u64>,
    /// Bytes of device memory.
    pub memory: Option<u64>,
    /// Bytes of host memory that can be page-locked.
    pub pinned_memory: Option<u64>,
    /// The driver refuses this request for page-locked memory, counted from 1.
    pub refuse_pin: Option<u64>,
    /// The largest allocation in bytes.
    pub max_allocation: Option<u64>,
    /// The largest range a kernel can be bound to, in bytes.
    pub max_binding: Option<u64>,
    /// Buffers a kernel can take.
    pub max_buffers: Option<u32>,
    /// Bytes of parameters a kernel can take.
    pub max_parameters: Option<u32>,
    /// Workgroups in a grid, by axis.
    pub max_grid: Option<[u32; 3]>,
    /// Invocations in a workgroup, by axis.
    pub max_workgroup: Option<[u32; 3]>,
    /// Invocations in a workgroup.
    pub max_invocations: Option<u32>,
    /// Bytes of shared memory.
    pub max_shared: Option<u32>,
}

impl Variant {
    /// The device as it is.
    pub fn plain() -> Self {
        Self::default()
    }

    /// The limits it sets, as options that a backend may have.
    pub fn limits(&self) -> BTreeMap<String, String> {
        fn number<T: ToString>(value: Option<T>) -> Option<String> {
            value.map(|value| value.to_string())
        }
        let three = |counts: Option<[u32; 3]>| counts.map(|[x, y, z]| format!("{x},{y},{z}"));
        let all = [
            ("row_pitch", number(self.row_pitch)),
            ("memory", number(self.memory)),
            ("pinned_memory", number(self.pinned_memory)),
            ("max_allocation", number(self.max_allocation)),
            ("max_binding", number(self.max_binding)),
            ("max_buffers", number(self.max_buffers)),
            ("max_parameters", number(self.max_parameters)),
            ("max_grid", three(self.max_grid)),
            ("max_workgroup", three(self.max_workgroup)),
            ("max_invocations", number(self.max_invocations)),
            ("max_shared", number(self.max_shared)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
    }

    /// Completions come late and in another order.
    pub fn late(delay: Duration, seed: u64) -> Self {
        Self { delay: Some(delay), reorder: Some(seed), ..Self::default() }
    }

    /// The kernel [`broken`](crate::kernels::broken) does not compile.
    pub fn broken() -> Self {
        Self { fail_compile: Some(crate::kernels::BROKEN), ..Self::default() }
    }

    /// The device is lost after this many batches.
    pub fn lost_after(batches: u64) -> Self {
        Self { lose_after: Some(batches), ..Self::default() }
    }
}

/// The functions of a [`Factory`] that differ between backends by the type of their resources alone.
#[macro_export]
macro_rules! resource_type {
    ($resource:ty) => {
        fn with_resource(
            &self,
            client: &trunnion_runtime_core::client::Client,
            handle: &trunnion_runtime_core::handle::Handle,
            access: trunnion_runtime_core::access::Access,
            task: &mut dyn FnMut(trunnion_runtime_core::id::StreamId),
        ) -> trunnion_runtime_core::error::Result<trunnion_runtime_core::timeline::Point> {
            client.with_resource::<$resource, ()>(handle, access, |_, stream| task(stream)).map(|(_, point)| point)
        }

        fn get_resource(
            &self,
            client: &trunnion_runtime_core::client::Client,
            handle: &trunnion_runtime_core::handle::Handle,
        ) -> trunnion_runtime_core::error::Result<Box<dyn core::any::Any>> {
            Ok(Box::new(client.get_resource::<$resource>(handle)?))
        }

        fn export(
            &self,
            client: &trunnion_runtime_core::client::Client,
            handle: &trunnion_runtime_core::handle::Handle,
        ) -> trunnion_runtime_core::error::Result<Box<dyn core::any::Any>> {
            Ok(Box::new(client.export::<$resource>(handle)?))
        }
    };
}
