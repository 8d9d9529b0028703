//! Copies and fills, in the order of a stream or at once.

use alloc::sync::Arc;

use super::pointers::{Host, In};
use super::{exports, require, stream_of};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::context as contexts;
use crate::driver::driver;
use crate::memory::Kind;
use crate::report::ReportKind;
use crate::stream::Stream;
use crate::work::{Copy, End, Fill, Work};

/// Whether memory of the program is page-locked, so that a copy may touch it later.
fn is_locked(address: usize) -> bool {
    driver()
        .space
        .containing(address as u64)
        .is_some_and(|region| matches!(region.kind, Kind::Host { .. } | Kind::Managed))
}

/// Refuses addresses of devices that are none now; those that end before their turn fail then.
fn check_device(stream: &Stream, address: u64, bytes: usize) -> Outcome {
    match driver().space.find(address, bytes as u64) {
        Ok(_) => Ok(()),
        // Memory of a graph lives when the graph runs.
        Err(_)
            if capture::is_capturing(stream) && driver().space.at(address).is_some_and(|at| at.kind == Kind::Graph) =>
        {
            Ok(())
        }
        Err(fault) => {
            stream.context.device.report(ReportKind::BadCall, format!("copy or fill: {}", fault.why));
            Err(Code::INVALID_VALUE)
        }
    }
}

/// Memory by an address that says itself whose it is.
fn unified(address: u64) -> End {
    match driver().space.containing(address) {
        Some(_) => End::Device(address),
        None => End::Host(address as usize),
    }
}

/// Issues a copy: bytes that are not page-locked are taken now, and waited for.
fn issue(stream: &Arc<Stream>, mut copy: Copy) -> Outcome {
    let [to_span, from_span] = copy.spans();
    if to_span == 0 {
        return Ok(());
    }
    for (end, span) in [(&copy.to, to_span), (&copy.from, from_span)] {
        if let End::Device(address) = end {
            check_device(stream, *address, span)?;
        }
    }
    let records = capture::is_capturing(stream);
    let mut waits = false;
    if let (End::Host(address), false) = (&copy.from, records)
        && !is_locked(*address)
    {
        let mut taken = vec![0; from_span];
        crate::host::read(*address, &mut taken);
        copy.from = End::Taken(Arc::new(taken));
    }
    if let (End::Host(address), false) = (&copy.to, records) {
        waits = !is_locked(*address);
    }
    capture::issue(stream, Work::Copy(copy))?;
    if waits {
        stream.wait();
        return stream.context.check();
    }
    Ok(())
}

/// Issues a copy and waits for it.
fn at_once(copy: Copy) -> Outcome {
    let context = contexts::current()?;
    capture::forbid_meanwhile(&context)?;
    let stream = context.legacy_stream()?;
    issue(&stream, copy)?;
    stream.wait();
    context.check()
}

fn fill(stream: &Arc<Stream>, fill: Fill) -> Outcome {
    if fill.width == 0 || fill.height == 0 {
        return Ok(());
    }
    require(fill.to.is_multiple_of(fill.element as u64))?;
    let bytes = (fill.height - 1) * fill.pitch + fill.width * fill.element;
    check_device(stream, fill.to, bytes)?;
    capture::issue(stream, Work::Fill(fill))
}

fn fill_line(stream: usize, to: u64, value: u32, element: usize, width: usize) -> Outcome {
    fill(&stream_of(stream)?, Fill { to, value, element, width, height: 1, pitch: 0 })
}

/// Fills of devices' memory do not wait for each other, but the program may read the memory once they return.
fn fill_at_once(to: u64, value: u32, element: usize, width: usize) -> Outcome {
    let context = contexts::current()?;
    capture::forbid_meanwhile(&context)?;
    let stream = context.legacy_stream()?;
    fill(&stream, Fill { to, value, element, width, height: 1, pitch: 0 })?;
    stream.wait();
    context.check()
}

/// A copy of a rectangle. Equivalent to: `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Rectangle {
    from: Side,
    from_pitch: usize,
    to: Side,
    to_pitch: usize,
    width: usize,
    height: usize,
}

/// Where one end of a rectangle lies.
#[derive(Clone, Copy)]
#[repr(C)]
struct Side {
    x: usize,
    y: usize,
    kind: u32,
    host: usize,
    device: u64,
    array: usize,
}

/// A copy of a cuboid. Equivalent to: `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Cuboid {
    from: Corner,
    to: Corner,
    width: usize,
    height: usize,
    depth: usize,
}

