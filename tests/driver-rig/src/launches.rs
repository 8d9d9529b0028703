//! What the launches of every driver do: run over what they are given, each with parameters of its own, in order, over grids that are
//! known or lie in memory.
//!
//! The kernels are a backend's own, each given where it is launched:
//! - `add`, in workgroups of 64, adds one to each element of its one buffer;
//! - `scale`, in workgroups of 32, has two buffers `x` and `y`, and parameters `a`, `b`, `first`, of four bytes each: from the element
//!   `first` on, `y` becomes `a * x + b` as far as it goes;
//! - `lengths`, in workgroups of one, has three buffers, and sets the third element of the first one to the count of workgroups.

use crate::rig::{Compiled, Rig, bytes_of, part};
use core::fmt;
use trunnion_backend_core::driver::{Driver, DriverGrid};
use trunnion_runtime_core::error::Error;

/// A kernel runs over the part of a page it is given, and touches nothing beside it.
pub fn a_kernel_runs_over_the_part_of_a_page_it_is_given<D: Driver>(rig: &mut Rig<D>, add: &Compiled<D>)
where
    D::Stream: fmt::Debug,
{
    let page = rig.page_of(&[7; 512]);
    rig.run(add, [4, 1, 1], &[part(&page, 256, 400)]).unwrap();
    let expected: Vec<u32> = (0..512).map(|i| if (64..164).contains(&i) { 8 } else { 7 }).collect();
    assert_eq!(rig.read_u32(part(&page, 0, 2048)), expected);
}

/// Two launches of one batch, each with parameters of its own, the second one over more workgroups than it takes.
pub fn launches_of_a_batch_have_parameters_of_their_own<D: Driver>(rig: &mut Rig<D>, scale: &Compiled<D>)
where
    D::Stream: fmt::Debug,
{
    let (x, y) = (rig.page_of(&(0..256).collect::<Vec<_>>()), rig.page_of(&[0; 256]));
    let mut stream = rig.driver.open_stream().unwrap();
    for (seq, parameters) in [(1, [3, 5, 0]), (2, [2, 1, 128])] {
        let buffers = [part(&x, 0, 1024), part(&y, 0, 1024)];
        let grid = DriverGrid::Static([4 * seq as u32, 1, 1]);
        rig.launch_with(&mut stream, seq, scale, grid, &buffers, &bytes_of(&parameters)).unwrap();
    }
    rig.driver.submit(&mut stream, 2).unwrap();
    assert!(rig.finish(&mut stream, 2).failed.is_empty());
    let expected: Vec<u32> = (0..256).map(|i| if i < 128 { 3 * i + 5 } else { 2 * i + 1 }).collect();
    assert_eq!(rig.read_u32(part(&y, 0, 1024)), expected);
    rig.driver.close_stream(stream);
}

/// Batches of 64 launches on the same bytes run in order. `look` is given the stream in the end.
pub fn a_batch_of_64_launches_runs_in_order<D: Driver>(
    rig: &mut Rig<D>,
    (add, scale): (&Compiled<D>, &Compiled<D>),
    look: impl FnOnce(&D::Stream),
) where
    D::Stream: fmt::Debug,
{
    let page = rig.page_of(&[1; 64]);
    let mut stream = rig.driver.open_stream().unwrap();
    let mut expected = 1_u32;
    for round in 0..5 {
        for i in 0..64_u64 {
            let seq = round * 64 + i + 1;
            if i % 3 == 0 {
                let buffers = [part(&page, 0, 256)];
                rig.launch(&mut stream, seq, add, [1, 1, 1], &buffers).unwrap();
                expected = expected.wrapping_add(1);
            } else {
                let buffers = [part(&page, 0, 256), part(&page, 0, 256)];
                let (grid, parameters) = (DriverGrid::Static([2, 1, 1]), bytes_of(&[3, i as u32, 0]));
                rig.launch_with(&mut stream, seq, scale, grid, &buffers, &parameters).unwrap();
                expected = expected.wrapping_mul(3).wrapping_add(i as u32);
            }
            rig.driver.barrier(&mut stream);
        }
        rig.driver.submit(&mut stream, (round + 1) * 64).unwrap();
    }
    assert!(rig.finish(&mut stream, 320).failed.is_empty());
    assert_eq!(rig.read_u32(part(&page, 0, 256)), [expected; 64]);
    look(&stream);
    rig.driver.close_stream(stream);
}

