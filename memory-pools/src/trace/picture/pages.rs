//! The pages with their blocks at one moment.

use super::MARGIN;
use super::curve;
use super::shelves::{Pool, Shelves};
use super::svg::{Anchor, BORDER, FREE, MUTED, PADDING, Svg, TEXT, grouped, percent, size_label, text_width};
use crate::trace::map::{MappedBlock, MappedPage};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::id::StreamId;

/// Where the section begins.
pub(super) const TOP: f64 = curve::BOTTOM + 40.0;

/// The heights of the section's head, of a pool's line, of a shelf with the captions above its pages, of the pages alone.
const HEAD: f64 = 26.0;
const POOL: f64 = 34.0;
const SHELF: f64 = 44.0;
const BAR: f64 = 24.0;

/// What streams are drawn in; the last is for all others.
const STREAMS: [&str; 8] = ["#3b82f6", "#14b8a6", "#a855f7", "#ec4899", "#65a30d", "#f97316", "#6366f1", "#94a3b8"];

/// The most blocks of a page, for each unit of its width, that are drawn one by one.
const DENSITY: f64 = 0.35;

/// How high the section is.
pub(super) fn height(shelves: &Shelves<'_>) -> f64 {
    let pools = shelves.pools.iter();
    let of_pool = |pool: &Pool<'_>| {
        POOL + pool.shelves as f64 * SHELF + if pool.unplaced().is_empty() { 0.0 } else { POOL / 2.0 }
    };
    HEAD + pools.map(of_pool).sum::<f64>() + if shelves.pools.is_empty() { POOL } else { 0.0 }
}

pub(super) fn draw(svg: &mut Svg<'_>, shelves: &Shelves<'_>, event: u64) -> fmt::Result {
    let title = format!("Pages after event {}", grouped(event));
    svg.text(MARGIN, TOP, 16.0, Anchor::Start, TEXT, true, &title)?;
    let streams = streams(shelves);
    let mut x = MARGIN + text_width(&title, 16.0) + 30.0;
    for (color, stream) in STREAMS.iter().zip(&streams) {
        x = svg.legend(x, TOP, color, &format!("{stream}"))?;
    }
    if streams.len() == STREAMS.len() - 1 {
        x = svg.legend(x, TOP, STREAMS[STREAMS.len() - 1], "others")?;
    }
    x = svg.legend(x, TOP, PADDING, "padding")?;
    svg.legend(x, TOP, FREE, "free")?;
    let mut y = TOP + HEAD;
    if shelves.pools.is_empty() {
        return svg.text(MARGIN, y + 10.0, 13.0, Anchor::Start, MUTED, false, "no page is taken");
    }
    for pool in &shelves.pools {
        svg.text(MARGIN, y + 8.0, 13.0, Anchor::Start, TEXT, true, pool.name)?;
        let after = MARGIN + text_width(pool.name, 14.5) + 10.0;
        let text = format!("{} pool: {}", pool.kind, told(&pool.pages));
        svg.text(after, y + 8.0, 12.0, Anchor::Start, MUTED, false, &text)?;
        y += POOL;
        for (page, shelf, x, width) in &pool.placed {
            draw_page(svg, page, [*x, y + *shelf as f64 * SHELF], *width, &streams)?;
        }
        y += pool.shelves as f64 * SHELF;
        let more = pool.unplaced();
        if !more.is_empty() {
            let text = format!("and {} more pages: {}", grouped(more.len() as u64), told(more));
            svg.text(MARGIN, y, 12.0, Anchor::Start, MUTED, false, &text)?;
            y += POOL / 2.0;
        }
    }
    Ok(())
}

/// Pages in numbers.
fn told(pages: &[&MappedPage]) -> String {
    let sum = |of: fn(&MappedPage) -> u64| pages.iter().map(|page| of(page)).sum::<u64>();
    let (reserved, live, free) = (sum(|page| page.size), sum(MappedPage::live), sum(MappedPage::free));
    let count = pages.len() as u64;
    format!(
        "{} {}, {} reserved: {} live ({} %), {} padding, {} free",
        grouped(count),
        if count == 1 { "page" } else { "pages" },
        size_label(reserved),
        size_label(live),
        percent(live, reserved),
        size_label(reserved - live - free),
        size_label(free)
    )
}

