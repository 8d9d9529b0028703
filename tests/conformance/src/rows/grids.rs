//! L3, L4: how many workgroups, known now or read from a buffer.

use crate::check::{Outcome, raw};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;

tests! {
    L3 every_workgroup_of_a_grid_runs_once;
    L3 with_a_zero_nothing_happens_and_nothing_is_compiled;
    L3 over_the_limit_is_refused_with_axis_and_limit;
    L3 sixty_five_thousand_five_hundred_and_thirty_six_workgroups_where_one_fewer_is_the_limit;
    L3 a_count_is_spread_over_the_axes;
    L3 a_count_beyond_all_axes_is_refused;
    L3 workgroups_know_where_they_are;
    L3 workgroups_know_the_axes_of_their_grid;
    L4 counts_are_read_from_a_buffer;
    L4 counts_may_be_written_by_another_stream_just_before;
    L4 counts_written_by_a_kernel_are_read_after_it;
    L4 a_zero_count_does_nothing;
    L4 counts_over_the_limit_mark_the_outputs;
    L4 tainted_counts_skip_the_launch_and_taint_the_outputs;
    L4 a_buffer_that_is_too_short_or_misaligned_is_refused;
    L4 the_counts_may_lie_anywhere_in_a_buffer_and_be_dropped;
}

/// How often the workgroup of each linear index ran, and how many ran in all.
fn counted(client: &Client, grid: Grid, indices: usize) -> Outcome<(Vec<u32>, u32)> {
    let count = client.prepare(kernels::count())?;
    let counts = client.zeros(indices as u64 * 4 + 4)?;
    client.launch(&count, grid, [&counts])?;
    let mut each = client.read_one(&counts)?.to_vec::<u32>()?;
    let total = each.pop().unwrap_or_default();
    Ok((each, total))
}

fn every_workgroup_of_a_grid_runs_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for (x, y, z) in [(1, 1, 1), (7, 1, 1), (3, 5, 2), (1, 1, 9), (1, 300, 1), (64, 64, 3)] {
        let workgroups = x * y * z;
        let (each, total) = counted(&client, Grid::Static(x, y, z), workgroups as usize)?;
        ensure_eq!(total, workgroups, "{x} {y} {z}");
        ensure!(each.iter().all(|n| *n == 1), "{x} {y} {z}: {each:?}");
    }
    Ok(())
}

fn with_a_zero_nothing_happens_and_nothing_is_compiled(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let broken = client.prepare(kernels::broken())?;
    let (input, output) = (client.create_from_slice(&[1; 256])?, client.create_from_slice(&[2; 256])?);
    for grid in [
        Grid::Static(0, 1, 1),
        Grid::Static(1, 0, 1),
        Grid::Static(1, 1, 0),
        Grid::Static(0, u32::MAX, u32::MAX),
        Grid::spread(0, [1; 3])?,
    ] {
        let launched = client.launch(&broken, grid.clone(), [&input, &output]);
        // Over the limit on another axis may be refused; it may not run.
        ensure!(matches!(launched, Ok(_) | Err(Error::GridTooLarge { .. })), "{grid:?}: {launched:?}");
    }
    client.sync()?.wait()?;
    let statistics = client.compile_statistics()?;
    ensure_eq!((statistics.compiled, statistics.failed), (0, 0));
    ensure_eq!(client.read_one(&output)?.as_slice()?, [2; 256]);
    Ok(())
}

fn over_the_limit_is_refused_with_axis_and_limit(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { max_grid: Some([9, 8, 7]), ..Variant::plain() })?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
    for (grid, axis, requested, limit) in [
        (Grid::Static(10, 1, 1), 'x', 10, 9),
        (Grid::Static(1, 9, 1), 'y', 9, 8),
        (Grid::Static(1, 1, u32::MAX), 'z', u64::from(u32::MAX), 7),
    ] {
        let error = ensure_err!(client.launch(&step, grid, [&bytes]), Error::GridTooLarge { .. });
        ensure_eq!(error, Error::GridTooLarge { axis, requested, limit });
        ensure!(error.is_refusal() && error.to_string().contains("spread"), "{error}");
    }
    client.launch(&step, Grid::Static(9, 8, 7), [&bytes])?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [2; 64]);
    Ok(())
}

