//! L7, L8: kernels that do not compile, and the cache of those that do.

use crate::check::{Failure, Outcome, raw};
use crate::context::{Context, on_new_stream};
use crate::factory::Variant;
use crate::kernels::{self, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use std::path::PathBuf;
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

tests! {
    L7 a_compile_error_carries_message_line_and_the_kernels_name;
    L7 a_failed_compilation_is_kept_and_not_repeated;
    L7 it_marks_the_outputs_of_the_interface_and_nothing_else;
    L7 kernels_over_its_outputs_are_skipped_and_those_beside_them_run;
    L7 the_device_goes_on_after_it;
    L8 a_kernel_is_compiled_once_by_its_id;
    L8 compile_queued_compiles_what_was_prepared_and_counts_it;
    L8 compile_queued_names_what_does_not_compile_and_compiles_the_rest;
    L8 a_kernel_is_compiled_when_it_is_first_launched;
    L8 threads_that_launch_at_once_compile_once;
    L8 each_device_has_a_cache_of_its_own;
    L8 compiled_code_is_kept_on_disk_for_the_next_run;
    L8 a_damaged_file_is_ignored_and_named;
    L8 a_cache_folder_that_cannot_be_used_does_no_harm;
}

fn a_compile_error_carries_message_line_and_the_kernels_name(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let error = ensure_err!(client.read_one(&marked), Error::Compile { .. });
    let Error::Compile { kernel, message, line } = &error else { return Err(Failure::new("unreachable")) };
    ensure_eq!(kernel, kernels::BROKEN);
    let text = error.to_string();
    ensure!(!message.is_empty() && text.contains(kernels::BROKEN) && text.contains(message.as_str()), "{text}");
    let sources = &client.features().sources;
    // A driver that refuses what was made of a text knows no lines of it.
    let has_lines = sources.iter().any(|form| matches!(form, SourceForm::Host | SourceForm::CudaC));
    ensure!(!has_lines || line.is_some_and(|line| line >= 1), "{error:?}");
    ensure!(line.is_none_or(|line| text.contains(&format!("line {line}"))), "{text}");
    if sources.contains(&SourceForm::Wgsl) {
        let wrong = "@compute @workgroup_size(1)\nfn wrong() {\n    let x: u32 = 1.5;\n}\n";
        let kernel = SourceKernel::new("wrong", Interface::new()).source(Source::wgsl(wrong));
        let error = ensure_err!(client.prepare(kernel), Error::Compile { line: Some(3), .. });
        let text = error.to_string();
        ensure!(text.contains("wrong") && text.contains("line 3"), "{text}");
    }
    Ok(())
}

fn a_failed_compilation_is_kept_and_not_repeated(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let kernel = kernels::broken();
    let broken = client.prepare(kernel.clone())?;
    let mut errors = Vec::new();
    for _ in 0..5 {
        let (input, output) = (client.zeros(256)?, client.zeros(256)?);
        client.launch(&broken, cover(64)?, [&input, &output])?;
        errors.push(ensure_err!(client.read_one(&output), Error::Compile { .. }));
    }
    ensure_eq!(client.compile_statistics()?.failed, 1);
    ensure_eq!(errors, vec![errors[0].clone(); 5]);
    let again = client.prepare(kernel)?;
    ensure_eq!(again.slot(), broken.slot());
    Ok(())
}

fn it_marks_the_outputs_of_the_interface_and_nothing_else(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    let broken = client.prepare(kernels::broken())?;
    let (input, memory, beside) = (
        client.create_from_slice(&[1; 256])?,
        client.create_from_slice(&[2; 768])?,
        client.create_from_slice(&[3; 256])?,
    );
    client.launch(&broken, cover(64)?, [&input, &memory.slice(256..512)?])?;
    ensure_err!(client.read_one(&memory.slice(256..512)?), Error::Compile { .. });
    ensure_eq!(client.read_one(&input)?.as_slice()?, [1; 256]);
    ensure_eq!(client.read_one(&beside)?.as_slice()?, [3; 256]);
    ensure_eq!(client.read_one(&memory.slice(..256)?)?.as_slice()?, [2; 256]);
    ensure_eq!(client.read_one(&memory.slice(512..)?)?.as_slice()?, [2; 256]);
    Ok(())
}

fn kernels_over_its_outputs_are_skipped_and_those_beside_them_run(cx: &Context) -> Outcome {
    let (client, marked) = super::syncing::marked(cx)?;
    let (carry, step) = (client.prepare(kernels::carry())?, client.prepare(kernels::step())?);
    let other = on_new_stream(&client);
    let (copy, healthy) = (client.create_from_slice(&[7; 256])?, client.create_from_slice(raw(&[1u32; 64]))?);
    other.launch(&carry, cover(64)?, [&marked, &copy])?;
    client.launch(&step, cover(64)?, [&copy])?;
    client.launch(&step, cover(64)?, [&healthy])?;
    let error = ensure_err!(client.read_one(&copy), Error::Inherited { .. });
    let Error::Inherited { cause, chain, dropped } = &error else { return Err(Failure::new("unreachable")) };
    ensure!(matches!(**cause, Error::Compile { .. }), "{cause:?}");
    let names: Vec<_> = chain.iter().map(|link| link.operation.as_str()).collect();
    ensure_eq!((names, *dropped), (vec!["carry", "step"], 0));
    ensure_eq!(client.read_one(&healthy)?.to_vec::<u32>()?, [2; 64]);
    // What is replaced as a whole is well again.
    let clean = client.create_from_slice(raw(&[9u32; 64]))?;
    client.launch(&carry, cover(64)?, [&clean, &copy])?;
    ensure_eq!(client.read_one(&copy)?.to_vec::<u32>()?, [9; 64]);
    Ok(())
}

fn the_device_goes_on_after_it(cx: &Context) -> Outcome {
    let (client, _marked) = super::syncing::marked(cx)?;
    let add = client.prepare(kernels::add())?;
    let (a, out) = (client.create_from_slice(raw(&[2f32; 64]))?, client.empty(256)?);
    client.launch(&add, cover(64)?, [&a, &a, &out])?;
    ensure_eq!(client.read_one(&out)?.to_vec::<f32>()?, [4.0; 64]);
    client.sync()?.wait()?;
    Ok(())
}

// ---- L8

fn a_kernel_is_compiled_once_by_its_id(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let kernel = kernels::step();
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    for _ in 0..10 {
        let step = client.prepare(kernel.clone())?;
        client.launch(&step, cover(64)?, [&bytes])?;
    }
    client.sync()?.wait()?;
    let statistics = client.compile_statistics()?;
    ensure_eq!((statistics.compiled + statistics.from_disk, statistics.failed), (1, 0));
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [10; 64]);
    Ok(())
}

