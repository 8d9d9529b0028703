//! The command line of a program of workloads: `NAME… | --all [--quick] [--traces DIR]`, and `--counted CASE COUNT` for what runs under callgrind.

use crate::harness::Run;
use std::error::Error;
use std::process::ExitCode;

/// What measures and reports the cases of one name.
pub type Workload = fn(&mut Run) -> Result<(), Box<dyn Error>>;

/// The part of a workload that runs under callgrind: a case by name, repeated; `None` where there is no such case.
pub type Counted = fn(&str, usize) -> Option<Result<(), Box<dyn Error>>>;

/// Runs what the arguments of the process name and gives what was measured.
///
/// # Errors
/// The exit status where nothing was to be measured: a counted case was run, or the arguments name nothing, which it has printed then.
pub fn run(program: &str, workloads: &[(&'static str, Workload)], counted: Counted) -> Result<Run, ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, case, count] = args.as_slice()
        && flag == "--counted"
    {
        return Err(run_counted(counted, case, count));
    }
    let refuse = |why: &str| {
        let names: Vec<_> = workloads.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "{program}: {why}\nusage: {program} NAME… | --all [--quick] [--traces DIR]\nworkloads: {}",
            names.join(", ")
        );
        ExitCode::from(2)
    };
    let mut names = Vec::new();
    let (mut all, mut quick) = (false, false);
    let mut traces = None;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--all" => all = true,
            "--quick" => quick = true,
            "--traces" => match rest.next() {
                Some(folder) => traces = Some(folder.into()),
                None => return Err(refuse("--traces takes a folder")),
            },
            name if workloads.iter().any(|(known, _)| *known == name) => names.push(name),
            unknown => return Err(refuse(&format!("unknown argument `{unknown}`"))),
        }
    }
    if all != names.is_empty() {
        return Err(refuse("give names of workloads, or --all"));
    }
    let mut run = Run::new(quick);
    run.traces = traces;
    for (name, workload) in workloads {
        if all || names.contains(name) {
            run.begin(name);
            if let Err(error) = workload(&mut run) {
                run.failed(&error.to_string());
            }
        }
    }
    Ok(run)
}

fn run_counted(counted: Counted, case: &str, count: &str) -> ExitCode {
    match count.parse().ok().and_then(|count| counted(case, count)) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => ExitCode::from(2),
    }
}
