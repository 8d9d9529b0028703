//! M12: device memory used from outside the runtime, in place.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, SOON, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::handle::Handle;

/// A type no backend has as its resource.
struct NobodysResource;

tests! {
    M12 a_resource_can_be_had_and_held;
    M12 another_type_is_a_service_mismatch;
    M12 a_resource_keeps_its_memory_while_it_is_held;
    M12 a_resource_comes_after_the_work_on_its_bytes;
    M12 the_scoped_form_orders_foreign_use_against_the_devices_work;
    M12 work_stays_undone_as_long_as_its_bytes_are_in_foreign_use;
    M12 the_scoped_form_leaves_a_point;
    M12 readers_do_not_wait_for_a_foreign_reader;
    M12 work_on_other_bytes_goes_on_meanwhile;
    M12 a_failure_on_the_bytes_is_named_instead;
    M12 an_overwriting_access_clears_the_failure;
    M12 a_panic_inside_ends_the_access;
    M12 no_bytes_have_no_resource;
    M12 calls_of_the_client_inside_pass;
}

fn a_resource_can_be_had_and_held(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 64])?;
    let held = cx.factory().get_resource(&client, &bytes)?;
    client.fill(&bytes, &[2])?;
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [2; 64]);
    drop(held);
    let part = cx.factory().get_resource(&client, &bytes.slice(32..)?)?;
    drop((bytes, part));
    Ok(())
}

fn another_type_is_a_service_mismatch(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 64])?;
    let error = ensure_err!(client.get_resource::<NobodysResource>(&bytes), Error::ServiceMismatch { .. });
    ensure!(error.to_string().contains("NobodysResource") && error.is_refusal(), "{error}");
    let mut ran = false;
    ensure_err!(
        client.with_resource::<NobodysResource, ()>(&bytes, Access::Overwrite, |_, _| ran = true),
        Error::ServiceMismatch { .. }
    );
    ensure!(!ran, "the task ran with a resource of another type");
    // The access that was opened for it is over.
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [1; 64]);
    Ok(())
}

fn a_resource_keeps_its_memory_while_it_is_held(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let before = client.memory_usage()?.live;
    let bytes = client.create_from_slice(&[1; 5000])?;
    let held = cx.factory().get_resource(&client, &bytes)?;
    drop(bytes);
    client.sync()?.wait()?;
    client.memory_cleanup()?;
    ensure_eq!(client.memory_usage()?.live, before + 5000);
    drop(held);
    client.sync()?.wait()?;
    ensure_eq!(client.memory_usage()?.live, before);
    Ok(())
}

fn a_resource_comes_after_the_work_on_its_bytes(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::late(Duration::from_millis(3), 50))?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    let point = client.launch(&step, cover(64)?, [&bytes])?;
    cx.factory().get_resource(&client, &bytes)?;
    ensure!(client.is_done(point)?, "the resource was given before the work on its bytes was done");
    let point = on_new_stream(&client).launch(&step, cover(64)?, [&bytes])?;
    let mut done = None;
    cx.factory().with_resource(&client, &bytes, Access::Write, &mut |_| done = client.is_done(point).ok())?;
    ensure_eq!(done, Some(true));
    Ok(())
}

fn the_scoped_form_orders_foreign_use_against_the_devices_work(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
    let other = on_new_stream(&client);
    let mut inside = Err(Failure::new("the task did not run"));
    cx.factory().with_resource(&client, &bytes, Access::Overwrite, &mut |_| {
        inside = (|| -> Outcome {
            // Issued while the access is open: must come after it.
            let launched = other.launch(&step, cover(64)?, [&bytes])?;
            other.flush()?;
            client.sync()?.wait()?;
            ensure!(!client.is_done(launched)?, "a launch overtook a foreign write of its bytes");
            Ok(())
        })();
    })?;
    inside?;
    ensure_eq!(other.read_one(&bytes)?.to_vec::<u32>()?, [2; 64]);
    Ok(())
}

fn work_stays_undone_as_long_as_its_bytes_are_in_foreign_use(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[1u32; 64]))?;
    let mut inside = Err(Failure::new("the task did not run"));
    cx.factory().with_resource(&client, &bytes, Access::ReadWrite, &mut |_| {
        inside = (|| -> Outcome {
            let launched = client.launch(&step, cover(64)?, [&bytes])?;
            // Time enough to go wrong.
            ensure_err!(client.done(launched)?.wait_for(Duration::from_millis(50)), Error::Timeout { .. });
            Ok(())
        })();
    })?;
    inside?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [2; 64]);
    Ok(())
}

