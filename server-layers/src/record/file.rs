//! A recording to a file.

use super::{Record, RecordOptions};
use trunnion_runtime_core::server::Opened;
use trunnion_runtime_core::sink::FileSink;

/// Records to a file, or logs why it is not written.
pub(crate) fn to_file(opened: Opened, path: &str) -> Opened {
    match FileSink::create_another(path) {
        Ok(sink) => Record::around(opened, sink, RecordOptions::default()).0,
        Err(why) => {
            log::error!("nothing is recorded: {why}");
            opened
        }
    }
}
