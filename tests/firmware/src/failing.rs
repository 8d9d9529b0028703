//! What fails later lies on the bytes that were not written, and what follows goes on without it.

use crate::check::{Check, Outcome, fails, holds, same};
use crate::device::{device, holds_elements, open, open_with, upload};
use crate::kernels::{PART, PART_BYTES, add, double, fails as kernel_that_fails};
use alloc::format;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, KernelFault};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel, Workgroup};

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "a kernel that fails marks what it would have written, and nothing else", run: marks },
    Check { name: "a failure is handed on with the way it came", run: inherited },
    Check { name: "what replaces the bytes takes the failure away", run: replaced },
    Check { name: "an access outside a buffer is a failure of the launch", run: outside },
    Check { name: "a claim of what another workgroup has is a failure of the launch", run: claimed_twice },
    Check { name: "elements that do not fit the bytes are a failure of the launch", run: wrong_type },
    Check { name: "a kernel that does not compile fails its launches", run: does_not_compile },
    Check { name: "a failure crosses to another device", run: crosses },
    Check { name: "a device that is lost answers everything with the cause, and can be opened again", run: lost },
];

fn marks() -> Outcome {
    let client = open()?;
    let (add, broken) = (client.prepare(add())?, client.prepare(kernel_that_fails())?);
    let (a, b) = (client.zeros(PART_BYTES)?, client.zeros(PART_BYTES)?);
    client.launch(&broken, Grid::x(1), [&a])?;
    client.launch(&add, Grid::x(1), ([&b], &1u32))?;
    let error = fails(client.read_one(&a), |e| matches!(e, Error::KernelFailed { .. }))?;
    same(format!("{error}"), "kernel `fails`, workgroup [0, 0, 0]: on purpose")?;
    fails(client.check(&[&a, &b]), |e| matches!(e, Error::KernelFailed { .. }))?;
    client.sync()?.wait()?;
    holds_elements(&client, &b, &[1u32; PART])
}

fn inherited() -> Outcome {
    let client = open()?;
    let (double, broken) = (client.prepare(double())?, client.prepare(kernel_that_fails())?);
    let (a, b, c) = (client.zeros(PART_BYTES)?, client.zeros(PART_BYTES)?, client.zeros(PART_BYTES)?);
    client.launch(&broken, Grid::x(1), [&a])?;
    client.launch(&double, Grid::x(1), [&a, &b])?;
    client.copy(&b, &c)?;
    let error = fails(client.read_one(&c), |e| matches!(e, Error::KernelFailed { .. }))?;
    let Error::Inherited { chain, .. } = &error else { return Err(error.into()) };
    same(chain.iter().map(|link| link.operation.as_str()).collect::<alloc::vec::Vec<_>>(), ["double", "copy"])?;
    // Read together, the cause is named once.
    let error = fails(client.read(&[&a, &b, &c]), |e| matches!(e, Error::KernelFailed { .. }))?;
    holds(!matches!(error, Error::Several(_)), error)
}

fn replaced() -> Outcome {
    let client = open()?;
    let broken = client.prepare(kernel_that_fails())?;
    let a = client.zeros(PART_BYTES)?;
    client.launch(&broken, Grid::x(1), [&a])?;
    client.write_slice(&a.slice(..32)?, &[5; 32])?;
    holds_elements(&client, &a.slice(..32)?, &[5u8; 32])?;
    fails(client.read_one(&a), |e| matches!(e, Error::KernelFailed { .. }))?;
    client.fill(&a, &[6])?;
    holds_elements(&client, &a, &[6u8; PART_BYTES as usize])
}

/// Launches a kernel of two workgroups over a buffer of 20 bytes; what the launch answers is read.
fn fault(
    interface: Interface,
    run: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
) -> Outcome<Error> {
    let client = open()?;
    let kernel = client.prepare(SourceKernel::new("wrong", interface).source(Source::host(run)))?;
    let a = client.zeros(20)?;
    client.launch(&kernel, Grid::x(2), [&a])?;
    let error = fails(client.read_one(&a), |e| matches!(e, Error::KernelFailed { .. }))?;
    client.write_slice(&a, &[1; 20])?;
    holds_elements(&client, &a, &[1u8; 20])?;
    Ok(error)
}

fn outside() -> Outcome {
    let error = fault(Interface::new().claim(Access::ReadWrite), |group| {
        let start = 4 * group.id()[0] as usize;
        group.claim::<u32>(0, start..start + 2)?.fill(1);
        Ok(())
    })?;
    same(format!("{error}"), "kernel `wrong`, workgroup [1, 0, 0]: buffer 0: bytes 16..24 of 20")
}

fn claimed_twice() -> Outcome {
    let error = fault(Interface::new().claim(Access::ReadWrite), |group| {
        let start = group.id()[0] as usize;
        group.claim::<u32>(0, start..start + 2)?.fill(1);
        Ok(())
    })?;
    let expected = "kernel `wrong`, workgroup [1, 0, 0]: buffer 0: claim of bytes 4..12 overlaps an earlier claim";
    same(format!("{error}"), expected)
}

fn wrong_type() -> Outcome {
    let error = fault(Interface::new().partition(10), |group| group.part::<u32>(0).map(|_| ()))?;
    let Error::KernelFailed { fault: KernelFault::WrongType { size, bytes, .. }, .. } = error else {
        return Err(error.into());
    };
    same((size, bytes), (4, 10))
}

fn does_not_compile() -> Outcome {
    let client = open_with(&[("fail_compile", "add")])?;
    let (add, double) = (client.prepare(add())?, client.prepare(double())?);
    let (a, b) = (client.zeros(PART_BYTES)?, client.zeros(PART_BYTES)?);
    client.launch(&add, Grid::x(1), ([&a], &1u32))?;
    fails(client.read_one(&a), |e| matches!(e, Error::Compile { .. }))?;
    client.fill(&a, &2u32.to_ne_bytes())?;
    client.launch(&double, Grid::x(1), [&a, &b])?;
    holds_elements(&client, &b, &[4u32; PART])
}

fn crosses() -> Outcome {
    let (here, there) = (open()?, Client::load(device(1))?);
    let broken = here.prepare(kernel_that_fails())?;
    let a = here.zeros(PART_BYTES)?;
    here.launch(&broken, Grid::x(1), [&a])?;
    let b = here.to_client(&a, &there)?;
    fails(there.read_one(&b), |e| matches!(e, Error::KernelFailed { .. }))?;
    there.fill(&b, &[1])?;
    holds_elements(&there, &b, &[1u8; PART_BYTES as usize])
}

fn lost() -> Outcome {
    let client = open_with(&[("lose_after", "3")])?;
    let a = client.zeros(64)?;
    let error = (0..10).find_map(|_| client.write_slice(&a, &[1; 64]).and_then(|_| client.read_one(&a)).err());
    holds(error.as_ref().is_some_and(Error::is_device_lost), format!("{error:?}"))?;
    let cause = error.map(|error| format!("{error}"));
    for error in [client.zeros(64).err(), client.flush().err(), client.sync_timeout(core::time::Duration::ZERO).err()] {
        same(error.map(|error| format!("{error}")), cause.clone())?;
    }
    drop((a, client));
    let client = open()?;
    let a = upload(&client, &[1u8, 2])?;
    holds_elements(&client, &a, &[1u8, 2])
}
