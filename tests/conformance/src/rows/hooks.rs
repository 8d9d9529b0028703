//! M18: hooks for memory pressure that do what a hook should not, and what is called from inside them.

use crate::check::{Failure, Outcome};
use crate::context::{AT_ONCE, Context, SOON, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Rung};
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::pressure::{MemoryPressure, PressureAnswer, PressureHook};
use trunnion_runtime_core::report::ReportScope;

tests! {
    M18 a_hook_may_call_its_device_in_every_way .seconds(240);
    M18 what_a_hook_requests_asks_no_hook;
    M18 a_hook_may_use_another_device;
    M18 a_hook_that_drops_the_last_client_ends_the_device;
    M18 a_hook_that_shuts_its_device_down_ends_in_an_answer;
    M18 a_hook_can_remove_itself_and_add_another;
    M18 a_hook_is_asked_while_somebody_has_the_device;
    M18 what_a_hook_held_may_panic_as_it_is_dropped;
    M18 hooks_staging_and_caps_end_with_their_device .seconds(120);
    M18 capped_threads_that_share_a_cache_all_get_on .seconds(120);
}

const MEMORY: u64 = 16 << 20;
const MOST: u64 = 10 << 20;
const SHORT: Duration = Duration::from_millis(5);
const EXECUTIONS: [Execution; 2] = [Execution::Runner, Execution::Inline];

fn small(cx: &Context, execution: Execution) -> Outcome<Client> {
    small_with(cx, execution, Variant::plain())
}

