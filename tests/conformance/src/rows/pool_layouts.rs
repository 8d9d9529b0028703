//! M16: the pools of a device are data, and can be replaced while it works.

use crate::check::{Failure, Outcome, pattern};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::rows::program::Random;
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::{MemoryReport, ReportScope};

tests! {
    M16 a_layout_governs_what_is_allocated_from_then_on;
    M16 pages_of_the_layout_before_retire_as_they_empty;
    M16 bytes_in_pages_of_the_layout_before_stay;
    M16 persistent_and_dedicated_allocations_are_not_touched;
    M16 every_kind_of_pool_keeps_bytes_apart .seconds(120);
    M16 a_layout_may_be_replaced_under_load .seconds(120);
    M16 a_device_can_begin_with_any_layout;
    M16 a_layout_that_contradicts_itself_is_refused_and_names_the_value;
    M16 a_layout_this_device_cannot_have_is_refused_and_the_one_before_stays;
    M16 a_layout_can_be_serialised;
    M16 with_little_memory_every_mode_finds_room;
}

fn report(client: &Client) -> Outcome<MemoryReport> {
    Ok(client.memory_report(ReportScope::Device)?)
}

/// What a pool of the report holds; none of that name is nothing.
fn allocations(report: &MemoryReport, name: &str) -> u64 {
    report.pools.iter().filter(|pool| pool.name == name).map(|pool| pool.allocations).sum()
}

fn retired(report: &MemoryReport) -> u64 {
    report.pools.iter().filter(|pool| pool.retired).map(|pool| pool.pages).sum()
}

/// Small requests in slots, others where they fit.
fn slots() -> Outcome<PoolLayout> {
    Ok(PoolLayout::new(vec![
        PoolDescription::slabs("slots", 1024, PageSizes::fixed(64 << 10)),
        PoolDescription::new("others", Placement::Fit, PageSizes::growing(128 << 10, 8 << 20, 10)),
    ])?)
}

fn of(placement: Placement) -> Outcome<PoolLayout> {
    let pages = PageSizes::growing(32 << 10, 1 << 20, 10);
    Ok(PoolLayout::new(vec![match placement {
        Placement::Slabs => PoolDescription::slabs("only", 20_000, pages),
        placement => PoolDescription::new("only", placement, pages),
    }])?)
}

fn a_layout_governs_what_is_allocated_from_then_on(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.zeros(500)?;
    client.install_memory_pools(&slots()?)?;
    let names: Vec<_> = report(&client)?.pools.into_iter().map(|pool| pool.name).collect();
    let expected = ["slots", "others", "dedicated", "persistent"].map(String::from);
    ensure_eq!(names.get(..4), Some(&expected[..]));
    ensure_eq!(allocations(&report(&client)?, "slots"), 0);
    let (small, large) = (client.zeros(500)?, client.zeros(5000)?);
    let now = report(&client)?;
    ensure_eq!((allocations(&now, "slots"), allocations(&now, "others")), (1, 1));
    drop((before, small, large));
    client.sync()?.wait()?;
    let freed = report(&client)?;
    ensure_eq!((allocations(&freed, "slots"), freed.total().live), (0, 0));
    Ok(())
}

fn pages_of_the_layout_before_retire_as_they_empty(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let mut old = (0..4).map(|_| client.zeros(1 << 20)).collect::<Result<Vec<_>, _>>()?;
    let held = client.memory_usage()?.reserved;
    client.install_memory_pools(&slots()?)?;
    let shown = report(&client)?;
    ensure!(retired(&shown) >= 1, "the pool of the layout before is not shown: {shown}");
    ensure_eq!(shown.total().reserved, held, "what holds memory was given back, or what does not was kept");
    ensure_eq!(shown.total().live, 4 << 20);
    while let Some(handle) = old.pop() {
        drop(handle);
        client.sync()?.wait()?;
        let now = report(&client)?;
        ensure_eq!(now.total().live, (old.len() as u64) << 20);
        ensure!(now.total().reserved >= now.total().live, "{now}");
    }
    // What is finished is noticed in passing; nothing was allocated and nothing cleaned up.
    let gone = report(&client)?;
    ensure_eq!((retired(&gone), gone.total().reserved), (0, 0));
    ensure!(gone.pools.iter().all(|pool| !pool.retired), "{gone}");
    Ok(())
}

