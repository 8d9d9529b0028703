//! The picture: loss curve, confusion matrix and sample digits in one PNG.

use core::error::Error;
use core::ops::Range;
use std::fs::File;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::data::{CLASSES, Dataset, PIXELS};
use super::font;

/// Width and height of the picture in pixels.
pub const SIZE: (u32, u32) = (1200, 800);

const INK: RGBColor = RGBColor(33, 37, 41);
const FAINT: RGBColor = RGBColor(222, 226, 230);
const BLUE: RGBColor = RGBColor(8, 69, 148);
const WRONG: RGBColor = RGBColor(214, 39, 40);

const CURVE_HEADING: &str = "Mean training loss by epoch";
const CURVE_SCALE: &str = "cross-entropy (log scale)";
const MATRIX_HEADING: &str = "Confusion matrix";
const SAMPLES_HEADING: &str =
    "Test digits and what was read in them: wrong ones in red, with the true digit in brackets";

const SIDE: i32 = 8;
const SAMPLES: usize = 30;
const MOST_WRONG: usize = 10;

type Area<'a> = DrawingArea<BitMapBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// What the picture shows.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// First line.
    pub title: &'a str,
    /// Second, smaller line.
    pub subtitle: &'a str,
    /// The mean loss of each epoch.
    pub losses: &'a [f32],
    /// The digits that were read.
    pub test: &'a Dataset,
    /// What was read in each of them.
    pub predictions: &'a [u32],
}

impl Picture<'_> {
    /// Draws the picture into the PNG file `path`.
    pub fn save(&self, path: &Path) -> Drawn {
        // Plotters would wrap a path that can't be written in words of its own.
        File::create(path)?;
        self.draw(&BitMapBackend::new(path, SIZE).into_drawing_area())
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        area.fill(&WHITE)?;
        let middle = SIZE.0 as i32 / 2;
        Text { size: 3, align: Align::Middle, ..TEXT }.draw(area, (middle, 18), self.title)?;
        Text { align: Align::Middle, ..TEXT }.draw(area, (middle, 52), self.subtitle)?;
        curve(area, (110, 124), (480, 350), self.losses)?;
        matrix(area, (720, 124), 35, &confusion(&self.test.labels, self.predictions))?;
        samples(area, (45, 584), self.test, self.predictions)?;
        Ok(area.present()?)
    }
}

/// How often each digit (first index) was read as each digit (second index).
pub fn confusion(labels: &[u32], predictions: &[u32]) -> [[u32; CLASSES]; CLASSES] {
    let mut counts = [[0; CLASSES]; CLASSES];
    for (&label, &prediction) in labels.iter().zip(predictions) {
        counts[label as usize][prediction as usize] += 1;
    }
    counts
}

#[derive(Clone, Copy)]
enum Align {
    Left,
    Middle,
    Right,
}

/// How a line of text is drawn. Its place is the top of the line, at the end or middle that `align` names.
#[derive(Clone, Copy)]
struct Text {
    /// Pixels a dot.
    size: i32,
    color: RGBColor,
    align: Align,
    /// From bottom to top instead of from left to right.
    upwards: bool,
}

const TEXT: Text = Text { size: 2, color: INK, align: Align::Left, upwards: false };

impl Text {
    fn draw(self, area: &Area<'_>, at: (i32, i32), text: &str) -> Drawn {
        let start = match self.align {
            Align::Left => 0,
            Align::Middle => font::width(text) * self.size / 2,
            Align::Right => font::width(text) * self.size,
        };
        for (along, down) in font::dots(text) {
            let (along, down) = (along * self.size - start, down * self.size);
            let (x, y) =
                if self.upwards { (at.0 + down, at.1 - along - self.size) } else { (at.0 + along, at.1 + down) };
            area.draw(&square((x, y), self.size, self.color))?;
        }
        Ok(())
    }

    /// Draws with the middle of the line's height at `at.1`.
    fn draw_level(self, area: &Area<'_>, at: (i32, i32), text: &str) -> Drawn {
        self.draw(area, (at.0, at.1 - font::HEIGHT * self.size / 2), text)
    }
}

