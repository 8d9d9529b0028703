//! Staging buffers of a device: room is waited for, memory is locked by the driver where it can.

use super::Service;
use super::waiting::{ALONE, LOOKS};
use crate::bytes::HostBuffer;
use crate::error::{Error, Result};
use crate::platform::{Deadline, block_on};
use crate::staging::{Found, PinnedMemory, StagingBuffer};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::{Poll, Waker};

impl Service {
    /// Buffers of these sizes, all of them or none. Waits until earlier staging has ended, at most the device's wait timeout without any
    /// of it ending.
    pub(crate) fn staging_buffers(&self, sizes: &[usize]) -> Result<Vec<StagingBuffer>> {
        self.shared.check()?;
        let total = sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
        // No memory is larger, so nobody waits for as much.
        let total = total.filter(|total| *total <= isize::MAX as usize);
        let requested = total.ok_or_else(|| Error::SizeOverflow { what: "staging".into() })? as u64;
        let usage = self.staging.usage();
        if let Some(limit) = usage.limit.filter(|limit| requested > *limit) {
            let (in_use, waited) = (usage.in_use, core::time::Duration::ZERO);
            return Err(Error::StagingFull { requested, in_use, limit, waited });
        }
        let room = Room { service: self, sizes, found: self.wait_for_room(sizes, requested)?.into_iter() };
        room.collect()
    }

    fn wait_for_room(&self, sizes: &[usize], requested: u64) -> Result<Vec<Found>> {
        if requested == 0 {
            return Ok(sizes.iter().map(|_| None).collect());
        }
        let turn = self.staging.queue();
        if let Poll::Ready(found) = turn.poll(sizes, Waker::noop()) {
            return Ok(found);
        }
        turn.waits();
        let timeout = self.settings.wait_timeout;
        let start = Deadline::after(timeout);
        let (mut deadline, mut returns) = (start, self.staging.returns());
        let slice = if self.executor.is_left_to_caller() { ALONE.min(timeout) } else { timeout / LOOKS };
        loop {
            // What is done lets go of its bytes, and the next is handed over.
            let nap = if self.look_at_leans() { ALONE.min(slice) } else { slice };
            self.progress(u64::MAX, &Deadline::after(timeout / LOOKS))?;
            let look = poll_fn(|context| turn.poll(sizes, context.waker()));
            if let Some(found) = block_on(look, &Deadline::after(nap)) {
                return Ok(found);
            }
            let now = self.staging.returns();
            if now != returns {
                (deadline, returns) = (Deadline::after(timeout), now);
            }
            if deadline.expired() {
                let usage = self.staging.usage();
                let (in_use, limit, waited) = (usage.in_use, usage.limit.unwrap_or(u64::MAX), start.waited());
                return Err(Error::StagingFull { requested, in_use, limit, waited });
            }
        }
    }

    /// Memory for a buffer that room was made for.
    fn staging_buffer(&self, size: usize, found: Found) -> Result<StagingBuffer> {
        if let Some(memory) = found {
            self.staging.served_pinned(true);
            return Ok(StagingBuffer::pinned(memory, &self.staging));
        }
        if size > 0 && !self.staging.is_plain() {
            match self.pin_or_make_room(size)? {
                Some(Ok(memory)) if memory.as_slice().len() == size => {
                    self.staging.served_pinned(false);
                    return Ok(StagingBuffer::pinned(memory, &self.staging));
                }
                Some(Ok(memory)) => {
                    log::warn!("{size} bytes of page-locked memory asked for, {} given", memory.as_slice().len());
                    self.staging.served_plain(true);
                }
                Some(Err(refusal)) if refusal.is_device_lost() => return Err(refusal),
                Some(Err(refusal)) => {
                    log::warn!("{size} bytes of staging memory are plain: {refusal}");
                    self.staging.served_plain(true);
                }
                None => self.staging.served_plain(false),
            }
        } else if size > 0 {
            self.staging.served_plain(false);
        }
        Ok(StagingBuffer::plain(HostBuffer::zeroed(size)?, &self.staging))
    }

    /// Asks the device for page-locked memory. Where there is too little, what is kept for other sizes goes back first: as much as is
    /// wanted, then all of it.
    #[allow(clippy::type_complexity, reason = "as below")]
    fn pin_or_make_room(&self, size: usize) -> Result<Option<Result<Box<dyn PinnedMemory>>>> {
        let mut answer = self.pin(size)?;
        for bytes in [size as u64, u64::MAX] {
            let is_refused = matches!(&answer, Some(Err(refusal)) if !refusal.is_device_lost());
            if !is_refused || !self.staging.shrink(bytes) {
                break;
            }
            answer = self.pin(size)?;
        }
        Ok(answer)
    }

    /// Asks the device for page-locked memory; `None` where it has none.
    #[allow(clippy::type_complexity, reason = "an answer that may not be there")]
    fn pin(&self, size: usize) -> Result<Option<Result<Box<dyn PinnedMemory>>>> {
        self.call("staging", move |core, _| core.server.staging().map(|server| server.pin(size)))
    }
}

/// Room that was taken, given back by what does not become a buffer.
struct Room<'a> {
    service: &'a Service,
    sizes: &'a [usize],
    found: alloc::vec::IntoIter<Found>,
}

impl Iterator for Room<'_> {
    type Item = Result<StagingBuffer>;

    fn next(&mut self) -> Option<Self::Item> {
        let (found, size) = (self.found.next()?, *self.sizes.first()?);
        self.sizes = &self.sizes[1..];
        let buffer = self.service.staging_buffer(size, found);
        if buffer.is_err() {
            self.service.staging.give_back(size as u64, None);
        }
        Some(buffer)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        for (size, found) in self.sizes.iter().zip(self.found.by_ref()) {
            self.service.staging.give_back(*size as u64, found);
        }
    }
}
