//! Reading lifetimes: `id,lower,upper,size`, a row a buffer.

use super::defect::{Defect, ParseError, cut};
use super::event::{Event, Trace};
use super::parse::size;
use super::words::{Result, number};
use alloc::string::ToString;
use alloc::vec::Vec;
use hashbrown::HashSet;
use trunnion_runtime_core::id::StreamId;

/// The columns, in the order in which they are told.
const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];
const VALID: &str = "id,lower,upper,size, in any order";

impl Trace {
    /// Reads lifetimes as a table with commas: a header `id,lower,upper,size`, in any order, and a row a buffer, which is live from `lower`
    /// to before `upper`. Ids are any text, and each is used once.
    ///
    /// Everything is asked for on one stream. At one moment, what ends is freed first; what begins is asked for in the order of the rows.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn from_lifetimes(text: &str) -> core::result::Result<Self, ParseError> {
        let mut rows = Rows::default();
        for (line, row) in (1..).zip(text.lines()) {
            rows.take(row).map_err(|defect| ParseError { line, defect })?;
        }
        if rows.columns.is_none() {
            return Err(ParseError { line: 1, defect: header("") });
        }
        Ok(rows.trace())
    }

    /// Whether a text begins as lifetimes do.
    pub(super) fn is_lifetimes(first: &str) -> bool {
        columns(first).is_ok()
    }
}

/// The rows read so far.
#[derive(Default)]
struct Rows<'a> {
    /// Where each of [`COLUMNS`] stands.
    columns: Option<[usize; 4]>,
    ids: HashSet<&'a str>,
    lifetimes: Vec<(u64, u64, u64)>,
}

impl<'a> Rows<'a> {
    fn take(&mut self, row: &'a str) -> Result {
        let Some(places) = self.columns else {
            self.columns = Some(columns(row)?);
            return Ok(());
        };
        if row.trim().is_empty() {
            return Ok(());
        }
        let mut cells = [""; 4];
        let mut split = row.split(',').map(str::trim);
        cells.iter_mut().for_each(|cell| *cell = split.next().unwrap_or_default());
        if let Some(more) = split.next() {
            return Err(Defect::TooMuch { found: cut(more) });
        }
        let mut found = [""; 4];
        for ((found, place), what) in found.iter_mut().zip(places).zip(COLUMNS) {
            *found = Some(cells[place]).filter(|cell| !cell.is_empty()).ok_or(Defect::Missing { what })?;
        }
        let [id, lower, upper, bytes] = found;
        let (lower, upper, bytes) = (number("lower", lower)?, number("upper", upper)?, size(bytes)?);
        if lower >= upper {
            return Err(Defect::Lifetime { id: cut(id), lower, upper });
        }
        if !self.ids.insert(id) {
            return Err(Defect::Twice { what: "id", name: cut(id) });
        }
        if self.lifetimes.len() == u32::MAX as usize {
            let (value, limit) = (self.lifetimes.len() as u64 + 1, u32::MAX.into());
            return Err(Defect::TooLarge { what: "the number of rows", value, limit });
        }
        self.lifetimes.push((lower, upper, bytes));
        Ok(())
    }

    fn trace(self) -> Trace {
        const STREAM: StreamId = StreamId::from_raw(0);
        // Ends come before beginnings, and rows of one moment in their order.
        let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * self.lifetimes.len());
        for (row, (lower, upper, _)) in self.lifetimes.iter().enumerate() {
            moments.push((*lower, true, row));
            moments.push((*upper, false, row));
        }
        moments.sort_unstable();
        let mut trace =
            Trace { config: alloc::vec![("from".to_string(), "lifetimes".to_string())], ..Trace::default() };
        let mut numbers = alloc::vec![0; self.lifetimes.len()];
        let mut requests = 0;
        for (_, begins, row) in moments {
            if begins {
                numbers[row] = trace.request(&mut requests, self.lifetimes[row].2, STREAM);
            } else {
                trace.events.push(Event::Free { number: numbers[row], after: None });
            }
        }
        trace
    }
}

/// Where each column stands in the header.
fn columns(row: &str) -> Result<[usize; 4]> {
    let mut places = [usize::MAX; 4];
    let mut count = 0;
    for (place, name) in row.split(',').map(str::trim).enumerate() {
        let column = COLUMNS.iter().position(|known| *known == name).ok_or_else(|| header(row))?;
        if places[column] != usize::MAX {
            return Err(header(row));
        }
        places[column] = place;
        count += 1;
    }
    if count == COLUMNS.len() { Ok(places) } else { Err(header(row)) }
}

fn header(found: &str) -> Defect {
    Defect::FirstLine { what: "lifetimes", found: cut(found), valid: VALID }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PoolsConfig;
    use crate::trace::replay;

    #[test]
    fn what_ends_is_freed_before_what_begins() {
        let trace = Trace::from_text("id,lower,upper,size\r\nb1,0,2,1000\r\n7,2,5,4000\r\nx,1,2,24\r\n").unwrap();
        let report = replay(&trace, &PoolsConfig::default());
        let live: Vec<_> = report.curve.iter().map(|sample| sample.live).collect();
        assert_eq!(live, [1000, 1024, 24, 0, 4000, 0]);
    }

    #[test]
    fn columns_may_stand_in_any_order() {
        let trace = Trace::from_lifetimes(" size , id,upper,lower\n1000,0,2,1\n").unwrap();
        assert_eq!(replay(&trace, &PoolsConfig::default()).peak_live, 1000);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, says) in [
            ("", 1, "`` is not the first line of lifetimes; valid: id,lower,upper,size"),
            ("0,1,2,3\n", 1, "`0,1,2,3` is not the first line"),
            ("id,lower,upper\n", 1, "is not the first line"),
            ("id,lower,upper,upper\n", 1, "is not the first line"),
            ("id,lower,upper,size,hint\n", 1, "is not the first line"),
            ("id,lower,upper,size\n0,1,2\n", 2, "the line ends where size is needed"),
            ("id,lower,upper,size\n,1,2,3\n", 2, "the line ends where id is needed"),
            ("id,lower,upper,size\n0,1,2,3,4\n", 2, "`4` is too much"),
            ("id,lower,upper,size\n0,a,2,3\n", 2, "`a` is no lower"),
            ("id,lower,upper,size\n0,1,-2,3\n", 2, "`-2` is no upper"),
            ("id,lower,upper,size\n0,1,2,3.5\n", 2, "`3.5` is no size"),
            ("id,lower,upper,size\n0,1,2,281474976710657\n", 2, "at most 281474976710656 is allowed"),
            ("id,lower,upper,size\n\na,2,2,3\n", 3, "the lifetime of `a` is from 2 to 2"),
            ("id,lower,upper,size\na,1,2,3\na,1,2,3\n", 3, "id a is there already"),
        ] {
            let error = Trace::from_lifetimes(text).unwrap_err();
            assert!(error.line == line && error.to_string().contains(says), "{text}: {error}");
        }
    }
}