/// A filled square; a filled rectangle's lower right corner isn't part of it.
fn square((x, y): (i32, i32), side: i32, color: RGBColor) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y), (x + side, y + side)], color.filled())
}

fn curve(area: &Area<'_>, corner: (i32, i32), size: (u32, u32), losses: &[f32]) -> Drawn {
    // A logarithm has no place for 0, which a loss reaches when every digit is read with certainty.
    let points: Vec<(f64, f64)> = (1..).zip(losses).map(|(x, &y)| (f64::from(x), f64::from(y).max(1e-6))).collect();
    let low = points.iter().map(|point| point.1).reduce(f64::min).unwrap_or(0.1);
    let high = points.iter().map(|point| point.1).reduce(f64::max).unwrap_or(1.0);
    let ticks = log_ticks(low, high);
    let last = points.len().max(2);
    let range = Range { start: ticks[0].0, end: ticks[ticks.len() - 1].0 };

    let inside = area.clone().shrink(corner, size);
    let mut chart = ChartBuilder::on(&inside).build_cartesian_2d(1.0..last as f64, range.log_scale())?;
    let (left, top) = corner;
    let (right, bottom) = (left + size.0 as i32, top + size.1 as i32);
    for (value, label) in &ticks {
        let y = chart.plotting_area().map_coordinate(&(1.0, *value)).1;
        area.draw(&PathElement::new([(left, y), (right, y)], FAINT))?;
        Text { align: Align::Right, ..TEXT }.draw_level(area, (left - 10, y), label)?;
    }
    let step = tick_step(last);
    for epoch in (1..=last).filter(|epoch| *epoch == 1 || epoch % step == 0) {
        let x = chart.plotting_area().map_coordinate(&(epoch as f64, ticks[0].0)).0;
        area.draw(&PathElement::new([(x, top), (x, bottom)], FAINT))?;
        Text { align: Align::Middle, ..TEXT }.draw(area, (x, bottom + 12), &epoch.to_string())?;
    }
    area.draw(&PathElement::new([(left, top), (left, bottom), (right, bottom)], INK))?;
    chart.draw_series(LineSeries::new(points.iter().copied(), BLUE.stroke_width(2)))?;
    if points.len() <= 60 {
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, BLUE.filled())))?;
    }
    TEXT.draw(area, (left, top - 30), CURVE_HEADING)?;
    let middle = (left + right) / 2;
    Text { align: Align::Middle, ..TEXT }.draw(area, (middle, bottom + 36), "epoch")?;
    let upwards = Text { align: Align::Middle, upwards: true, ..TEXT };
    upwards.draw(area, (left - 90, (top + bottom) / 2), CURVE_SCALE)
}

/// The numbers 1, 2 and 5 times a power of ten from just below `low` to just above `high`, with their labels.
fn log_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for exponent in low.log10().floor() as i32..=high.log10().ceil() as i32 {
        for digit in [1, 2, 5] {
            let value = f64::from(digit) * 10f64.powi(exponent);
            if value <= low {
                ticks.clear();
            }
            let reached = ticks.len() > 1 && ticks[ticks.len() - 1].0 >= high;
            if !reached {
                let label = match exponent {
                    ..-3 => format!("{digit}e{exponent}"),
                    _ => format!("{value:.*}", (-exponent).max(0) as usize),
                };
                ticks.push((value, label));
            }
        }
    }
    ticks
}

/// Epochs from one labelled tick to the next.
fn tick_step(epochs: usize) -> usize {
    match epochs {
        0..=10 => 1,
        11..=50 => 5,
        51..=100 => 10,
        101..=500 => 50,
        _ => 100,
    }
}