fn the_scoped_form_leaves_a_point(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 64])?;
    let mut stream = None;
    let point = cx.factory().with_resource(&client, &bytes, Access::ReadWrite, &mut |given| stream = Some(given))?;
    ensure_eq!(Some(point.stream), stream);
    ensure_eq!(point.service, client.service_id());
    client.done(point)?.wait_for(SOON)?;
    let waiting = on_new_stream(&client);
    waiting.wait(point)?;
    waiting.sync()?.wait()?;
    Ok(())
}

fn readers_do_not_wait_for_a_foreign_reader(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[3; 64])?;
    let mut inside = Err(Failure::new("the task did not run"));
    cx.factory().with_resource(&client, &bytes, Access::Read, &mut |_| {
        inside = (|| -> Outcome {
            ensure_eq!(client.read_timeout(&[&bytes], SOON)?[0].as_slice()?, [3; 64]);
            let written = on_new_stream(&client).fill(&bytes, &[4])?;
            client.sync()?.wait()?;
            ensure!(!client.is_done(written)?, "a write overtook a foreign reader");
            Ok(())
        })();
    })?;
    inside?;
    ensure_eq!(client.read_one(&bytes)?.as_slice()?, [4; 64]);
    Ok(())
}

fn work_on_other_bytes_goes_on_meanwhile(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let memory = client.create_from_slice(&[3; 512])?;
    let (used, free) = (memory.slice(..256)?, memory.slice(256..)?);
    let mut inside: Outcome<Handle> = Err(Failure::new("the task did not run"));
    cx.factory().with_resource(&client, &used, Access::ReadWrite, &mut |_| {
        inside = (|| -> Outcome<Handle> {
            client.fill(&free, &[9])?;
            ensure_eq!(client.read_timeout(&[&free], SOON)?[0].as_slice()?, [9; 256]);
            Ok(client.create_from_slice(&[1])?)
        })();
    })?;
    ensure_eq!(client.read_one(&inside?)?.as_slice()?, [1]);
    ensure_eq!(client.read_one(&used)?.as_slice()?, [3; 256]);
    Ok(())
}

fn a_failure_on_the_bytes_is_named_instead(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    ensure_err!(cx.factory().get_resource(&client, &marked), Error::Compile { .. });
    let mut ran = false;
    ensure_err!(
        cx.factory().with_resource(&client, &marked, Access::ReadWrite, &mut |_| ran = true),
        Error::Compile { .. }
    );
    ensure!(!ran, "the task ran over marked bytes");
    // The access is an operation that was skipped: the failure may have come through it.
    let error = client.read_one(&marked).err();
    ensure!(matches!(error.as_ref().map(Error::root), Some(Error::Compile { .. })), "{error:?}");
    Ok(())
}

fn an_overwriting_access_clears_the_failure(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let part = marked.slice(64..128)?;
    cx.factory().with_resource(&client, &part, Access::Overwrite, &mut |_| {})?;
    client.check(&[&part])?;
    ensure_eq!(client.read_one(&part)?.len(), 64);
    ensure_err!(client.read_one(&marked), Error::Compile { .. });
    Ok(())
}

fn a_panic_inside_ends_the_access(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let bytes = client.create_from_slice(&[1; 64])?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        cx.factory().with_resource(&client, &bytes, Access::ReadWrite, &mut |_| panic!("on purpose, with a resource"))
    }));
    ensure!(panicked.is_err(), "the panic was swallowed");
    client.fill(&bytes, &[2])?;
    ensure_eq!(client.read_timeout(&[&bytes], SOON)?[0].as_slice()?, [2; 64]);
    Ok(())
}

fn no_bytes_have_no_resource(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let nothing = client.empty(0)?;
    let error = ensure_err!(cx.factory().get_resource(&client, &nothing), Error::OutOfRange { .. });
    ensure!(error.is_refusal(), "{error:?}");
    ensure_err!(cx.factory().with_resource(&client, &nothing, Access::Read, &mut |_| {}), Error::OutOfRange { .. });
    Ok(())
}

fn calls_of_the_client_inside_pass(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (a, b) = (client.create_from_slice(&[1; 64])?, client.create_from_slice(&[2; 64])?);
    let mut inner = None;
    cx.factory().with_resource(&client, &a, Access::Overwrite, &mut |_| {
        inner = Some(cx.factory().with_resource(&client, &b, Access::Overwrite, &mut |_| {}));
    })?;
    let Some(inner) = inner else { return Err(Failure::new("the task did not run")) };
    inner?;
    client.sync_buffers(&[&a, &b])?;
    Ok(())
}
