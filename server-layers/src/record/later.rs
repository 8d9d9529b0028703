//! Bytes that are not there when the call is made: their place is kept in the program, and they are written when they come.

use super::Log;
use crate::program::{Content, Sink};
use alloc::string::ToString;
use alloc::vec::Vec;
use trunnion_runtime_core::access;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{Grant, HostMemory};
use trunnion_runtime_core::timeline::Moment;

/// Bytes that somebody promised.
pub(super) struct Later {
    promise: Promise<Vec<Bytes>>,
    /// The first content's number; the others follow.
    first: u32,
    count: u32,
    /// What is written, not what is read.
    written: bool,
}

/// An access in place that is open.
pub(super) struct Access {
    granted: Promise<Grant>,
    /// What it writes or, where that is asked for, reads.
    content: Option<u32>,
    size: u64,
    written: bool,
}

/// How many bytes of an access are taken at once.
const PIECE: u64 = 1 << 20;

impl<K: Sink + Send + 'static> Log<K> {
    /// Keeps an eye on bytes that were promised for `count` contents from `first`.
    pub(super) fn await_bytes(&mut self, promise: &Promise<Vec<Bytes>>, first: u32, count: u32, written: bool) {
        self.later.push(Later { promise: promise.clone(), first, count, written });
    }

    /// Keeps an eye on an access that was opened.
    pub(super) fn await_access(
        &mut self,
        at: Moment,
        granted: &Promise<Grant>,
        content: Option<u32>,
        size: u64,
        access: access::Access,
    ) {
        self.accesses.insert(at, Access { granted: granted.clone(), content, size, written: access.writes() });
    }

    /// Writes what has come.
    pub(super) fn look_later(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let mut later = core::mem::take(&mut self.later);
        later.retain(|later| match later.promise.get() {
            Some(result) => {
                self.bytes_came(later, result);
                false
            }
            None => true,
        });
        self.later = later;
    }

    fn bytes_came(&mut self, later: &Later, result: Result<Vec<Bytes>>) {
        self.dirty = true;
        let Some(writer) = &mut self.writer else { return };
        for (number, place) in (later.first..).zip(0..later.count as usize) {
            let bytes = result.as_ref().map_err(Error::clone).and_then(|all| match all.get(place) {
                Some(bytes) => bytes.as_slice(),
                None => Ok(&[]),
            });
            match bytes {
                Ok(bytes) => writer.given(number, bytes),
                Err(error) => writer.given_as(number, &Content::Failed(error.to_string())),
            }
        }
    }

    /// An access ends: the bytes are looked at while it still has them.
    pub(super) fn access_ends(&mut self, at: Moment, failure: Option<&Error>) {
        self.streams.remove(&at.stream);
        let Some(access) = self.accesses.remove(&at) else { return };
        let Some(number) = access.content else { return };
        self.dirty = true;
        let Some(writer) = &mut self.writer else { return };
        match (failure, access.granted.get()) {
            (Some(failure), _) if access.written => {
                writer.given_as(number, &Content::Failed(failure.to_string()));
            }
            (_, Some(Ok(Grant { host: Some(memory), .. }))) => {
                copy_out(&*memory, access.size, |piece, is_all| match is_all {
                    true => writer.given(number, piece),
                    false => writer.more(number, piece),
                });
                if access.size > PIECE {
                    writer.all(number, access.size);
                }
            }
            (_, Some(Ok(_))) if access.written => {
                let why = "it was written in place, where the host cannot see it";
                writer.given_as(number, &Content::Lost(why.into()));
            }
            // It was never granted, or what it read is not known.
            _ => writer.given_as(number, &Content::Nothing),
        }
    }

    /// Says of everything that has not come that it did not.
    pub(super) fn give_up_later(&mut self) {
        self.look_later();
        let accesses = core::mem::take(&mut self.accesses);
        let open = accesses.into_values().filter_map(|access| Some((access.content?, 1, access.written)));
        let promised: Vec<_> =
            core::mem::take(&mut self.later).iter().map(|later| (later.first, later.count, later.written)).collect();
        let Some(writer) = &mut self.writer else { return };
        for (first, count, written) in open.chain(promised) {
            let content = match written {
                true => Content::Lost("the recording ended before the bytes were there".into()),
                false => Content::Nothing,
            };
            (first..first.saturating_add(count)).for_each(|number| writer.given_as(number, &content));
        }
    }
}

/// Hands out the bytes of an access in pieces short enough to be split over lines; says whether a piece is all there is.
fn copy_out(memory: &dyn HostMemory, size: u64, mut with: impl FnMut(&[u8], bool)) {
    // Lines of a content have so many bytes at most.
    const LINE: usize = 8 << 10;
    let mut buffer = Vec::new();
    let mut offset = 0;
    loop {
        let length = PIECE.min(size - offset) as usize;
        buffer.resize(length, 0);
        memory.read(offset, &mut buffer);
        match size <= PIECE {
            true => with(&buffer, true),
            false => buffer.chunks(LINE).for_each(|line| with(line, false)),
        }
        offset += length as u64;
        if offset >= size {
            return;
        }
    }
}