fn small_with(cx: &Context, execution: Execution, variant: Variant) -> Outcome<Client> {
    let mut settings = cx.settings();
    settings.executor.execution = execution;
    settings.staging_limit = Some(1 << 20);
    cx.open_with(&Variant { memory: Some(MEMORY), ..variant }, &settings)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_served(client: &Client) -> Outcome {
    ensure_eq!(client.read_one(&client.create_from_slice(&[7; 100])?)?.as_slice()?, [7; 100]);
    Ok(())
}

/// Makes each of these calls, whose answers do not matter as long as they come soon, and adds those that took their time.
macro_rules! call {
    ($slow:ident: $($call:expr;)*) => {
        $(
            let start = Instant::now();
            let _ = $call;
            if start.elapsed() > AT_ONCE {
                $slow.push(format!("{} took {:?}", stringify!($call), start.elapsed()));
            }
        )*
    };
}

/// Everything that a client can be asked. Says which calls took long.
fn call_in_every_way(client: &Client, old: &Handle) -> Vec<String> {
    let mut slow = Vec::new();
    let mut other = on_new_stream(client);
    other.set_memory_limit(1 << 20).ok();
    for client in [client, &other] {
        let Ok(handle) = client.create_from_slice(&[1; 100]) else { continue };
        call! { slow:
            client.zeros(300_000);
            client.create_from_slice(&vec![1; 1 << 20]);
            client.write_slice(old, &[3; 64]);
            client.write(&handle, Bytes::from_vec(vec![2; 100]));
            client.fill(&handle, &[5]);
            client.copy(&handle, &handle);
            client.read_async(&[&handle]);
            client.read(&[&handle]);
            client.read_into(&handle, &mut [0; 100]);
            client.read_lazy(&handle).and_then(|lazy| lazy.as_slice().map(<[u8]>::len));
            client.read_timeout(&[old], SHORT);
            client.flush();
            client.sync().and_then(|done| done.wait());
            client.sync_timeout(SHORT);
            client.sync_buffers(&[&handle, old]);
            client.check(&[&handle, old]);
            client.record().and_then(|point| client.wait(point)).and_then(|point| client.is_done(point));
            client.prepare(kernels::step()).and_then(|step| client.launch(&step, cover(16)?, [old]));
            client.compile_queued();
            client.compile_statistics();
            client.exclusive(|| client.memory_usage());
            client.exclusive_timeout(SHORT, || ());
            client.memory_budget_within(Duration::ZERO);
            client.memory_report(ReportScope::Device);
            client.memory_cleanup();
            client.install_memory_pools(&PoolLayout::default());
            client.memory_dedicated_allocation(|| client.empty(1000));
            client.memory_persistent_allocation(|| client.empty(1000));
            client.reserve_staging(&[0, 10, 100]);
            client.staging(&mut [Bytes::from_vec(vec![1; 10])], false);
            client.create_from_slice_pinned(&[4; 5000]);
            client.to_client(&handle, client);
            client.on_memory_pressure(|_| PressureAnswer::Retry);
            client.empty(MOST);
        }
    }
    slow
}

fn a_hook_may_call_its_device_in_every_way(cx: &Context) -> Outcome {
    let variants = [
        Variant::plain(),
        Variant { pinned_memory: Some(1 << 20), refuse_pin: Some(2), ..Variant::plain() },
        Variant { separate_memory: true, ..Variant::late(Duration::from_micros(300), 5) },
    ];
    for (execution, variant) in EXECUTIONS.into_iter().flat_map(|e| variants.clone().map(|v| (e, v))) {
        let client = small_with(cx, execution, variant)?;
        let held = client.zeros(MOST)?;
        let (inside, old) = (client.clone(), client.zeros(64)?);
        client.sync()?.wait()?;
        let (asked, slow) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (theirs, target, told) = (asked.clone(), old.clone(), slow.clone());
        let hook = client.on_memory_pressure(move |_| {
            theirs.fetch_add(1, Ordering::Relaxed);
            lock(&told).extend(call_in_every_way(&inside, &target));
            if theirs.load(Ordering::Relaxed) < 3 { PressureAnswer::Retry } else { PressureAnswer::Refuse }
        })?;
        let start = Instant::now();
        let failed = client.empty(MOST)?;
        let error = ensure_err!(client.read_one(&failed), Error::OutOfMemory(_));
        let Error::OutOfMemory(numbers) = &error else { return Ok(()) };
        ensure_eq!(numbers.tried.last(), Some(&Rung::Hook));
        ensure!(lock(&slow).is_empty(), "{execution:?}: {:?}", lock(&slow));
        ensure!(start.elapsed() < SOON * 2, "{execution:?}: it took {:?}", start.elapsed());
        drop(hook);
        is_served(&client)?;
        drop((failed, held, old));
        client.sync()?.wait()?;
        client.memory_cleanup()?;
        crate::context::eventually("everything is given back", || Ok(client.memory_usage()?.live == 0))?;
        crate::context::eventually("staging has ended", || Ok(client.staging_usage().in_use == 0))?;
        // On its caller's thread, nothing is refused for where it comes from.
        let mut capped = client.clone();
        capped.set_memory_limit(1000)?;
        let (inside, old, held) = (client.clone(), client.zeros(64)?, capped.empty(900)?);
        let told = slow.clone();
        let _hook = client.on_memory_pressure(move |_| {
            lock(&told).extend(call_in_every_way(&inside, &old));
            let usage = inside.memory_usage().is_ok() && is_served(&inside).is_ok();
            if usage { PressureAnswer::Retry } else { PressureAnswer::Refuse }
        })?;
        let start = Instant::now();
        ensure_err!(capped.empty(900), Error::ClientMemoryLimit { live: 900, .. });
        ensure!(lock(&slow).is_empty(), "{execution:?}, by its caller: {:?}", lock(&slow));
        ensure!(start.elapsed() < SOON * 2, "{execution:?}: it took {:?}", start.elapsed());
        drop(held);
        client.shutdown(SOON);
    }
    Ok(())
}

fn what_a_hook_requests_asks_no_hook(cx: &Context) -> Outcome {
    for (execution, others) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| (EXECUTIONS[a], EXECUTIONS[b])) {
        let (client, other) = (small(cx, execution)?, small(cx, others)?);
        let held = (client.zeros(MOST)?, other.zeros(MOST)?);
        let (asked, made) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
        // Each has more requested of both devices, which run once the hook is through, and find no memory either.
        let hook = |own: &Client, other: &Client| {
            let (own, other, asked, made) = (own.clone(), other.clone(), asked.clone(), made.clone());
            move |_: &MemoryPressure<'_>| {
                asked.fetch_add(1, Ordering::Relaxed);
                for client in [&own, &other] {
                    lock(&made).extend(client.empty(MOST));
                }
                PressureAnswer::Refuse
            }
        };
        let hooks =
            (client.on_memory_pressure(hook(&client, &other))?, other.on_memory_pressure(hook(&other, &client))?);
        ensure_err!(client.read_one(&client.empty(MOST)?), Error::OutOfMemory(_));
        for client in [&client, &other] {
            client.sync()?.wait()?;
        }
        ensure_eq!(asked.load(Ordering::Relaxed), 1, "{execution:?} and {others:?}");
        ensure_eq!(lock(&made).len(), 2);
        for (client, handle) in [&client, &other].into_iter().zip(lock(&made).iter()) {
            let error = ensure_err!(client.check(&[handle]), Error::OutOfMemory(_));
            ensure!(!error.to_string().contains("Hook"), "no hook was asked: {error}");
        }
        drop((held, hooks));
    }
    Ok(())
}

