//! The network on the double of the CUDA driver, which interprets what the real compiler makes of the CUDA C beside this file: a few batches
//! learn what the host learns.

use trunnion::Config;
use trunnion::prelude::*;
use trunnion_cuda_double::compilers::Compilers;
use trunnion_cuda_double::{Double, Report, ReportKind};

use super::data::{Dataset, load};
use super::reference::BATCH;
use super::train::Trainer;

/// Batches that are learned from.
const BATCHES: usize = 4;

/// The mean losses of two passes over a few batches, and the digits read in 13 images then.
fn learned(client: Client, rows: &Dataset, few: &Dataset) -> ([f32; 2], Vec<u32>) {
    let order: Vec<u32> = (0..(BATCHES * BATCH) as u32).collect();
    let mut trainer = Trainer::open(client, 3, rows).unwrap();
    let losses = [(); 2].map(|()| trainer.epoch(&order).unwrap());
    (losses, trainer.predict(few).unwrap())
}

#[test]
fn a_few_batches_teach_the_double_what_they_teach_the_host() {
    let Some(compilers) = Compilers::for_test("a few batches on the double") else { return };
    let device = Double::open().unwrap().claim_device().unwrap();
    let config = Config::new()
        .backend(Device::index("cuda", device.ordinal().unsigned_abs()))
        .option("cuda", "library", Double::open().unwrap().path().display().to_string())
        .option("cuda", "compiler", compilers.root.display().to_string());
    let rows = load().unwrap().train;
    // The last workgroup has five of its eight rows.
    let (few, _) = rows.partition(|row| row % 100 == 50 && row < 1300);
    let (expected, read) = learned(trunnion::open("host").unwrap(), &rows, &few);
    let client = trunnion::open_with(&config).unwrap();
    let (losses, digits) = learned(client.clone(), &rows, &few);
    for (loss, expected) in losses.iter().zip(expected) {
        assert!((loss - expected).abs() < 1e-4, "{losses:?} instead of {expected:?}");
    }
    assert!(losses[1] < losses[0], "nothing was learned: {losses:?}");
    assert_eq!((digits.len(), digits), (13, read));
    drop(client);
    let told: Vec<Report> = device.take_reports().unwrap();
    assert!(told.iter().all(|report| report.kind == ReportKind::Printed), "{told:#?}");
}
