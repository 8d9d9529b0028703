//! Asynchronous copies between global and shared memory.
//!
//! Small ones are done as late as the program allows, so that whoever does not wait reads what was there before.
//! Bulk and tensor copies are done at once; their barrier object says so.

use super::block::Block;
use super::shared::Use;
use super::thread::{PendingCopy, Thread, offset};
use crate::codes::{Code, Fault};
use crate::memory::Access;
use crate::ptx::inst::{Inst, TensorCopy};
use crate::ptx::types::{Space, resolve};
use crate::ptx::{Function, Op};
use crate::tensor::TensorMap;

impl Block<'_> {
    pub(super) fn copy(
        &mut self,
        thread: &mut Thread,
        function: &Function,
        inst: &Inst,
        access: &mut Access<'_>,
    ) -> Result<(), Fault> {
        let line = inst.line;
        match &inst.op {
            Op::CopyAsync { size, given, shared, global } => {
                let size = *size as usize;
                let given = given.map_or(size, |given| self.value(thread, function, given) as u32 as usize);
                let shared = offset(self.value(thread, function, shared.base), shared);
                let global = offset(self.value(thread, function, global.base), global);
                if given > size || !shared.is_multiple_of(size as u64) || !global.is_multiple_of(size as u64) {
                    let what = format_args!(
                        "misaligned address: a copy of {given} of {size} bytes from 0x{global:x} to 0x{shared:x}"
                    );
                    return Err(self.fault(thread, line, Code::MISALIGNED_ADDRESS, what));
                }
                thread.open_group.push(PendingCopy { shared, global, size, given, line });
            }
            Op::CopyCommit => {
                let group = core::mem::take(&mut thread.open_group);
                thread.groups.push(group);
            }
            Op::CopyWait { groups } => {
                let left = self.value(thread, function, *groups) as usize;
                self.finish_groups(thread, left, access)?;
            }
            Op::CopyWaitAll => self.finish_copies(thread, 0, access)?,
            Op::CopyArrive { counted, space, at } => {
                let address = offset(self.value(thread, function, at.base), at);
                self.finish_copies(thread, 0, access)?;
                self.copies_arrive(thread, line, *space, address, *counted)?;
            }
            Op::CopyBulk { size, shared, global, barrier } => {
                let size = self.value(thread, function, *size) as u32 as usize;
                let shared = offset(self.value(thread, function, shared.base), shared);
                let global = offset(self.value(thread, function, global.base), global);
                if !size.is_multiple_of(16) || !shared.is_multiple_of(16) || !global.is_multiple_of(16) {
                    let what = format_args!(
                        "misaligned address: a bulk copy of {size} bytes between 0x{global:x} and 0x{shared:x}"
                    );
                    return Err(self.fault(thread, line, Code::MISALIGNED_ADDRESS, what));
                }
                match barrier {
                    Some(at) => {
                        let at = offset(self.value(thread, function, at.base), at);
                        self.bring(thread, line, shared, global, size, access)?;
                        self.bytes_came(thread, line, at, size as u64)?;
                    }
                    None => {
                        let data = self.shared_bytes(thread, line, shared, size, Use::Read)?.to_vec();
                        access.stand_at(self.place(thread, line));
                        access.write(global, &data).map_err(|fault| self.at(thread, line, fault))?;
                    }
                }
            }
            Op::CopyTensor(tensor) => self.copy_tensor(thread, function, line, tensor, access)?,
            _ => {}
        }
        Ok(())
    }

    fn at(&self, thread: &Thread, line: u32, fault: Fault) -> Fault {
        self.fault(thread, line, fault.code, format_args!("copy: {}", fault.why))
    }

    /// Bytes of shared memory that a copy touches, checked.
    fn shared_bytes(
        &mut self,
        thread: &Thread,
        line: u32,
        at: u64,
        size: usize,
        used: Use,
    ) -> Result<&mut [u8], Fault> {
        if at.checked_add(size as u64).is_none_or(|end| end > self.shared.len() as u64) {
            let bytes = self.shared.len();
            let what =
                format_args!("out of bounds: a copy of {size} bytes at byte {at} of shared memory, which has {bytes}");
            return Err(self.fault(thread, line, Code::ILLEGAL_ADDRESS, what));
        }
        self.shared.touch(thread.index, at as usize, size, used);
        Ok(self.shared.bytes_mut(at as usize, size))
    }

    /// Copies from global to shared memory.
    fn bring(
        &mut self,
        thread: &Thread,
        line: u32,
        shared: u64,
        global: u64,
        size: usize,
        access: &mut Access<'_>,
    ) -> Result<(), Fault> {
        let mut data = vec![0; size];
        access.stand_at(self.place(thread, line));
        access.read(global, &mut data).map_err(|fault| self.at(thread, line, fault))?;
        self.shared_bytes(thread, line, shared, size, Use::Write)?.copy_from_slice(&data);
        Ok(())
    }

    /// Does the copies of all groups but the last `left`.
    fn finish_groups(&mut self, thread: &mut Thread, left: usize, access: &mut Access<'_>) -> Result<(), Fault> {
        let count = thread.groups.len().saturating_sub(left);
        let done: Vec<_> = thread.groups.drain(..count).flatten().collect();
        for copy in done {
            self.bring(thread, copy.line, copy.shared, copy.global, copy.given, access)?;
            let rest = copy.size - copy.given;
            self.shared_bytes(thread, copy.line, copy.shared + copy.given as u64, rest, Use::Write)?.fill(0);
        }
        Ok(())
    }

    /// Does the copies of all groups but the last `left`, the open one among them.
    pub(super) fn finish_copies(
        &mut self,
        thread: &mut Thread,
        left: usize,
        access: &mut Access<'_>,
    ) -> Result<(), Fault> {
        if !thread.open_group.is_empty() {
            let group = core::mem::take(&mut thread.open_group);
            thread.groups.push(group);
        }
        self.finish_groups(thread, left, access)
    }

    /// Looks at what copies would read that nobody waited for. They write as late as possible, which is never.
    pub(super) fn abandon_copies(&mut self, thread: &mut Thread, access: &mut Access<'_>) -> Result<(), Fault> {
        let open = core::mem::take(&mut thread.open_group);
        let closed = core::mem::take(&mut thread.groups).into_iter().flatten();
        for copy in closed.chain(open) {
            access.stand_at(self.place(thread, copy.line));
            let mut data = vec![0; copy.given];
            access.read(copy.global, &mut data).map_err(|fault| self.at(thread, copy.line, fault))?;
        }
        Ok(())
    }

    fn copy_tensor(
        &mut self,
        thread: &Thread,
        function: &Function,
        line: u32,
        copy: &TensorCopy,
        access: &mut Access<'_>,
    ) -> Result<(), Fault> {
        let map = self.value(thread, function, copy.map);
        let map = self.tensor_map(thread, line, map, access)?;
        if map.rank() != copy.rank as usize {
            let what = format_args!("a tensor map of {} dimensions is used with {} coordinates", map.rank(), copy.rank);
            return Err(self.fault(thread, line, Code::ILLEGAL_INSTRUCTION, what));
        }
        let coordinates = copy.coordinates.map(|src| self.value(thread, function, src) as u32 as i32);
        let shared = offset(self.value(thread, function, copy.shared.base), &copy.shared);
        if !shared.is_multiple_of(map.alignment()) {
            let what = format_args!(
                "misaligned address: a tensor at byte {shared} of shared memory, its map asks for {}",
                map.alignment()
            );
            return Err(self.fault(thread, line, Code::MISALIGNED_ADDRESS, what));
        }
        for piece in map.pieces(&coordinates, shared) {
            match (copy.barrier.is_some(), piece.global) {
                (true, Some(global)) => self.bring(thread, line, piece.shared, global, piece.bytes, access)?,
                // Outside the tensor: filled when read, left out when written.
                (true, None) => {
                    let fill = map.fill(piece.bytes);
                    self.shared_bytes(thread, line, piece.shared, piece.bytes, Use::Write)?.copy_from_slice(&fill);
                }
                (false, Some(global)) => {
                    let data = self.shared_bytes(thread, line, piece.shared, piece.bytes, Use::Read)?.to_vec();
                    access.stand_at(self.place(thread, line));
                    access.write(global, &data).map_err(|fault| self.at(thread, line, fault))?;
                }
                (false, None) => {}
            }
        }
        match &copy.barrier {
            Some(barrier) => {
                let at = offset(self.value(thread, function, barrier.base), barrier);
                self.bytes_came(thread, line, at, map.box_bytes())
            }
            None => Ok(()),
        }
    }

    /// Reads a tensor map from where its address says: a parameter of the kernel, or device memory.
    fn tensor_map(
        &mut self,
        thread: &Thread,
        line: u32,
        address: u64,
        access: &mut Access<'_>,
    ) -> Result<TensorMap, Fault> {
        let mut bytes = [0; TensorMap::BYTES];
        let (space, at) = resolve(address);
        // A kernel's parameters are the launch's, whichever function the thread is in.
        if space == Space::Param {
            let parameters = self.launch.parameters;
            if let Some(found) = parameters.get(at as usize..at as usize + TensorMap::BYTES) {
                bytes.copy_from_slice(found);
            }
        } else {
            for (index, part) in bytes.chunks_mut(16).enumerate() {
                self.load(thread, line, Space::Generic, address + index as u64 * 16, part, access)?;
            }
        }
        let what = "it uses a tensor map that cuTensorMapEncodeTiled did not make";
        TensorMap::decode(&bytes).ok_or_else(|| self.fault(thread, line, Code::ILLEGAL_INSTRUCTION, what))
    }
}
