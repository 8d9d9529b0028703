//! F1, F2, F8: handles of another device, failures that are named once, and errors as values.

use crate::check::{Failure, Outcome};
use crate::context::{Context, SOON, fail_late, ready};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use core::error::Error as StdError;
use core::time::Duration;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::TensorView;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, KernelFault, Link, OutOfMemory, Resource, Rung, SourceForm};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::{BackendName, ServiceId, StreamId};
use trunnion_runtime_core::timeline::{Moment, Point};

tests! {
    F1 a_foreign_handle_is_refused_by_every_call_and_nothing_is_submitted;
    F1 a_handle_of_an_ended_device_is_foreign_to_the_next;
    F1 a_foreign_slice_of_no_bytes_is_foreign_too;
    F2 one_failure_on_several_buffers_is_named_once;
    F2 distinct_failures_are_each_named_once_in_order;
    F2 one_failure_that_came_two_ways_is_one;
    F2 a_transfer_and_its_source_name_one_failure;
    F8 errors_are_values_that_can_be_cloned_sent_and_compared;
    F8 errors_keep_their_source;
    F8 errors_can_be_serialised_and_read_back;
    F8 the_classes_of_an_error_look_through_what_wraps_it;
    F8 every_message_names_its_values;
}

/// A call that is given a foreign handle.
type Call<'a> = Box<dyn Fn() -> Result<(), Error> + 'a>;

fn a_foreign_handle_is_refused_by_every_call_and_nothing_is_submitted(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    let (own, foreign) = (client.create_from_slice(&[1; 256])?, other.create_from_slice(&[2; 256])?);
    let (step, carry) = (client.prepare(kernels::step())?, client.prepare(kernels::carry())?);
    let view = |handle| TensorView { handle, shape: &[8, 8], strides: &[8, 1], elem: ElemType::U32 };
    let (x, o) = (&foreign, &own);
    let calls: Vec<(&str, Call<'_>)> = vec![
        ("write", Box::new(|| client.write(x, Bytes::from_vec(vec![0; 256])).map(drop))),
        ("write_slice", Box::new(|| client.write_slice(x, &[0; 256]).map(drop))),
        ("write_tensor", Box::new(|| client.write_tensor(&view(x), Bytes::from_vec(vec![0; 256])).map(drop))),
        ("read", Box::new(|| client.read(&[o, x]).map(drop))),
        ("read_timeout", Box::new(|| client.read_timeout(&[x], SOON).map(drop))),
        ("read_one", Box::new(|| client.read_one(x).map(drop))),
        ("read_into", Box::new(|| client.read_into(x, &mut [0; 256]))),
        ("read_async", Box::new(|| client.read_async(&[o, x]).map(drop))),
        ("read_lazy", Box::new(|| client.read_lazy(x).map(drop))),
        ("read_tensor", Box::new(|| client.read_tensor(&view(x)).map(drop))),
        ("read_tensors", Box::new(|| client.read_tensors(&[view(o), view(x)]).map(drop))),
        ("read_tensors_async", Box::new(|| client.read_tensors_async(&[view(x)]).map(drop))),
        ("copy from", Box::new(|| client.copy(x, o).map(drop))),
        ("copy to", Box::new(|| client.copy(o, x).map(drop))),
        ("copy_tensor from", Box::new(|| client.copy_tensor(&view(x), &view(o)).map(drop))),
        ("copy_tensor to", Box::new(|| client.copy_tensor(&view(o), &view(x)).map(drop))),
        ("fill", Box::new(|| client.fill(x, &[0]).map(drop))),
        ("launch", Box::new(|| client.launch(&step, cover(64)?, [x]).map(drop))),
        ("launch, second buffer", Box::new(|| client.launch(&carry, cover(64)?, [o, x]).map(drop))),
        ("launch, grid", Box::new(|| client.launch(&step, Grid::Dynamic(x.clone()), [o]).map(drop))),
        ("launch of nothing", Box::new(|| client.launch(&step, Grid::x(0), [x]).map(drop))),
        ("prepare_launch", Box::new(|| client.prepare_launch(&step, cover(64)?, [x]).map(drop))),
        ("check", Box::new(|| client.check(&[o, x]))),
        ("sync_buffers", Box::new(|| client.sync_buffers(&[o, x]))),
        ("get_resource", Box::new(|| cx.factory().get_resource(&client, x).map(drop))),
        ("with_resource", Box::new(|| cx.factory().with_resource(&client, x, Access::Read, &mut |_| {}).map(drop))),
        ("to_client", Box::new(|| client.to_client(x, &other).map(drop))),
        ("to_client, home", Box::new(|| client.to_client(x, &client).map(drop))),
        ("to_client_tensor", Box::new(|| client.to_client_tensor(&view(x), &other).map(drop))),
    ];
    let expected = Error::ForeignHandle { owner: other.service_id(), service: client.service_id() };
    for (call, run) in &calls {
        let before = client.record()?;
        let there = other.record()?;
        ensure_eq!(run(), Err(expected.clone()), "{call}");
        // Nothing was submitted in between: the next number follows.
        ensure_eq!(client.record()?.seq, before.seq + 1, "{call}: submitted here");
        ensure_eq!(other.record()?.seq, there.seq + 1, "{call}: submitted there");
    }
    ensure_eq!(ready(client.read_lazy_async(x))?.err(), Some(expected.clone()));
    ensure!(expected.is_refusal() && expected.to_string().contains("to_client"), "{expected}");
    ensure_eq!(client.read_one(o)?.as_slice()?, [1; 256]);
    ensure_eq!(other.read_one(x)?.as_slice()?, [2; 256]);
    Ok(())
}