fn sixty_five_thousand_five_hundred_and_thirty_six_workgroups_where_one_fewer_is_the_limit(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { max_grid: Some([65_535; 3]), ..Variant::plain() })?;
    let count = client.prepare(kernels::count())?;
    let counts = client.zeros(8)?;
    let error = ensure_err!(client.launch(&count, Grid::x(65_536), [&counts]), Error::GridTooLarge { .. });
    ensure_eq!(error, Error::GridTooLarge { axis: 'x', requested: 65_536, limit: 65_535 });
    let (each, total) = counted(&client, Grid::x(65_535), 65_535)?;
    ensure!(total == 65_535 && each.iter().all(|n| *n == 1), "{total} workgroups ran");
    let grid = Grid::spread(65_536, client.limits().max_grid)?;
    let (each, total) = counted(&client, grid, 65_536)?;
    ensure!(total >= 65_536 && each.iter().all(|n| *n == 1), "{total} workgroups ran");
    Ok(())
}

fn a_count_is_spread_over_the_axes(cx: &Context) -> Outcome {
    let limits = [10, 9, 8];
    let client = cx.open(&Variant { max_grid: Some(limits), ..Variant::plain() })?;
    for count in [1u64, 10, 11, 89, 90, 91, 500, 719, 720] {
        let grid = Grid::spread(count, limits)?;
        grid.check(limits)?;
        let (each, total) = counted(&client, grid, count as usize)?;
        ensure!(u64::from(total) >= count, "{count}: {total} workgroups");
        ensure!(each.iter().all(|n| *n == 1), "{count}: {each:?}");
    }
    Ok(())
}

fn a_count_beyond_all_axes_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    ensure_err!(Grid::spread(721, [10, 9, 8]), Error::GridTooLarge { .. });
    ensure_err!(Grid::spread(u64::MAX, client.limits().max_grid), Error::GridTooLarge { .. });
    ensure_err!(Grid::cover(u64::MAX, 1), Error::GridTooLarge { .. });
    ensure!(matches!(Grid::cover(0, 64)?, Grid::Static(0, 1, 1)), "{:?}", Grid::cover(0, 64));
    ensure!(matches!(Grid::cover(65, 64)?, Grid::Static(2, 1, 1)), "{:?}", Grid::cover(65, 64));
    Ok(())
}

fn workgroups_know_where_they_are(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let indices = client.prepare(kernels::indices())?;
    let out = client.empty(24 * 4)?;
    client.launch(&indices, Grid::Static(2, 3, 4), [&out])?;
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, (0..24).collect::<Vec<u32>>());
    Ok(())
}

fn workgroups_know_the_axes_of_their_grid(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let axes = client.prepare(kernels::axes())?;
    let (x, y, z) = (2u32, 3u32, 4u32);
    let places = (0..z).flat_map(|c| (0..y).flat_map(move |b| (0..x).map(move |a| [a, b, c, x, y, z])));
    let expected: Vec<u32> = places.flatten().collect();
    for grid in [Grid::Static(x, y, z), Grid::Dynamic(client.create_from_slice(raw(&[x, y, z]))?)] {
        let out = client.zeros(24 * 24)?;
        client.launch(&axes, grid.clone(), [&out])?;
        ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, expected, "{grid:?}");
    }
    Ok(())
}

// ---- L4

fn counts_are_read_from_a_buffer(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for counts in [[5u32, 1, 1], [2, 3, 4], [1, 1, 1]] {
        let workgroups = counts.iter().product::<u32>();
        let grid = Grid::Dynamic(client.create_from_slice(raw(&counts))?);
        let (each, total) = counted(&client, grid, workgroups as usize)?;
        ensure_eq!(total, workgroups, "{counts:?}");
        ensure!(each.iter().all(|n| *n == 1), "{counts:?}: {each:?}");
    }
    Ok(())
}

fn counts_may_be_written_by_another_stream_just_before(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 80))?;
    let (writer, launcher) = (on_new_stream(&client), on_new_stream(&client));
    let count = client.prepare(kernels::count())?;
    let counts = client.zeros(12)?;
    let mut totals = Vec::new();
    for round in 1..=30u32 {
        writer.write_slice(&counts, raw(&[round, 2, 1]))?;
        let total = launcher.zeros(4)?;
        launcher.launch(&count, Grid::Dynamic(counts.clone()), [&total])?;
        totals.push(total);
    }
    for (round, total) in (1..).zip(&totals) {
        ensure_eq!(client.read_one(total)?.to_vec::<u32>()?, [round * 2u32]);
    }
    Ok(())
}

