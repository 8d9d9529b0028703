//! Counting instructions: this program run again under callgrind, once with few repetitions and once with many.

use std::error::Error;
use std::process::{Command, Stdio};

/// Instructions a repetition of a counted case takes, by the difference of two runs. `function` restricts the count to what is
/// executed inside functions of that name, on whichever thread.
pub fn instructions(case: &str, function: Option<&str>, few: u64, many: u64) -> Result<f64, Box<dyn Error>> {
    let (low, high) = (run(case, function, few)?, run(case, function, many)?);
    Ok((high - low) as f64 / (many - few) as f64)
}

fn run(case: &str, function: Option<&str>, count: u64) -> Result<i64, Box<dyn Error>> {
    let output = std::env::temp_dir().join(format!("trunnion-callgrind-{}-{case}-{count}", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet"]).arg(format!("--callgrind-out-file={}", output.display()));
    if let Some(function) = function {
        command.arg(format!("--toggle-collect=*{function}*"));
    }
    let status = command
        .arg(std::env::current_exe()?)
        .args(["--counted", case, &count.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("valgrind does not start ({error}); it is in the package of that name"))?;
    if !status.status.success() {
        return Err(format!("valgrind: {}", String::from_utf8_lossy(&status.stderr)).into());
    }
    let text = std::fs::read_to_string(&output)?;
    std::fs::remove_file(&output)?;
    let total =
        text.lines().filter_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: "))).next_back();
    Ok(total.ok_or("callgrind wrote no total")?.trim().parse()?)
}
