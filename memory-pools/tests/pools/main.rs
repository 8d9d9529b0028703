//! What the pools promise, over a storage that counts and a device whose progress the test decides.

extern crate alloc;

mod double;
mod growing;
mod hostile;
mod imported;
mod layouts;
mod modes;
mod pressure;
mod random;
mod reuse;
mod trace;