fn a_handle_of_an_ended_device_is_foreign_to_the_next(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (device, old) = (client.device_id(), client.create_from_slice(&[1; 64])?);
    let owner = client.service_id();
    drop(client);
    let again =
        trunnion_runtime_core::client::Client::try_init(device, cx.opened(&Variant::plain(), &Default::default())?)?;
    // Likely in the place of the old one.
    let new = again.create_from_slice(&[2; 64])?;
    ensure_eq!(again.read_one(&old).err(), Some(Error::ForeignHandle { owner, service: again.service_id() }));
    ensure_err!(again.fill(&old, &[3]), Error::ForeignHandle { .. });
    ensure_eq!(again.read_one(&new)?.as_slice()?, [2; 64]);
    Ok(())
}

fn a_foreign_slice_of_no_bytes_is_foreign_too(cx: &Context) -> Outcome {
    let (client, other) = (cx.client()?, cx.client()?);
    for nothing in [other.empty(0)?, other.zeros(16)?.slice(4..4)?] {
        ensure_err!(client.read_one(&nothing), Error::ForeignHandle { .. });
        ensure_err!(client.write_slice(&nothing, &[]), Error::ForeignHandle { .. });
        ensure_err!(client.check(&[&nothing]), Error::ForeignHandle { .. });
        ensure_err!(client.read_lazy(&nothing), Error::ForeignHandle { .. });
    }
    Ok(())
}

// ---- F2

fn one_failure_on_several_buffers_is_named_once(cx: &Context) -> Outcome {
    let (client, a) = super::syncing::marked(cx)?;
    let (b, c) = (client.zeros(256)?, client.zeros(256)?);
    client.copy(&a, &b)?;
    client.copy(&b, &c)?;
    for handles in [vec![&a, &b, &c], vec![&a, &a], vec![&c, &a], vec![&b, &c]] {
        for error in [client.check(&handles).err(), client.sync_buffers(&handles).err(), client.read(&handles).err()] {
            let Some(error) = error else { return Err(Failure::new("marked bytes were said to be well")) };
            ensure!(matches!(error.root(), Error::Compile { .. }), "one failure is named as {error:?}");
        }
    }
    Ok(())
}