/// A grid in memory runs as many workgroups as it says, up to the limit, and none where it has a zero.
pub fn counts_in_memory_run_as_many_workgroups_and_zeros_none<D: Driver>(rig: &mut Rig<D>, lengths: &Compiled<D>)
where
    D::Stream: fmt::Debug,
{
    let most = rig.driver.properties().limits.max_grid;
    let cases = [
        ([3, 2, 5], Some(30)),
        ([1, 1, 1], Some(1)),
        ([0, 7, 7], None),
        ([7, 7, 0], None),
        // With a zero in it a grid is within any limit.
        ([0, u32::MAX, 1], None),
        ([1, most[1], 1], Some(most[1])),
    ];
    for (counts, ran) in cases {
        // Behind something else in the page, and not at a multiple of what bindings are aligned to.
        let counts = rig.page_of(&[&[u32::MAX; 5][..], &counts[..]].concat());
        let (out, other) = (rig.page_of(&[99; 4]), rig.page_of(&[0; 4]));
        let mut stream = rig.driver.open_stream().unwrap();
        let grid = DriverGrid::Dynamic(part(&counts, 20, 12));
        let buffers = [part(&out, 0, 16), part(&other, 0, 0), part(&other, 0, 0)];
        rig.launch_with(&mut stream, 1, lengths, grid, &buffers, &[]).unwrap();
        rig.driver.submit(&mut stream, 1).unwrap();
        assert_eq!(rig.finish(&mut stream, 1).failed, []);
        assert_eq!(rig.read_u32(part(&out, 8, 4)), [ran.unwrap_or(99)]);
        rig.driver.close_stream(stream);
    }
}

/// The largest grid of the device that [`counts_in_memory_over_the_limit_are_a_failure_of_their_launch_alone`] is asked of.
pub const SMALL_GRID: [u32; 3] = [50, 40, 30];

/// A grid in memory that is larger than [`SMALL_GRID`] fails its launch, and neither those before nor those behind it.
pub fn counts_in_memory_over_the_limit_are_a_failure_of_their_launch_alone<D: Driver>(
    rig: &mut Rig<D>,
    (add, lengths): (&Compiled<D>, &Compiled<D>),
) where
    D::Stream: fmt::Debug,
{
    let counts = rig.page_of(&[1, 41, 1, 50, 40, 30, 51, 1, 0, 1, 1, u32::MAX]);
    let (out, other, sum) = (rig.page_of(&[99; 4]), rig.page_of(&[0; 4]), rig.page_of(&[0; 4]));
    let mut stream = rig.driver.open_stream().unwrap();
    for (seq, offset) in [(10, 0), (20, 12), (30, 24), (40, 36)] {
        rig.launch(&mut stream, seq - 1, add, [1, 1, 1], &[part(&sum, 0, 16)]).unwrap();
        let grid = DriverGrid::Dynamic(part(&counts, offset, 12));
        let buffers = [part(&out, 0, 16), part(&other, 0, 0), part(&other, 0, 0)];
        rig.launch_with(&mut stream, seq, lengths, grid, &buffers, &[]).unwrap();
        rig.driver.barrier(&mut stream);
    }
    rig.driver.submit(&mut stream, 40).unwrap();
    let failed = rig.finish(&mut stream, 40).failed;
    let too_large = |axis, requested, limit| Error::GridTooLarge { axis, requested, limit };
    let largest = u64::from(u32::MAX);
    assert_eq!(failed, [(10, too_large('y', 41, 40)), (40, too_large('z', largest, 30))]);
    assert_eq!(rig.read_u32(part(&out, 8, 4)), [50 * 40 * 30]);
    assert_eq!(rig.read_u32(part(&sum, 0, 16)), [4; 4]);
    rig.driver.close_stream(stream);
}
