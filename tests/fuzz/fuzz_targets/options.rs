//! Options of a host device, `name = value` one a line. Each is taken or refused by name, and what is taken is shown so that it can be set
//! again.

#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use trunnion_backend_host::HostOptions;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let mut options = HostOptions::default();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        match options.clone().set(name, value) {
            Ok(changed) => options = changed,
            Err(error) => assert!(error.to_string().contains(name.trim()), "{error}"),
        }
    }
    there_and_back(&options);
    Corpus::Keep
});

/// What options are shown as can be set again.
fn there_and_back(options: &HostOptions) {
    let written = options.to_string();
    // A name may hold what separates options.
    if written.contains("fail_compile") || written.is_empty() {
        return;
    }
    let again = written.split(", ").try_fold(HostOptions::default(), |options, option| {
        let (name, value) = option.split_once(" = ").expect("a name and a value");
        options.set(name, value)
    });
    assert_eq!(again.as_ref(), Ok(options), "through {written:?}");
}
