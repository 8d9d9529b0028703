//! Moving bytes: rows between host and device and within the device, fills, and the sharing of large ones among threads.
//!
//! Invariant the unsafe code rests on: a motion is over, on every thread, when [`Mover::run`] returns, so that borrowed bytes outlive it.

#![allow(unsafe_code)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use trunnion_backend_core::rows;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Pattern;

use crate::lock::Lock;
use crate::pool::{self, Crew, Shift, Work};
use crate::storage::Span;

/// From here on several threads together are faster than one, including the time to wake them.
const LARGE: usize = 1 << 20;

/// What a thread takes at a time: small enough to share evenly, large enough for the processor's copies past the cache.
const PIECE: usize = 1 << 20;

/// Bytes that go through the staging copy at a time.
const STAGING: usize = 64 << 10;

/// [`rows::for_each_pair`] in the machine's addresses, which hold a place in memory.
fn for_each_pair(source: &Rows, target: &Rows, mut piece: impl FnMut(usize, usize, usize)) {
    rows::for_each_pair(source, target, |from, to, length| piece(from as usize, to as usize, length as usize));
}

/// How a device moves bytes.
pub(crate) struct Mover {
    threads: usize,
    /// Between host and device, where they do not see each other.
    staging: Option<Lock<Vec<u8>>>,
}

impl Mover {
    pub(crate) fn new(threads: usize, separate: bool) -> Self {
        Self { threads, staging: separate.then(Lock::default) }
    }

    /// Copies within the device.
    pub(crate) fn copy(&self, source: Span, source_rows: &Rows, target: Span, target_rows: &Rows) {
        for_each_pair(source_rows, target_rows, |from, to, length| {
            self.run(Motion::Copy(source.part(from, length)), target.part(to, length));
        });
    }

    /// Copies host bytes into rows of the device.
    pub(crate) fn write(&self, bytes: &[u8], target: Span, rows: &Rows) {
        // SAFETY: the bytes are borrowed until this returns, and `carry` writes only into its target.
        let source = unsafe { Span::of_slice(bytes) };
        self.carry(source, &Rows::single(bytes.len() as u64), target, rows);
    }

    /// Copies rows of the device into host bytes.
    pub(crate) fn read(&self, source: Span, rows: &Rows, bytes: &mut [u8]) {
        let dense = Rows::single(bytes.len() as u64);
        // SAFETY: the bytes are borrowed, by this call alone, until it returns.
        let target = unsafe { Span::of_slice_mut(bytes) };
        self.carry(source, rows, target, &dense);
    }

    fn carry(&self, source: Span, source_rows: &Rows, target: Span, target_rows: &Rows) {
        let Some(staging) = &self.staging else { return self.copy(source, source_rows, target, target_rows) };
        let mut staging = staging.lock();
        staging.resize(STAGING, 0);
        for_each_pair(source_rows, target_rows, |from, to, length| {
            for at in (0..length).step_by(STAGING) {
                let size = STAGING.min(length - at);
                source.part(from + at, size).copy_to_slice(&mut staging[..size]);
                target.part(to + at, size).copy_from_slice(&staging[..size]);
            }
        });
    }

    pub(crate) fn fill(&self, target: Span, pattern: Pattern) {
        self.run(Motion::Fill(pattern), target);
    }

    fn run(&self, motion: Motion, target: Span) {
        let pieces = target.size().div_ceil(PIECE);
        if target.size() < LARGE || pieces < 2 || self.threads < 2 {
            motion.run(target, 0);
        } else {
            let shared = Arc::new(Shared { motion, target, next: AtomicUsize::new(0), crew: Crew::new() });
            pool::share(&shared, self.threads.min(pieces) - 1);
        }
    }
}

#[derive(Clone, Copy)]
enum Motion {
    Copy(Span),
    Fill(Pattern),
}

impl Motion {
    /// Moves what belongs into a part of the target that begins at `offset`.
    fn run(self, part: Span, offset: usize) {
        match self {
            Self::Copy(source) => source.part(offset, part.size()).copy_to(part),
            // Pieces are multiples of every pattern.
            Self::Fill(pattern) => part.fill(pattern.bytes()),
        }
    }
}

struct Shared {
    motion: Motion,
    target: Span,
    next: AtomicUsize,
    crew: Crew,
}

impl Work for Shared {
    fn work(&self, shift: &Shift<'_>) {
        while !shift.is_over() {
            let offset = self.next.fetch_add(1, Ordering::Relaxed).saturating_mul(PIECE);
            if offset >= self.target.size() {
                return;
            }
            self.motion.run(self.target.part(offset, PIECE), offset);
        }
    }

    fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed).saturating_mul(PIECE) >= self.target.size()
    }

    fn crew(&self) -> &Crew {
        &self.crew
    }
}
