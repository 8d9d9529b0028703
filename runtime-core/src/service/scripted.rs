//! A server for tests: what it accepts is finished when the test says so.

use crate::access::Access;
use crate::allocation::AllocationMode;
use crate::bytes::Bytes;
use crate::client::Client;
use crate::error::{Error, Result, SourceForm};
use crate::executor::{Notifier, Wakers};
use crate::handle::Handle;
use crate::id::{BackendName, DeviceId, MemoryId, StreamId};
use crate::kernel::{DeclaredInterface, KernelHandle};
use crate::platform::Deadline;
use crate::promise::Promise;
use crate::properties::{DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties};
use crate::server::{
    AccessServer, Bounds, CompileStatistics, Grant, Launch, Opened, Pattern, Payload, Region, Server, Until,
};
use crate::service::Settings;
use crate::timeline::Moment;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use std::sync::Mutex;

/// What the test and the server share.
#[derive(Default)]
pub(super) struct Script {
    /// What the test finished, and the server has not seen yet.
    finish: Vec<Moment>,
    pub(super) fault: Option<Error>,
    pub(super) modes: Vec<(StreamId, AllocationMode)>,
    /// Accesses that are open.
    pub(super) open: Vec<Moment>,
    /// How accesses ended.
    pub(super) closed: Vec<Option<Error>>,
    /// Whether accesses are granted as they are asked for.
    pub(super) grants: bool,
    pub(super) has_access: bool,
    /// The kernels that were launched, by name.
    pub(super) launched: Vec<String>,
    /// The kernels that were compiled, by name; one that is called `broken` fails.
    pub(super) compiled: Vec<(String, Bounds)>,
    /// How many kernels are answered for together, where that is not one by one.
    pub(super) together: Option<usize>,
    /// How much time the end was given.
    pub(super) shut_down: Option<Duration>,
    notifier: Option<Notifier>,
}

/// The test's end of a scripted server.
#[derive(Clone, Default)]
pub(super) struct Remote(Arc<Mutex<Script>>);

impl Remote {
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Script) -> R) -> R {
        look(&mut self.0.lock().unwrap())
    }

    /// The operation is finished; operations of a stream must be, in their order.
    pub(super) fn finish(&self, at: impl Into<Moment>) {
        let notifier = self.with(|script| {
            script.finish.push(at.into());
            script.notifier.clone()
        });
        // A server that has not started yet looks when it does.
        notifier.into_iter().for_each(|notifier| notifier.notify());
    }

    pub(super) fn opened(&self) -> Opened {
        let info = DeviceInfo::new(device_number(0), DeviceKind::Other, "Script", "1", "script");
        let server =
            Scripted { remote: self.clone(), ops: Vec::new(), waiters: Vec::new(), wakers: Wakers::new(), ended: None };
        let (features, target) = (Features::new(Vec::new(), Vec::new()), TargetProperties::new("none", 16, 1));
        let properties = DeviceProperties::new(info, features, Limits::default(), target);
        Opened {
            server: Box::new(server),
            properties,
            reader: Arc::new(DeclaredInterface(alloc::vec![SourceForm::Host])),
        }
    }
}

pub(super) fn device_number(index: u32) -> DeviceId {
    DeviceId { backend: BackendName::new("script").unwrap(), index }
}

