//! A server around a server that does one thing wrong.

use alloc::sync::Arc;
use core::any::Any;
use core::task::{Poll, Waker};
use std::collections::HashMap;
use trunnion_conformance::{Factory, Refusal, Variant};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::{Notifier, Wakers};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{
    AccessServer, Bounds, CompileStatistics, Launch, MemoryServer, Opened, Pattern, Payload, Region, Server, Until,
};
use trunnion_runtime_core::timeline::{Moment, Point};

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A fill of more than one byte leaves the second half as it is.
    HalfAFill,
    /// A copy writes to the start of the buffer, whatever its target.
    CopyIgnoresOffset,
    /// Nothing: the twin that is whole.
    Nothing,
}

struct Broken {
    wrong: Wrong,
    inside: Box<dyn Server>,
    /// Whole buffers, as they were reserved.
    whole: HashMap<MemoryId, Handle>,
}

impl Server for Broken {
    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        let length = pattern.bytes().len() as u64;
        let half = (target.size_in_used() / 2).next_multiple_of(length);
        let target = match self.wrong {
            Wrong::HalfAFill if half > 0 => target.slice(..half).unwrap(),
            _ => target.clone(),
        };
        self.inside.fill(at, &target, pattern);
    }
    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        let mut target = target.clone();
        if self.wrong == Wrong::CopyIgnoresOffset
            && let Some(whole) = self.whole.get(&target.handle.memory())
            && !source.handle.same_allocation(whole)
        {
            target.handle = whole.slice(..target.handle.size_in_used()).unwrap();
        }
        self.inside.copy(at, source, &target);
    }
    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        if self.wrong == Wrong::CopyIgnoresOffset {
            // Keeps the memory for good: here that does no harm.
            self.whole.insert(memory.memory(), memory.clone());
        }
        self.inside.reserve(at, memory, mode);
    }
    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        self.whole.clear();
        self.inside.shutdown(deadline)
    }

    // ---- as it should be
    fn as_any(&mut self) -> &mut dyn Any {
        self.inside.as_any()
    }
    fn start(&mut self, notifier: Notifier) {
        self.inside.start(notifier);
    }
    fn enter(&mut self) {
        self.inside.enter();
    }
    fn progress(&mut self) {
        self.inside.progress();
    }
    fn leave(&mut self) -> Wakers {
        self.inside.leave()
    }
    fn panicked(&mut self, seq: u64, message: &str) {
        self.inside.panicked(seq, message);
    }
    fn fault(&self) -> Option<&Error> {
        self.inside.fault()
    }
    fn unfinished(&self, up_to: u64) -> usize {
        self.inside.unfinished(up_to)
    }
    fn free(&mut self, memory: MemoryId) {
        self.inside.free(memory);
    }
    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        self.inside.write(at, target, data);
    }
    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        self.inside.read(at, sources, into);
    }
    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        self.inside.launch(at, launch);
    }
    fn mark(&mut self, at: Moment) {
        self.inside.mark(at);
    }
    fn wait(&mut self, at: Moment, until: Until) {
        self.inside.wait(at, until);
    }
    fn flush(&mut self, stream: StreamId) -> Result<()> {
        self.inside.flush(stream)
    }
    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        self.inside.poll(at, waker)
    }
    fn signal(&mut self, at: Moment, promise: Promise<()>) {
        self.inside.signal(at, promise);
    }
    fn check(&mut self, targets: &[Handle]) -> Result<()> {
        self.inside.check(targets)
    }
    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        self.inside.compile(kernel, bounds)
    }
    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        self.inside.compile_together(kernels)
    }
    fn retire_kernel(&mut self, slot: u32) {
        self.inside.retire_kernel(slot);
    }
    fn compile_statistics(&self) -> CompileStatistics {
        self.inside.compile_statistics()
    }
    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        self.inside.memory()
    }
    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        self.inside.access()
    }
}

/// A backend whose servers do one thing wrong.
pub struct BrokenFactory {
    pub name: &'static str,
    pub wrong: Wrong,
    pub inside: Arc<dyn Factory>,
}

impl Factory for BrokenFactory {
    fn name(&self) -> &str {
        self.name
    }
    fn backend(&self) -> &str {
        self.inside.backend()
    }
    fn available(&self) -> Result<(), String> {
        self.inside.available()
    }
    fn start(&self, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal> {
        let opened = self.inside.start(variant, settings)?;
        let server = Broken { wrong: self.wrong, inside: opened.server, whole: HashMap::new() };
        Ok(Opened { server: Box::new(server), ..opened })
    }
    fn with_resource(
        &self,
        client: &Client,
        handle: &Handle,
        access: Access,
        task: &mut dyn FnMut(StreamId),
    ) -> Result<Point> {
        self.inside.with_resource(client, handle, access, task)
    }
    fn get_resource(&self, client: &Client, handle: &Handle) -> Result<Box<dyn Any>> {
        self.inside.get_resource(client, handle)
    }
}
