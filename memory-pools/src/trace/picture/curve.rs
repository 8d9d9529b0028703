//! The memory over time: live, reserved, and what is lost between them.

use super::svg::{
    Anchor, FAILED, GRID, LIVE, LOST, MUTED, RESERVED, Svg, TEXT, grouped, shortened, size_label, text_width,
};
use super::{MARGIN, WIDTH};
use crate::trace::report::{ReplayReport, Sample};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// Where the section begins, and where its plot lies.
const TOP: f64 = 166.0;
const LEFT: f64 = MARGIN + 72.0;
const RIGHT: f64 = WIDTH - MARGIN;
const PLOT_TOP: f64 = TOP + 66.0;
const PLOT_BOTTOM: f64 = PLOT_TOP + 280.0;
/// Where the axis of events is captioned: the section ends there.
pub(super) const BOTTOM: f64 = PLOT_BOTTOM + 42.0;

/// The most columns in which events are told apart.
const COLUMNS: usize = 1000;

/// How many lines there are for labels above the plot.
const LABEL_LINES: usize = 2;

/// From events and bytes to places.
struct Scale {
    events: f64,
    most: f64,
}

impl Scale {
    /// Where the state after an event begins.
    fn x(&self, event: u64) -> f64 {
        LEFT + (RIGHT - LEFT) * (event as f64 / self.events).min(1.0)
    }

    fn y(&self, bytes: u64) -> f64 {
        PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * (bytes as f64 / self.most).min(1.0)
    }
}

pub(super) fn draw(svg: &mut Svg<'_>, report: &ReplayReport, shown: u64) -> fmt::Result {
    svg.text(MARGIN, TOP, 16.0, Anchor::Start, TEXT, true, "Memory over time")?;
    let mut x = MARGIN + 186.0;
    for (color, text) in [(LIVE, "live"), (LOST, "lost: reserved and not live"), (RESERVED, "reserved")] {
        x = svg.legend(x, TOP, color, text)?;
    }
    if report.failed > 0 {
        svg.legend(x, TOP, FAILED, "a request failed")?;
    }
    let step = (report.peak_reserved / 6 + 1).next_power_of_two();
    let most = report.peak_reserved.div_ceil(step).max(1) * step;
    let scale = Scale { events: report.curve.len().max(1) as f64, most: most as f64 };
    axes(svg, &scale, report.curve.len() as u64, step, most)?;
    let columns = columns(&report.curve);
    area(svg, &scale, &columns, LOST, |sample| sample.reserved)?;
    area(svg, &scale, &columns, LIVE, |sample| sample.live)?;
    let outline = path(&scale, &columns, |sample| sample.reserved);
    writeln!(svg.out, "<path d=\"{outline}\" fill=\"none\" stroke=\"{RESERVED}\" stroke-width=\"1.5\"/>")?;
    labels(svg, &scale, report)?;
    failures(svg, &scale, report)?;
    moment(svg, &scale, report, shown)
}

/// The grid with its numbers.
fn axes(svg: &mut Svg<'_>, scale: &Scale, events: u64, step: u64, most: u64) -> fmt::Result {
    let mut bytes = 0;
    while bytes <= most {
        let y = scale.y(bytes);
        svg.line([LEFT, y], [RIGHT, y], &format!("stroke=\"{GRID}\""))?;
        svg.text(LEFT - 10.0, y + 4.0, 12.0, Anchor::End, MUTED, false, &size_label(bytes))?;
        bytes += step;
    }
    let step = [1u64, 2, 5].into_iter().cycle().zip(0..).map(|(first, i)| first * 10u64.pow(i / 3));
    let step = step.take(54).find(|step| events / step <= 8).unwrap_or(events.max(1));
    let mut event = 0;
    while event <= events {
        let x = scale.x(event);
        svg.line([x, PLOT_BOTTOM], [x, PLOT_BOTTOM + 5.0], &format!("stroke=\"{MUTED}\""))?;
        svg.text(x, PLOT_BOTTOM + 20.0, 12.0, Anchor::Middle, MUTED, false, &grouped(event))?;
        event += step;
    }
    svg.text((LEFT + RIGHT) / 2.0, BOTTOM - 4.0, 12.0, Anchor::Middle, MUTED, false, "events of the trace")?;
    svg.line([LEFT, PLOT_BOTTOM], [RIGHT, PLOT_BOTTOM], &format!("stroke=\"{MUTED}\""))
}

