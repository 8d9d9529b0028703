//! The firmware: starts the board, runs every check, prints what came of it and ends the emulator with that.
//!
//! The emulator's command line says how: `clock` gives the runtime a clock; `fail` adds a check that fails; `panic`, `fault` and `hang`
//! make the run end in that way before its last check, so that `run.sh` can see that it notices.

#![no_std]
#![no_main]
#![deny(unsafe_code)]

use core::mem::MaybeUninit;
use cortex_m_rt::{ExceptionFrame, entry, exception};
use semihosting::{eprintln, experimental::env, println, process};
use trunnion_firmware::board::{self, HEAP, heap_used};
use trunnion_firmware::check::{Check, Tally, Wrong};

/// Comes last where the command line asks for it.
const FAILS: Check = Check { name: "one check is made to fail", run: || Err(Wrong::new("as told")) };

#[allow(unsafe_code, reason = "the macro hands out its static once")]
#[entry]
fn main() -> ! {
    static mut MEMORY: [MaybeUninit<u8>; HEAP] = [MaybeUninit::uninit(); HEAP];
    board::start_heap(MEMORY);
    let fails = prepare();
    trunnion_firmware::start().expect("nobody registered it before");
    let mut tally = Tally::default();
    trunnion_firmware::all().chain(fails).for_each(|check| tally.run(check));
    println!("{} bytes of heap are still in use", heap_used());
    println!("{} passed, {} failed", tally.passed, tally.failed);
    process::exit(i32::from(tally.failed > 0))
}

/// Does what the command line says; the check that is to come last, if one is.
fn prepare() -> Option<&'static Check> {
    let mut last = None;
    let arguments = env::args::<256>().expect("the emulator has a command line");
    // The first is the program's name.
    for argument in (&arguments).skip(1) {
        match argument {
            Ok("clock") => board::start_clock().expect("nobody installed one before"),
            Ok("fail") => last = Some(&FAILS),
            Ok("panic") => panic!("as told"),
            Ok("fault") => overflow(0),
            Ok("hang") => loop {
                core::hint::spin_loop();
            },
            other => panic!("{other:?} is none of clock, fail, panic, fault, hang"),
        }
    }
    last
}

/// Uses up the stack.
#[allow(unconditional_recursion, reason = "that is what it is for")]
#[inline(never)]
fn overflow(depth: u32) {
    let here = core::hint::black_box([depth; 64]);
    overflow(here[0] + 1);
    core::hint::black_box(here);
}

/// The processor met something it cannot do: memory that is not there, most likely below the stack.
#[allow(unsafe_code, reason = "called by the processor alone")]
#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    eprintln!("hard fault: {frame:?}");
    process::exit(102)
}