fn compile_queued_compiles_what_was_prepared_and_counts_it(cx: &Context) -> Outcome {
    let client = cx.client()?;
    ensure_eq!(client.compile_queued()?, 0);
    let kernels = [kernels::step(), kernels::add(), kernels::sum()].map(|kernel| client.prepare(kernel));
    let kernels = kernels.into_iter().collect::<Result<Vec<_>, _>>()?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    client.launch(&kernels[0], cover(64)?, [&bytes])?;
    client.sync()?.wait()?;
    ensure_eq!(client.compile_queued()?, 2);
    ensure_eq!(client.compile_queued()?, 0);
    let statistics = client.compile_statistics()?;
    ensure_eq!(statistics.compiled + statistics.from_disk, 3);
    Ok(())
}

fn compile_queued_names_what_does_not_compile_and_compiles_the_rest(cx: &Context) -> Outcome {
    let client = cx.open(&Variant::broken())?;
    for kernel in [kernels::step(), kernels::broken(), kernels::add()] {
        client.prepare(kernel)?;
    }
    ensure_err!(client.compile_queued(), Error::Compile { .. });
    let statistics = client.compile_statistics()?;
    ensure_eq!((statistics.compiled + statistics.from_disk, statistics.failed), (2, 1));
    client.prepare(kernels::broken())?;
    let error = ensure_err!(client.compile_queued(), Error::Several(_));
    ensure!(matches!(&error, Error::Several(all) if all.len() == 2), "{error:?}");
    Ok(())
}

fn a_kernel_is_compiled_when_it_is_first_launched(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let before = client.compile_statistics()?;
    ensure_eq!((before.compiled, before.failed), (0, 0));
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    client.launch(&step, cover(64)?, [&bytes])?;
    client.sync()?.wait()?;
    let after = client.compile_statistics()?;
    ensure_eq!(after.compiled + after.from_disk, 1);
    Ok(())
}

