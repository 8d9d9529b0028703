//! Text that stands for a value: a device, layers. What is read is written as text that is read as the same.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::fmt::{Debug, Display};
use std::str::FromStr;
use trunnion::Device;
use trunnion::layers::Layers;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    there_and_back::<Device>(text);
    there_and_back::<Layers>(text);
    Corpus::Keep
});

fn there_and_back<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            match written.parse::<T>() {
                Ok(again) => assert_eq!(again, value, "through {written:?}"),
                Err(error) => panic!("{value:?} is written as {written:?}: {error}"),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