fn matrix(area: &Area<'_>, corner: (i32, i32), cell: i32, counts: &[[u32; CLASSES]; CLASSES]) -> Drawn {
    let (left, top) = corner;
    let side = cell * CLASSES as i32;
    let most = counts.iter().flatten().copied().max().unwrap_or(0).max(1);
    let centered = Text { align: Align::Middle, ..TEXT };
    for (row, counts) in (0..).zip(counts) {
        let y = top + row * cell;
        Text { align: Align::Right, ..TEXT }.draw_level(area, (left - 10, y + cell / 2), &row.to_string())?;
        centered.draw(area, (left + row * cell + cell / 2, top + side + 12), &row.to_string())?;
        for (column, &count) in (0..).zip(counts) {
            let x = left + column * cell;
            let share = shade(count, most);
            area.draw(&square((x, y), cell, blue(share)))?;
            area.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], FAINT))?;
            let color = match count {
                0 => RGBColor(173, 181, 189),
                _ if share > 0.5 => WHITE,
                _ => INK,
            };
            let number = Text { color, ..centered };
            number.draw_level(area, (x + cell / 2 + 1, y + cell / 2), &count.to_string())?;
        }
    }
    TEXT.draw(area, (left, top - 30), MATRIX_HEADING)?;
    centered.draw(area, (left + side / 2, top + side + 36), "digit read")?;
    Text { upwards: true, ..centered }.draw(area, (left - 54, top + side / 2), "true digit")?;
    scale(area, (left + side + 28, top), (18, side), most)
}

/// The bar beside the matrix that tells which colour stands for which count.
fn scale(area: &Area<'_>, corner: (i32, i32), size: (i32, i32), most: u32) -> Drawn {
    let (left, top) = corner;
    let (right, bottom) = (left + size.0, top + size.1);
    for y in top..=bottom {
        let share = f64::from(bottom - y) / f64::from(size.1);
        area.draw(&PathElement::new([(left, y), (right, y)], blue(share)))?;
    }
    area.draw(&Rectangle::new([corner, (right, bottom)], INK))?;
    let height = |count: u32| (shade(count, most) * f64::from(size.1)) as i32;
    let apart = |count: &u32| *count < most && size.1 - height(*count) > 24;
    for count in [0, 1, 5, 10, 20, 50, 100].into_iter().filter(apart).chain([most]) {
        let y = bottom - height(count);
        area.draw(&PathElement::new([(right, y), (right + 6, y)], INK))?;
        TEXT.draw_level(area, (right + 12, y), &count.to_string())?;
    }
    Ok(())
}

/// How dark a count is drawn, from 0 to 1: the square root lets a single mistake be seen beside 36 hits.
fn shade(count: u32, most: u32) -> f64 {
    (f64::from(count) / f64::from(most)).sqrt()
}

fn blue(share: f64) -> RGBColor {
    let between = |end: u8| (255.0 + (f64::from(end) - 255.0) * share).round() as u8;
    RGBColor(between(BLUE.0), between(BLUE.1), between(BLUE.2))
}

fn samples(area: &Area<'_>, corner: (i32, i32), test: &Dataset, predictions: &[u32]) -> Drawn {
    let (columns, pixel) = (15, 7);
    TEXT.draw(area, (corner.0, corner.1 - 30), SAMPLES_HEADING)?;
    for (place, row) in (0..).zip(choose_samples(&test.labels, predictions)) {
        let (left, top) = (corner.0 + place % columns * 75, corner.1 + place / columns * 104);
        for (at, ink) in (0..PIXELS as i32).zip(test.image(row)) {
            let (x, y) = (left + at % SIDE * pixel, top + at / SIDE * pixel);
            let gray = (255.0 - 225.0 * ink) as u8;
            area.draw(&square((x, y), pixel, RGBColor(gray, gray, gray)))?;
        }
        let (read, label) = (predictions[row], test.labels[row]);
        let (color, frame, thickness, caption) = if read == label {
            (INK, FAINT, 1, read.to_string())
        } else {
            (WRONG, WRONG, 3, format!("{read} ({label})"))
        };
        let end = SIDE * pixel;
        for out in 1..=thickness {
            let corners = [(left - out, top - out), (left + end - 1 + out, top + end - 1 + out)];
            area.draw(&Rectangle::new(corners, frame))?;
        }
        Text { color, align: Align::Middle, ..TEXT }.draw(area, (left + end / 2, top + end + 12), &caption)?;
    }
    Ok(())
}

