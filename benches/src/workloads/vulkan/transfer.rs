//! Moving bytes to the device and back.
//!
//! The bare side takes the better way the device offers: where it works in the host's memory, a copy into or out of a buffer that stays mapped;
//! else through staging memory that stays mapped, in pieces, so that one is copied by the host while the device copies another.

use super::bare::{Bare, Buffer, Commands};
use super::{adapter, open};
use crate::harness::{Case, Run, Target, interleave};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

const LARGE: usize = 64 << 20;
const SMALL: usize = 4 << 10;

/// Bytes of a large transfer that are staged at a time.
const PIECE: usize = 4 << 20;

/// Bytes on a bare device.
struct Bytes<'a> {
    bare: &'a Bare,
    buffer: Buffer<'a>,
    /// As large, where the host does not reach the buffer: up and down, and a command buffer for each piece.
    staging: Option<([Buffer<'a>; 2], Vec<Commands>)>,
}

impl<'a> Bytes<'a> {
    fn new(bare: &'a Bare, size: usize) -> Result<Self, Box<dyn Error>> {
        let mut buffer = bare.buffer(size)?;
        let staging = match buffer.bytes() {
            Some(bytes) => {
                // Touched, as the other side's are.
                bytes.fill(1);
                None
            }
            None => {
                let commands = (0..size.div_ceil(PIECE)).map(|_| bare.commands()).collect::<Result<_, _>>()?;
                Some(([bare.staging(size, false)?, bare.staging(size, true)?], commands))
            }
        };
        Ok(Self { bare, buffer, staging })
    }

    /// Writes all bytes, `step` at a time.
    fn upload(&mut self, from: &[u8], step: usize) -> Result<(), Box<dyn Error>> {
        let Some(([up, _], commands)) = &mut self.staging else {
            let bytes = self.buffer.bytes().ok_or("not mapped")?;
            for (to, from) in bytes.chunks_mut(step).zip(from.chunks(step)) {
                to.copy_from_slice(black_box(from));
            }
            return Ok(());
        };
        for ((i, piece), commands) in from.chunks(PIECE).enumerate().zip(commands) {
            let bytes = &mut up.bytes().ok_or("not mapped")?[i * PIECE..][..piece.len()];
            for (to, from) in bytes.chunks_mut(step).zip(piece.chunks(step)) {
                to.copy_from_slice(black_box(from));
            }
            self.bare.submit(commands, |recording| {
                for at in (i * PIECE..i * PIECE + piece.len()).step_by(step.min(PIECE)) {
                    recording.copy((up, at), (&self.buffer, at), step.min(i * PIECE + piece.len() - at));
                }
            })?;
        }
        Ok(self.bare.finish()?)
    }

    /// Reads all bytes.
    fn download(&mut self, into: &mut [u8]) -> Result<(), Box<dyn Error>> {
        let Some(([_, down], commands)) = &mut self.staging else {
            into.copy_from_slice(black_box(self.buffer.bytes().ok_or("not mapped")?));
            return Ok(());
        };
        for (i, commands) in commands.iter_mut().enumerate() {
            let (at, size) = (i * PIECE, PIECE.min(into.len() - i * PIECE));
            self.bare.submit(commands, |recording| recording.copy((&self.buffer, at), (down, at), size))?;
        }
        for ((i, into), commands) in into.chunks_mut(PIECE).enumerate().zip(commands) {
            self.bare.wait_for(commands)?;
            into.copy_from_slice(&down.bytes().ok_or("not mapped")?[i * PIECE..][..into.len()]);
        }
        Ok(())
    }
}

/// `transfer`: ours beside the bare API.
///
/// # Errors
/// Where there is no Vulkan device; what client and driver answer.
pub fn transfer(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let name = adapter(run)?;
    let (client, bare) = (open()?, Bare::open(&name)?);
    let size = if run.quick { LARGE / 16 } else { LARGE };
    let source: Vec<u8> = (0..size).map(|i| i as u8).collect();
    let (mut back, mut back_bare) = (vec![1u8; size], vec![1u8; size]);
    let buffer = client.create_from_slice(&source)?;
    let mut peer = Bytes::new(&bare, size)?;
    let target = Some(Target::Ratio(1.1));

    let upload = || {
        let start = Instant::now();
        client.write_slice(&buffer, &source).expect("the slice is written");
        client.sync().and_then(|done| done.wait()).expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e3
    };
    let upload_bare = || {
        let start = Instant::now();
        peer.upload(&source, size).expect("the slice is written");
        start.elapsed().as_secs_f64() * 1e3
    };
    let (ours, values) = interleave(run.rounds(21), upload, upload_bare);
    let peers = Some(("bare Vulkan", values));
    run.report(Case { case: "vulkan-upload-64MiB", ours, unit: "ms", peer: peers, target });

    let download = || {
        let start = Instant::now();
        client.read_into(&buffer, &mut back).expect("the bytes are read");
        start.elapsed().as_secs_f64() * 1e3
    };
    let download_bare = || {
        let start = Instant::now();
        peer.download(&mut back_bare).expect("the bytes are read");
        start.elapsed().as_secs_f64() * 1e3
    };
    let (ours, values) = interleave(run.rounds(21), download, download_bare);
    assert!(back == source && back_bare == source, "the bytes came back as others");
    let peers = Some(("bare Vulkan", values));
    run.report(Case { case: "vulkan-download-64MiB", ours, unit: "ms", peer: peers, target });

    // As many places as uploads, so that neither side finds its target in the cache.
    let uploads = run.repeat(10_000).min(size / SMALL);
    let small: Vec<_> = (0..uploads).map(|_| client.empty(SMALL as u64)).collect::<Result<_, _>>()?;
    let mut peer = Bytes::new(&bare, uploads * SMALL)?;
    let upload = || {
        let start = Instant::now();
        for (i, handle) in small.iter().enumerate() {
            client.write_slice(handle, &source[i * SMALL..][..SMALL]).expect("the slice is written");
        }
        client.sync().and_then(|done| done.wait()).expect("the device goes on");
        start.elapsed().as_secs_f64() * 1e9 / uploads as f64
    };
    let upload_bare = || {
        let start = Instant::now();
        peer.upload(&source[..uploads * SMALL], SMALL).expect("the slice is written");
        start.elapsed().as_secs_f64() * 1e9 / uploads as f64
    };
    let (ours, values) = interleave(run.rounds(21), upload, upload_bare);
    let peers = Some(("bare Vulkan", values));
    run.report(Case { case: "vulkan-upload-4KiB", ours, unit: "ns", peer: peers, target });
    Ok(())
}
