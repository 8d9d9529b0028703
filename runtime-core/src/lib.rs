#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

// What everything is named and measured by.
pub mod access;
pub mod allocation;
pub mod budget;
pub mod elem;
pub mod error;
pub mod failure;
pub mod id;
pub mod layout;
pub mod pool_layout;
pub mod pressure;
pub mod report;
pub mod sink;
pub mod sync;
pub mod text;
pub mod timeline;

// What a program holds.
pub mod bytes;
pub mod client;
pub mod grid;
pub mod handle;
pub mod kernel;
pub mod staging;
pub mod stream;

// What a device is.
pub mod around;
pub mod backend;
pub mod foreign;
pub mod options;
pub mod promise;
pub mod properties;
pub mod server;

// How the two meet.
pub mod executor;
pub mod platform;
pub mod service;
