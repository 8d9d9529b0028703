//! A run recorded by configuration alone, and replayed.
#![cfg(feature = "host")]

use std::path::Path;
use trunnion::layers::program::{KernelTable, ReplayError, Unresolved};
use trunnion::prelude::*;
use trunnion::{Config, Grid, Interface, ReadProgramError, Source, SourceKernel};

fn double() -> SourceKernel {
    SourceKernel::new("double", Interface::new().partition(256)).workgroup_size([64, 1, 1]).source(Source::host(
        |group| {
            group.part::<u32>(0)?.iter_mut().for_each(|x| *x *= 2);
            Ok(())
        },
    ))
}

#[test]
fn a_run_recorded_by_configuration_replays_on_another_device() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorded.trunnion");
    let layers = format!("record={}", path.display()).parse().unwrap();
    let client = trunnion::open_with(&Config::new().backend(Device::index("host", 0)).layers(layers)).unwrap();
    let buffer = client.create_from_slice(&[3u8; 1024]).unwrap();
    client.launch(&client.prepare(double()).unwrap(), Grid::x(4), [&buffer]).unwrap();
    let seen = client.read_one(&buffer).unwrap().to_vec::<u8>().unwrap();
    assert_eq!(seen, [6; 1024]);
    drop((buffer, client));

    let program = trunnion::read_program(&path).unwrap();
    let client = trunnion::open("host").unwrap();
    let replayed = trunnion::replay(&program, &client, &KernelTable::new().with(double())).unwrap();
    assert_eq!(replayed.reads[0].1.bytes, seen);
    assert_eq!(program.expected().unwrap().difference(&replayed), None);
    let error = trunnion::replay(&program, &client, &KernelTable::new()).unwrap_err();
    assert!(matches!(error, ReplayError::Kernel(Unresolved::Absent { kernel, .. }) if kernel == "double"));
}

#[test]
fn a_file_that_is_no_program_is_named_with_what_is_wrong() {
    let error = trunnion::read_program("/nowhere/at/all").unwrap_err();
    assert!(matches!(&error, ReadProgramError::Unreadable { path, .. } if path == "/nowhere/at/all"), "{error}");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.trunnion");
    std::fs::write(&path, "trunnion-program 1\n1 s0 jump\nend 1\n").unwrap();
    let error = trunnion::read_program(&path).unwrap_err().to_string();
    assert!(error.contains("wrong.trunnion: line 2: `jump` is no call; valid: reserve"), "{error}");
}
