//! Loads, stores and atomic operations of a thread, in every space.

use super::block::Block;
use super::shared::{Noticed, Use};
use super::thread::Thread;
use crate::codes::{Code, Fault};
use crate::memory::Access;
use crate::ptx::types::{Space, resolve};
use crate::report::ReportKind;

impl Block<'_> {
    /// The space and the address there, once alignment and bounds of what belongs to the block are checked.
    #[inline]
    fn target(
        &self,
        thread: &Thread,
        line: u32,
        space: Space,
        address: u64,
        size: usize,
        verb: &str,
    ) -> Result<(Space, u64), Fault> {
        let (space, address) = if space == Space::Generic { resolve(address) } else { (space, address) };
        if size.is_power_of_two() && address % size as u64 != 0 && space != Space::Param {
            let what = format_args!("misaligned address: {verb} of {size} bytes at 0x{address:x} ({space:?})");
            return Err(self.fault(thread, line, Code::MISALIGNED_ADDRESS, what));
        }
        let bytes = match space {
            Space::Shared => self.shared.len(),
            Space::Local => thread.local.len(),
            Space::Param => thread.parameters.len(),
            _ => return Ok((space, address)),
        };
        if address.checked_add(size as u64).is_none_or(|end| end > bytes as u64) {
            let what = format_args!(
                "out of bounds: {verb} of {size} bytes at 0x{address:x} ({space:?}), which has {bytes} bytes"
            );
            return Err(self.fault(thread, line, Code::ILLEGAL_ADDRESS, what));
        }
        Ok((space, address))
    }

    #[inline]
    fn touch(&mut self, thread: &Thread, line: u32, at: u64, size: usize, used: Use, access: &Access<'_>) {
        if let Some(noticed) = self.shared.touch(thread.index, at as usize, size, used) {
            self.tell(thread, line, noticed, used, access);
        }
    }

    #[cold]
    fn tell(&self, thread: &Thread, line: u32, noticed: Noticed, used: Use, access: &Access<'_>) {
        let place = self.place(thread, line);
        let name = access.name();
        match noticed {
            Noticed::Race { at, thread: other, wrote } => {
                let ([x, y, z], does) = (self.threads[other].position, if wrote { "writes" } else { "reads" });
                let verb = if used == Use::Read { "reads" } else { "writes" };
                access.report(
                    ReportKind::SharedRace,
                    format!("kernel {name}: {place} {verb} byte {at} of shared memory, which thread ({x},{y},{z}) {does} with no barrier between"),
                );
            }
            Noticed::Uninitialised { at } => {
                access.report(
                    ReportKind::Uninitialised,
                    format!("kernel {name}: {place} reads byte {at} of shared memory, which nobody wrote"),
                );
            }
        }
    }

    #[inline]
    pub(super) fn load(
        &mut self,
        thread: &Thread,
        line: u32,
        space: Space,
        address: u64,
        out: &mut [u8],
        access: &mut Access<'_>,
    ) -> Result<(), Fault> {
        let size = out.len();
        let (space, at) = self.target(thread, line, space, address, size, "read")?;
        let from = at as usize;
        match space {
            Space::Shared => {
                self.touch(thread, line, at, size, Use::Read, access);
                out.copy_from_slice(self.shared.bytes(from, size));
            }
            Space::Local => out.copy_from_slice(&thread.local[from..from + size]),
            Space::Param => out.copy_from_slice(&thread.parameters[from..from + size]),
            _ => {
                access.stand_at(self.place(thread, line));
                access
                    .read(at, out)
                    .map_err(|fault| self.fault(thread, line, fault.code, format_args!("read: {}", fault.why)))?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn store(
        &mut self,
        thread: &mut Thread,
        line: u32,
        space: Space,
        address: u64,
        data: &[u8],
        access: &mut Access<'_>,
    ) -> Result<(), Fault> {
        let size = data.len();
        let (space, at) = self.target(thread, line, space, address, size, "write")?;
        let to = at as usize;
        match space {
            Space::Shared => {
                self.touch(thread, line, at, size, Use::Write, access);
                self.shared.bytes_mut(to, size).copy_from_slice(data);
            }
            Space::Local => thread.local[to..to + size].copy_from_slice(data),
            Space::Param => thread.parameters[to..to + size].copy_from_slice(data),
            _ => {
                access.stand_at(self.place(thread, line));
                access
                    .write(at, data)
                    .map_err(|fault| self.fault(thread, line, fault.code, format_args!("write: {}", fault.why)))?;
            }
        }
        Ok(())
    }

    /// Replaces a value by what `f` makes of it, and gives the one before.
    pub(super) fn atomic(
        &mut self,
        thread: &Thread,
        line: u32,
        space: Space,
        (address, size): (u64, usize),
        f: &mut dyn FnMut(u64) -> u64,
        access: &mut Access<'_>,
    ) -> Result<u64, Fault> {
        let (space, at) = self.target(thread, line, space, address, size, "atomic operation")?;
        match space {
            Space::Shared => {
                self.touch(thread, line, at, size, Use::Atomic, access);
                let bytes = self.shared.bytes_mut(at as usize, size);
                let mut word = [0; 8];
                word[..size].copy_from_slice(bytes);
                let old = u64::from_le_bytes(word);
                bytes.copy_from_slice(&f(old).to_le_bytes()[..size]);
                Ok(old)
            }
            Space::Global => {
                access.stand_at(self.place(thread, line));
                let found = access.atomic(at, size, f);
                found.map_err(|fault| {
                    self.fault(thread, line, fault.code, format_args!("atomic operation: {}", fault.why))
                })
            }
            _ => {
                let what = format_args!("an atomic operation on {space:?} memory");
                Err(self.fault(thread, line, Code::INVALID_ADDRESS_SPACE, what))
            }
        }
    }
}
