//! The contract of a server, call by call: written down where it asks something of the device, and handed on.

use super::{Known, Log, Record};
use crate::inside::ask_foreign;
use crate::program::{Content, MAX_SIZE, MAX_VIEWS, Sink};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::around::Around;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{
    AccessServer, ForeignServer, Grant, Launch, Pattern, Payload, Region, Server, Until,
};
use trunnion_runtime_core::timeline::Moment;

impl<S: Server + ?Sized, K: Sink + Send + 'static> Around for Record<S, K> {
    type Inside = S;

    fn inside(&self) -> &S {
        &self.inside
    }

    fn inside_mut(&mut self) -> &mut S {
        &mut self.inside
    }

    fn leave(&mut self) -> Wakers {
        let wakers = self.inside.leave();
        if !self.log.fault_seen
            && let Some(fault) = self.inside.fault()
        {
            self.log.fault_seen = true;
            self.log.comment(&alloc::format!("# {fault}"));
        }
        self.log.settle();
        wakers
    }

    fn panicked(&mut self, seq: u64, message: &str) {
        // Memory whose reservation panicked is there, and carries that.
        if let Some((at, memory)) = self.log.trying.take() {
            self.log.reserve(at, &memory, self.log.tried);
        }
        self.log.comment(&alloc::format!("# {seq} panicked: {message}"));
        self.inside.panicked(seq, message);
    }

    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        self.log.reserve(at, memory, mode);
        self.inside.reserve(at, memory, mode);
    }

    fn try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()> {
        // Tries that find no memory are no step of a program; what is freed between them is.
        self.log.tried = mode;
        self.log.trying = Some((at, memory.clone()));
        let reserved = self.inside.try_reserve(at, memory, mode);
        self.log.trying = None;
        if reserved.is_ok() {
            self.log.reserve(at, memory, mode);
        }
        reserved
    }

    fn refuse(&mut self, at: Moment, memory: &Handle, cause: Error) {
        self.log.reserve(at, memory, self.log.tried);
        self.inside.refuse(at, memory, cause);
    }

    fn free(&mut self, memory: MemoryId) {
        self.log.free(memory);
        self.inside.free(memory);
    }

    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        self.log.write(at, target, &data);
        self.inside.write(at, target, data);
    }

    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        self.log.read(at, sources, &into);
        self.inside.read(at, sources, into);
    }

    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        self.log.copy(at, source, target);
        self.inside.copy(at, source, target);
    }

    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        self.log.fill(at, target, pattern);
        self.inside.fill(at, target, pattern);
    }

    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        self.log.launch(at, launch);
        self.inside.launch(at, launch);
    }

    fn mark(&mut self, at: Moment) {
        self.log.plain(at, "mark");
        self.inside.mark(at);
    }

    fn wait(&mut self, at: Moment, until: Until) {
        self.log.wait(at, &until);
        self.inside.wait(at, until);
    }

    fn flush(&mut self, stream: StreamId) -> Result<()> {
        self.log.plain(Moment { stream, seq: 0 }, "flush");
        self.inside.flush(stream)
    }

    fn retire_kernel(&mut self, slot: u32) {
        self.log.kernels.remove(&slot);
        self.inside.retire_kernel(slot);
    }

    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        let abandoned = self.inside.shutdown(deadline);
        self.log.end();
        abandoned
    }

    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        self.inside.access().is_some().then_some(self)
    }

    fn foreign(&mut self) -> Option<&mut dyn ForeignServer> {
        self.inside.foreign().is_some().then_some(self)
    }
}

impl<S: Server + ?Sized, K: Sink + Send + 'static> ForeignServer for Record<S, K> {
    fn import(&mut self, at: Moment, memory: &Handle, foreign: &Foreign) -> Result<()> {
        let imported = ask_foreign(&mut *self.inside, |inside| inside.import(at, memory, foreign));
        if imported.is_ok() {
            // A replay has memory there, and is told that nobody knows what was in it.
            self.log.reserve(at, memory, AllocationMode::Auto);
            self.log.lost(at, "the bytes of this memory are somebody else's");
        }
        imported
    }

    fn import_event(&mut self, at: Moment, event: &Foreign) -> Result<()> {
        self.log.plain(at, "outside");
        ask_foreign(&mut *self.inside, |inside| inside.import_event(at, event))
    }

    fn export_event(&mut self, at: Moment) -> Result<Arc<dyn Any + Send + Sync>> {
        self.log.plain(at, "mark");
        ask_foreign(&mut *self.inside, |inside| inside.export_event(at))
    }
}

impl<S: Server + ?Sized, K: Sink + Send + 'static> AccessServer for Record<S, K> {
    fn open(&mut self, at: Moment, target: &Handle, access: Access, granted: Promise<Grant>) {
        self.log.open(at, target, access, &granted);
        if let Some(inside) = self.inside.access() {
            inside.open(at, target, access, granted);
        }
    }

    fn close(&mut self, at: Moment, failure: Option<Error>) {
        self.log.access_ends(at, failure.as_ref());
        if let Some(inside) = self.inside.access() {
            inside.close(at, failure);
        }
    }
}