fn distinct_failures_are_each_named_once_in_order(cx: &Context) -> Outcome {
    let (client, a) = super::syncing::marked(cx)?;
    let (input, b, c) = (client.zeros(256)?, client.zeros(256)?, client.zeros(512)?);
    fail_late(&client, &b)?;
    client.copy(&a, &c.slice(..256)?)?;
    client.copy(&b, &c.slice(256..)?)?;
    client.sync()?.wait()?;
    for handles in [vec![&a, &b], vec![&a, &b, &a, &b], vec![&a, &input, &c, &b]] {
        for error in [client.check(&handles).err(), client.read(&handles).err()] {
            let Some(Error::Several(all)) = &error else {
                return Err(Failure::new(format_args!("two failures are named as {error:?}")));
            };
            ensure_eq!(all.len(), 2, "{error:?}");
            ensure!(
                matches!(all[0].root(), Error::Compile { .. }) && matches!(all[1].root(), Error::GridTooLarge { .. }),
                "{all:?}"
            );
        }
    }
    let error = ensure_err!(client.read_one(&c), Error::Several(_));
    let text = error.to_string();
    ensure!(
        text.starts_with("2 failures") && text.contains(kernels::BROKEN) && text.contains(kernels::TOO_MANY),
        "{text}"
    );
    Ok(())
}

fn one_failure_that_came_two_ways_is_one(cx: &Context) -> Outcome {
    let (client, a) = super::syncing::marked(cx)?;
    let add = client.prepare(kernels::add())?;
    let (left, right, out) = (client.zeros(256)?, client.zeros(256)?, client.zeros(256)?);
    client.copy(&a, &left)?;
    client.copy(&a, &right)?;
    client.launch(&add, cover(64)?, [&left, &right, &out])?;
    let error = ensure_err!(client.read_one(&out), Error::Inherited { .. });
    ensure!(matches!(error.root(), Error::Compile { .. }), "{error:?}");
    Ok(())
}

fn a_transfer_and_its_source_name_one_failure(cx: &Context) -> Outcome {
    let (client, a) = super::syncing::marked(cx)?;
    let other = cx.client()?;
    let copies = [client.to_client(&a, &other)?, client.to_client(&a.slice(..16)?, &other)?];
    for copy in &copies {
        let error = other.read_one(copy).err();
        ensure!(matches!(error.as_ref().map(Error::root), Some(Error::Compile { .. })), "{error:?}");
    }
    Ok(())
}

// ---- F8

fn samples() -> Outcome<Vec<Error>> {
    let backend = BackendName::new("sample").ok_or_else(|| Failure::new("no name"))?;
    let (owner, service) = (ServiceId::from_raw(81), ServiceId::from_raw(82));
    let at = Moment { stream: StreamId::from_raw(3), seq: 4 };
    let out_of_memory = OutOfMemory {
        requested: 85,
        live: 86,
        tried: vec![Rung::Reuse, Rung::Trim],
        driver: Some("code 2".into()),
        ..OutOfMemory::default()
    };
    let compile = Error::Compile { kernel: "k".into(), message: "no such type".into(), line: Some(87) };
    Ok(vec![
        Error::ForeignHandle { owner, service },
        Error::OutOfRange { what: "slice".into(), range: 88..89, size: 87 },
        Error::WrongLength { what: "write".into(), got: 88, expected: 89 },
        Error::UnsupportedStrides { shape: vec![88], strides: vec![89], why: "reason".into() },
        Error::TooManyResources { kernel: "k".into(), resource: Resource::SharedMemory, requested: 89, max: 88 },
        Error::NoSource { kernel: "k".into(), backend, has: vec![SourceForm::Ptx], takes: vec![SourceForm::Wgsl] },
        Error::OutOfMemory(Box::new(out_of_memory)),
        compile.clone(),
        Error::KernelFailed {
            kernel: "k".into(),
            workgroup: [1, 2, 3],
            fault: KernelFault::OutOfBounds { binding: 4, range: 5..6, size: 7 },
        },
        Error::Inherited {
            cause: Box::new(compile.clone()),
            chain: vec![Link { operation: "copy".into(), at }],
            dropped: 3,
        },
        Error::Several(vec![compile, Error::DeviceLost { cause: "unplugged".into() }]),
        Error::Timeout {
            waited: Duration::from_millis(90),
            point: Some(Point { service, stream: StreamId::from_raw(83), seq: 91 }),
        },
        Error::BackendUnavailable { backend, why: "no driver".into() },
        Error::UnknownOption { backend, option: "treads".into(), known: vec!["threads".into()] },
        Error::BadOption { backend, option: "threads".into(), value: "-86".into(), valid: "a count up to 87".into() },
        Error::Busy { what: "the device".into() },
    ])
}