/// The events in at most so many columns, each with its first event and the most of what its events have.
fn columns(curve: &[Sample]) -> Vec<(u64, Sample)> {
    let size = curve.len().div_ceil(COLUMNS).max(1);
    let most = |samples: &[Sample]| {
        samples.iter().fold(Sample::default(), |most, sample| Sample {
            live: most.live.max(sample.live),
            padding: most.padding.max(sample.padding),
            reserved: most.reserved.max(sample.reserved),
        })
    };
    curve.chunks(size).enumerate().map(|(i, samples)| ((i * size) as u64, most(samples))).collect()
}

/// A line of steps, from the axis up and over the columns.
fn path(scale: &Scale, columns: &[(u64, Sample)], of: impl Fn(&Sample) -> u64) -> String {
    let mut path = format!("M{LEFT:.1} {PLOT_BOTTOM:.1}");
    let mut last = None;
    for (event, sample) in columns {
        let bytes = of(sample);
        if last != Some(bytes) {
            // Writing to a string cannot fail.
            write!(path, "H{:.1}V{:.1}", scale.x(*event), scale.y(bytes)).ok();
            last = Some(bytes);
        }
    }
    write!(path, "H{RIGHT:.1}").ok();
    path
}

fn area(
    svg: &mut Svg<'_>,
    scale: &Scale,
    columns: &[(u64, Sample)],
    fill: &str,
    of: impl Fn(&Sample) -> u64,
) -> fmt::Result {
    writeln!(svg.out, "<path d=\"{}V{PLOT_BOTTOM:.1}Z\" fill=\"{fill}\"/>", path(scale, columns, of))
}

/// What the trace has labels for: a line each, and its text where there is room.
fn labels(svg: &mut Svg<'_>, scale: &Scale, report: &ReplayReport) -> fmt::Result {
    let mut free = [LEFT - 1.0; LABEL_LINES];
    let mut drawn = -1.0;
    for label in &report.labels {
        let x = scale.x(label.event);
        if x - drawn >= 1.0 {
            drawn = x;
            svg.line([x, PLOT_TOP - 4.0], [x, PLOT_BOTTOM], &format!("stroke=\"{MUTED}\" stroke-dasharray=\"3 3\""))?;
        }
        let text = shortened(&label.text, 28);
        let width = text_width(&text, 11.0);
        // Behind its line, or where it would leave the picture, before it.
        let (from, anchor, at) = match x + width < WIDTH - 4.0 {
            true => (x, Anchor::Start, x + 3.0),
            false => (x - width - 6.0, Anchor::End, x - 3.0),
        };
        let Some(line) = free.iter().position(|free| *free <= from) else { continue };
        free[line] = from + width + 8.0;
        svg.text(at, PLOT_TOP - 10.0 - 15.0 * line as f64, 11.0, anchor, MUTED, false, &text)?;
    }
    Ok(())
}

/// A mark below the axis wherever a request failed.
fn failures(svg: &mut Svg<'_>, scale: &Scale, report: &ReplayReport) -> fmt::Result {
    let mut drawn = -1.0;
    for failure in &report.failures {
        let x = scale.x(failure.event);
        if x - drawn >= 2.0 {
            drawn = x;
            let title =
                format!("event {}: {} bytes: {}", failure.event, grouped(failure.size), shortened(&failure.cause, 400));
            svg.rect([x - 1.5, PLOT_BOTTOM - 8.0, 3.0, 12.0], &format!("fill=\"{FAILED}\""), Some(&title))?;
        }
    }
    Ok(())
}

/// The moment whose pages are shown.
fn moment(svg: &mut Svg<'_>, scale: &Scale, report: &ReplayReport, shown: u64) -> fmt::Result {
    let Some(sample) = report.curve.get(shown as usize) else { return Ok(()) };
    let (x, y) = (scale.x(shown), scale.y(sample.live));
    writeln!(
        svg.out,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#ffffff\" stroke=\"{TEXT}\" stroke-width=\"2\"/>"
    )?;
    let text = format!("{} live, {} reserved", size_label(sample.live), size_label(sample.reserved));
    let width = text_width(&text, 12.0);
    let (anchor, x) = if x + width + 12.0 < RIGHT { (Anchor::Start, x + 9.0) } else { (Anchor::End, x - 9.0) };
    // Inside the area, where the line of what is reserved does not cross it.
    let y = (y + 18.0).min(PLOT_BOTTOM - 6.0);
    svg.halo(x, y, anchor, &text)
}
