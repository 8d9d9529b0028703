//! A portable program as text. What is read is written as text that is read as the same; what is damaged is refused with its line, and
//! what there is of it can be had.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use trunnion_server_layers::program::Program;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let (recovered, damage) = Program::recover(text);
    assert_eq!(recovered.check(), Ok(()));
    there_and_back(&recovered);
    match Program::parse(text) {
        Ok(program) => assert_eq!((recovered, damage), (program, None)),
        Err(error) => {
            assert!(error.line <= text.split('\n').count() + 1, "line {}", error.line);
            assert!(error.to_string().len() < 4096 + text.len());
            assert!(damage.is_some(), "refused for {error}, and not damaged");
        }
    }
    Corpus::Keep
});

fn there_and_back(program: &Program) {
    let written = program.to_string();
    match Program::parse(&written) {
        Ok(again) => assert_eq!(&again, program, "through {written}"),
        Err(error) => panic!("a program is written as text that is not one: {error}\n{written}"),
    }
}
