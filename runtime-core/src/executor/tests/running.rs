//! The executor as a whole: many threads, none at work, and what cannot be started.

use super::*;

#[cfg(feature = "std")]
#[test]
fn many_threads_submit_call_reserve_and_notify_and_nothing_is_lost() {
    for executor in both() {
        let submitted = AtomicU32::new(0);
        let begin = Instant::now();
        thread::scope(|scope| {
            for seed in 0..4u32 {
                let (executor, submitted) = (&executor, &submitted);
                scope.spawn(move || {
                    let mut random = seed.wrapping_mul(0x9E37_79B9) | 1;
                    let mut mine = 0;
                    while begin.elapsed() < Duration::from_millis(400) {
                        random ^= random << 13;
                        random ^= random >> 17;
                        random ^= random << 5;
                        match random % 64 {
                            0 => executor.notify(),
                            1 => drop(executor.reserve(&soon()).unwrap()),
                            2 => _ = executor.call(|_, _| (), &Deadline::after(Duration::ZERO)),
                            3..9 => executor.call(|_, _| (), &soon()).unwrap(),
                            9 => thread::sleep(Duration::from_micros(u64::from(random % 200))),
                            10..20 => {
                                let big = [random; 150];
                                executor.submit(move |log, _| log.entered += big[100] as usize & 1).unwrap();
                            }
                            _ => {
                                executor.submit(|log, ticket| log.tickets.push(ticket)).unwrap();
                                mine += 1;
                            }
                        }
                    }
                    submitted.fetch_add(mine, Ordering::SeqCst);
                });
            }
        });
        let tickets = executor.call(|log, _| core::mem::take(&mut log.tickets), &soon()).unwrap();
        assert_eq!(tickets.len(), submitted.load(Ordering::SeqCst) as usize);
        assert!(tickets.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(executor.shutdown(&soon()).ran_all);
    }
}

#[cfg(target_os = "linux")]
#[cfg(feature = "std")]
#[test]
fn an_idle_runner_makes_no_context_switches() {
    fn switches(name: &str) -> Option<u64> {
        for task in std::fs::read_dir("/proc/self/task").ok()? {
            // One of another test's may have ended meanwhile.
            let Ok(status) = std::fs::read_to_string(task.ok()?.path().join("status")) else { continue };
            if status.starts_with(&alloc::format!("Name:\t{name}\n")) {
                let count = |line: &str| line.split_whitespace().last().and_then(|n| n.parse::<u64>().ok());
                return Some(status.lines().filter(|line| line.contains("ctxt_switches")).filter_map(count).sum());
            }
        }
        None
    }
    let config = Config { name: "idle-runner".to_string(), ..config(Execution::Runner) };
    let executor = Executor::new(Log::default(), config).unwrap();
    executor.submit(|_, _| ()).unwrap();
    // It has its name once it runs.
    let named = || {
        switches("idle-runner").or_else(|| {
            thread::sleep(Duration::from_millis(100));
            None
        })
    };
    let Some(mut before) = (0..50).find_map(|_| named()) else {
        return; // A kernel that does not count them.
    };
    // When it has come to rest is the machine's affair; one that looks at anything now and then has no half second without.
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(500));
        let now = switches("idle-runner").unwrap();
        if now == before {
            return;
        }
        before = now;
    }
    panic!("it never comes to rest: {before} switches of context");
}

#[test]
fn a_configuration_the_host_cannot_serve_is_refused_by_name() {
    let asked = Config::MAX_RING_BYTES + 1;
    let refused = Executor::new(Log::default(), Config { ring_bytes: asked, ..config(Execution::Inline) }).err();
    assert_eq!(refused, Some(StartError::RingTooLarge { asked, limit: Config::MAX_RING_BYTES }));
    #[cfg(not(feature = "std"))]
    {
        let refused = Executor::new(Log::default(), config(Execution::Runner)).err();
        assert_eq!(refused, Some(StartError::NoThreads));
    }
}

#[cfg(feature = "std")]
#[test]
fn the_runner_is_known_as_one_and_no_other_thread_is() {
    let executor = Executor::new(Log::default(), Config::default()).unwrap();
    let (tell, told) = mpsc::channel();
    executor.submit(move |_, _| tell.send(is_runner()).unwrap()).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
    assert!(!is_runner());
}
