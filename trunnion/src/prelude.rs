//! What most programs use: `use trunnion::prelude::*;`.
//!
//! `Error` and `Result` are left out, so that the names keep the meaning a program gave them.

pub use crate::{
    Access, Args, Buffer, Bytes, Client, Config, Device, DeviceId, ElemType, Grid, Handle, Interface, Kernel,
    KernelHandle, Point, Source, SourceKernel, StreamId, Workgroup, args,
};
