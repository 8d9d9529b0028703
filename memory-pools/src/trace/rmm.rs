//! Reading the logs that RMM's logging resource adaptor writes: `Thread,Time,Action,Pointer,Size,Stream`.

use super::defect::{Defect, ParseError, cut};
use super::event::{Event, Requested, Trace};
use super::parse::size;
use super::words::{Result, unknown};
use alloc::boxed::Box;
use alloc::string::ToString;
use hashbrown::HashMap;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::StreamId;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";
const CELLS: [&str; 6] = ["the thread", "the time", "the action", "the pointer", "the size", "the stream"];
const ACTIONS: &str = "allocate, free, deallocate, allocate failure";

impl Trace {
    /// Reads a log of RMM: the header `Thread,Time,Action,Pointer,Size,Stream` and a row an event. A time is `15:47:02.841961`, the older
    /// `15:47:02:841961`, or seconds; a pointer and a stream are hexadecimal.
    ///
    /// The log does not say when work is done: all of it counts as done when memory is freed. An allocation that failed is a request that
    /// was refused, and is freed at once. Allocations of no bytes are left out.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn from_rmm_log(text: &str) -> core::result::Result<Self, ParseError> {
        let mut rows = Rows::default();
        rows.trace.config.push(("from".to_string(), "an RMM log".to_string()));
        let mut lines = (1..).zip(text.lines());
        let first = lines.next().map_or("", |(_, first)| first);
        if !Self::is_rmm_log(first) {
            let defect = Defect::FirstLine { what: "an RMM log", found: cut(first), valid: HEADER };
            return Err(ParseError { line: 1, defect });
        }
        for (line, row) in lines.filter(|(_, row)| !row.trim().is_empty()) {
            rows.take(row).map_err(|defect| ParseError { line, defect })?;
        }
        Ok(rows.trace)
    }

    /// Whether a text begins as such a log does.
    pub(super) fn is_rmm_log(first: &str) -> bool {
        first.trim_end() == HEADER
    }
}

/// The rows read so far.
#[derive(Default)]
struct Rows {
    trace: Trace,
    requests: u32,
    /// What is live, by its address.
    live: HashMap<u64, (u32, u64)>,
}

