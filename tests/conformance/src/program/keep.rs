//! Keeping a program that failed, complete with what it should have given.

use std::io;
use std::path::{Path, PathBuf};
use trunnion_server_layers::program::{Call, Content, Observed, Place, Program, Replayed, Step, View};

/// The program with what it should give: at each read, and by reads of every buffer at its end.
pub fn with_expectations(program: &Program, expected: &Replayed) -> Program {
    let content = |observed: &Observed| match observed.failures.first() {
        Some((_, why)) => Content::Failed(why.clone()),
        None => Content::of(&observed.bytes),
    };
    let mut program = program.clone();
    for (place, observed) in &expected.reads {
        if let Place::Read { step, source, .. } = place
            && let Some(Step { call: Call::Read { sources }, .. }) = program.steps.get_mut(*step)
            && let Some((_, known)) = sources.get_mut(*source)
        {
            *known = Some(content(observed));
        }
    }
    for (place, observed) in &expected.buffers {
        let Place::Buffer { buffer } = place else { continue };
        let number = program.steps.last().map_or(1, |step| step.number + 1);
        // Each failure hides only what it lies on, so what is well stands in reads of its own.
        let mut from = 0;
        let mut read = |from: u64, to: u64, content: Content| {
            if from < to {
                let sources = vec![(View::new(*buffer, from..to), Some(content))];
                program.steps.push(Step { number, stream: 0, call: Call::Read { sources } });
            }
        };
        let well = |from: u64, to: u64| Content::of(&observed.bytes[from as usize..to as usize]);
        for (range, why) in &observed.failures {
            read(from, range.start, well(from, range.start));
            read(range.start, range.end, Content::Failed(why.clone()));
            from = range.end;
        }
        let end = observed.bytes.len() as u64;
        read(from, end, well(from, end));
    }
    program
}

/// Writes a program to `reproducers/NAME.trunnion` of the build's target folder, or of the system's folder for temporary files where
/// there is none.
///
/// # Errors
/// When it cannot be written.
pub fn keep(name: &str, program: &Program) -> io::Result<PathBuf> {
    let program_file = std::env::current_exe().ok();
    // What cargo writes into every target folder.
    let is_target = |folder: &&Path| folder.join("CACHEDIR.TAG").is_file();
    let target = program_file.as_deref().and_then(|file| file.ancestors().find(is_target)).map(Path::to_path_buf);
    let folder = target.unwrap_or_else(std::env::temp_dir).join("reproducers");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.trunnion"));
    std::fs::write(&path, program.to_string())?;
    Ok(path)
}
