//! Launching kernels.

use alloc::sync::Arc;

use super::pointers::{Arguments, Host, In};
use super::{exports, require, stream_of};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::driver::driver;
use crate::loaded::{Kernel, Launch, Shape};
use crate::report::ReportKind;
use crate::work::Work;

/// How `extra` names the buffer of parameters, and its size.
const BUFFER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// How a launch is asked for in one piece. Equivalent to: `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Configuration {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
    attributes: In<Attribute>,
    count: u32,
}

/// One wish beyond the shape. Equivalent to: `CUlaunchAttribute`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Attribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

/// The bytes of a kernel's parameters, from one pointer each or from a buffer.
fn parameters(kernel: &Kernel, arguments: Arguments, extra: In<Host>) -> Outcome<Vec<u8>> {
    let function = kernel.function();
    let mut bytes = vec![0; function.parameter_bytes];
    if !extra.is_null() {
        require(arguments.is_null())?;
        let given = extra.list(5)?;
        let (mut buffer, mut size) = (None, None);
        for pair in given.chunks_exact(2) {
            match pair[0].address() {
                0 => break,
                BUFFER => buffer = Some(pair[1]),
                BUFFER_SIZE => size = Some(Host::bytes(pair[1], 8)?),
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        let (Some(buffer), Some(size)) = (buffer, size) else { return Err(Code::INVALID_VALUE) };
        let size = size.iter().rev().fold(0, |size, byte| size << 8 | usize::from(*byte));
        require(size >= bytes.len())?;
        return buffer.bytes(bytes.len());
    }
    for (at, parameter) in function.inputs.iter().enumerate() {
        let argument = arguments.bytes(at, parameter.size)?;
        bytes[parameter.offset..parameter.offset + parameter.size].copy_from_slice(&argument);
    }
    Ok(bytes)
}

/// A launch, checked.
pub(super) fn prepare(kernel: usize, shape: Shape, arguments: Arguments, extra: In<Host>) -> Outcome<Arc<Launch>> {
    let kernel = driver().kernels.get(kernel)?;
    shape.check(&kernel)?;
    let parameters = parameters(&kernel, arguments, extra)?;
    Ok(Arc::new(Launch { kernel, shape, parameters }))
}

fn launch(kernel: usize, shape: Shape, stream: usize, arguments: Arguments, extra: In<Host>) -> Outcome {
    let stream = stream_of(stream)?;
    let launch = prepare(kernel, shape, arguments, extra)?;
    if launch.kernel.loaded.context.handle != stream.context.handle {
        return Err(Code::INVALID_HANDLE);
    }
    capture::issue(&stream, Work::Launch(launch))
}

/// What the attributes ask for; what is not played is named.
fn wishes(configuration: &Configuration, kernel: usize) -> Outcome<bool> {
    let mut is_cooperative = false;
    for attribute in configuration.attributes.list(configuration.count as usize)? {
        match attribute.id {
            // Nothing, cache windows and priorities change no result.
            0 | 1 | 8 => {}
            2 => is_cooperative = attribute.value[0] != 0,
            // A cluster of one block is every block.
            4 if attribute.value[..3] == [1, 1, 1] => {}
            other => {
                let device = driver().kernels.get(kernel)?.loaded.context.device.clone();
                device.report(
                    ReportKind::Unsupported,
                    format!("the launch attribute {other} is not known to the double"),
                );
                return Err(Code::NOT_SUPPORTED);
            }
        }
    }
    Ok(is_cooperative)
}

exports! {
    fn cuLaunchKernel(
        kernel: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: usize,
        arguments: Arguments, extra: In<Host>,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, is_cooperative: false };
        launch(kernel, shape, stream, arguments, extra)
    }

    fn cuLaunchCooperativeKernel(
        kernel: usize, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: usize, arguments: Arguments,
    ) {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared, is_cooperative: true };
        launch(kernel, shape, stream, arguments, In::null())
    }

    fn cuLaunchKernelEx(configuration: In<Configuration>, kernel: usize, arguments: Arguments, extra: In<Host>) {
        let configuration = configuration.get()?;
        let Configuration { grid, block, shared, stream, .. } = configuration;
        let is_cooperative = wishes(&configuration, kernel)?;
        launch(kernel, Shape { grid, block, shared, is_cooperative }, stream, arguments, extra)
    }
}
