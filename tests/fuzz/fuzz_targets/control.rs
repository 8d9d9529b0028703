//! A target with a planted bug, which `ci/fuzz.sh` wants found: nobody comes upon these bytes without being led.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let planted = b"planted";
    // Byte by byte, so that each one that is right is a step of its own.
    if data.len() >= planted.len() && planted.iter().zip(data).all(|(expected, byte)| expected == byte) {
        panic!("found");
    }
});
