//! The digits: decodes and checks the data file, splits it, and orders rows by a seed.

use core::error::Error;
use core::fmt;
use std::io::Read;

use flate2::read::GzDecoder;

/// Rows in the data file.
pub const ROWS: usize = 1797;
/// Pixels of an image, 8 rows of 8.
pub const PIXELS: usize = 64;
/// The digits 0 to 9.
pub const CLASSES: usize = 10;

const COLUMNS: usize = PIXELS + 1;
const BRIGHTEST: u32 = 16;

static FILE: &[u8] = include_bytes!("data/digits.csv.gz");

/// Images and the digits they show, in the same order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataset {
    /// [`PIXELS`] values an image, row by row, from 0 (paper) to 1 (ink).
    pub images: Vec<f32>,
    /// The digit of each image.
    pub labels: Vec<u32>,
}

impl Dataset {
    /// How many images there are.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// The pixels of image `row`.
    pub fn image(&self, row: usize) -> &[f32] {
        &self.images[row * PIXELS..][..PIXELS]
    }

    /// Copies the images and labels of `rows` into `images` and `labels`, in that order.
    pub fn gather(&self, rows: &[u32], images: &mut [f32], labels: &mut [u32]) {
        let places = images.chunks_exact_mut(PIXELS).zip(labels);
        for (&row, (image, label)) in rows.iter().zip(places) {
            image.copy_from_slice(self.image(row as usize));
            *label = self.labels[row as usize];
        }
    }

    fn push(&mut self, image: &[f32], label: u32) {
        self.images.extend_from_slice(image);
        self.labels.push(label);
    }

    /// The rows `chosen` picks by their position, and the others.
    pub fn partition(&self, chosen: impl Fn(usize) -> bool) -> (Dataset, Dataset) {
        let (mut picked, mut others) = (Dataset::default(), Dataset::default());
        for row in 0..self.rows() {
            let side = if chosen(row) { &mut picked } else { &mut others };
            side.push(self.image(row), self.labels[row]);
        }
        (picked, others)
    }
}

/// What is trained on and what is only tested on.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// 1,438 rows.
    pub train: Dataset,
    /// 359 rows, never used for training or for choosing settings.
    pub test: Dataset,
}

/// Why a data file was refused.
#[derive(Debug)]
pub enum DataError {
    /// The file is no gzip stream of text.
    Decode(std::io::Error),
    /// A row has another number of columns than 65.
    Columns { row: usize, found: usize },
    /// A field is no whole number from 0 to `limit`.
    Value { row: usize, column: usize, found: String, limit: u32 },
    /// The file has another number of rows than 1,797.
    Rows { found: usize },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(_) => write!(f, "the digits do not decode as gzipped text"),
            Self::Columns { row, found } => {
                write!(f, "row {row} of the digits has {found} columns; {COLUMNS} are expected")
            }
            Self::Value { row, column, found, limit } => write!(
                f,
                "row {row}, column {column} of the digits is {found:?}; expected is a whole number from 0 to {limit}"
            ),
            Self::Rows { found } => write!(f, "the digits have {found} rows; {ROWS} are expected"),
        }
    }
}

impl Error for DataError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Decode(cause) => Some(cause),
            _ => None,
        }
    }
}

/// Decodes the digits this program carries and splits them by row index: `index % 5 == 4` is the test set.
pub fn load() -> Result<Split, DataError> {
    let (test, train) = decode(FILE)?.partition(|row| row % 5 == 4);
    Ok(Split { train, test })
}

fn decode(file: &[u8]) -> Result<Dataset, DataError> {
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).map_err(DataError::Decode)?;
    parse(&text)
}

fn parse(text: &str) -> Result<Dataset, DataError> {
    let mut data = Dataset::default();
    for (row, line) in text.lines().enumerate() {
        let found = line.split(',').count();
        if found != COLUMNS {
            return Err(DataError::Columns { row, found });
        }
        for (column, field) in line.split(',').enumerate() {
            let is_label = column == PIXELS;
            let limit = if is_label { CLASSES as u32 - 1 } else { BRIGHTEST };
            match field.parse::<u32>() {
                Ok(value) if value <= limit && is_label => data.labels.push(value),
                Ok(value) if value <= limit => data.images.push(value as f32 / BRIGHTEST as f32),
                _ => {
                    return Err(DataError::Value { row, column, found: field.into(), limit });
                }
            }
        }
    }
    match data.rows() {
        ROWS => Ok(data),
        found => Err(DataError::Rows { found }),
    }
}

