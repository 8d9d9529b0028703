//! A server around a server: hands every call on, but for those it is written for.

use crate::allocation::AllocationMode;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::executor::{Notifier, Wakers};
use crate::handle::Handle;
use crate::id::{MemoryId, StreamId};
use crate::kernel::KernelHandle;
use crate::platform::Deadline;
use crate::promise::Promise;
use crate::server::{
    AccessServer, Bounds, CompileStatistics, ForeignServer, Launch, MemoryServer, Pattern, Payload, Region, Server,
    StagingServer, Until,
};
use crate::timeline::Moment;
use alloc::vec::Vec;
use core::any::Any;
use core::task::{Poll, Waker};

/// A server that has another one inside and hands on what it does not do itself.
///
/// Every other method is one of [`Server`], of the same name and meaning, and hands on unless it is written anew; whoever implements this
/// is a [`Server`]. So a layer says what it changes and nothing else, and a method that `Server` gains reaches the server inside without
/// the layer's author. Its capabilities are those of the server inside; one that changes a capability answers itself there.
///
/// Equivalent to: a layer of the Vulkan loader, whose functions that it does not intercept are the next layer's.
pub trait Around: Send + 'static {
    /// The server inside.
    type Inside: Server + ?Sized;

    /// The server inside, to be asked.
    fn inside(&self) -> &Self::Inside;

    /// The server inside, to be called.
    fn inside_mut(&mut self) -> &mut Self::Inside;

    /// [`Server::as_any`]: the server inside, so that whoever knows its type finds it.
    fn as_any(&mut self) -> &mut dyn Any {
        self.inside_mut().as_any()
    }

    /// [`Server::start`].
    fn start(&mut self, notifier: Notifier) {
        self.inside_mut().start(notifier);
    }

    /// [`Server::enter`].
    fn enter(&mut self) {
        self.inside_mut().enter();
    }

    /// [`Server::progress`].
    fn progress(&mut self) {
        self.inside_mut().progress();
    }

    /// [`Server::leave`].
    fn leave(&mut self) -> Wakers {
        self.inside_mut().leave()
    }

    /// [`Server::panicked`].
    fn panicked(&mut self, seq: u64, message: &str) {
        self.inside_mut().panicked(seq, message);
    }

    /// [`Server::fault`].
    fn fault(&self) -> Option<&Error> {
        self.inside().fault()
    }

    /// [`Server::unfinished`].
    fn unfinished(&self, up_to: u64) -> usize {
        self.inside().unfinished(up_to)
    }

    /// [`Server::reserve`].
    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) {
        self.inside_mut().reserve(at, memory, mode);
    }

    /// [`Server::try_reserve`].
    ///
    /// # Errors
    /// As for [`Server::try_reserve`].
    fn try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()> {
        self.inside_mut().try_reserve(at, memory, mode)
    }

    /// [`Server::refuse`].
    fn refuse(&mut self, at: Moment, memory: &Handle, cause: Error) {
        self.inside_mut().refuse(at, memory, cause);
    }

    /// [`Server::free`].
    fn free(&mut self, memory: MemoryId) {
        self.inside_mut().free(memory);
    }

    /// [`Server::write`].
    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        self.inside_mut().write(at, target, data);
    }

    /// [`Server::read`].
    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        self.inside_mut().read(at, sources, into);
    }

    /// [`Server::copy`].
    fn copy(&mut self, at: Moment, source: &Region, target: &Region) {
        self.inside_mut().copy(at, source, target);
    }

    /// [`Server::fill`].
    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        self.inside_mut().fill(at, target, pattern);
    }

    /// [`Server::launch`].
    fn launch(&mut self, at: Moment, launch: &Launch<'_>) {
        self.inside_mut().launch(at, launch);
    }

    /// [`Server::mark`].
    fn mark(&mut self, at: Moment) {
        self.inside_mut().mark(at);
    }

    /// [`Server::wait`].
    fn wait(&mut self, at: Moment, until: Until) {
        self.inside_mut().wait(at, until);
    }

    /// [`Server::flush`].
    ///
    /// # Errors
    /// As for [`Server::flush`].
    fn flush(&mut self, stream: StreamId) -> Result<()> {
        self.inside_mut().flush(stream)
    }

    /// [`Server::poll`].
    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        self.inside_mut().poll(at, waker)
    }

    /// [`Server::signal`].
    fn signal(&mut self, at: Moment, promise: Promise<()>) {
        self.inside_mut().signal(at, promise);
    }

    /// [`Server::check`].
    ///
    /// # Errors
    /// As for [`Server::check`].
    fn check(&mut self, targets: &[Handle]) -> Result<()> {
        self.inside_mut().check(targets)
    }

    /// [`Server::compile`].
    ///
    /// # Errors
    /// As for [`Server::compile`].
    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        self.inside_mut().compile(kernel, bounds)
    }

    /// [`Server::compile_together`].
    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        self.inside_mut().compile_together(kernels)
    }

    /// [`Server::retire_kernel`].
    fn retire_kernel(&mut self, slot: u32) {
        self.inside_mut().retire_kernel(slot);
    }

    /// [`Server::compile_statistics`].
    fn compile_statistics(&self) -> CompileStatistics {
        self.inside().compile_statistics()
    }

    /// [`Server::shutdown`].
    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        self.inside_mut().shutdown(deadline)
    }

    /// [`Server::memory`].
    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        self.inside_mut().memory()
    }

    /// [`Server::staging`].
    fn staging(&mut self) -> Option<&mut dyn StagingServer> {
        self.inside_mut().staging()
    }

    /// [`Server::access`].
    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        self.inside_mut().access()
    }

    /// [`Server::foreign`].
    fn foreign(&mut self) -> Option<&mut dyn ForeignServer> {
        self.inside_mut().foreign()
    }
}

