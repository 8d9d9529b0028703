//! The `Server` trait, call by call.

use super::DriverServer;
use crate::driver::Driver;
use alloc::vec::Vec;
use core::any::Any;
use core::task::{Poll, Waker};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::{Notifier, Wakers};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{
    AccessServer, Bounds, CompileStatistics, ForeignServer, Launch, MemoryServer, Pattern, Payload, Region, Server,
    StagingServer, Until,
};
use trunnion_runtime_core::timeline::Moment;

impl<D: Driver> Server for DriverServer<D> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn start(&mut self, notifier: Notifier) {
        self.waker = super::ending::ringing(notifier.clone());
        self.hardware.driver.start(notifier);
    }

    fn enter(&mut self) {
        self.hardware.driver.enter();
    }

    fn progress(&mut self) {
        if self.ended.is_none() {
            self.collect();
            self.unpark();
            self.pools.return_dedicated(&mut self.hardware, &self.timeline);
            self.let_go_of_events();
        }
    }

    fn leave(&mut self) -> Wakers {
        self.let_go_of_memory();
        core::mem::take(&mut self.wakers)
    }

    fn panicked(&mut self, seq: u64, message: &str) {
        self.clean_up_after_panic(seq, message);
        self.settle();
    }

    fn fault(&self) -> Option<&Error> {
        self.ended.as_ref().filter(|_| self.lost)
    }

    fn unfinished(&self, up_to: u64) -> usize {
        self.lanes.slots.iter().map(|lane| lane.unfinished(up_to)).sum()
    }

    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        if self.ended.is_none() {
            self.reserve_memory(at, memory, mode);
            self.settle();
        }
    }

    fn try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        let reserved = self.try_reserve_memory(at, memory, mode);
        self.settle();
        reserved
    }

    fn refuse(&mut self, at: Moment, memory: &Handle, cause: Error) {
        if self.ended.is_none() {
            self.refuse_memory(at, memory, cause);
            self.settle();
        }
    }

    fn free(&mut self, memory: MemoryId) {
        self.free_memory(memory);
    }

    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        if self.ended.is_none() {
            self.write_op(at, target, data);
            self.settle();
        }
    }

    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        self.read_op(at, sources, into);
        self.settle();
    }

    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        if self.ended.is_none() {
            self.copy_op(at, source, target);
            self.settle();
        }
    }

    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        if self.ended.is_none() {
            self.fill_op(at, target, pattern);
            self.settle();
        }
    }

    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        if self.ended.is_none() {
            self.launch_op(at, launch);
            self.settle();
        }
    }

    fn mark(&mut self, at: Moment) {
        if self.ended.is_none() {
            self.pass(at);
        }
    }

    fn wait(&mut self, at: Moment, until: Until) {
        if self.ended.is_none() {
            self.wait_op(at, until);
            self.settle();
        }
    }

    fn flush(&mut self, stream: StreamId) -> Result<()> {
        if self.ended.is_none()
            && let Some(lane) = self.lanes.find(stream)
        {
            self.submit(lane);
            self.settle();
        }
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        self.poll_moment(at, waker)
    }

    fn signal(&mut self, at: Moment, promise: Promise<()>) {
        self.signal_moment(at, promise);
    }

    fn check(&mut self, targets: &[Handle]) -> Result<()> {
        self.check_bytes(targets)
    }

    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        match &self.ended {
            Some(error) => Err(error.clone()),
            None => self.compiled(kernel, bounds),
        }
    }

    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        match &self.ended {
            Some(error) => kernels.iter().map(|_| Err(error.clone())).collect(),
            None => self.compiled_together(kernels),
        }
    }

    fn retire_kernel(&mut self, slot: u32) {
        self.code.retire(slot);
    }

    fn compile_statistics(&self) -> CompileStatistics {
        self.code.statistics().clone()
    }

    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        self.shut_down(deadline)
    }

    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        Some(self)
    }

    fn staging(&mut self) -> Option<&mut dyn StagingServer> {
        if self.hardware.driver.has_pinned() { Some(self) } else { None }
    }

    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        Some(self)
    }

    fn foreign(&mut self) -> Option<&mut dyn ForeignServer> {
        Some(self)
    }
}
