//! Lifetimes of buffers, from a folder of CSV files that is not part of the repository.

use crate::harness::Run;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The traces that the figures of BENCHMARKS.md are of.
pub const LETTERS: [&str; 7] = ["A", "C", "D", "F", "H", "I", "K"];

/// A buffer: it lives from `lower` until just before `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The time at which it must be there.
    pub lower: u64,
    /// The first time at which it need not be there any more.
    pub upper: u64,
    /// Its bytes.
    pub size: u64,
}

/// The buffers of one program.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The name of its file up to the first dot.
    pub name: String,
    /// In the order of the file.
    pub lifetimes: Vec<Lifetime>,
}

/// The traces of the folder that `--traces` names, or of `../shared/data/minimalloc` beside the workspace, by name. Where neither is there,
/// none, and each case of [`LETTERS`] and `mean` says that it was not run; so does a letter that the folder lacks.
///
/// # Errors
/// A folder that was named and cannot be read; a file that is no lifetimes, with the line.
pub fn traces(run: &mut Run) -> Result<Vec<Trace>, Box<dyn Error>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/minimalloc");
    let folder = match &run.traces {
        Some(named) => named.clone(),
        None if beside.is_dir() => beside,
        None => {
            for case in LETTERS.iter().chain(&["mean"]) {
                run.not_run(case, "no folder of traces; give one with --traces DIR");
            }
            return Ok(Vec::new());
        }
    };
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>, std::io::Error>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    let traces = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    for letter in LETTERS {
        if !traces.iter().any(|trace| trace.name == letter) {
            run.not_run(letter, &format!("no such trace in {}", folder.display()));
        }
    }
    Ok(traces)
}

fn read(file: &Path) -> Result<Trace, String> {
    let at = |why: String| format!("{}: {why}", file.display());
    let text = fs::read_to_string(file).map_err(|error| at(error.to_string()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default().to_owned();
    Ok(Trace { name, lifetimes: parse(&text).map_err(at)? })
}

/// Reads `id,lower,upper,size` lines below a head of those names, in any order of the columns.
///
/// # Errors
/// The first line that is none, with its number.
pub fn parse(text: &str) -> Result<Vec<Lifetime>, String> {
    let mut lines = text.lines();
    let head: Vec<_> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let column = |name| head.iter().position(|head| *head == name).ok_or(format!("line 1: no column `{name}`"));
    let columns = [column("lower")?, column("upper")?, column("size")?];
    let mut lifetimes = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let field = |column: usize| {
            let text = fields.get(column).copied().unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!("line {}: `{text}` is no number of {}", number + 2, head[column]))
        };
        let [lower, upper, size] = columns;
        lifetimes.push(Lifetime { lower: field(lower)?, upper: field(upper)?, size: field(size)? });
    }
    Ok(lifetimes)
}

/// The most bytes that live at one time.
pub fn peak_live(lifetimes: &[Lifetime]) -> u64 {
    let living = lifetimes.iter().filter(|lifetime| lifetime.lower < lifetime.upper);
    // At one time what ends is counted before what begins.
    let mut events: Vec<_> = living.flat_map(|l| [(l.lower, true, l.size), (l.upper, false, l.size)]).collect();
    events.sort_unstable();
    let (mut live, mut peak) = (0, 0);
    for (_, begins, size) in events {
        live = if begins { live + size } else { live - size };
        peak = peak.max(live);
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_the_names_of_their_columns() {
        let lifetimes = parse("size,id,upper,lower\n64,a,9,1\n\n32, b, 3, 2\n").unwrap();
        assert_eq!(lifetimes, [Lifetime { lower: 1, upper: 9, size: 64 }, Lifetime { lower: 2, upper: 3, size: 32 }]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        assert_eq!(parse("id,lower,upper,size\n1,2,3,4\n1,2,x,4").unwrap_err(), "line 3: `x` is no number of upper");
        assert_eq!(parse("id,lower,upper\n").unwrap_err(), "line 1: no column `size`");
        assert_eq!(parse("id,lower,upper,size\n1,2").unwrap_err(), "line 2: `` is no number of upper");
    }

    #[test]
    fn what_ends_when_another_begins_does_not_live_with_it() {
        let lifetimes = parse("lower,upper,size\n0,5,10\n5,9,20\n4,5,1\n7,7,100").unwrap();
        assert_eq!(peak_live(&lifetimes), 20);
    }
}