fn counts_written_by_a_kernel_are_read_after_it(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 81))?;
    let (carry, count) = (client.prepare(kernels::carry())?, client.prepare(kernels::count())?);
    let (source, counts, total) = (client.create_from_slice(raw(&[6u32, 7, 1]))?, client.zeros(12)?, client.zeros(4)?);
    client.launch(&carry, Grid::x(1), [&source, &counts])?;
    client.launch(&count, Grid::Dynamic(counts.clone()), [&total])?;
    // Replaced afterwards: may not be seen.
    on_new_stream(&client).fill(&counts, &[0])?;
    ensure_eq!(client.read_one(&total)?.to_vec::<u32>()?, [42]);
    Ok(())
}

fn a_zero_count_does_nothing(cx: &Context) -> Outcome {
    let client = cx.client()?;
    for counts in [[0u32, 1, 1], [3, 0, 3], [1, 1, 0], [0, 0, 0]] {
        let grid = Grid::Dynamic(client.create_from_slice(raw(&counts))?);
        ensure_eq!(counted(&client, grid, 4)?, (vec![0; 4], 0), "{counts:?}");
    }
    Ok(())
}

fn counts_over_the_limit_mark_the_outputs(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { max_grid: Some([9, 8, 7]), ..Variant::plain() })?;
    let count = client.prepare(kernels::count())?;
    for (counts, axis, requested) in
        [([10u32, 1, 1], 'x', 10), ([1, 9, 1], 'y', 9), ([1, 1, u32::MAX], 'z', u64::from(u32::MAX))]
    {
        let (grid, out) = (client.create_from_slice(raw(&counts))?, client.zeros(16)?);
        client.launch(&count, Grid::Dynamic(grid.clone()), [&out])?;
        let error = ensure_err!(client.read_one(&out), Error::GridTooLarge { .. });
        ensure!(
            matches!(error, Error::GridTooLarge { axis: a, requested: r, .. } if (a, r) == (axis, requested)),
            "{error:?}"
        );
        ensure_eq!(client.read_one(&grid)?.to_vec::<u32>()?, counts);
        // The stream goes on.
        client.fill(&out, &[0])?;
        ensure_eq!(client.read_one(&out)?.as_slice()?, [0; 16]);
    }
    Ok(())
}

fn tainted_counts_skip_the_launch_and_taint_the_outputs(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let count = client.prepare(kernels::count())?;
    let out = client.zeros(16)?;
    client.launch(&count, Grid::Dynamic(marked.slice(16..28)?), [&out])?;
    let error = ensure_err!(client.read_one(&out), Error::Inherited { .. });
    ensure!(matches!(error.root(), Error::Compile { .. }) && error.to_string().contains("count"), "{error}");
    client.write_slice(&marked.slice(16..28)?, raw(&[2u32, 2, 1]))?;
    client.fill(&out, &[0])?;
    client.launch(&count, Grid::Dynamic(marked.slice(16..28)?), [&out])?;
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, [1, 1, 1, 4]);
    Ok(())
}

fn a_buffer_that_is_too_short_or_misaligned_is_refused(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    let count = client.prepare(kernels::count())?;
    let (out, counts) = (client.zeros(16)?, client.create_from_slice(raw(&[1u32; 6]))?);
    let dynamic = |range| Ok::<_, Error>(Grid::Dynamic(counts.slice(range)?));
    let error = ensure_err!(client.launch(&count, dynamic(0..11)?, [&out]), Error::WrongLength { .. });
    ensure!(matches!(error, Error::WrongLength { got: 11, expected: 12, .. }), "{error:?}");
    ensure_err!(client.launch(&count, dynamic(0..0)?, [&out]), Error::WrongLength { .. });
    ensure_err!(client.launch(&count, dynamic(2..14)?, [&out]), Error::Misaligned { .. });
    ensure_err!(client.launch(&count, Grid::Dynamic(other.zeros(12)?), [&out]), Error::ForeignHandle { .. });
    ensure_eq!(client.read_one(&out)?.as_slice()?, [0; 16]);
    Ok(())
}

fn the_counts_may_lie_anywhere_in_a_buffer_and_be_dropped(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let count = client.prepare(kernels::count())?;
    let (step, total) = (client.prepare(kernels::step())?, client.zeros(4)?);
    let data: Vec<u32> = (0..100).collect();
    let all = client.create_from_slice(raw(&data))?;
    client.sync()?.wait()?;
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    held.launch(&count, Grid::Dynamic(all.slice(8..20)?), [&total])?;
    drop(all);
    let other = client.create_from_slice(raw(&[1u32; 100]))?;
    client.launch(&step, cover(100)?, [&other])?;
    gate.open()?;
    ensure_eq!(held.read_one(&total)?.to_vec::<u32>()?, [2 * 3 * 4]);
    Ok(())
}
