//! What a test is given: devices of its own, and a gate to hold work back with.

use crate::check::{Failure, Outcome, raw};
use crate::child::{self, ChildOutput};
use crate::factory::{Factory, Refusal, Variant};
use crate::kernels;
use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Result, SourceForm};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{BackendName, DeviceId, StreamId};
use trunnion_runtime_core::platform::{Deadline, block_on};
use trunnion_runtime_core::server::Opened;
use trunnion_runtime_core::service::Settings;
use trunnion_runtime_core::timeline::Point;

/// How long a test waits for what must happen soon.
pub const SOON: Duration = Duration::from_secs(10);

/// Longer than what waits for nothing takes on a busy machine, and shorter than a blocking call of a test's device waits for what does not
/// come.
pub const AT_ONCE: Duration = Duration::from_secs(8);

/// What a test is given.
#[derive(Clone)]
pub struct Context {
    factory: Arc<dyn Factory>,
}

impl Context {
    /// A context for tests of this backend.
    pub fn new(factory: Arc<dyn Factory>) -> Self {
        Self { factory }
    }

    /// The backend under test.
    pub fn factory(&self) -> &dyn Factory {
        &*self.factory
    }

    /// What the process's table of backends calls the backend under test.
    ///
    /// # Errors
    /// A name that is none.
    pub fn backend(&self) -> Outcome<BackendName> {
        BackendName::new(self.factory.backend()).ok_or_else(|| Failure::new("the backend's name is empty or too long"))
    }

    /// The device under test among those of its backend.
    ///
    /// # Errors
    /// As for [`backend`](Self::backend).
    pub fn registered_device(&self) -> Outcome<DeviceId> {
        Ok(DeviceId { backend: self.backend()?, index: self.factory.index() })
    }

    /// The device under test, as every program of the process gets it.
    ///
    /// # Errors
    /// What `Client::open` answers.
    pub fn registered(&self) -> Outcome<Client> {
        Ok(Client::open(self.factory.backend(), self.factory.index())?)
    }

    /// What a test's devices are started with: blocking calls end before the test's limit.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.wait_timeout = SOON;
        settings
    }

    /// A place in the registry that no other device has.
    ///
    /// # Errors
    /// As for [`backend`](Self::backend).
    pub fn device(&self) -> Outcome<DeviceId> {
        static NEXT: AtomicU32 = AtomicU32::new(10_000);
        Ok(DeviceId { backend: self.backend()?, index: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    /// A server that is ready and on no device yet.
    ///
    /// # Errors
    /// A skip where the backend has no such variant.
    #[track_caller]
    pub fn opened(&self, variant: &Variant, settings: &OpenSettings) -> Outcome<Opened> {
        self.factory.start(variant, settings).map_err(|refusal| match refusal {
            Refusal::Unavailable(why) => Failure::Skipped(format!("{}: {why}", self.factory.name())),
            Refusal::Failed(error) => Failure::from(error),
        })
    }

    /// A device of the test's own.
    ///
    /// # Errors
    /// As for [`opened`](Self::opened).
    #[track_caller]
    pub fn client(&self) -> Outcome<Client> {
        self.open(&Variant::plain())
    }

    /// A device of the test's own that behaves so.
    ///
    /// # Errors
    /// As for [`opened`](Self::opened).
    #[track_caller]
    pub fn open(&self, variant: &Variant) -> Outcome<Client> {
        self.open_with(variant, &self.settings())
    }

    /// A device of the test's own that behaves so, started with these settings.
    ///
    /// # Errors
    /// As for [`opened`](Self::opened).
    #[track_caller]
    pub fn open_with(&self, variant: &Variant, settings: &Settings) -> Outcome<Client> {
        let opened = self.opened(variant, &settings.open)?;
        Client::try_init_with(self.device()?, opened, settings).map_err(Failure::from)
    }

    /// Holds back work of a device until it is opened.
    ///
    /// # Errors
    /// When device memory cannot be used in place.
    pub fn gate(&self, client: &Client) -> Outcome<Gate> {
        Gate::close(self.factory.clone(), client)
    }

    /// Runs another test, a hidden one usually, in a process of its own.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn child(&self, path: &str, env: &[(&str, &str)], limit: Duration) -> Outcome<ChildOutput> {
        Ok(child::spawn(self.factory.name(), path, env, limit)?)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.factory.name())
    }
}