/// The rows `0..rows` in the order of epoch `epoch`: the same seed and epoch always give the same order.
pub fn shuffled(rows: usize, seed: u64, epoch: u32) -> Vec<u32> {
    // The epoch goes through the generator once, so that neighbouring seeds and epochs share no orders.
    let mut random = SplitMix64(seed ^ SplitMix64(u64::from(epoch)).next());
    let mut order: Vec<u32> = (0..rows as u32).collect();
    for last in (1..rows).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// A 64-bit generator: every seed is a good one and gives a sequence of its own.
#[derive(Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit - 1`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from -1 (included) to 1 (excluded), each multiple of 2^-23 equally likely.
    pub fn signed_unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_ROWS: usize = 359;

    fn rows(count: usize) -> String {
        format!("{}7\n", "16,".repeat(PIXELS)).repeat(count)
    }

    #[test]
    fn the_file_has_the_promised_rows_and_ranges() {
        let Split { train, test } = load().unwrap();
        assert_eq!((train.rows(), test.rows()), (ROWS - TEST_ROWS, TEST_ROWS));
        for set in [&train, &test] {
            assert_eq!(set.images.len(), set.rows() * PIXELS);
            assert!(set.images.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
            assert!((0..10).all(|digit| set.labels.contains(&digit)));
            assert!(set.labels.iter().all(|&label| label < 10));
        }
        assert!(train.images.contains(&1.0) && train.images.contains(&0.0));
    }

    #[test]
    fn the_test_set_is_every_fifth_row_from_the_fifth() {
        let all = decode(FILE).unwrap();
        let Split { train, test } = load().unwrap();
        for row in 0..ROWS {
            let (set, place) = if row % 5 == 4 { (&test, row / 5) } else { (&train, row / 5 * 4 + row % 5) };
            assert_eq!(set.image(place), all.image(row), "row {row}");
            assert_eq!(set.labels[place], all.labels[row], "row {row}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused_with_the_value_and_the_limit() {
        assert!(matches!(decode(b"no gzip"), Err(DataError::Decode(_))));
        assert!(matches!(decode(&FILE[..1000]), Err(DataError::Decode(_))));
        assert!(matches!(parse(&rows(3)), Err(DataError::Rows { found: 3 })));
        assert!(matches!(parse("1,2,3"), Err(DataError::Columns { row: 0, found: 3 })));
        assert!(parse(&rows(ROWS)).is_ok());
        for (from, to, told) in [
            ("16,7\n", "17,7\n", "column 63 of the digits is \"17\"; expected is a whole number from 0 to 16"),
            ("16,7\n", "x,7\n", "is \"x\""),
            (",7\n", ",10\n", "column 64 of the digits is \"10\"; expected is a whole number from 0 to 9"),
        ] {
            let error = parse(&rows(ROWS).replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn an_order_holds_each_row_once_and_depends_on_seed_and_epoch_only() {
        let order = shuffled(1000, 7, 3);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        assert_eq!(order, shuffled(1000, 7, 3));
        assert_ne!(order, shuffled(1000, 8, 3));
        assert_ne!(order, shuffled(1000, 7, 4));
        assert_ne!(shuffled(1000, 1, 2), shuffled(1000, 2, 1));
        assert!(shuffled(0, 1, 1).is_empty());
    }

    #[test]
    fn random_numbers_stay_in_their_ranges() {
        let mut random = SplitMix64(5);
        let units: Vec<f32> = (0..10_000).map(|_| random.signed_unit()).collect();
        assert!(units.iter().all(|unit| (-1.0..1.0).contains(unit)));
        assert!(units.iter().sum::<f32>().abs() < 300.0);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }

    #[test]
    fn gathering_copies_rows_in_the_order_asked_for() {
        let train = load().unwrap().train;
        let (mut images, mut labels) = (vec![0.0; 2 * PIXELS], vec![0; 2]);
        train.gather(&[9, 4], &mut images, &mut labels);
        assert_eq!(images, [train.image(9), train.image(4)].concat());
        assert_eq!(labels, [train.labels[9], train.labels[4]]);
    }
}