impl<K: Sink + Send + 'static> Log<K> {
    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        let (size, buffer) = (memory.allocation_size(), self.next_buffer);
        if size > MAX_SIZE {
            return self.lost(at, "it reserves more bytes than a buffer of a program has");
        }
        let Some(writer) = self.start(at, "reserve") else { return };
        writer.word(format_args!("b{buffer} {size} {mode}"));
        writer.finish();
        self.next_buffer += 1;
        let stream = self.stream(at.stream);
        self.buffers.insert(memory.memory(), Known { buffer, stream });
    }

    fn free(&mut self, memory: MemoryId) {
        let Some(Known { buffer, stream }) = self.buffers.remove(&memory) else { return };
        self.dirty = true;
        let number = self.number;
        if let Some(writer) = &mut self.writer {
            writer.start(number, stream, "free");
            writer.word(format_args!("b{buffer}"));
            writer.finish();
        }
    }

    fn write(&mut self, at: Moment, target: &Region, data: &Payload<'_>) {
        if let Some(why) = self.unsayable(&[target]) {
            return self.lost(at, why);
        }
        if self.start(at, "write").is_none() {
            return;
        }
        self.region(target);
        let Some(writer) = &mut self.writer else { return };
        match data {
            Payload::Slice(bytes) => writer.bytes(' ', bytes),
            Payload::Bytes(bytes) => match bytes.as_slice() {
                Ok(bytes) => writer.bytes(' ', bytes),
                Err(error) => writer.content(' ', &Content::Failed(error.to_string())),
            },
            Payload::Promised(promise) => {
                let number = writer.later(' ');
                self.await_bytes(promise, number, 1, true);
            }
        }
        self.finish();
    }

    fn read(&mut self, at: Moment, sources: &[Region], into: &Promise<Vec<Bytes>>) {
        let regions: Vec<_> = sources.iter().collect();
        if let Some(why) = self.unsayable(&regions) {
            return self.lost(at, why);
        }
        let mut first = None;
        for some in sources.chunks(MAX_VIEWS) {
            self.start(at, "read");
            for source in some {
                self.region(source);
                if self.expected
                    && let Some(writer) = &mut self.writer
                {
                    let number = writer.later('=');
                    first.get_or_insert(number);
                }
            }
            self.finish();
        }
        if let Some(first) = first {
            let count = u32::try_from(sources.len()).unwrap_or(u32::MAX);
            self.await_bytes(into, first, count, false);
        }
    }

    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        if let Some(why) = self.unsayable(&[source, target]) {
            return self.lost(at, why);
        }
        self.start(at, "copy");
        self.region(source);
        self.region(target);
        self.finish();
    }

    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        let target = Region::whole(target);
        if let Some(why) = self.unsayable(&[&target]) {
            return self.lost(at, why);
        }
        self.start(at, "fill");
        self.region(&target);
        if let Some(writer) = &mut self.writer {
            writer.hex("", pattern.bytes());
        }
        self.finish();
    }

    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        let counts = match launch.grid {
            Grid::Static(..) => None,
            Grid::Dynamic(counts) => Some(Region::whole(counts)),
        };
        let buffers: Vec<_> = launch.buffers.iter().map(Region::whole).collect();
        let all: Vec<_> = buffers.iter().chain(&counts).collect();
        if let Some(why) = self.unsayable(&all) {
            return self.lost(at, why);
        }
        let Some(kernel) = self.kernel(launch.kernel) else { return };
        if let Some(writer) = self.start(at, "launch") {
            writer.word(format_args!("k{kernel}"));
            if let Grid::Static(x, y, z) = launch.grid {
                writer.word(format_args!("{x}x{y}x{z}"));
            }
        }
        if let Some(counts) = &counts {
            self.region(counts);
        }
        if let Some(writer) = &mut self.writer {
            writer.bounds(launch.bounds);
            writer.hex("parameters:", launch.parameters);
        }
        buffers.iter().for_each(|buffer| self.region(buffer));
        self.finish();
    }

    fn wait(&mut self, at: Moment, until: &Until) {
        match until {
            Until::Moment(moment) => {
                let stream = self.stream(moment.stream);
                if let Some(writer) = self.start(at, "wait") {
                    writer.word(format_args!("s{stream} {}", moment.seq));
                    writer.finish();
                }
            }
            Until::Promised(_) => self.plain(at, "outside"),
        }
    }

    fn open(&mut self, at: Moment, target: &Handle, access: Access, granted: &Promise<Grant>) {
        let target = Region::whole(target);
        if let Some(why) = self.unsayable(&[&target]) {
            return self.lost(at, why);
        }
        self.start(at, if access.writes() { "write" } else { "read" });
        self.region(&target);
        let expected = self.expected;
        let content = self.writer.as_mut().and_then(|writer| match access.writes() {
            true => Some(writer.later(' ')),
            false => expected.then(|| writer.later('=')),
        });
        self.finish();
        self.await_access(at, granted, content, target.handle.size_in_used(), access);
    }

    fn finish(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.finish();
        }
    }
}
