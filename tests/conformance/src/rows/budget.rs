//! M18: how much memory there is to use, caps, and hooks that are asked before a request is refused.

use crate::check::{Failure, Outcome};
use crate::context::{AT_ONCE, Context, SOON, on_new_stream};
use crate::factory::Variant;
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Mutex;
use std::time::Instant;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, OutOfMemory, Rung};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::pressure::{PressureAnswer, RETRIES};
use trunnion_server_layers::{FaultInjector, FaultKind, FaultPlan, Operation, Validate};

tests! {
    M18 what_is_used_is_told_and_adds_up;
    M18 what_a_driver_does_not_say_is_left_out;
    M18 an_answer_is_kept_for_a_while_and_says_how_old_it_is;
    M18 a_cap_on_the_device_is_told_and_holds_before_the_driver_is_asked;
    M18 a_client_and_its_clones_are_capped_together_and_others_are_not;
    M18 a_request_over_a_clients_cap_is_refused_on_the_spot_by_name;
    M18 what_a_client_lets_go_it_may_hold_again;
    M18 a_hook_gives_memory_back_and_the_request_is_served;
    M18 a_hook_with_nothing_to_give_back_ends_in_the_error_that_names_it;
    M18 a_hook_is_asked_a_bounded_number_of_times;
    M18 a_hook_that_panics_is_a_refusal_and_the_device_goes_on;
    M18 a_blocking_call_inside_a_hook_is_refused_and_not_waited_for;
    M18 a_hook_that_was_removed_is_not_asked;
    M18 a_hook_is_asked_for_a_client_over_its_cap;
    M18 memory_given_back_by_a_hook_is_seen_through_layers;
}

/// What the tests' devices have.
const MEMORY: u64 = 16 << 20;
/// Most of it.
const MOST: u64 = 10 << 20;

fn small(cx: &Context) -> Outcome<Client> {
    cx.open(&Variant { memory: Some(MEMORY), ..Variant::plain() })
}

fn out_of_memory(client: &Client, handle: &Handle) -> Outcome<OutOfMemory> {
    match client.read_one(handle) {
        Err(Error::OutOfMemory(numbers)) => Ok(*numbers),
        other => Err(Failure::new(format_args!("expected out of memory, got {:?}", other.map(|bytes| bytes.len())))),
    }
}

fn what_is_used_is_told_and_adds_up(cx: &Context) -> Outcome {
    let client = small(cx)?;
    let before = client.memory_budget_within(Duration::ZERO)?;
    let held = client.zeros(MOST)?;
    let after = client.memory_budget_within(Duration::ZERO)?;
    ensure_eq!(after.live, before.live + MOST);
    ensure_eq!(after.reserved, client.memory_usage()?.reserved);
    ensure_eq!((after.limit, after.client_limit, after.client_live), (None, None, None));
    if let (Some(free), Some(less)) = (before.free, after.free) {
        ensure!(less <= free - MOST, "{free} bytes were free, and {less} are with {MOST} more in use");
    }
    if let (Some(limit), Some(used)) = (after.process_limit, after.process_used) {
        ensure!(used <= limit && used >= after.reserved, "{used} of {limit} used, {} reserved", after.reserved);
    }
    if let Some(total) = after.total {
        ensure_eq!(total, client.limits().memory);
        ensure!(after.free.is_none_or(|free| free <= total), "{after:?}");
    }
    ensure!(after.room().is_none_or(|room| room <= MEMORY - MOST), "{after}");
    drop(held);
    Ok(())
}

fn what_a_driver_does_not_say_is_left_out(cx: &Context) -> Outcome {
    let budget = small(cx)?.memory_budget()?;
    let text = budget.to_string();
    ensure_eq!(text.contains("device "), budget.total.is_some());
    ensure_eq!(text.contains("free "), budget.free.is_some());
    ensure_eq!(text.contains("process may use "), budget.process_limit.is_some());
    ensure!(text.contains("reserved ") && !text.contains("client"), "{text}");
    let json = serde_json::to_string(&budget)?;
    ensure_eq!(serde_json::from_str::<trunnion_runtime_core::budget::MemoryBudget>(&json)?, budget);
    Ok(())
}

