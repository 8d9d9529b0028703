//! A server around a server that does one thing wrong.

use alloc::sync::Arc;
use core::any::Any;
use std::collections::HashMap;
use trunnion_conformance::{Factory, Refusal, Variant};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::around::Around;
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::server::{Opened, Pattern, Region, Server};
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

impl Around for Broken {
    type Inside = dyn Server;

    fn inside(&self) -> &dyn Server {
        &*self.inside
    }

    fn inside_mut(&mut self) -> &mut dyn Server {
        &mut *self.inside
    }

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