/// Rows to show: up to ten that were read wrong, then right ones spread over the whole set.
fn choose_samples(labels: &[u32], predictions: &[u32]) -> Vec<usize> {
    let (right, mut chosen): (Vec<usize>, Vec<usize>) =
        (0..labels.len()).partition(|&row| labels[row] == predictions[row]);
    let right_ones = right.len().min(SAMPLES - chosen.len().min(MOST_WRONG));
    chosen.truncate(SAMPLES - right_ones);
    chosen.extend((0..right_ones).map(|place| right[place * right.len() / right_ones]));
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::data::load;
    use super::*;

    fn drawn(losses: &[f32], test: &Dataset, predictions: &[u32]) -> Vec<u8> {
        let mut pixels = vec![0; (SIZE.0 * SIZE.1 * 3) as usize];
        let picture = Picture { title: "Digits", subtitle: "seed 1", losses, test, predictions };
        picture.draw(&BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area()).unwrap();
        pixels
    }

    fn count(pixels: &[u8], color: RGBColor) -> usize {
        pixels.chunks_exact(3).filter(|pixel| *pixel == [color.0, color.1, color.2]).count()
    }

    #[test]
    fn the_counts_of_the_matrix_sum_to_the_test_set() {
        let labels = load().unwrap().test.labels;
        let mut predictions = labels.clone();
        predictions[0] = (labels[0] + 1) % 10;
        let counts = confusion(&labels, &predictions);
        assert_eq!(counts.iter().flatten().sum::<u32>() as usize, 359);
        assert_eq!(counts[labels[0] as usize][predictions[0] as usize], 1);
        assert_eq!((0..10).map(|digit| counts[digit][digit]).sum::<u32>() as usize, 359 - 1);
    }

    #[test]
    fn only_wrong_digits_are_red() {
        let test = load().unwrap().test;
        let mut predictions = test.labels.clone();
        assert_eq!(count(&drawn(&[1.0, 0.1], &test, &predictions), WRONG), 0);
        predictions[100] = (predictions[100] + 1) % 10;
        let one = count(&drawn(&[1.0, 0.1], &test, &predictions), WRONG);
        assert!(one > 3 * 4 * 56, "{one}");
    }

    #[test]
    fn a_loss_curve_is_drawn_for_one_epoch_a_thousand_and_a_loss_of_zero() {
        let test = load().unwrap().test;
        let none = count(&drawn(&[], &test, &test.labels), BLUE);
        for losses in [&[0.5][..], &[0.0, 0.0], &[0.3; 1000], &[2.3, 0.0]] {
            assert!(count(&drawn(losses, &test, &test.labels), BLUE) > none + 8, "{losses:?}");
        }
    }

    #[test]
    fn the_ticks_enclose_the_losses() {
        let told = |low, high| log_ticks(low, high).into_iter().map(|tick| tick.1).collect::<Vec<_>>();
        assert_eq!(told(0.03, 1.4), ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"]);
        assert_eq!(told(4e-4, 1.5e-3), ["2e-4", "5e-4", "0.001", "0.002"]);
        assert_eq!(told(12.0, 12.0), ["10", "20"]);
        assert_eq!(told(0.1, 0.1), ["0.1", "0.2"]);
        assert_eq!(told(0.2, 1.0), ["0.2", "0.5", "1"]);
    }

    #[test]
    fn wrong_digits_come_first_and_leave_room_for_right_ones() {
        let labels = [0; 100];
        assert_eq!(choose_samples(&labels, &labels).len(), SAMPLES);
        assert_eq!(choose_samples(&[1, 2], &[1, 3]), [1, 0]);
        let mut predictions = labels;
        predictions[50..].fill(1);
        let chosen = choose_samples(&labels, &predictions);
        assert_eq!(chosen.len(), SAMPLES);
        assert_eq!(chosen[..MOST_WRONG], (50..60).collect::<Vec<_>>());
        assert!(chosen[MOST_WRONG..].iter().all(|&row| row < 50));
        predictions[3..].fill(1);
        assert_eq!(choose_samples(&labels, &predictions).len(), SAMPLES);
    }

    #[test]
    fn the_font_has_every_letter_of_the_headings() {
        for text in [CURVE_HEADING, CURVE_SCALE, MATRIX_HEADING, SAMPLES_HEADING, "epoch digit read true digit"] {
            assert!(font::covers(text), "{text}");
        }
    }
}
