//! The few shapes a picture has, and how numbers are shown in it.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Display, Write};
use trunnion_runtime_core::report::Size;

pub(super) const TEXT: &str = "#1f2937";
pub(super) const MUTED: &str = "#6b7280";
pub(super) const GRID: &str = "#e5e7eb";
pub(super) const BORDER: &str = "#cbd5e1";
pub(super) const PANEL: &str = "#f8fafc";
pub(super) const FREE: &str = "#eef2f6";
pub(super) const LIVE: &str = "#3b82f6";
pub(super) const LOST: &str = "#fde3a7";
pub(super) const RESERVED: &str = "#c2770c";
pub(super) const PADDING: &str = "#f59e0b";
pub(super) const FAILED: &str = "#dc2626";

/// Where a text stands to its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being written.
pub(super) struct Svg<'a> {
    pub(super) out: &'a mut dyn Write,
}

impl<'a> Svg<'a> {
    pub(super) fn begin(out: &'a mut dyn Write, width: f64, height: f64) -> Result<Self, fmt::Error> {
        write!(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" ")?;
        write!(out, "viewBox=\"0 0 {width:.0} {height:.0}\" ")?;
        out.write_str("font-family=\"system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif\">\n")?;
        out.write_str("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n")?;
        Ok(Self { out })
    }

    pub(super) fn end(self) -> fmt::Result {
        self.out.write_str("</svg>\n")
    }

    #[allow(clippy::too_many_arguments, reason = "what a text has")]
    pub(super) fn text(
        &mut self,
        x: f64,
        y: f64,
        size: f64,
        anchor: Anchor,
        color: &str,
        bold: bool,
        text: &str,
    ) -> fmt::Result {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if bold { " font-weight=\"600\"" } else { "" };
        let text = Escaped(text);
        writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{color}\"{anchor}{weight}>{text}</text>"
        )
    }

    /// A rectangle. What `title` says is shown where a pointer rests on it.
    pub(super) fn rect(&mut self, [x, y, width, height]: [f64; 4], style: &str, title: Option<&str>) -> fmt::Result {
        write!(self.out, "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\" {style}")?;
        match title {
            Some(title) => writeln!(self.out, "><title>{}</title></rect>", Escaped(title)),
            None => self.out.write_str("/>\n"),
        }
    }

    pub(super) fn card(&mut self, x: f64, y: f64, width: f64, height: f64) -> fmt::Result {
        self.rect([x, y, width, height], &format!("rx=\"6\" fill=\"{PANEL}\" stroke=\"{GRID}\""), None)
    }

    pub(super) fn line(&mut self, from: [f64; 2], to: [f64; 2], style: &str) -> fmt::Result {
        let ([x1, y1], [x2, y2]) = (from, to);
        writeln!(self.out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>")
    }

    /// A text that can be read on any ground.
    pub(super) fn halo(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) -> fmt::Result {
        self.out.write_str(
            "<g paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"3\" stroke-linejoin=\"round\">\n",
        )?;
        self.text(x, y, 12.0, anchor, TEXT, true, text)?;
        self.out.write_str("</g>\n")
    }

    /// A square of a colour, and what it means; where the next one may begin.
    pub(super) fn legend(&mut self, x: f64, y: f64, fill: &str, text: &str) -> Result<f64, fmt::Error> {
        self.rect([x, y - 10.0, 12.0, 12.0], &format!("rx=\"2\" fill=\"{fill}\" stroke=\"{BORDER}\""), None)?;
        self.text(x + 17.0, y, 12.0, Anchor::Start, TEXT, false, text)?;
        Ok(x + 17.0 + text_width(text, 12.0) + 18.0)
    }
}

/// About how wide a text is.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.58
}

/// Text as it may stand in SVG. What SVG has no character for becomes a space.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => f.write_char(' '),
            control if control.is_control() => f.write_char(' '),
            other => f.write_char(other),
        })
    }
}

/// A number of bytes without a fraction that is zero: `128 MiB`.
pub(super) fn size_label(bytes: u64) -> String {
    Size(bytes).to_string().replace(".0 ", " ")
}

/// A number with commas: `12,345`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A text, cut where it is longer than so many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// The share of `whole` in a hundred.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { ((u128::from(part) * 100 + u128::from(whole) / 2) / u128::from(whole)) as u64 }
}
