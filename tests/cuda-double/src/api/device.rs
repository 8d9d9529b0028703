//! The driver itself, its devices and its errors.

use core::ffi::c_char;

use super::exports;
use super::pointers::Out;
use super::require;
use crate::codes::{Code, Outcome};
use crate::device::{
    CAPABILITY, MOST_THREADS, MULTIPROCESSORS, RESIDENT_BLOCKS, RESIDENT_THREADS, SHARED_BYTES, SHARED_BYTES_ASKED,
};
use crate::driver::driver;

/// CUDA 13.0.
const VERSION: i32 = 13000;

/// Attributes with their numbers of `CUdevice_attribute`; every other one is zero.
const ATTRIBUTES: &[(u32, u32)] = &[
    (1, MOST_THREADS),
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, 0x7FFF_FFFF),
    (6, 0xFFFF),
    (7, 0xFFFF),
    (8, SHARED_BYTES),
    (9, 64 << 10),
    (10, 32),
    (11, 0x7FFF_FFFF),
    (12, 64 << 10),
    (13, 1_980_000),
    (14, 512),
    (15, 1),
    (16, MULTIPROCESSORS),
    (31, 1),
    (33, 1),
    (36, 2_619_000),
    (37, 5120),
    (38, 50 << 20),
    (39, RESIDENT_THREADS),
    (40, 3),
    (41, 1),
    (75, CAPABILITY.0),
    (76, CAPABILITY.1),
    (78, 1),
    (79, 1),
    (80, 1),
    (81, 228 << 10),
    (82, 64 << 10),
    (83, 1),
    (89, 1),
    (90, 1),
    (91, 1),
    (95, 1),
    (97, SHARED_BYTES_ASKED),
    (102, 1),
    (106, RESIDENT_BLOCKS),
    (111, 1024),
    (115, 1),
    (127, 1),
];

/// What a device is called, so that nobody takes it for a real one.
const NAME: &str = "CUDA double on the CPU";

/// What an error's name or meaning is read from; it lives as long as the process.
fn words(code: u32, out: Out<*const c_char>, pick: fn((&'static str, &'static str)) -> &'static str) -> Outcome {
    match Code(code).words() {
        Some(found) => out.set(pick(found).as_ptr().cast()),
        None => {
            out.set_if_wanted(core::ptr::null());
            Err(Code::INVALID_VALUE)
        }
    }
}

/// A name of 16 bytes that no two devices share.
fn uuid(ordinal: u32) -> [u8; 16] {
    let mut bytes = *b"cuda-double-0000";
    bytes[12..].copy_from_slice(&ordinal.to_be_bytes());
    bytes
}

exports! {
    fn cuInit(flags: u32) {
        require(flags == 0)?;
        driver().set_ready();
        Ok(())
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.set(VERSION)
    }

    fn cuGetExportTable(table: Out<usize>, _id: Out<u8>) {
        table.set_if_wanted(0);
        Err(Code::NOT_FOUND)
    }

    fn cuGetErrorName(code: u32, name: Out<*const c_char>) {
        words(code, name, |found| found.0)
    }

    fn cuGetErrorString(code: u32, meaning: Out<*const c_char>) {
        words(code, meaning, |found| found.1)
    }

    fn cuDeviceGetCount(count: Out<i32>) {
        count.set(driver().device_count() as i32)
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        driver().device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<u8>, length: i32, device: i32) {
        driver().device(device)?;
        require(length > 0 && !name.is_null())?;
        // Devices of one kind have one name.
        let mut bytes = NAME.as_bytes().to_vec();
        bytes.truncate(length as usize - 1);
        bytes.push(0);
        name.set_all(&bytes)
    }

    fn cuDeviceGetUuid(id: Out<[u8; 16]>, device: i32) {
        id.set(uuid(driver().device(device)?.ordinal))
    }

    fn cuDeviceGetUuid_v2(id: Out<[u8; 16]>, device: i32) {
        id.set(uuid(driver().device(device)?.ordinal))
    }

    fn cuDeviceGetPCIBusId(name: Out<u8>, length: i32, device: i32) {
        let device = driver().device(device)?;
        let text = format!("0000:{:02x}:{:02x}.0\0", 1 + device.ordinal / 32, device.ordinal % 32);
        require(length as usize >= text.len())?;
        name.set_all(text.as_bytes())
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        bytes.set(driver().device(device)?.memory().0 as usize)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, device: i32) {
        let device = driver().device(device)?;
        require((1..200).contains(&attribute))?;
        let known = ATTRIBUTES.iter().find(|(number, _)| *number == attribute);
        value.set(match attribute {
            34 => device.ordinal as i32,
            _ => known.map_or(0, |(_, value)| *value as i32),
        })
    }

    fn cuProfilerStart() {
        Ok(())
    }

    fn cuProfilerStop() {
        Ok(())
    }
}
