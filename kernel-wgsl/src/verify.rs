//! What a kernel declares, held against what its text declares and its code does.

use crate::explain::invalid;
use crate::reflect::{Buffer, Declared, Used};
use alloc::format;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::kernel::{BufferInterface, HostUse, Interface};

/// The interface of a kernel that leaves it to its text.
pub(crate) fn found(text: &Declared, used: &Used) -> Interface {
    let buffers = text.buffers.iter().zip(&used.buffers).map(|(buffer, does)| {
        let access = match does {
            (_, false) => Access::Read,
            (false, true) => Access::Write,
            (true, true) => Access::ReadWrite,
        };
        let host = match access {
            Access::Read => HostUse::Slice,
            _ if buffer.atomic => HostUse::Atomic,
            _ => HostUse::Claim,
        };
        BufferInterface { access, host, min_size: buffer.min_size }
    });
    Interface {
        buffers: buffers.collect(),
        parameters: text.parameters.as_ref().map_or(0, |parameters| parameters.bytes),
        shared: used.shared,
        in_place: false,
        tensor_maps: alloc::vec::Vec::new(),
    }
}

/// The interface of a kernel that declares one. It counts as declared, but that no buffer may have fewer bytes than what its variable
/// always has.
///
/// # Errors
/// [`Error::InvalidKernel`](trunnion_runtime_core::error::Error::InvalidKernel) where the code does what is not declared.
pub(crate) fn declared(kernel: &str, mut interface: Interface, text: &Declared, used: &Used) -> Result<Interface> {
    let (ours, theirs) = (interface.buffers.len(), text.buffers.len());
    if ours != theirs {
        let why = match text.buffers.get(ours) {
            Some(more) => format!("its text has `{}` at binding {ours}, and {ours} buffers are declared", more.name),
            None => format!("{ours} buffers are declared, and its text has {theirs}: none is at binding {theirs}"),
        };
        return Err(invalid(kernel, why));
    }
    for (place, (buffer, found)) in interface.buffers.iter_mut().zip(&text.buffers).enumerate() {
        if let Some(how) = undeclared(buffer.access, used.buffers[place]) {
            let Buffer { name, .. } = found;
            let why = format!("`{name}` at binding {place} is declared {:?}, and the code {how}", buffer.access);
            return Err(invalid(kernel, why));
        }
        buffer.min_size = buffer.min_size.max(found.min_size);
    }
    let bytes = text.parameters.as_ref().map_or(0, |parameters| parameters.bytes);
    if bytes != interface.parameters {
        let declares = interface.parameters;
        let why = match &text.parameters {
            Some(found) => format!("{declares} bytes of parameters are declared, and `{}` has {bytes}", found.name),
            None => format!(
                "{declares} bytes of parameters are declared, and its text has none: no `var<uniform>` is at binding {theirs}"
            ),
        };
        return Err(invalid(kernel, why));
    }
    if used.shared > interface.shared {
        let (has, declares) = (used.shared, interface.shared);
        let why = format!("{declares} bytes of shared memory are declared, and its `var<workgroup>` have {has}");
        return Err(invalid(kernel, why));
    }
    Ok(interface)
}

/// What the code does with a buffer that its access does not cover.
fn undeclared(access: Access, (reads, writes): (bool, bool)) -> Option<&'static str> {
    match access {
        Access::Read if writes => Some("writes it"),
        Access::Write | Access::Overwrite if reads => Some("reads it"),
        Access::Overwrite if !writes => Some("never writes it"),
        _ => None,
    }
}