/// The streams that have a colour of their own: those of the smallest numbers.
fn streams(shelves: &Shelves<'_>) -> Vec<StreamId> {
    let pages = shelves.pools.iter().flat_map(|pool| &pool.pages);
    let mut streams: Vec<_> = pages.flat_map(|page| page.blocks.iter().map(|block| block.stream)).collect();
    streams.sort_unstable();
    streams.dedup();
    streams.truncate(STREAMS.len() - 1);
    streams
}

fn color(streams: &[StreamId], stream: StreamId) -> &'static str {
    let place = streams.iter().position(|known| *known == stream);
    STREAMS[place.unwrap_or(STREAMS.len() - 1)]
}

fn draw_page(svg: &mut Svg<'_>, page: &MappedPage, [x, y]: [f64; 2], width: f64, streams: &[StreamId]) -> fmt::Result {
    let live = percent(page.live(), page.size);
    let title = format!("page {}: {}, {live} % live", page.number, size_label(page.size));
    svg.rect([x, y, width, BAR], &format!("fill=\"{FREE}\""), Some(&title))?;
    if page.blocks.len() as f64 <= (width * DENSITY).max(1.0) {
        page.blocks.iter().try_for_each(|block| draw_block(svg, page, block, [x, y], width, streams))?;
    } else {
        draw_crowd(svg, page, [x, y], width, streams)?;
    }
    svg.rect([x, y, width, BAR], &format!("fill=\"none\" stroke=\"{BORDER}\""), None)?;
    let caption = format!("{} · {live} %", size_label(page.size));
    if text_width(&caption, 10.0) < width {
        svg.text(x, y - 4.0, 10.0, Anchor::Start, MUTED, false, &caption)?;
    }
    Ok(())
}

/// One block, with its size where there is room.
fn draw_block(
    svg: &mut Svg<'_>,
    page: &MappedPage,
    block: &MappedBlock,
    [x, y]: [f64; 2],
    width: f64,
    streams: &[StreamId],
) -> fmt::Result {
    let place = |bytes: u64| width * (bytes as f64 / page.size as f64);
    let (from, wide, padding) = (x + place(block.offset), place(block.size), place(block.padding));
    let MappedBlock { offset, size, request, stream, .. } = *block;
    let title = format!(
        "request {request}: {} bytes, {} of padding, at {}, {stream}",
        grouped(size),
        block.padding,
        grouped(offset)
    );
    let style = format!("fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.5\"", color(streams, stream));
    svg.rect([from, y, wide, BAR], &style, Some(&title))?;
    if padding >= 0.3 {
        svg.rect([from + wide, y, padding, BAR], &format!("fill=\"{PADDING}\""), None)?;
    }
    let label = size_label(size);
    if text_width(&label, 10.0) + 8.0 < wide {
        svg.text(from + wide / 2.0, y + 16.0, 10.0, Anchor::Middle, "#ffffff", false, &label)?;
    }
    Ok(())
}

/// More blocks than can be told apart: a column for each unit of width, as strong as its bytes are live.
fn draw_crowd(svg: &mut Svg<'_>, page: &MappedPage, [x, y]: [f64; 2], width: f64, streams: &[StreamId]) -> fmt::Result {
    let columns = (width as usize).max(1);
    // How much of each column is live, and whose most of it is: the largest part seen.
    let mut live = alloc::vec![(0.0f64, 0.0f64, StreamId::from_raw(0)); columns];
    let column = columns as f64 / page.size as f64;
    for block in &page.blocks {
        let (from, to) = (block.offset as f64 * column, (block.offset + block.size) as f64 * column);
        let mut at = from;
        while at < to {
            let index = (at as usize).min(columns - 1);
            let end = if index + 1 == columns { to } else { to.min((index + 1) as f64) };
            let (sum, most, stream) = &mut live[index];
            *sum += end - at;
            if end - at > *most {
                (*most, *stream) = (end - at, block.stream);
            }
            at = end;
        }
    }
    let unit = width / columns as f64;
    let strength = |column: &(f64, f64, StreamId)| ((column.0 * 5.0 + 0.5) as u8).min(5);
    let mut from = 0;
    while from < columns {
        let same = |other: &&(f64, f64, StreamId)| (strength(other), other.2) == (strength(&live[from]), live[from].2);
        let count = live[from..].iter().take_while(same).count();
        if strength(&live[from]) > 0 {
            let opacity = f64::from(strength(&live[from])) / 5.0;
            let style = format!("fill=\"{}\" fill-opacity=\"{opacity:.1}\"", color(streams, live[from].2));
            svg.rect([x + from as f64 * unit, y, count as f64 * unit, BAR], &style, None)?;
        }
        from += count;
    }
    Ok(())
}
