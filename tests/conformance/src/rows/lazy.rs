//! M9: bytes that are read when they are looked at.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, on_new_stream, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::time::Duration;
use trunnion_runtime_core::bytes::BytesProperty;
use trunnion_runtime_core::error::Error;

tests! {
    M9 lazy_bytes_are_the_devices_state_at_the_first_look;
    M9 lazy_bytes_keep_their_source_alive_until_they_are_looked_at;
    M9 a_look_that_fails_can_be_repeated;
    M9 the_async_form_checks_for_failures_at_the_call;
    M9 the_first_look_inside_exclusive_works;
    M9 views_of_lazy_bytes_share_the_one_copy;
    M9 lazy_bytes_cost_no_wait_until_they_are_looked_at;
    M9 lazy_bytes_can_be_written_to_another_buffer;
    M9 threads_that_look_at_once_see_the_same;
}

fn lazy_bytes_are_the_devices_state_at_the_first_look(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(1), 30))?;
    let step = client.prepare(kernels::step())?;
    let handle = client.create_from_slice(raw(&[1u32; 64]))?;
    let lazy = client.read_lazy(&handle)?;
    ensure_eq!((lazy.property(), lazy.len()), (BytesProperty::DeviceLazy, 256));
    client.launch(&step, cover(64)?, [&handle])?;
    on_new_stream(&client).launch(&step, cover(64)?, [&handle])?;
    ensure_eq!(lazy.to_vec::<u32>()?, [3; 64]);
    client.launch(&step, cover(64)?, [&handle])?;
    ensure_eq!(lazy.to_vec::<u32>()?, [3; 64]);
    ensure_eq!(lazy.property(), BytesProperty::DeviceLazy);
    Ok(())
}

fn lazy_bytes_keep_their_source_alive_until_they_are_looked_at(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.memory_usage()?.live;
    let handle = client.create_from_slice(&[4; 10_000])?;
    let lazy = client.read_lazy(&handle)?;
    drop(handle);
    let other = client.create_from_slice(&[9; 10_000])?;
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    ensure_eq!(client.memory_usage()?.live, before + 20_000);
    ensure_eq!(lazy.as_slice()?, [4; 10_000]);
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, before + 10_000, "looked at, they hold no device memory");
    drop(other);
    Ok(())
}

fn a_look_that_fails_can_be_repeated(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let lazy = client.read_lazy(&marked)?;
    ensure_err!(lazy.as_slice().map(<[u8]>::len), Error::Compile { .. });
    ensure_err!(lazy.as_slice().map(<[u8]>::len), Error::Compile { .. });
    client.fill(&marked, &[6])?;
    ensure_eq!(lazy.as_slice()?, [6; 256]);
    Ok(())
}

fn the_async_form_checks_for_failures_at_the_call(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    ensure_err!(ready(client.read_lazy_async(&marked))?, Error::Compile { .. });
    client.fill(&marked, &[6])?;
    let lazy = ready(client.read_lazy_async(&marked))??;
    client.fill(&marked, &[7])?;
    ensure_eq!(lazy.as_slice()?, [7; 256]);
    Ok(())
}

fn the_first_look_inside_exclusive_works(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(2), 31))?;
    let handle = client.create_from_slice(&[4; 100])?;
    let (inside, outside) = (client.read_lazy(&handle)?, client.read_lazy(&handle)?);
    ensure_eq!(client.exclusive(|| inside.to_vec::<u8>())??, [4; 100]);
    client.exclusive(|| ())?;
    ensure_eq!(outside.as_slice()?, [4; 100]);
    Ok(())
}

fn views_of_lazy_bytes_share_the_one_copy(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let handle = client.create_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8])?;
    let lazy = client.read_lazy(&handle)?;
    let (front, back) = lazy.split_at(3)?;
    ensure_eq!(front.as_slice()?, [1, 2, 3]);
    // The copy was made at the first look at any of them.
    client.fill(&handle, &[0])?;
    ensure_eq!((back.as_slice()?, lazy.as_slice()?), (&[4u8, 5, 6, 7, 8][..], &[1u8, 2, 3, 4, 5, 6, 7, 8][..]));
    Ok(())
}

fn lazy_bytes_cost_no_wait_until_they_are_looked_at(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let held = on_new_stream(&client);
    let gate = cx.gate(&client)?;
    gate.block(&held)?;
    let handle = held.create_from_slice(&[3; 64])?;
    let lazy = (0..100).map(|_| held.read_lazy(&handle)).collect::<Result<Vec<_>, _>>()?;
    gate.open()?;
    for lazy in lazy {
        ensure_eq!(lazy.as_slice()?, [3; 64]);
    }
    Ok(())
}

fn lazy_bytes_can_be_written_to_another_buffer(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    let source = client.create_from_slice(&[7; 640])?;
    let (target, foreign) = (client.empty(640)?, other.empty(320)?);
    client.write(&target, client.read_lazy(&source)?)?;
    other.write(&foreign, client.read_lazy(&source)?.slice(100..420)?)?;
    ensure_eq!(client.read_one(&target)?.as_slice()?, [7; 640]);
    ensure_eq!(other.read_one(&foreign)?.as_slice()?, [7; 320]);
    // A failure of the source is told at the call.
    let (client, marked) = super::syncing::marked(cx)?;
    ensure_err!(client.write(&client.empty(256)?, client.read_lazy(&marked)?), Error::Compile { .. });
    Ok(())
}

fn threads_that_look_at_once_see_the_same(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let handle = client.create_from_slice(raw(&[0u32; 64]))?;
    for _ in 0..20 {
        let lazy = client.read_lazy(&handle)?;
        let seen: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        client.launch(&step, cover(64)?, [&handle])?;
                        lazy.to_vec::<u32>()
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        ensure_eq!(seen.len(), 4);
        let seen = seen.into_iter().collect::<Result<Vec<_>, Error>>()?;
        for one in &seen {
            ensure_eq!(one, &seen[0]);
            ensure!(one.iter().all(|x| x == &one[0]), "a copy with bytes of two states: {one:?}");
        }
        if seen[0].len() != 64 {
            return Err(Failure::new("another length"));
        }
    }
    Ok(())
}