fn errors_are_values_that_can_be_cloned_sent_and_compared(cx: &Context) -> Outcome {
    fn is<T: Clone + PartialEq + Send + Sync + StdError + 'static>(_: &T) {}
    let (client, marked) = super::syncing::marked(cx)?;
    let error = ensure_err!(client.read_one(&marked), Error::Compile { .. });
    is(&error);
    // It outlives everything it is about.
    drop((marked, client));
    let clone = error.clone();
    let there =
        std::thread::spawn(move || clone.to_string()).join().map_err(|_| Failure::new("the thread panicked"))?;
    ensure_eq!(there, error.to_string());
    for sample in samples()? {
        ensure_eq!(sample.clone(), sample);
    }
    Ok(())
}

fn errors_keep_their_source(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let copy = client.empty(256)?;
    client.copy(&marked, &copy)?;
    let error = ensure_err!(client.read_one(&copy), Error::Inherited { .. });
    let source = StdError::source(&error).map(ToString::to_string);
    ensure_eq!(source, Some(error.root().to_string()));
    ensure_eq!(error.root().clone(), ensure_err!(client.read_one(&marked), Error::Compile { .. }));
    Ok(())
}

fn errors_can_be_serialised_and_read_back(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let copy = client.empty(256)?;
    client.copy(&marked, &copy)?;
    let mut all = samples()?;
    all.extend(client.read_one(&marked).err());
    all.extend(client.read_one(&copy).err());
    all.extend(client.empty(u64::MAX).err());
    for error in all {
        let text = serde_json::to_string(&error)?;
        ensure_eq!(serde_json::from_str::<Error>(&text)?, error, "{text}");
    }
    Ok(())
}

fn the_classes_of_an_error_look_through_what_wraps_it(_: &Context) -> Outcome {
    let lost = Error::DeviceLost { cause: "x".into() };
    let memory = Error::OutOfMemory(Box::default());
    let timeout = Error::Timeout { waited: Duration::ZERO, point: None };
    let refusal = Error::WrongLength { what: "x".into(), got: 1, expected: 2 };
    let inherited = |error: &Error| Error::Inherited { cause: Box::new(error.clone()), chain: Vec::new(), dropped: 0 };
    for (error, expected) in [
        (&lost, [true, false, false, false]),
        (&memory, [false, true, false, false]),
        (&timeout, [false, false, true, false]),
        (&refusal, [false, false, false, true]),
    ] {
        for error in
            [error.clone(), inherited(error), Error::Several(vec![inherited(error)]), inherited(&inherited(error))]
        {
            let classes = [error.is_device_lost(), error.is_out_of_memory(), error.is_timeout(), error.is_refusal()];
            ensure_eq!(classes, expected, "{error:?}");
        }
    }
    let both = Error::Several(vec![lost, memory]);
    ensure!(both.is_device_lost() && both.is_out_of_memory() && !both.is_timeout(), "{both:?}");
    Ok(())
}

fn every_message_names_its_values(_: &Context) -> Outcome {
    for error in samples()? {
        let (text, debug) = (error.to_string(), format!("{error:?}"));
        let numbers = debug
            .split(|c: char| !c.is_ascii_digit())
            .filter(|number| number.len() == 2 && number.starts_with(['8', '9']));
        for number in numbers {
            ensure!(text.contains(number), "{number} of {debug} is not in {text:?}");
        }
        ensure!(!text.contains("Error") && !text.is_empty(), "{text:?}");
    }
    Ok(())
}