fn a_hook_may_use_another_device(cx: &Context) -> Outcome {
    for (own, others) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| (EXECUTIONS[a], EXECUTIONS[b])) {
        let (client, other) = (small(cx, own)?, small(cx, others)?);
        let cache = Arc::new(Mutex::new(Some(client.create_from_slice(&vec![9; MOST as usize])?)));
        let spilled = Arc::new(Mutex::new(None));
        let (theirs, there, inside) = (cache.clone(), spilled.clone(), client.clone());
        // What waits for the bytes waits for this device, which the hook keeps: so not on the stream that they arrive on.
        let (away, served) = (other.clone(), on_new_stream(&other));
        let _hook = client.on_memory_pressure(move |_| {
            // The bytes are on their way by the time the request is tried again, and hold their memory until then.
            let Some(handle) = lock(&theirs).take() else { return PressureAnswer::Refuse };
            let moved = inside.to_client(&handle.slice(..64).unwrap_or(handle), &away);
            let is_served = is_served(&served).is_ok();
            *lock(&there) = moved.ok();
            if is_served { PressureAnswer::Retry } else { PressureAnswer::Refuse }
        })?;
        let start = Instant::now();
        let wanted = client.empty(MOST)?;
        let answer = client.check(&[&wanted]);
        ensure!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
        ensure!(answer.as_ref().err().is_none_or(Error::is_out_of_memory), "{own:?}, {others:?}: {answer:?}");
        let moved = lock(&spilled).take().ok_or_else(|| Failure::new("nothing was moved"))?;
        ensure_eq!(other.read_one(&moved)?.as_slice()?, [9; 64]);
        is_served(&client)?;
    }
    Ok(())
}

fn a_hook_that_drops_the_last_client_ends_the_device(cx: &Context) -> Outcome {
    for execution in EXECUTIONS {
        let client = small(cx, execution)?;
        let last = Arc::new(Mutex::new(None::<Client>));
        let (gone, when_gone) = mpsc::channel::<()>();
        let (dropped, when_dropped) = mpsc::channel();
        let (theirs, when_gone) = (last.clone(), Mutex::new(when_gone));
        let _hook = client.on_memory_pressure(move |_| {
            lock(&when_gone).recv_timeout(Duration::from_millis(500)).ok();
            let start = Instant::now();
            drop(lock(&theirs).take());
            dropped.send(start.elapsed()).ok();
            PressureAnswer::Retry
        })?;
        let held = client.zeros(MOST)?;
        *lock(&last) = Some(client.clone());
        let failed = client.empty(MOST)?;
        drop(client);
        gone.send(()).ok();
        let took = when_dropped.recv_timeout(SOON).map_err(|_| Failure::new("the hook did not come back"))?;
        ensure!(took < Duration::from_secs(4), "{execution:?}: the last client was {took:?} being dropped");
        // The device lets go of the hook as it ends.
        let again = when_dropped.recv_timeout(SOON);
        ensure!(
            again.is_ok() || again == Err(mpsc::RecvTimeoutError::Disconnected),
            "{execution:?}: the device keeps its hook"
        );
        drop((held, failed));
    }
    Ok(())
}

fn a_hook_that_shuts_its_device_down_ends_in_an_answer(cx: &Context) -> Outcome {
    for (execution, answer) in
        EXECUTIONS.into_iter().flat_map(|e| [PressureAnswer::Retry, PressureAnswer::Refuse].map(|a| (e, a)))
    {
        let client = small(cx, execution)?;
        let inside = client.clone();
        let hook = client.on_memory_pressure(move |_| {
            // What is queued has as long to end, also where the device looks for memory again first.
            inside.shutdown(SOON);
            answer
        })?;
        let held = client.zeros(MOST)?;
        let start = Instant::now();
        let answered = client.empty(MOST).and_then(|failed| client.read_one(&failed).map(|bytes| bytes.len()));
        ensure!(
            matches!(answered, Err(Error::ShutDown { .. } | Error::OutOfMemory(_))),
            "{execution:?}, {answer:?}: {answered:?}"
        );
        ensure!(start.elapsed() < AT_ONCE, "{execution:?}: it took {:?}", start.elapsed());
        ensure_err!(client.zeros(1), Error::ShutDown { .. });
        ensure_eq!(client.shutdown(SOON).abandoned, 0, "{execution:?}, {answer:?}");
        drop((hook, held));
    }
    Ok(())
}

