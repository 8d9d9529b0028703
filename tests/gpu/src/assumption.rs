//! Something that is assumed of a driver, and how it is asked.

use crate::device::Device;

/// What a question answers: nothing when it is as assumed, else what was seen.
pub(crate) type Answer = Result<(), String>;

/// Something assumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assumption {
    /// As a sentence.
    pub(crate) name: &'static str,
    /// How many devices it takes.
    pub(crate) devices: i32,
    pub(crate) ask: fn(&Device) -> Answer,
}

/// Lists functions as assumptions, by their names; those that take more than one device behind how many.
macro_rules! assumptions {
    ($($name:ident),* $(,)?; $devices:literal devices: $($other:ident),* $(,)?) => {
        pub(crate) const ALL: &[$crate::assumption::Assumption] = &[
            $($crate::assumption::Assumption { name: stringify!($name), devices: 1, ask: $name },)*
            $($crate::assumption::Assumption { name: stringify!($other), devices: $devices, ask: $other },)*
        ];
    };
    ($($name:ident),* $(,)?) => { assumptions!($($name),*; 1 devices:); };
}
pub(crate) use assumptions;

/// Whether a call gave what is assumed.
pub(crate) fn gave(what: &str, code: u32, assumed: u32) -> Answer {
    if code == assumed { Ok(()) } else { Err(format!("{what} gave {code}, assumed was {assumed}")) }
}

/// Whether something is as assumed.
pub(crate) fn is(what: &str, holds: bool) -> Answer {
    if holds { Ok(()) } else { Err(format!("not so: {what}")) }
}