/// Where one end of a cuboid lies.
#[derive(Clone, Copy)]
#[repr(C)]
struct Corner {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: usize,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

/// The end of a copy of a memory type and an offset. Equivalent to: `CUmemorytype`.
fn end(kind: u32, host: usize, device: u64, offset: usize) -> Outcome<End> {
    match kind {
        1 => Ok(End::Host(host + offset)),
        2 => Ok(End::Device(device + offset as u64)),
        4 => Ok(unified(device + offset as u64)),
        // Arrays have no plain bytes to play with.
        3 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

impl Rectangle {
    fn copy(&self) -> Outcome<Copy> {
        let pitch = |pitch: usize| if pitch == 0 { self.width } else { pitch };
        let (to, from) = (pitch(self.to_pitch), pitch(self.from_pitch));
        require(to >= self.width && from >= self.width && self.height > 0 && self.width > 0)?;
        let offset = |side: &Side, pitch: usize| side.x + side.y * pitch;
        Ok(Copy {
            to: end(self.to.kind, self.to.host, self.to.device, offset(&self.to, to))?,
            from: end(self.from.kind, self.from.host, self.from.device, offset(&self.from, from))?,
            width: self.width,
            height: self.height,
            depth: 1,
            to_pitch: [to, 0],
            from_pitch: [from, 0],
        })
    }
}

impl Cuboid {
    pub(super) fn copy(&self) -> Outcome<Copy> {
        require(self.width > 0 && self.height > 0 && self.depth > 0)?;
        let pitches = |corner: &Corner| {
            let row = if corner.pitch == 0 { self.width } else { corner.pitch };
            [row, row * if corner.height == 0 { self.height } else { corner.height }]
        };
        let (to, from) = (pitches(&self.to), pitches(&self.from));
        require(to[0] >= self.width && from[0] >= self.width)?;
        let offset = |corner: &Corner, pitch: [usize; 2]| corner.x + corner.y * pitch[0] + corner.z * pitch[1];
        Ok(Copy {
            to: end(self.to.kind, self.to.host, self.to.device, offset(&self.to, to))?,
            from: end(self.from.kind, self.from.host, self.from.device, offset(&self.from, from))?,
            width: self.width,
            height: self.height,
            depth: self.depth,
            to_pitch: to,
            from_pitch: from,
        })
    }
}

exports! {
    fn cuMemcpyHtoDAsync_v2(to: u64, from: Host, bytes: usize, stream: usize) {
        issue(&stream_of(stream)?, Copy::line(End::Device(to), End::Host(from.address()), bytes))
    }

    fn cuMemcpyDtoHAsync_v2(to: Host, from: u64, bytes: usize, stream: usize) {
        issue(&stream_of(stream)?, Copy::line(End::Host(to.address()), End::Device(from), bytes))
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        issue(&stream_of(stream)?, Copy::line(End::Device(to), End::Device(from), bytes))
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) {
        issue(&stream_of(stream)?, Copy::line(unified(to), unified(from), bytes))
    }

    fn cuMemcpyPeerAsync(to: u64, to_context: usize, from: u64, from_context: usize, bytes: usize, stream: usize) {
        driver().contexts.get(to_context).map_err(|_| Code::INVALID_CONTEXT)?;
        driver().contexts.get(from_context).map_err(|_| Code::INVALID_CONTEXT)?;
        issue(&stream_of(stream)?, Copy::line(End::Device(to), End::Device(from), bytes))
    }

    fn cuMemcpyHtoD_v2(to: u64, from: Host, bytes: usize) {
        at_once(Copy::line(End::Device(to), End::Host(from.address()), bytes))
    }

    fn cuMemcpyDtoH_v2(to: Host, from: u64, bytes: usize) {
        at_once(Copy::line(End::Host(to.address()), End::Device(from), bytes))
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        at_once(Copy::line(End::Device(to), End::Device(from), bytes))
    }

    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        at_once(Copy::line(unified(to), unified(from), bytes))
    }

    fn cuMemcpy2DAsync_v2(rectangle: In<Rectangle>, stream: usize) {
        issue(&stream_of(stream)?, rectangle.get()?.copy()?)
    }

    fn cuMemcpy2D_v2(rectangle: In<Rectangle>) {
        at_once(rectangle.get()?.copy()?)
    }

    fn cuMemcpy3DAsync_v2(cuboid: In<Cuboid>, stream: usize) {
        issue(&stream_of(stream)?, cuboid.get()?.copy()?)
    }

    fn cuMemcpy3D_v2(cuboid: In<Cuboid>) {
        at_once(cuboid.get()?.copy()?)
    }

    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: usize) {
        fill_line(stream, to, u32::from(value), 1, count)
    }

    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: usize) {
        fill_line(stream, to, u32::from(value), 2, count)
    }

    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: usize) {
        fill_line(stream, to, value, 4, count)
    }

    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) {
        fill_at_once(to, u32::from(value), 1, count)
    }

    fn cuMemsetD16_v2(to: u64, value: u16, count: usize) {
        fill_at_once(to, u32::from(value), 2, count)
    }

    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) {
        fill_at_once(to, value, 4, count)
    }

    fn cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: usize) {
        fill(&stream_of(stream)?, Fill { to, value: u32::from(value), element: 1, width, height, pitch })
    }

    fn cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: usize) {
        fill(&stream_of(stream)?, Fill { to, value, element: 4, width, height, pitch })
    }
}