fn a_hook_can_remove_itself_and_add_another(cx: &Context) -> Outcome {
    for execution in EXECUTIONS {
        let client = small(cx, execution)?;
        let cache = Arc::new(Mutex::new(Some(client.zeros(MOST)?)));
        let own: Arc<Mutex<Vec<PressureHook>>> = Arc::default();
        let asked = Arc::new(AtomicU32::new(0));
        let (theirs, inside, counted, cached) = (own.clone(), client.clone(), asked.clone(), cache.clone());
        lock(&own).push(client.on_memory_pressure(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut hooks = lock(&theirs);
            drop(hooks.pop());
            let cached = cached.clone();
            let next = inside.on_memory_pressure(move |pressure| match lock(&cached).take() {
                Some(_) if pressure.attempt > 0 => PressureAnswer::Retry,
                _ => PressureAnswer::Refuse,
            });
            hooks.extend(next);
            PressureAnswer::Retry
        })?);
        // The first only sees to it that there is a second, which gives something back.
        ensure_eq!(client.read_one(&client.zeros(MOST)?.slice(..8)?)?.as_slice()?, [0; 8]);
        ensure_eq!((asked.load(Ordering::Relaxed), lock(&own).len()), (1, 1));
        lock(&own).clear();
        ensure_eq!(Arc::strong_count(&asked), 1, "{execution:?}: a hook that was removed is kept");
        ensure_eq!(Arc::strong_count(&cache), 1, "{execution:?}: a hook that was removed is kept");
    }
    Ok(())
}

fn a_hook_is_asked_while_somebody_has_the_device(cx: &Context) -> Outcome {
    for execution in EXECUTIONS {
        let client = small(cx, execution)?;
        let cache = Arc::new(Mutex::new(Some(client.zeros(MOST)?)));
        let theirs = cache.clone();
        let _hook = client.on_memory_pressure(move |_| match lock(&theirs).take() {
            Some(_) => PressureAnswer::Retry,
            None => PressureAnswer::Refuse,
        })?;
        let read = client.exclusive(|| client.read_one(&client.zeros(MOST)?.slice(..8)?))??;
        ensure_eq!(read.as_slice()?, [0; 8]);
        ensure!(lock(&cache).is_none(), "{execution:?}: the hook was not asked");
    }
    Ok(())
}

/// Panics as it is dropped.
struct Bomb(Arc<AtomicU32>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("on purpose, as a hook's value is dropped");
    }
}

fn what_a_hook_held_may_panic_as_it_is_dropped(cx: &Context) -> Outcome {
    for execution in EXECUTIONS {
        let client = small(cx, execution)?;
        let dropped = Arc::new(AtomicU32::new(0));
        let hook = |bomb: Bomb| {
            client.on_memory_pressure(move |_| {
                let _held = &bomb;
                PressureAnswer::Refuse
            })
        };
        drop(hook(Bomb(dropped.clone()))?);
        ensure_eq!(dropped.load(Ordering::Relaxed), 1);
        hook(Bomb(dropped.clone()))?.keep();
        hook(Bomb(dropped.clone()))?.keep();
        // So may what a kernel's function holds.
        for bomb in [Bomb(dropped.clone()), Bomb(dropped.clone())] {
            let function = Source::host(move |_| {
                let _held = &bomb;
                Ok(())
            });
            let text = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
                @compute @workgroup_size(1) fn held() { x[0] += 1u; }";
            let interface = Interface::new().partition(64);
            let cuda = kernels::idle_cuda_c("held", &interface);
            let kernel = SourceKernel::new("held", interface).source(function).source(cuda);
            client.prepare(kernel.source(Source::wgsl(text)))?;
        }
        let held = client.reserve_staging(&[100])?;
        ensure_eq!(client.shutdown(SOON).abandoned, 0);
        ensure_eq!(dropped.load(Ordering::Relaxed), 5);
        drop(held);
        ensure_eq!((client.staging_usage().in_use, client.staging_usage().kept), (0, 0));
        ensure_err!(client.zeros(1), Error::ShutDown { .. });
    }
    Ok(())
}