impl Rows {
    fn take(&mut self, row: &str) -> Result {
        let mut cells = row.split(',').map(str::trim);
        let mut found = [""; 6];
        for (cell, what) in found.iter_mut().zip(CELLS) {
            *cell = cells.next().filter(|cell| !cell.is_empty()).ok_or(Defect::Missing { what })?;
        }
        if let Some(more) = cells.next() {
            return Err(Defect::TooMuch { found: cut(more) });
        }
        let [thread, time, action, pointer, bytes, stream] = found;
        if !is_digits(thread) {
            return Err(unknown("thread", thread, "a number in decimal digits"));
        }
        if !is_time(time) {
            return Err(unknown("time", time, "hours:minutes:seconds.microseconds, or seconds"));
        }
        let address = hexadecimal("pointer", pointer)?;
        let bytes = size(bytes)?;
        let stream = StreamId::from_raw(hexadecimal("stream", stream)?);
        if self.requests == u32::MAX {
            let (value, limit) = (u64::from(u32::MAX) + 1, u32::MAX.into());
            return Err(Defect::TooLarge { what: "the number of requests", value, limit });
        }
        match action {
            // No bytes have no memory, and all of them one address.
            "allocate" | "free" | "deallocate" if bytes == 0 => {}
            "allocate" => {
                if self.live.contains_key(&address) {
                    return Err(Defect::Twice { what: "memory at", name: cut(pointer) });
                }
                let number = self.trace.request(&mut self.requests, bytes, stream);
                self.live.insert(address, (number, bytes));
            }
            "free" | "deallocate" => {
                let not_live = || Defect::NotLive { what: "memory at", name: cut(pointer) };
                let (number, expected) = self.live.remove(&address).ok_or_else(not_live)?;
                if bytes != expected {
                    return Err(Defect::Size { name: cut(pointer), got: bytes, expected });
                }
                self.trace.events.push(Event::Free { number, after: None });
            }
            "allocate failure" => {
                let refused = Some(Box::from("the log says that it failed"));
                let request = Requested { size: bytes, stream, mode: AllocationMode::Auto, refused };
                self.trace.events.push(Event::Request(request));
                self.trace.events.push(Event::Free { number: self.requests, after: None });
                self.requests += 1;
            }
            other => return Err(unknown("action", other, ACTIONS)),
        }
        Ok(())
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether this is a time of day, or seconds since some moment; with a fraction where there is one.
fn is_time(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let parts = whole.split(':').count();
    let two = |part: &str| part.len() == 2 && is_digits(part);
    let fits = match (parts, fraction) {
        (1, _) => is_digits(whole),
        (3, _) => whole.split(':').all(two),
        // The fraction as a fourth part.
        (4, None) => whole.split(':').take(3).all(two) && whole.split(':').skip(3).all(is_digits),
        _ => false,
    };
    fits && fraction.is_none_or(is_digits)
}

/// A number in hexadecimal digits, with or without `0x`; what C libraries print for no address is 0.
fn hexadecimal(what: &'static str, text: &str) -> Result<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match text {
        "(nil)" => Ok(0),
        _ if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).map_err(|_| unknown(what, text, "up to 16 hexadecimal digits"))
        }
        _ => Err(unknown(what, text, "up to 16 hexadecimal digits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PoolsConfig;
    use crate::trace::replay;
    use alloc::format;
    use alloc::vec::Vec;

    const LOG: &str = "\
Thread,Time,Action,Pointer,Size,Stream
2342727,15:47:02.841961,allocate,0x10012400000,1048576,0
2342727,15:47:02.841977,allocate,0x10012500000,1000,0x7f8a38001020
2342727,15:47:02:841978,allocate failure,(nil),99999999999,7f8a38001020
140573312345856,1634567890.345678,free,0x10012400000,1048576,0
2342727,15:47:03.000000,allocate,0x0,0,0
2342727,15:47:03.000001,deallocate,10012500000,1000,0x1
2342727,15:47:03.000001,free,0x0,0,0
";

    #[test]
    fn a_log_becomes_a_trace() {
        let trace = Trace::from_text(LOG).unwrap();
        let report = replay(&trace, &PoolsConfig { max_allocation: 1 << 30, ..PoolsConfig::default() });
        assert_eq!((report.requests, report.frees, report.peak_live), (3, 3, 1_049_576));
        assert_eq!((report.refused_before, report.failed, report.end.total().live), (1, 1, 0));
        let streams: Vec<_> = trace
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Request(request) => Some(request.stream.get()),
                _ => None,
            })
            .collect();
        assert_eq!(streams, [0, 0x7f8a_3800_1020, 0x7f8a_3800_1020]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = Trace::from_rmm_log("").unwrap_err().to_string();
        assert!(error.contains("line 1: `` is not the first line of an RMM log; valid: Thread,Time,Action"), "{error}");
        assert!(Trace::from_rmm_log("1,12:00:00.0,allocate,0x1,1,0\n").is_err());
        for (row, says) in [
            ("1", "the line ends where the time is needed"),
            ("1,12:00:00.0,allocate,0x1,1", "the line ends where the stream is needed"),
            ("1,12:00:00.0,allocate,0x1,1,0,9", "`9` is too much"),
            ("x,12:00:00.0,allocate,0x1,1,0", "`x` is no thread"),
            ("1,12:00,allocate,0x1,1,0", "`12:00` is no time"),
            ("1,12:00:0,allocate,0x1,1,0", "`12:00:0` is no time"),
            ("1,12:00:00.,allocate,0x1,1,0", "`12:00:00.` is no time"),
            ("1,12:00:00:x,allocate,0x1,1,0", "is no time"),
            ("1,-5.0,allocate,0x1,1,0", "`-5.0` is no time"),
            ("1,12:00:00.0,alloc,0x1,1,0", "`alloc` is no action; valid: allocate, free"),
            ("1,12:00:00.0,allocate,0xg,1,0", "`0xg` is no pointer"),
            ("1,12:00:00.0,allocate,0x,1,0", "`0x` is no pointer"),
            ("1,12:00:00.0,allocate,0x11112222333344445,1,0", "up to 16 hexadecimal digits"),
            ("1,12:00:00.0,allocate,0x1,-1,0", "`-1` is no size"),
            ("1,12:00:00.0,allocate,0x1,281474976710657,0", "at most 281474976710656 is allowed"),
            ("1,12:00:00.0,allocate,0x1,1,stream", "`stream` is no stream"),
            ("1,12:00:00.0,free,0x5,1,0", "memory at 0x5 is not live here"),
            ("1,12:00:00.0,allocate,0x2,1,0", "memory at 0x2 is there already"),
            ("1,12:00:00.0,free,0x2,7,0", "0x2 is freed with 7 bytes, it was allocated with 6"),
        ] {
            let text = format!("{HEADER}\n1,12:00:00.0,allocate,0x2,6,0\n\n{row}\n");
            let error = Trace::from_rmm_log(&text).unwrap_err();
            assert!(error.line == 4 && error.to_string().contains(says), "{row}: {error}");
        }
    }
}
