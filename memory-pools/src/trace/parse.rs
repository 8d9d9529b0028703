//! Reading the text form: strict, so that a damaged file is noticed, and with memory in proportion to the text.

use super::defect::{Defect, ParseError, cut};
use super::event::{Event, Requested, Snapshot, Trace};
use super::words::{self, Result, Words, number, unknown};
use super::writer::MAX_NAME;
use super::{MAX_LINE, MAX_SIZE, VERSION};
use crate::policy::PoolsConfig;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::str::FromStr;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::pool_layout::{PageSizes, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::MemoryUsage;
use trunnion_runtime_core::timeline::Frontier;

/// How the first line of a trace begins.
const NAME: &str = "trunnion-memory-trace";

impl Trace {
    /// Reads the text form, lifetimes or a log of RMM, whichever the first line says that it is.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn from_text(text: &str) -> core::result::Result<Self, ParseError> {
        let first = text.lines().next().unwrap_or_default();
        if Words::of(first).try_next() == Some(NAME) {
            Self::parse(text)
        } else if Self::is_rmm_log(first) {
            Self::from_rmm_log(text)
        } else if Self::is_lifetimes(first) {
            Self::from_lifetimes(text)
        } else {
            let valid = "trunnion-memory-trace 1, id,lower,upper,size, or Thread,Time,Action,Pointer,Size,Stream";
            Err(ParseError { line: 1, defect: Defect::FirstLine { what: "a trace", found: cut(first), valid } })
        }
    }

    /// Reads as [`from_text`](Self::from_text) does. A trace that is cut off, as a run leaves it that is still going, that died, or whose disk
    /// is full, is read up to there; where that is, is told too.
    ///
    /// # Errors
    /// The first line that is wrong before the last one.
    pub fn salvage(text: &str) -> core::result::Result<(Self, Option<ParseError>), ParseError> {
        match Self::from_text(text) {
            Ok(trace) => Ok((trace, None)),
            Err(error) if error.defect == Defect::Truncated || is_in_last_line(&error, text) => {
                Ok((Self::recover(text).0, Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The first line that is wrong. A text without its `end` line is cut off, and refused: [`recover`](Self::recover) takes what there is.
    pub fn parse(text: &str) -> core::result::Result<Self, ParseError> {
        match Self::recover(text) {
            (trace, None) => Ok(trace),
            (_, Some(error)) => Err(error),
        }
    }

    /// Reads the text form up to the first line that is wrong or missing, as a process that died, or a sink that failed, leaves it. What
    /// is wrong with the rest is told too.
    pub fn recover(text: &str) -> (Self, Option<ParseError>) {
        let mut parser = Parser::default();
        for line in text.split('\n') {
            parser.line += 1;
            if let Err(defect) = parser.any_line(line) {
                return (parser.trace, Some(ParseError { line: parser.line, defect }));
            }
        }
        let missing = (!parser.ended).then(|| ParseError {
            // The last line is empty where the text ends as lines do.
            line: parser.line + usize::from(!text.ends_with('\n')),
            defect: Defect::Truncated,
        });
        (parser.trace, missing)
    }
}

/// Whether the line that is wrong is the last, and has no end.
fn is_in_last_line(error: &ParseError, text: &str) -> bool {
    error.line > 1 && error.line == text.split('\n').count() && !text.ends_with('\n')
}

/// What was read so far.
#[derive(Default)]
struct Parser {
    trace: Trace,
    /// The pools of its layout.
    layout: Vec<PoolDescription>,
    /// By request, whether it was not freed yet.
    held: Vec<bool>,
    line: usize,
    ended: bool,
}

impl Parser {
    fn any_line(&mut self, line: &str) -> Result {
        if line.len() > MAX_LINE {
            return Err(Defect::LineTooLong { length: line.len() });
        }
        if self.line == 1 {
            return first_line(line);
        }
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if self.ended {
            return Err(Defect::BehindTheEnd);
        }
        let mut words = Words::of(line);
        let event = match words.next("word")? {
            "config" => return self.config_line(&mut words),
            "pools" => return self.pools_line(&mut words),
            "pool" => return self.pool_line(&mut words),
            "end" => return self.end_line(&mut words),
            "alloc" => self.request(&mut words, false)?,
            "fail" => self.request(&mut words, true)?,
            "free" => self.free(&mut words)?,
            "done" => done(&mut words)?,
            "order" => {
                let stream = words::stream(words.next("a stream")?)?;
                Event::Ordered { stream, after: words::moment(words.next("a moment")?)? }
            }
            "cleanup" => Event::Cleanup,
            "snapshot" => snapshot(&mut words)?,
            "mark" => Event::Mark(words.quoted("the text of the mark")?),
            other => {
                let valid = "config, pools, pool, alloc, fail, free, done, order, cleanup, snapshot, mark, end, #";
                return Err(unknown("line", other, valid));
            }
        };
        words.end()?;
        self.trace.events.push(event);
        Ok(())
    }

    fn before_events(&self, what: &'static str) -> Result {
        if self.trace.events.is_empty() { Ok(()) } else { Err(Defect::Late { what }) }
    }

    fn config_line(&mut self, words: &mut Words<'_>) -> Result {
        self.before_events("config")?;
        let name = words.next("the name of a setting")?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.len() > MAX_NAME || !name.bytes().all(plain) {
            return Err(unknown("name of a setting", name, "up to 64 letters, digits, dots, dashes and underscores"));
        }
        let value = words.quoted("the setting's value")?;
        self.trace.config.push((name.to_string(), value));
        Ok(())
    }

    fn pools_line(&mut self, words: &mut Words<'_>) -> Result {
        self.before_events("pools")?;
        if self.trace.pools.is_some() {
            return Err(Defect::Twice { what: "line", name: "pools".to_string() });
        }
        let mut pools = PoolsConfig {
            alignment: keyed(words, "the alignment", "alignment:")?,
            max_allocation: keyed(words, "the largest allocation", "max_allocation:")?,
            ..PoolsConfig::default()
        };
        pools.budget = words.next_if("budget:").map(|word| key("the budget", "budget:", word)).transpose()?;
        let step = words.next_if("growth_step:").map(|word| key("the step", "growth_step:", word));
        pools.growth_step = step.transpose()?;
        if pools.budget.is_none()
            && pools.growth_step.is_none()
            && let Some(word) = words.try_next()
        {
            return Err(unknown("value here", word, "budget:, growth_step:"));
        }
        words.end()?;
        self.trace.pools = Some(pools);
        Ok(())
    }

    fn pool_line(&mut self, words: &mut Words<'_>) -> Result {
        self.before_events("pool")?;
        let Some(pools) = &mut self.trace.pools else { return Err(Defect::Early { what: "pool", before: "pools" }) };
        let placement = words::placement(words.next("a placement")?)?;
        let pages = PageSizes {
            first: keyed(words, "the first page", "first:")?,
            largest: keyed(words, "the largest page", "largest:")?,
            growth: keyed(words, "the growth", "growth:")?,
        };
        let takes = words.next_if("takes:").map(|word| key("the largest request", "takes:", word)).transpose()?;
        let name = words.quoted("the pool's name")?;
        self.layout.push(PoolDescription { name, placement, takes, pages });
        pools.layout = PoolLayout::new(self.layout.clone()).map_err(|error| match error {
            Error::InvalidLayout { why } => Defect::Layout { why },
            other => Defect::Layout { why: other.to_string() },
        })?;
        Ok(())
    }

    fn end_line(&mut self, words: &mut Words<'_>) -> Result {
        let got = number("count of events", words.next("the count of events")?)?;
        words.end()?;
        let expected = self.trace.events.len() as u64;
        if got != expected {
            return Err(Defect::Count { what: "events counted by the `end` line", got, expected });
        }
        self.ended = true;
        Ok(())
    }

    fn request(&mut self, words: &mut Words<'_>, refused: bool) -> Result<Event> {
        let got: u64 = number("request", words.next("the request's number")?)?;
        let expected = self.held.len() as u64;
        if got != expected {
            return Err(Defect::Count { what: "number of the next request", got, expected });
        }
        if got >= u64::from(u32::MAX) {
            return Err(Defect::TooLarge { what: "the number of a request", value: got, limit: u32::MAX.into() });
        }
        let size = size(words.next("the size")?)?;
        let stream = words::stream(words.next("a stream")?)?;
        let mode = words::mode(words.next("an allocation mode")?)?;
        let refused = if refused { Some(words.quoted("the cause")?.into_boxed_str()) } else { None };
        self.held.push(true);
        Ok(Event::Request(Requested { size, stream, mode, refused }))
    }

    fn free(&mut self, words: &mut Words<'_>) -> Result<Event> {
        let request: u32 = number("request", words.next("the request's number")?)?;
        match self.held.get_mut(request as usize) {
            Some(held) if *held => *held = false,
            _ => return Err(Defect::NotLive { what: "request", name: request.to_string() }),
        }
        let mut after = Frontier::new();
        while let Some(word) = words.try_next() {
            match word.strip_prefix("all@") {
                Some(epoch) => after.add_epoch(number("moment", epoch)?),
                None => after.add(words::moment(word)?),
            }
        }
        Ok(Event::Free { number: request, after: (!after.is_empty()).then(|| Box::new(after)) })
    }
}

fn first_line(line: &str) -> Result {
    let mut words = Words::of(line);
    if words.try_next() != Some(NAME) {
        return Err(Defect::FirstLine { what: "a trace", found: cut(line), valid: "trunnion-memory-trace 1" });
    }
    let version = words.next("a version")?;
    if version != VERSION.to_string() {
        return Err(Defect::UnknownVersion { found: cut(version) });
    }
    words.end()
}

fn done(words: &mut Words<'_>) -> Result<Event> {
    let word = words.next("a moment")?;
    match word.strip_prefix("all@") {
        Some(epoch) => Ok(Event::AllDone(number("moment", epoch)?)),
        None => words::moment(word).map(Event::Done),
    }
}

fn snapshot(words: &mut Words<'_>) -> Result<Event> {
    let usage = MemoryUsage {
        allocations: keyed(words, "how many allocations there are", "allocations:")?,
        live: keyed(words, "the bytes that are live", "live:")?,
        padding: keyed(words, "the bytes of padding", "padding:")?,
        reserved: keyed(words, "the bytes that are reserved", "reserved:")?,
    };
    Ok(Event::Snapshot(Box::new(Snapshot { label: words.quoted("the label")?, usage })))
}

/// The bytes of a request.
pub(super) fn size(word: &str) -> Result<u64> {
    let size = number("size", word)?;
    if size > MAX_SIZE {
        return Err(Defect::TooLarge { what: "the size", value: size, limit: MAX_SIZE });
    }
    Ok(size)
}

/// The number behind the next word's key.
fn keyed<T: FromStr>(words: &mut Words<'_>, what: &'static str, name: &'static str) -> Result<T> {
    key(what, name, words.next(what)?)
}

fn key<T: FromStr>(what: &'static str, name: &'static str, word: &str) -> Result<T> {
    match word.strip_prefix(name) {
        Some(digits) => number(what, digits),
        None => Err(Defect::Unknown { what: "value here", found: cut(word), valid: name }),
    }
}

#[cfg(test)]
mod tests;