fn bytes_in_pages_of_the_layout_before_stay(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let data = pattern(300_000, 4);
    let old = client.create_from_slice(&data)?;
    for layout in [slots()?, PoolLayout::exclusive(), PoolLayout::fixed(1 << 20)?, PoolLayout::adaptive()] {
        client.install_memory_pools(&layout)?;
        let fresh = client.create_from_slice(&pattern(300_000, 9))?;
        client.memory_cleanup()?;
        ensure!(client.read_one(&old)?.as_slice()? == data, "{layout}: other bytes");
        drop(fresh);
    }
    Ok(())
}

fn persistent_and_dedicated_allocations_are_not_touched(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let persistent = client.memory_persistent_allocation(|| client.create_from_slice(&[3; 7000]))?;
    let dedicated = client.memory_dedicated_allocation(|| client.create_from_slice(&[4; 9000]))?;
    let counted = |report: &MemoryReport| (allocations(report, "persistent"), allocations(report, "dedicated"));
    let before = counted(&report(&client)?);
    client.install_memory_pools(&slots()?)?;
    let after = report(&client)?;
    ensure_eq!(counted(&after), before);
    ensure_eq!((before, retired(&after)), ((1, 1), 0));
    ensure_eq!(client.read_one(&persistent)?.as_slice()?, [3; 7000]);
    ensure_eq!(client.read_one(&dedicated)?.as_slice()?, [4; 9000]);
    Ok(())
}

/// Buffers of random sizes on three streams, each filled with its own byte and read back when it goes.
fn churn(client: &Client, seed: u64, rounds: u64, most: u64) -> Outcome {
    let mut random = Random::new(seed);
    let streams = [client.clone(), on_new_stream(client), on_new_stream(client)];
    let mut kept: Vec<(Handle, u8)> = Vec::new();
    for round in 0..rounds {
        let stream = &streams[random.below(3) as usize];
        let (handle, byte) = (stream.empty(random.below(most) + 1)?, round as u8);
        stream.fill(&handle, &[byte])?;
        kept.push((handle, byte));
        if kept.len() > 12 {
            let (gone, byte) = kept.swap_remove(random.below(12) as usize);
            let reader = &streams[random.below(3) as usize];
            if random.below(4) == 0 {
                let read = reader.read_one(&gone)?;
                ensure!(read.as_slice()?.iter().all(|b| *b == byte), "round {round}: another buffer's bytes");
            }
        }
    }
    for (handle, byte) in kept {
        let read = client.read_one(&handle)?;
        ensure!(read.as_slice()?.iter().all(|b| *b == byte), "another buffer's bytes at the end");
    }
    Ok(())
}

fn every_kind_of_pool_keeps_bytes_apart(cx: &Context) -> Outcome {
    let kinds = [Placement::Fit, Placement::Slabs, Placement::Linear, Placement::Exclusive];
    for (seed, placement) in kinds.into_iter().enumerate() {
        let client = cx.open(&Variant::late(Duration::from_micros(200), 90 + seed as u64))?;
        client.install_memory_pools(&of(placement)?)?;
        churn(&client, seed as u64, 250, 18_000)?;
        let used = report(&client)?;
        ensure!(used.pools[0].reused + used.pools[0].grown >= 250, "{placement} pool was not used: {used}");
        client.sync()?.wait()?;
        client.memory_cleanup()?;
        ensure_eq!(client.memory_usage()?.reserved, 0, "{placement}");
    }
    Ok(())
}

fn a_layout_may_be_replaced_under_load(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_micros(200), 95))?;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = |seed: u64| {
            let client = on_new_stream(&client);
            move || churn(&client, seed, 150, 60_000)
        };
        let threads: Vec<_> = (0..4).map(|i| scope.spawn(work(i + 950))).collect();
        let replace = || -> Outcome {
            let mut turn = 0;
            while threads.iter().any(|thread| !thread.is_finished()) {
                let kinds = [Placement::Fit, Placement::Linear, Placement::Exclusive];
                client.install_memory_pools(&of(kinds[turn % 3])?)?;
                client.install_memory_pools(&slots()?)?;
                turn += 1;
            }
            Ok(())
        };
        let replaced = replace();
        threads.into_iter().filter_map(|thread| thread.join().ok()).chain([replaced]).collect()
    });
    ensure_eq!(outcomes.len(), 5);
    outcomes.into_iter().collect::<Outcome>()?;
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    let end = report(&client)?;
    ensure_eq!((end.total().reserved, end.pools.len()), (0, 4), "{end}");
    Ok(())
}

