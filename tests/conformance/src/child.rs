//! Tests in a process of their own: for what happens when a process ends, and for what a process has one of.

use core::time::Duration;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// What came of a child process.
#[derive(Clone, Debug)]
pub struct ChildOutput {
    /// Its exit code; `None` when it was killed, by a signal or for its time limit.
    pub code: Option<i32>,
    /// Whether its time limit passed.
    pub overran: bool,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

/// What the variables begin with that say where a machine has its CUDA driver and compilers, which a child process needs too.
const CUDA: &str = "TRUNNION_CUDA_";

/// Runs the test `path` of this program for `backend` in a process of its own, with these variables set and no other `TRUNNION_…` that is a
/// setting.
///
/// # Errors
/// When the process cannot be started.
pub fn spawn(backend: &str, path: &str, env: &[(&str, &str)], limit: Duration) -> io::Result<ChildOutput> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("TRUNNION_") && !text.starts_with(CUDA) {
            command.env_remove(&name);
        }
    }
    command.args(["--backend", backend, "--child", path]).envs(env.iter().copied());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let start = Instant::now();
    let (status, overran) = loop {
        if let Some(status) = child.try_wait()? {
            break (status, false);
        }
        if start.elapsed() > limit {
            child.kill()?;
            break (child.wait()?, true);
        }
        thread::sleep(Duration::from_millis(2));
    };
    Ok(ChildOutput {
        code: status.code().filter(|_| !overran),
        overran,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    })
}

/// Reads in the background, so that a full pipe stops nobody.
fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut text).ok();
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}
