//! Access from one device to another's memory.

use super::pointers::Out;
use super::{exports, require};
use crate::codes::Code;
use crate::context as contexts;
use crate::driver::driver;

exports! {
    fn cuDeviceCanAccessPeer(out: Out<i32>, device: i32, other: i32) {
        let (device, other) = (driver().device(device)?, driver().device(other)?);
        out.set(i32::from(device.reaches(other.ordinal)))
    }

    fn cuDeviceGetP2PAttribute(out: Out<i32>, attribute: u32, device: i32, other: i32) {
        let (device, other) = (driver().device(device)?, driver().device(other)?);
        require((1..=4).contains(&attribute) && device.ordinal != other.ordinal)?;
        // Rank 0 is the best; arrays are not played.
        out.set(i32::from(matches!(attribute, 2 | 3) && device.reaches(other.ordinal)))
    }

    fn cuCtxEnablePeerAccess(peer: usize, flags: u32) {
        let context = contexts::current()?;
        require(flags == 0)?;
        let other = driver().contexts.get(peer).map_err(|_| Code::INVALID_CONTEXT)?;
        if !context.device.reaches(other.device.ordinal) {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        context.enable_peer(other.handle)
    }

    fn cuCtxDisablePeerAccess(peer: usize) {
        let context = contexts::current()?;
        let other = driver().contexts.get(peer).map_err(|_| Code::INVALID_CONTEXT)?;
        context.disable_peer(other.handle)
    }
}