fn threads_that_launch_at_once_compile_once(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let kernel = kernels::step();
    let results: Vec<Outcome> = std::thread::scope(|scope| {
        let work = || -> Outcome {
            let step = client.prepare(kernel.clone())?;
            let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
            client.launch(&step, cover(64)?, [&bytes])?;
            ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [1; 64]);
            Ok(())
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    ensure_eq!(results.len(), 6);
    results.into_iter().collect::<Outcome>()?;
    let statistics = client.compile_statistics()?;
    ensure_eq!(statistics.compiled + statistics.from_disk, 1);
    Ok(())
}

fn each_device_has_a_cache_of_its_own(cx: &Context) -> Outcome {
    let (client, broken) = (cx.client()?, cx.open(&Variant::broken())?);
    let kernel = kernels::broken();
    for (client, fails) in [(&client, false), (&broken, true)] {
        let prepared = client.prepare(kernel.clone())?;
        let (input, output) = (client.create_from_slice(&[5; 256])?, client.zeros(256)?);
        client.launch(&prepared, cover(64)?, [&input, &output])?;
        match fails {
            true => drop(ensure_err!(client.read_one(&output), Error::Compile { .. })),
            false => ensure_eq!(client.read_one(&output)?.as_slice()?, [5; 256]),
        }
    }
    Ok(())
}

/// A folder that is gone when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!(
            "trunnion-conformance-{}-{name}-{:?}",
            std::process::id(),
            std::thread::current().id()
        )))
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.0.clone()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn launched(cx: &Context, folder: &Folder) -> Outcome<trunnion_runtime_core::server::CompileStatistics> {
    if !cx.factory().keeps_code() {
        return Err(Failure::Skipped(format!(
            "{}: its compiled code has no form that can be kept",
            cx.factory().name()
        )));
    }
    with_cache(cx, folder)
}

/// A launch on a new device that keeps compiled code there.
fn with_cache(cx: &Context, folder: &Folder) -> Outcome<trunnion_runtime_core::server::CompileStatistics> {
    let mut settings = cx.settings();
    settings.open.kernel_cache = Some(folder.0.display().to_string());
    let client = cx.open_with(&Variant::plain(), &settings)?;
    let step = client.prepare(kernels::step())?;
    let bytes = client.create_from_slice(raw(&[0u32; 64]))?;
    client.launch(&step, cover(64)?, [&bytes])?;
    ensure_eq!(client.read_one(&bytes)?.to_vec::<u32>()?, [1; 64]);
    Ok(client.compile_statistics()?)
}

fn compiled_code_is_kept_on_disk_for_the_next_run(cx: &Context) -> Outcome {
    let folder = Folder::new("cache");
    let first = launched(cx, &folder)?;
    ensure_eq!((first.compiled, first.from_disk), (1, 0));
    let second = launched(cx, &folder)?;
    ensure_eq!((second.compiled, second.from_disk, second.damaged.len()), (0, 1, 0));
    Ok(())
}

fn a_damaged_file_is_ignored_and_named(cx: &Context) -> Outcome {
    let folder = Folder::new("damaged");
    launched(cx, &folder)?;
    let files = folder.files();
    ensure!(!files.is_empty(), "nothing was kept in {}", folder.0.display());
    for file in &files {
        let mut content = std::fs::read(file)?;
        let middle = content.len() / 2;
        content.truncate(middle + 1);
        content[middle] ^= 0xFF;
        std::fs::write(file, content)?;
    }
    let second = launched(cx, &folder)?;
    ensure_eq!((second.compiled, second.from_disk), (1, 0));
    ensure_eq!(second.damaged.len(), 1);
    ensure!(
        files.iter().any(|file| second.damaged[0].contains(&file.display().to_string())),
        "{:?} names none of {files:?}",
        second.damaged
    );
    let third = launched(cx, &folder)?;
    ensure_eq!((third.compiled, third.from_disk, third.damaged.len()), (0, 1, 0));
    Ok(())
}

fn a_cache_folder_that_cannot_be_used_does_no_harm(cx: &Context) -> Outcome {
    let folder = Folder::new("file");
    std::fs::write(&folder.0, b"a file, not a folder")?;
    with_cache(cx, &folder)?;
    std::fs::remove_file(&folder.0)?;
    Ok(())
}