fn a_device_can_begin_with_any_layout(cx: &Context) -> Outcome {
    for layout in [PoolLayout::slabs(), PoolLayout::exclusive(), PoolLayout::fixed(1 << 20)?, slots()?] {
        let mut settings = cx.settings();
        settings.open.memory_pools = layout.clone();
        let client = cx.open_with(&Variant::plain(), &settings)?;
        ensure_eq!(client.read_one(&client.create_from_slice(&[8; 200])?)?.as_slice()?, [8; 200]);
        let first = report(&client)?;
        let names: Vec<_> = first.pools.iter().map(|pool| pool.name.as_str()).take(layout.pools().len()).collect();
        ensure_eq!(names, layout.pools().iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>());
        ensure!(first.pools[0].grown == 1, "the first pool did not serve the first request: {first}");
    }
    Ok(())
}

fn a_layout_that_contradicts_itself_is_refused_and_names_the_value(_: &Context) -> Outcome {
    let fit = |first, largest| PoolDescription::new("a", Placement::Fit, PageSizes::growing(first, largest, 10));
    let cases: [(Vec<PoolDescription>, &str); 5] = [
        (vec![], "0 pools"),
        (vec![fit(0, 10)], "0 bytes"),
        (vec![fit(4096, 2048)], "2048 bytes"),
        (vec![fit(1024, 2048).up_to(2049)], "2049 bytes"),
        (vec![fit(1024, 2048), fit(1024, 2048)], "`a`"),
    ];
    for (pools, value) in cases {
        let error = ensure_err!(PoolLayout::new(pools), Error::InvalidLayout { .. });
        ensure!(error.to_string().contains(value), "{value} is not named: {error}");
    }
    Ok(())
}

fn a_layout_this_device_cannot_have_is_refused_and_the_one_before_stays(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { memory: Some(4 << 20), max_allocation: Some(1 << 20), ..Variant::plain() })?;
    let before = report(&client)?;
    let pages = PageSizes::fixed(64 << 20);
    let layout = PoolLayout::new(vec![PoolDescription::slabs("vast", 2 << 20, pages)])?;
    let error = ensure_err!(client.install_memory_pools(&layout), Error::InvalidLayout { .. });
    let Error::InvalidLayout { why } = error else { return Err(Failure::new("unreachable")) };
    ensure!(why.contains("vast") && why.contains("2097152") && why.contains("1048576"), "{why}");
    ensure_eq!(report(&client)?, before);
    ensure_eq!(client.read_one(&client.zeros(100)?)?.as_slice()?, [0; 100]);
    Ok(())
}

fn a_layout_can_be_serialised(_: &Context) -> Outcome {
    for layout in [PoolLayout::adaptive(), PoolLayout::slabs(), PoolLayout::exclusive(), slots()?] {
        let text = serde_json::to_string(&layout)?;
        ensure_eq!(serde_json::from_str::<PoolLayout>(&text)?, layout);
    }
    let text = serde_json::to_string(&slots()?)?.replace("1024", "0");
    let error = serde_json::from_str::<PoolLayout>(&text).err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("slots") && error.contains("0 bytes"), "what is read is not checked: {error:?}");
    Ok(())
}

fn with_little_memory_every_mode_finds_room(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { memory: Some(1 << 20), ..Variant::plain() })?;
    let auto = client.create_from_slice(&[1; 2048])?;
    let persistent = client.memory_persistent_allocation(|| client.create_from_slice(&[2; 2048]))?;
    let dedicated = client.memory_dedicated_allocation(|| client.create_from_slice(&[3; 2048]))?;
    for (handle, byte) in [(&auto, 1), (&persistent, 2), (&dedicated, 3)] {
        ensure_eq!(client.read_one(handle)?.as_slice()?, [byte; 2048]);
    }
    Ok(())
}
