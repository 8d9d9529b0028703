//! `trunnion trace`: replays what was asked of a device's memory on any pools, and says what becomes of it there.

use crate::layout::Layout;
use clap::Args;
use core::error::Error;
use core::fmt;
use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use trunnion_memory_pools::PoolsConfig;
use trunnion_memory_pools::trace::{Picture, ReplayReport, Trace, replay};
use trunnion_runtime_core::report::Size;
use trunnion_runtime_core::text::size;

/// Replays what was asked of a device's memory on any pools, without a device
///
/// FILE is what `TRUNNION_MEMORY_TRACE=FILE` or `Client::record_memory_start` wrote, a table of lifetimes (`id,lower,upper,size`), or a log
/// of RMM. With one layout the whole report is printed, with several a line each, to compare them.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The trace
    file: PathBuf,
    /// The pools to replay it on, as often as there are layouts to compare: `recorded`, `adaptive`, `slabs`, `exclusive`, `fixed:SIZE`
    /// such as `fixed:64MiB`, or a trace whose pools are meant
    #[arg(long = "layout", value_name = "LAYOUT", default_value = "recorded")]
    layouts: Vec<Layout>,
    /// The most bytes all pools together may take from the device, such as `8GiB`, in place of what the trace says
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    budget: Option<u64>,
    /// Draws the memory over time and the pages where most was live, for one layout
    #[arg(long, value_name = "SVG")]
    picture: Option<PathBuf>,
    /// Prints the reports as JSON, an object a layout and line
    #[arg(long)]
    json: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    size(text).ok_or_else(|| format!("`{text}` is no size such as `64MiB`"))
}

/// Runs the command.
///
/// # Errors
/// What cannot be read, is no trace, or cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { file, layouts, budget, picture, json } = arguments;
    if picture.is_some() && layouts.len() > 1 {
        return Err(format!("a picture is of one layout, and {} were given", layouts.len()).into());
    }
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let (trace, cut) = Trace::salvage(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    if let Some(error) = cut {
        writeln!(stderr(), "trunnion: {} is cut off: {error}", file.display())?;
    }
    // Before the first one runs, which may take long.
    let configs = layouts.iter().map(|layout| layout.config(&trace)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for (layout, config) in layouts.iter().zip(configs) {
        let config = PoolsConfig { budget: budget.or(config.budget), ..config };
        let report = replay(&trace, &config);
        if let Some(out) = picture {
            draw(file, &report, out)?;
        }
        match (json, layouts.len()) {
            (true, _) => {
                let line = serde_json::json!({ "layout": layout.name(), "report": report });
                writeln!(stdout(), "{line}")?;
            }
            (false, 1) => writeln!(stdout(), "{report}")?,
            (false, _) => rows.push((layout.name(), report)),
        }
    }
    if !rows.is_empty() {
        write!(stdout(), "{}", Comparison(&rows))?;
    }
    match picture {
        Some(out) if !json => writeln!(stdout(), "\npicture in {}", out.display())?,
        _ => {}
    }
    Ok(())
}

fn draw(file: &Path, report: &ReplayReport, out: &Path) -> Result<(), Box<dyn Error>> {
    let title = format!("Memory of {}", file.file_name().unwrap_or_default().to_string_lossy());
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    fs::write(out, Picture::of(&title, report).to_string())
        .map_err(|error| format!("cannot write {}: {error}", out.display()))?;
    Ok(())
}

/// The layouts in a table, a line each.
struct Comparison<'a>(&'a [(String, ReplayReport)]);

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max("layout".len());
        writeln!(
            f,
            "{:width$}  {:>11}  {:>13}  {:>7}  {:>7}  {:>7}  {:>7}",
            "layout", "peak live", "peak reserved", "waste", "pages", "waits", "failed"
        )?;
        for (name, report) in self.0 {
            let (live, reserved) = (Size(report.peak_live).to_string(), Size(report.peak_reserved).to_string());
            let waste = format!("{:.1} %", report.waste() * 100.0);
            writeln!(
                f,
                "{name:width$}  {live:>11}  {reserved:>13}  {waste:>7}  {:>7}  {:>7}  {:>7}",
                report.pages_taken, report.waits, report.failed
            )?;
        }
        Ok(())
    }
}