/// A device that no other test has.
pub(super) fn new_device() -> DeviceId {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    device_number(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A client of a device of its own.
pub(super) fn client_with(settings: &Settings) -> (Client, Remote) {
    let remote = Remote::default();
    remote.with(|script| (script.has_access, script.grants) = (true, true));
    (Client::try_init_with(new_device(), remote.opened(), settings).unwrap(), remote)
}

struct Scripted {
    remote: Remote,
    /// What is not finished.
    ops: Vec<(Moment, Option<Promise<Vec<Bytes>>>)>,
    waiters: Vec<(Moment, Waker)>,
    wakers: Wakers,
    ended: Option<Error>,
}

impl Scripted {
    fn accept(&mut self, at: Moment, read: Option<Promise<Vec<Bytes>>>) {
        match (&self.ended, read) {
            (Some(error), Some(read)) => read.fulfil(Err(error.clone()), &mut self.wakers),
            (Some(_), None) => {}
            (None, read) => self.ops.push((at, read)),
        }
    }

    fn is_done(&self, at: Moment) -> bool {
        !self.ops.iter().any(|(op, _)| op.stream == at.stream && op.seq <= at.seq)
    }

    fn end(&mut self, error: Error) {
        for (_, read) in self.ops.drain(..) {
            if let Some(read) = read {
                read.fulfil(Err(error.clone()), &mut self.wakers);
            }
        }
        self.wakers.extend(self.waiters.drain(..).map(|(_, waker)| waker));
        self.ended.get_or_insert(error);
    }
}

impl Server for Scripted {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
    fn start(&mut self, notifier: Notifier) {
        notifier.notify();
        self.remote.with(|script| script.notifier = Some(notifier));
    }
    fn progress(&mut self) {
        let (finished, fault) = self.remote.with(|script| (core::mem::take(&mut script.finish), script.fault.clone()));
        for at in finished {
            let Some(i) = self.ops.iter().position(|(op, _)| *op == at) else {
                self.remote.with(|script| script.finish.push(at));
                continue;
            };
            if let (_, Some(read)) = self.ops.remove(i) {
                read.fulfil(Ok(Vec::new()), &mut self.wakers);
            }
        }
        let (done, waiting) = core::mem::take(&mut self.waiters).into_iter().partition(|(at, _)| self.is_done(*at));
        self.waiters = waiting;
        self.wakers.extend(Vec::into_iter(done).map(|(_, waker)| waker));
        if let Some(fault) = fault {
            self.end(fault);
        }
    }
    fn leave(&mut self) -> Wakers {
        core::mem::take(&mut self.wakers)
    }
    fn panicked(&mut self, _: u64, _: &str) {}
    fn fault(&self) -> Option<&Error> {
        self.ended.as_ref().filter(|error| error.is_device_lost())
    }
    fn unfinished(&self, up_to: u64) -> usize {
        self.ops.iter().filter(|(at, _)| at.seq <= up_to).count()
    }
    fn reserve(&mut self, at: Moment, _: &Handle, mode: AllocationMode) {
        self.remote.with(|script| script.modes.push((at.stream, mode)));
    }
    fn free(&mut self, _: MemoryId) {}
    fn write(&mut self, _: Moment, _: &Region, _: Payload<'_>) {}
    fn read(&mut self, at: Moment, _: &[Region], into: Promise<Vec<Bytes>>) {
        self.accept(at, Some(into));
    }
    fn copy(&mut self, _: Moment, _: &Region, _: &Region) {}
    fn fill(&mut self, at: Moment, _: &Handle, _: Pattern) {
        self.accept(at, None);
    }
    fn launch(&mut self, _: Moment, launch: &Launch<'_>) {
        let _ = self.compile(launch.kernel, launch.bounds);
        self.remote.with(|script| script.launched.push(launch.kernel.name().into()));
    }
    fn mark(&mut self, _: Moment) {}
    fn wait(&mut self, _: Moment, _: Until) {}
    fn flush(&mut self, _: StreamId) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        self.progress();
        match &self.ended {
            Some(error) => Poll::Ready(Err(error.clone())),
            None if self.is_done(at) => Poll::Ready(Ok(())),
            None => {
                self.waiters.push((at, waker.clone()));
                Poll::Pending
            }
        }
    }
    fn signal(&mut self, _: Moment, promise: Promise<()>) {
        promise.fulfil(Ok(()), &mut self.wakers);
    }
    fn check(&mut self, _: &[Handle]) -> Result<()> {
        Ok(())
    }
    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        let compilation = (String::from(kernel.name()), bounds);
        self.remote.with(|script| {
            if !script.compiled.contains(&compilation) {
                script.compiled.push(compilation);
            }
        });
        match kernel.name() {
            "broken" => Err(Error::Compile { kernel: "broken".into(), message: "on purpose".into(), line: None }),
            _ => Ok(()),
        }
    }
    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        let most = self.remote.with(|script| script.together).unwrap_or(1);
        kernels.iter().take(most).map(|(kernel, bounds)| self.compile(kernel, *bounds)).collect()
    }
    fn compile_statistics(&self) -> CompileStatistics {
        self.remote.with(|script| {
            let failed = script.compiled.iter().filter(|(name, _)| name == "broken").count() as u64;
            CompileStatistics { compiled: script.compiled.len() as u64 - failed, failed, ..Default::default() }
        })
    }
    fn shutdown(&mut self, deadline: &Deadline) -> usize {
        let abandoned = self.ops.len();
        self.end(Error::ShutDown { service: crate::id::ServiceId::from_raw(0) });
        self.remote.with(|script| script.shut_down = deadline.remaining());
        abandoned
    }
    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        if self.remote.with(|script| script.has_access) { Some(self) } else { None }
    }
}

impl AccessServer for Scripted {
    fn open(&mut self, at: Moment, _: &Handle, _: Access, granted: Promise<Grant>) {
        let grants = self.remote.with(|script| {
            script.open.push(at);
            script.grants
        });
        if grants {
            granted.fulfil(Ok(Grant { resource: Arc::new(7u32), host: None }), &mut self.wakers);
        }
    }
    fn close(&mut self, at: Moment, failure: Option<Error>) {
        self.remote.with(|script| {
            script.open.retain(|open| *open != at);
            script.closed.push(failure);
        });
    }
}