/// Hands each call of [`Server`] to the method of the same name.
macro_rules! serve {
    ($($method:ident(&mut self $(, $name:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {
        $(fn $method(&mut self $(, $name: $type)*) $(-> $answer)? {
            Around::$method(self $(, $name)*)
        })*
    };
}

impl<L: Around> Server for L {
    fn fault(&self) -> Option<&Error> {
        Around::fault(self)
    }

    fn unfinished(&self, up_to: u64) -> usize {
        Around::unfinished(self, up_to)
    }

    fn compile_statistics(&self) -> CompileStatistics {
        Around::compile_statistics(self)
    }

    serve! {
        as_any(&mut self) -> &mut dyn Any;
        start(&mut self, notifier: Notifier);
        enter(&mut self);
        progress(&mut self);
        leave(&mut self) -> Wakers;
        panicked(&mut self, seq: u64, message: &str);
        reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode);
        try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()>;
        refuse(&mut self, at: Moment, memory: &Handle, cause: Error);
        free(&mut self, memory: MemoryId);
        write(&mut self, at: Moment, target: &Region, data: Payload<'_>);
        read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>);
        copy(&mut self, at: Moment, source: &Region, target: &Region);
        fill(&mut self, at: Moment, target: &Handle, pattern: Pattern);
        launch(&mut self, at: Moment, launch: &Launch<'_>);
        mark(&mut self, at: Moment);
        wait(&mut self, at: Moment, until: Until);
        flush(&mut self, stream: StreamId) -> Result<()>;
        poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>>;
        signal(&mut self, at: Moment, promise: Promise<()>);
        check(&mut self, targets: &[Handle]) -> Result<()>;
        compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()>;
        compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>>;
        retire_kernel(&mut self, slot: u32);
        shutdown(&mut self, deadline: &Deadline) -> usize;
        memory(&mut self) -> Option<&mut dyn MemoryServer>;
        staging(&mut self) -> Option<&mut dyn StagingServer>;
        access(&mut self) -> Option<&mut dyn AccessServer>;
        foreign(&mut self) -> Option<&mut dyn ForeignServer>;
    }
}