fn capped_threads_that_share_a_cache_all_get_on(cx: &Context) -> Outcome {
    const CAP: u64 = 3 << 20;
    for execution in EXECUTIONS {
        let mut client = small(cx, execution)?;
        let free = client.clone();
        client.set_memory_limit(CAP)?;
        let cache: Arc<Mutex<Vec<Handle>>> = Arc::default();
        let theirs = cache.clone();
        let hook = client.on_memory_pressure(move |_| {
            let handle = lock(&theirs).pop();
            if handle.is_some() { PressureAnswer::Retry } else { PressureAnswer::Refuse }
        })?;
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let work = |seed: u64| {
                let (client, free, cache) = (on_new_stream(&client), on_new_stream(&free), cache.clone());
                move || -> Outcome {
                    for round in 0..80u64 {
                        let size = 1 + (seed * 7919 + round * 104_729) % (1 << 20);
                        match client.empty(size) {
                            Ok(handle) => {
                                client.fill(&handle, &[seed as u8])?;
                                lock(&cache).push(handle);
                            }
                            Err(Error::ClientMemoryLimit { live, limit, .. }) => ensure!(live <= limit, "{live}"),
                            Err(other) => return Err(other.into()),
                        }
                        let live = client.memory_budget_within(Duration::ZERO)?.client_live;
                        ensure!(live.is_some_and(|live| live <= CAP), "{live:?} live");
                        let large = free.empty(4 << 20)?;
                        match free.check(&[&large]) {
                            Ok(()) | Err(Error::OutOfMemory(_)) => {}
                            Err(other) => return Err(other.into()),
                        }
                    }
                    Ok(())
                }
            };
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(work(seed))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        ensure_eq!(outcomes.len(), 4);
        outcomes.into_iter().collect::<Outcome>()?;
        drop(hook);
        lock(&cache).clear();
        client.sync()?.wait()?;
        crate::context::eventually("all is let go", || Ok(client.memory_budget()?.client_live == Some(0)))?;
        crate::context::eventually("all is free", || Ok(client.memory_usage()?.live == 0))?;
    }
    Ok(())
}

/// What a thread does until its device ends; the error that says so.
fn work_until_the_end(client: &Client, seed: u64) -> Outcome<Error> {
    let mut capped = on_new_stream(client);
    capped.set_memory_limit(6 << 20)?;
    let (mut kept, layouts) = (Vec::new(), [PoolLayout::adaptive(), PoolLayout::exclusive()]);
    for round in 0..u64::MAX {
        let mut step = || -> Result<(), Error> {
            let handle = capped.empty(1 + (seed * 7919 + round * 104_729) % (5 << 20))?;
            capped.fill(&handle, &[1])?;
            kept.push(handle);
            if kept.len() > 3 {
                kept.remove(0);
            }
            capped.create_from_slice_pinned(&[3; 50_000])?;
            drop(capped.reserve_staging(&[300_000, 0])?);
            capped.memory_budget_within(Duration::ZERO)?;
            capped.install_memory_pools(&layouts[round as usize % 2])?;
            let _hook = capped.on_memory_pressure(|_| PressureAnswer::Retry)?;
            let large = client.empty(9 << 20)?;
            client.check(&[&large])
        };
        match step() {
            Ok(()) | Err(Error::OutOfMemory(_) | Error::ClientMemoryLimit { .. } | Error::Several(_)) => {}
            Err(end) => return Ok(end),
        }
    }
    Err(Failure::new("it did not end"))
}

fn hooks_staging_and_caps_end_with_their_device(cx: &Context) -> Outcome {
    let variants = [
        Variant { pinned_memory: Some(400_000), ..Variant::plain() },
        Variant { separate_memory: true, ..Variant::late(Duration::from_micros(200), 9) },
        Variant { lose_after: Some(60), ..Variant::plain() },
    ];
    for (execution, variant) in EXECUTIONS.into_iter().flat_map(|e| variants.clone().map(|v| (e, v))) {
        let is_lost = variant.lose_after.is_some();
        let client = small_with(cx, execution, variant)?;
        let inside = client.clone();
        let hook = client.on_memory_pressure(move |_| {
            drop(inside.reserve_staging(&[1000]));
            PressureAnswer::Retry
        })?;
        let (ends, took) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|seed| {
                    let client = on_new_stream(&client);
                    scope.spawn(move || work_until_the_end(&client, seed))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(if is_lost { 2000 } else { 300 }));
            let start = Instant::now();
            client.shutdown(Duration::from_secs(2));
            let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            (ends, start.elapsed())
        });
        ensure!(took < AT_ONCE, "{execution:?}: it took {took:?}");
        for end in ends {
            let end = end.map_err(|_| Failure::new("a thread panicked"))??;
            ensure!(matches!(end, Error::ShutDown { .. } | Error::DeviceLost { .. }), "{execution:?}: {end:?}");
        }
        ensure_eq!((client.staging_usage().in_use, client.staging_usage().kept), (0, 0), "{execution:?}");
        drop(hook);
    }
    Ok(())
}
