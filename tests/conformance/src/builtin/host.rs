//! The CPU backend: as it is, and made as hard to use as it can be.

use core::ops::Range;
use core::time::Duration;
use trunnion_backend_host::LimitOptions;
use trunnion_backend_host::{HostBackend, HostImport, HostOptions, HostResource};
use trunnion_conformance::outside::Owner;
use trunnion_conformance::{Factory, Outside, Refusal, Variant};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::server::Opened;

/// The CPU backend with options that hold unless a variant asks for others.
pub struct Host {
    name: &'static str,
    options: HostOptions,
}

impl Host {
    /// As programs use it.
    pub fn plain() -> Self {
        Self { name: "host", options: HostOptions::default() }
    }

    /// With memory of its own, wide row pitch, several kinds of memory, and completions that come late and in another order.
    pub fn hard() -> Self {
        let options = HostOptions::default()
            .separate_memory(true)
            .limits(LimitOptions { row_pitch: Some(256), ..LimitOptions::default() })
            .memory_types(3)
            .delay(Duration::from_micros(300))
            .reorder(1);
        Self { name: "host-hard", options }
    }

    /// The options of a device that behaves as `variant` says.
    pub fn options(&self, variant: &Variant) -> Result<HostOptions> {
        varied(self.options.clone(), variant).apply(&variant.limits())
    }
}

impl Factory for Host {
    fn name(&self) -> &str {
        self.name
    }

    fn backend(&self) -> &str {
        "host"
    }

    fn available(&self) -> Result<(), String> {
        Ok(())
    }

    fn start(&self, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal> {
        Ok(HostBackend::new(self.options(variant)?).open(0, settings)?)
    }

    trunnion_conformance::resource_type!(HostResource);

    fn import(&self, client: &Client, memory: &Outside, range: Range<usize>, owner: Owner) -> Result<Handle> {
        client.import(lent(memory, range, owner))
    }
}

/// A range of memory that a test has, as a device takes it.
#[allow(unsafe_code, reason = "an address is taken on trust")]
fn lent(memory: &Outside, range: Range<usize>, owner: Owner) -> HostImport {
    assert!(range.start <= range.end && range.end <= memory.size(), "the test has no such range");
    // SAFETY: the range is inside the memory, which is initialized, can be written through a shared reference and stays as long as its clone is
    // held; the test orders its own use against the device's.
    unsafe { HostImport::from_raw(memory.pointer().add(range.start), range.len(), (owner, memory.clone())) }
}

fn varied(mut options: HostOptions, variant: &Variant) -> HostOptions {
    macro_rules! set {
        ($($field:ident),*) => { $(if let Some(value) = variant.$field { options = options.$field(value); })* };
    }
    set!(delay, reorder, fail_compile, memory_types, lose_after, refuse_allocation, refuse_pin);
    if variant.separate_memory {
        options = options.separate_memory(true);
    }
    options
}