/// Skips a test of what only a kernel that runs on the host can do.
///
/// # Errors
/// A skip where the device does not run host sources.
pub fn needs_host_kernels(client: &Client) -> Outcome {
    match client.features().sources.contains(&SourceForm::Host) {
        true => Ok(()),
        false => Err(Failure::Skipped(format!("{}: the device runs no host functions", client.name()))),
    }
}

/// Launches a kernel over counts that turn out to be over every limit when they are read: `output` is marked by a failure that nobody
/// could know of before.
///
/// # Errors
/// What the launch answers.
pub fn fail_late(client: &Client, output: &Handle) -> Result<Point> {
    let step = client.prepare(kernels::step())?;
    let counts = client.create_from_slice(raw(&[u32::MAX; 3]))?;
    client.launch(&step, Grid::Dynamic(counts), [output])
}

/// The same device on a stream of its own.
pub fn on_new_stream(client: &Client) -> Client {
    let mut client = client.clone();
    client.set_stream(StreamId::new());
    client
}

/// Waits for a future on this thread.
///
/// # Errors
/// When it is not ready soon.
#[track_caller]
pub fn ready<F: Future>(future: F) -> Outcome<F::Output> {
    block_on(future, &Deadline::after(SOON)).ok_or_else(|| Failure::new("the future was not ready in time"))
}

/// Asks until the answer is yes.
///
/// # Errors
/// When it is not yes soon.
#[track_caller]
pub fn eventually(what: &str, mut ask: impl FnMut() -> Result<bool>) -> Outcome {
    let start = Instant::now();
    while !ask()? {
        if start.elapsed() > SOON {
            return Err(Failure::new(format_args!("{what}: not within {SOON:?}")));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Work held back by an access to device memory in place that has not ended. It ends when the gate is opened or dropped.
pub struct Gate {
    handle: Handle,
    open: mpsc::Sender<()>,
    thread: Option<JoinHandle<Result<Point>>>,
}

impl Gate {
    fn close(factory: Arc<dyn Factory>, client: &Client) -> Outcome<Self> {
        let handle = client.create_from_slice(&[7u8; 64])?;
        let (open, opened) = mpsc::channel::<()>();
        let (enter, entered) = mpsc::channel();
        let (client, held) = (client.clone(), handle.clone());
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            loop {
                let mut is_granted = false;
                let answer = factory.with_resource(&client, &held, Access::Overwrite, &mut |_| {
                    is_granted = true;
                    enter.send(()).ok();
                    // Ends as well when the gate is gone.
                    opened.recv_timeout(SOON * 3).ok();
                });
                // A device that waits for little at all may not be had in time on a busy machine.
                let is_late = answer.as_ref().is_err_and(|error| error.is_timeout() || error.is_busy());
                if is_granted || !is_late || start.elapsed() > SOON {
                    break answer;
                }
            }
        });
        let gate = Self { handle, open, thread: Some(thread) };
        match entered.recv_timeout(SOON) {
            Ok(()) => Ok(gate),
            Err(_) => Err(Failure::new("the access in place that makes the gate was not granted in time")),
        }
    }

    /// The bytes that are held: 64, which whatever uses them waits for.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The client's stream goes no further until the gate is opened.
    ///
    /// # Errors
    /// What the copy answers that waits.
    pub fn block(&self, client: &Client) -> Result<Point> {
        client.copy(&self.handle, &client.empty(64)?)
    }

    /// Lets the work go on.
    ///
    /// # Errors
    /// What the access answered.
    #[track_caller]
    pub fn open(mut self) -> Outcome<Point> {
        self.open.send(()).ok();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(point)) => Ok(point?),
            _ => Err(Failure::new("the thread that held the gate panicked")),
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open.send(()).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({:?})", self.handle)
    }
}