fn an_answer_is_kept_for_a_while_and_says_how_old_it_is(cx: &Context) -> Outcome {
    let client = small(cx)?;
    let hour = Duration::from_secs(3600);
    let first = client.memory_budget_within(hour)?;
    let held = client.zeros(MOST)?;
    std::thread::sleep(Duration::from_millis(5));
    let kept = client.memory_budget_within(hour)?;
    ensure_eq!((kept.live, kept.reserved, kept.free), (first.live, first.reserved, first.free));
    ensure!(kept.age >= Duration::from_millis(5) && kept.age > first.age, "{:?}, then {:?}", first.age, kept.age);
    let start = Instant::now();
    let fresh = client.memory_budget_within(Duration::ZERO)?;
    ensure_eq!(fresh.live, first.live + MOST);
    ensure!(fresh.age <= start.elapsed(), "{:?} old, asked {:?} ago", fresh.age, start.elapsed());
    // Clients share the answer, and the usual age is short.
    ensure_eq!(on_new_stream(&client).memory_budget_within(hour)?.live, fresh.live);
    drop(held);
    client.sync()?.wait()?;
    let start = Instant::now();
    while client.memory_budget()?.live > first.live {
        ensure!(start.elapsed() < SOON, "an old answer is given for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn a_cap_on_the_device_is_told_and_holds_before_the_driver_is_asked(cx: &Context) -> Outcome {
    let mut settings = cx.settings();
    settings.open.memory_budget = Some(8 << 20);
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let held = client.zeros(6 << 20)?;
    let numbers = out_of_memory(&client, &client.empty(6 << 20)?)?;
    ensure_eq!((numbers.budget, numbers.driver), (Some(8 << 20), None));
    ensure!(!numbers.tried.contains(&Rung::Grow), "the driver was asked: {:?}", numbers.tried);
    let budget = client.memory_budget_within(Duration::ZERO)?;
    ensure_eq!(budget.limit, Some(8 << 20));
    ensure!(budget.room().is_some_and(|room| room <= 2 << 20), "{budget}");
    drop(held);
    Ok(())
}

fn a_client_and_its_clones_are_capped_together_and_others_are_not(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let free = client.clone();
    let earlier = client.zeros(5000)?;
    let mut capped = client;
    capped.set_memory_limit(10_000)?;
    ensure_eq!((capped.memory_limit(), free.memory_limit()), (Some(10_000), None));
    // What there was does not count.
    let first = capped.create_from_slice(&[1; 6000])?;
    let (clone, other) = (capped.clone(), on_new_stream(&capped));
    ensure_err!(clone.empty(4001), Error::ClientMemoryLimit { .. });
    let second = other.create_from_slice(&[2; 4000])?;
    ensure_err!(capped.zeros(1), Error::ClientMemoryLimit { live: 10_000, .. });
    ensure_eq!(capped.empty(0)?.size_in_used(), 0);
    let unlimited = free.create_from_slice(&[3; 50_000])?;
    let mut separate = capped.clone();
    separate.set_memory_limit(7000)?;
    let third = separate.create_from_slice(&[4; 7000])?;
    let mut lifted = separate.clone();
    lifted.set_memory_limit(None)?;
    ensure_eq!(lifted.zeros(100_000)?.size_in_used(), 100_000);
    let budget = capped.memory_budget()?;
    ensure_eq!((budget.client_limit, budget.client_live), (Some(10_000), Some(10_000)));
    ensure_eq!(budget.room(), Some(0));
    for (handle, byte) in [(&first, 1), (&second, 2), (&unlimited, 3), (&third, 4)] {
        ensure!(
            free.read_one(handle)?.as_slice()?.iter().all(|read| *read == byte),
            "buffer {byte} is not what it was"
        );
    }
    drop(earlier);
    Ok(())
}

fn a_request_over_a_clients_cap_is_refused_on_the_spot_by_name(cx: &Context) -> Outcome {
    let mut client = cx.client()?;
    client.set_memory_limit(1000)?;
    let held = client.zeros(700)?;
    let before = client.memory_usage()?;
    let error = ensure_err!(client.create_from_slice(&[0; 301]), Error::ClientMemoryLimit { .. });
    ensure_eq!(error, Error::ClientMemoryLimit { requested: 301, live: 700, limit: 1000 });
    ensure!(error.is_out_of_memory() && !error.is_refusal() && !error.is_busy(), "{error:?}");
    for number in ["301", "700", "1000"] {
        ensure!(error.to_string().contains(number), "{number} is not in {error}");
    }
    // Neither pools nor driver were asked.
    let after = client.memory_usage()?;
    ensure_eq!((after.allocations, after.reserved), (before.allocations, before.reserved));
    ensure_err!(client.empty(u64::MAX / 2), Error::TooLarge { .. });
    drop(held);
    Ok(())
}

fn what_a_client_lets_go_it_may_hold_again(cx: &Context) -> Outcome {
    let mut client = cx.client()?;
    client.set_memory_limit(1000)?;
    for round in 0..200u8 {
        let handle = client.create_from_slice(&[round; 900])?;
        let slice = handle.slice(800..)?;
        drop(handle);
        ensure_err!(client.empty(200), Error::ClientMemoryLimit { live: 900, .. });
        ensure_eq!(client.read_one(&slice)?.as_slice()?, [round; 100]);
        drop(slice);
        // What is queued or under way holds it too.
        client.sync()?.wait()?;
        crate::context::eventually("the bytes are let go", || Ok(client.memory_budget()?.client_live == Some(0)))?;
    }
    // A failed reservation counts while its handle is held, and not after.
    let small = small(cx)?;
    let mut capped = small.clone();
    capped.set_memory_limit(2 * MOST)?;
    let (held, failed) = (capped.zeros(MOST)?, capped.empty(MOST)?);
    out_of_memory(&capped, &failed)?;
    drop((held, failed));
    capped.sync()?.wait()?;
    ensure_eq!(capped.memory_budget()?.client_live, Some(0));
    Ok(())
}

/// A cache that a hook empties, and how often it was asked.
#[derive(Clone, Default)]
struct Cache(Arc<Mutex<Vec<Handle>>>, Arc<AtomicU32>);

impl Cache {
    fn put(&self, handle: Handle) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(handle);
    }

    /// Lets one go.
    fn shrink(&self) -> PressureAnswer {
        self.1.fetch_add(1, Ordering::Relaxed);
        match self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop() {
            Some(_) => PressureAnswer::Retry,
            None => PressureAnswer::Refuse,
        }
    }

    fn asked(&self) -> u32 {
        self.1.load(Ordering::Relaxed)
    }
}

fn a_hook_gives_memory_back_and_the_request_is_served(cx: &Context) -> Outcome {
    for variant in [
        Variant { memory: Some(MEMORY), ..Variant::plain() },
        Variant { memory: Some(MEMORY), ..Variant::late(Duration::from_millis(1), 18) },
    ] {
        let client = cx.open(&variant)?;
        let cache = Cache::default();
        for byte in 0..3 {
            let handle = client.empty(4 << 20)?;
            client.fill(&handle, &[byte])?;
            cache.put(handle);
        }
        let (theirs, told) = (cache.clone(), Arc::new(AtomicU64::new(0)));
        let numbers = told.clone();
        let _hook = client.on_memory_pressure(move |pressure| {
            if let Error::OutOfMemory(details) = pressure.error {
                numbers.store(details.live, Ordering::Relaxed);
            }
            theirs.shrink()
        })?;
        // There is room for that only when two of the three are gone.
        let wanted = client.empty(MOST)?;
        client.fill(&wanted, &[9])?;
        ensure!(client.read_one(&wanted.slice(..64)?)?.as_slice()? == [9; 64], "not what was filled in");
        ensure!((1..=3).contains(&cache.asked()), "asked {} times", cache.asked());
        ensure!(told.load(Ordering::Relaxed) >= 4 << 20, "the hook was told of {told:?} live bytes");
    }
    Ok(())
}

fn a_hook_with_nothing_to_give_back_ends_in_the_error_that_names_it(cx: &Context) -> Outcome {
    let client = small(cx)?;
    let held = client.zeros(MOST)?;
    let without = out_of_memory(&client, &client.empty(MOST)?)?;
    ensure!(!without.tried.contains(&Rung::Hook), "there is no hook: {:?}", without.tried);
    let cache = Cache::default();
    let theirs = cache.clone();
    let hook = client.on_memory_pressure(move |_| theirs.shrink())?;
    let failed = client.empty(MOST)?;
    let numbers = out_of_memory(&client, &failed)?;
    ensure_eq!(numbers.tried.last(), Some(&Rung::Hook));
    ensure_eq!((numbers.requested, cache.asked()), (MOST, 1));
    ensure!(Error::OutOfMemory(Box::new(numbers)).to_string().contains("Hook"), "the hook is not named");
    // The mark lies on that buffer alone, and what is asked for next is served.
    ensure_err!(client.check(&[&failed]), Error::OutOfMemory(_));
    ensure_eq!(client.read_one(&client.create_from_slice(&[1; 100])?)?.as_slice()?, [1; 100]);
    drop((failed, held, hook));
    ensure_eq!(client.read_one(&client.zeros(MOST)?.slice(..8)?)?.as_slice()?, [0; 8]);
    ensure_eq!(cache.asked(), 1, "no hook is asked where there is memory");
    Ok(())
}

fn a_hook_is_asked_a_bounded_number_of_times(cx: &Context) -> Outcome {
    let client = small(cx)?;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let theirs = attempts.clone();
    let _hook = client.on_memory_pressure(move |pressure| {
        theirs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((pressure.attempt, pressure.requested));
        PressureAnswer::Retry
    })?;
    let held = client.zeros(MOST)?;
    let start = Instant::now();
    out_of_memory(&client, &client.empty(MOST)?)?;
    ensure!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
    let asked = attempts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    ensure_eq!(asked, (0..RETRIES).map(|attempt| (attempt, MOST)).collect::<Vec<_>>());
    drop(held);
    Ok(())
}

fn a_hook_that_panics_is_a_refusal_and_the_device_goes_on(cx: &Context) -> Outcome {
    let client = small(cx)?;
    let hook = client.on_memory_pressure(|_| panic!("on purpose, in a hook"))?;
    let held = client.create_from_slice(&vec![7; MOST as usize])?;
    let numbers = out_of_memory(&client, &client.empty(MOST)?)?;
    ensure_eq!(numbers.tried.last(), Some(&Rung::Hook));
    ensure_eq!(client.read_one(&held.slice(..16)?)?.as_slice()?, [7; 16]);
    // One that does better is asked as well.
    let cache = Cache::default();
    cache.put(held);
    let theirs = cache.clone();
    let _other = client.on_memory_pressure(move |_| theirs.shrink())?;
    ensure_eq!(client.read_one(&client.zeros(MOST)?.slice(..8)?)?.as_slice()?, [0; 8]);
    drop(hook);
    Ok(())
}

fn a_blocking_call_inside_a_hook_is_refused_and_not_waited_for(cx: &Context) -> Outcome {
    let client = small(cx)?;
    let (inside, answers) = (client.clone(), Arc::new(Mutex::new(Vec::new())));
    let theirs = answers.clone();
    let hook = client.on_memory_pressure(move |_| {
        let called = [
            inside.memory_usage().err(),
            inside.sync().and_then(|done| done.wait()).err(),
            inside.zeros(16).and_then(|handle| inside.read_one(&handle)).err(),
            inside.memory_cleanup().err(),
        ];
        theirs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(called);
        PressureAnswer::Refuse
    })?;
    let held = client.zeros(MOST)?;
    let start = Instant::now();
    out_of_memory(&client, &client.empty(MOST)?)?;
    ensure!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
    let answers = answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    ensure_eq!(answers.len(), 4);
    for answer in answers {
        ensure!(matches!(answer, Some(Error::Reentrant { .. })), "{answer:?}");
    }
    drop((held, hook));
    client.sync()?.wait()?;
    Ok(())
}

fn a_hook_that_was_removed_is_not_asked(cx: &Context) -> Outcome {
    let client = small(cx)?;
    let cache = Cache::default();
    let (first, second) = (cache.clone(), cache.clone());
    let hook = client.on_memory_pressure(move |_| first.shrink())?;
    client.on_memory_pressure(move |_| second.shrink())?.keep();
    let held = client.zeros(MOST)?;
    out_of_memory(&client, &client.empty(MOST)?)?;
    ensure_eq!(cache.asked(), 2);
    drop(hook);
    out_of_memory(&client, &client.empty(MOST)?)?;
    ensure_eq!(cache.asked(), 3);
    client.shutdown(SOON);
    ensure_err!(client.on_memory_pressure(|_| PressureAnswer::Retry).map(drop), Error::ShutDown { .. });
    ensure_eq!(Arc::strong_count(&cache.1), 1, "a device that has ended keeps its hooks");
    drop(held);
    Ok(())
}

fn a_hook_is_asked_for_a_client_over_its_cap(cx: &Context) -> Outcome {
    let mut client = cx.client()?;
    client.set_memory_limit(1000)?;
    let cache = Cache::default();
    for _ in 0..2 {
        cache.put(client.empty(400)?);
    }
    // What is reserved may still be held by the queue.
    client.sync()?.wait()?;
    let (theirs, nested) = (cache.clone(), client.clone());
    let _hook = client.on_memory_pressure(move |pressure| {
        let is_named = matches!(pressure.error, Error::ClientMemoryLimit { limit: 1000, .. });
        // Asks no hook, and so has an end.
        let refused = nested.empty(999).is_err();
        if is_named && refused { theirs.shrink() } else { PressureAnswer::Refuse }
    })?;
    ensure_eq!(client.read_one(&client.create_from_slice(&[5; 900])?)?.as_slice()?, [5; 900]);
    ensure_eq!(cache.asked(), 2);
    ensure_err!(client.empty(1001), Error::ClientMemoryLimit { .. });
    ensure_eq!(cache.asked(), 2, "no hook can help a request over the cap");
    Ok(())
}

fn memory_given_back_by_a_hook_is_seen_through_layers(cx: &Context) -> Outcome {
    let settings = cx.settings();
    let variant = Variant { memory: Some(MEMORY), ..Variant::plain() };
    let plan = FaultPlan::new().fail_operation(Operation::Reserve, 2, FaultKind::OutOfMemory);
    let (opened, inner) = Validate::around(cx.opened(&variant, &settings.open)?);
    let (opened, faults) = FaultInjector::around(opened, plan);
    let (opened, outer) = Validate::around(opened);
    let client = Client::try_init_with(cx.device()?, opened, &settings)?;
    let cache = Cache::default();
    let theirs = cache.clone();
    let _hook = client.on_memory_pressure(move |_| theirs.shrink())?;
    cache.put(client.zeros(1000)?);
    // Fails on purpose, and is tried again when the hook has given something back.
    ensure_eq!(client.read_one(&client.create_from_slice(&[3; 500])?)?.as_slice()?, [3; 500]);
    ensure_eq!((cache.asked(), faults.fired().len()), (1, 1));
    cache.put(client.zeros(MOST)?);
    ensure_eq!(client.read_one(&client.zeros(MOST)?.slice(..8)?)?.as_slice()?, [0; 8]);
    ensure_eq!(cache.asked(), 2);
    let held = client.zeros(MOST)?;
    out_of_memory(&client, &client.empty(MOST)?)?;
    drop(held);
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, 0);
    for violations in [inner, outer] {
        ensure!(violations.count() == 0, "{violations:?}");
    }
    Ok(())
}
