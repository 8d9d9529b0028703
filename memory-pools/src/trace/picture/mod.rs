//! Drawing what came of a replay: the memory over time, and what lies where at one moment.
//!
//! | file | job |
//! |---|---|
//! | `svg.rs` | the few shapes a picture has, and how numbers are shown |
//! | `curve.rs` | the memory over time |
//! | `pages.rs`, `shelves.rs` | the pages with their blocks, and where each page is drawn |

mod curve;
mod pages;
mod shelves;
mod svg;

use super::map::MemoryMap;
use super::report::ReplayReport;
use core::fmt;
use shelves::Shelves;
use svg::{Anchor, MUTED, Svg, TEXT, grouped, size_label};

/// The picture's width, and what is left free at its sides.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 40.0;

/// A picture of a replay: `Display` writes it as SVG, which needs nothing beside it. It shows the numbers, the memory over time (live,
/// reserved, and what is lost between them) with the labels of the trace and the requests that failed, and the pages with their
/// blocks at one moment, areas in proportion to bytes.
///
/// Its size does not grow with the trace: where there are more events or blocks than can be told apart, several are drawn as one.
///
/// ```
/// use trunnion_memory_pools::PoolsConfig;
/// use trunnion_memory_pools::trace::{Picture, Trace, replay};
/// let trace = Trace::from_lifetimes("id,lower,upper,size\na,0,2,1000\nb,1,3,2000\n")?;
/// let report = replay(&trace, &PoolsConfig::default());
/// assert!(Picture::of("two buffers", &report).to_string().starts_with("<svg"));
/// # Ok::<(), trunnion_memory_pools::trace::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// What stands above it.
    pub title: &'a str,
    /// The replay.
    pub report: &'a ReplayReport,
    /// The event after which the pages are shown.
    pub event: u64,
    /// The pages.
    pub map: &'a MemoryMap,
}

impl<'a> Picture<'a> {
    /// A picture with the pages where most was live.
    pub fn of(title: &'a str, report: &'a ReplayReport) -> Self {
        Self { title, report, event: report.peak.event, map: &report.peak.map }
    }

    /// The picture with the pages of another moment, as [`Replay::map`](super::Replay::map) has them.
    pub fn at(self, event: u64, map: &'a MemoryMap) -> Self {
        Self { event, map, ..self }
    }

    /// Writes the picture as SVG.
    ///
    /// # Errors
    /// What the writer answers.
    pub fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let shelves = Shelves::of(self.map, &self.report.end);
        let height = pages::TOP + pages::height(&shelves) + MARGIN;
        let mut svg = Svg::begin(out, WIDTH, height)?;
        self.head(&mut svg)?;
        curve::draw(&mut svg, self.report, self.event)?;
        pages::draw(&mut svg, &shelves, self.event)?;
        svg.end()
    }

    /// The title, and the numbers.
    fn head(&self, svg: &mut Svg<'_>) -> fmt::Result {
        let report = self.report;
        svg.text(MARGIN, 48.0, 22.0, Anchor::Start, TEXT, true, self.title)?;
        let numbers = [
            ("peak live", size_label(report.peak_live)),
            ("peak reserved", size_label(report.peak_reserved)),
            ("waste", alloc::format!("{:.1} %", report.waste() * 100.0)),
            ("requests", grouped(report.requests)),
            ("pages taken", grouped(report.pages_taken)),
            ("waits", grouped(report.waits)),
            ("failed", grouped(report.failed)),
        ];
        let (gap, top) = (12.0, 68.0);
        let width = (WIDTH - 2.0 * MARGIN + gap) / numbers.len() as f64 - gap;
        for (i, (name, number)) in numbers.iter().enumerate() {
            let x = MARGIN + i as f64 * (width + gap);
            svg.card(x, top, width, 58.0)?;
            let color = if *name == "failed" && report.failed > 0 { svg::FAILED } else { TEXT };
            svg.text(x + 12.0, top + 22.0, 12.0, Anchor::Start, MUTED, false, name)?;
            svg.text(x + 12.0, top + 45.0, 18.0, Anchor::Start, color, true, number)?;
        }
        Ok(())
    }
}

/// SVG.
impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

#[cfg(test)]
mod tests;
