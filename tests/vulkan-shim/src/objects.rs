//! The objects there are: numbered in the order of their creation, listed until they are destroyed.

use core::fmt;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ash::vk::{self, Handle};

/// An object, as people talk of it: the how-many-th of its kind that was created through the shim, counted from 1. Number 0 is an
/// object the shim does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// What it is.
    pub kind: vk::ObjectType,
    /// Its number among those of its kind.
    pub number: u32,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            vk::ObjectType::INSTANCE => "instance",
            vk::ObjectType::DEVICE => "device",
            vk::ObjectType::QUEUE => "queue",
            vk::ObjectType::DEVICE_MEMORY => "memory",
            vk::ObjectType::BUFFER => "buffer",
            vk::ObjectType::SEMAPHORE => "semaphore",
            vk::ObjectType::PIPELINE => "pipeline",
            vk::ObjectType::COMMAND_BUFFER => "commands",
            vk::ObjectType::DESCRIPTOR_SET => "set",
            other => return write!(f, "{other:?}#{}", self.number),
        };
        write!(f, "{name}#{}", self.number)
    }
}

/// An object that was created and not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    /// The object.
    pub object: Object,
    /// The function that created it.
    pub created_by: &'static str,
}

impl fmt::Display for Alive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.object, self.created_by)
    }
}

/// What tells objects apart: their kind, the device they are of (0 for an instance's), their handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(i32, u64, u64);

#[derive(Debug)]
struct Entry {
    alive: Alive,
    /// The pool it was allocated from, the instance of a device.
    parent: u64,
    /// A driver may give equal objects one handle.
    count: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    created: BTreeMap<i32, u32>,
    alive: BTreeMap<Key, Entry>,
    /// What devices left behind.
    abandoned: Vec<Alive>,
}

impl Objects {
    /// Notes a new object.
    pub(crate) fn create<H: Handle + Copy>(&mut self, owner: u64, handle: H, parent: u64, by: &'static str) -> Object {
        let number = self.created.entry(H::TYPE.as_raw()).or_insert(0);
        *number += 1;
        let object = Object { kind: H::TYPE, number: *number };
        let alive = Alive { object, created_by: by };
        let key = Key(H::TYPE.as_raw(), owner, handle.as_raw());
        self.alive.entry(key).and_modify(|entry| entry.count += 1).or_insert(Entry { alive, parent, count: 1 });
        object
    }

    /// Strikes an object off. `None` where there is none.
    pub(crate) fn destroy<H: Handle + Copy>(&mut self, owner: u64, handle: H) -> Option<Object> {
        let key = Key(H::TYPE.as_raw(), owner, handle.as_raw());
        let entry = self.alive.get_mut(&key)?;
        let object = entry.alive.object;
        entry.count -= 1;
        if entry.count == 0 {
            self.alive.remove(&key);
        }
        Some(object)
    }

    /// Strikes off what was allocated from a pool, and gives the handles.
    pub(crate) fn destroy_children(&mut self, owner: u64, kind: vk::ObjectType, parent: u64) -> Vec<u64> {
        let children = self.children(owner, kind, parent);
        for &child in &children {
            self.alive.remove(&Key(kind.as_raw(), owner, child));
        }
        children
    }

    /// The handles of what was allocated from a pool, or made by an instance.
    pub(crate) fn children(&self, owner: u64, kind: vk::ObjectType, parent: u64) -> Vec<u64> {
        let rows = self.alive.iter();
        rows.filter(|(key, entry)| key.0 == kind.as_raw() && key.1 == owner && entry.parent == parent)
            .map(|(key, _)| key.2)
            .collect()
    }

    /// The handles of one kind on a device.
    pub(crate) fn all_of(&self, owner: u64, kind: vk::ObjectType) -> Vec<u64> {
        self.alive.keys().filter(|key| key.0 == kind.as_raw() && key.1 == owner).map(|key| key.2).collect()
    }

    /// A device ends, and leaves behind what it has. Its handle may be given out again, so these are then without one.
    pub(crate) fn abandon(&mut self, owner: u64) -> Vec<Alive> {
        let left: Vec<Alive> = self.of(owner);
        self.alive.retain(|key, _| key.1 != owner);
        self.abandoned.extend_from_slice(&left);
        left
    }

    /// The object behind a handle.
    pub(crate) fn name<H: Handle + Copy>(&self, owner: u64, handle: H) -> Object {
        let key = Key(H::TYPE.as_raw(), owner, handle.as_raw());
        self.alive.get(&key).map_or(Object { kind: H::TYPE, number: 0 }, |entry| entry.alive.object)
    }

    /// How many of a kind there are on a device.
    pub(crate) fn count(&self, owner: u64, kind: vk::ObjectType) -> u32 {
        self.alive
            .iter()
            .filter(|(key, _)| key.0 == kind.as_raw() && key.1 == owner)
            .map(|(_, entry)| entry.count)
            .sum()
    }

    /// What a device has besides itself.
    fn of(&self, owner: u64) -> Vec<Alive> {
        self.alive.iter().filter(|(key, _)| key.1 == owner).map(|(_, entry)| entry.alive).collect()
    }

    /// Everything, in order of kind and number.
    pub(crate) fn all(&self) -> Vec<Alive> {
        let mut all: Vec<Alive> = self.alive.values().map(|entry| entry.alive).collect();
        all.extend_from_slice(&self.abandoned);
        all.sort_by_key(|alive| (alive.object.kind.as_raw(), alive.object.number));
        all
    }
}
