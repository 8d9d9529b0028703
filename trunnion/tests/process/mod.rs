//! Tests in a process of their own, with another environment and another current directory: what such a process finds and opens.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the process says: the backends that are not available, how many devices `host` has, and what the default device is.
pub fn describe() {
    let trunnion::Discovery { devices, unavailable, .. } = trunnion::discover();
    println!("unavailable: {unavailable:?}");
    // Which other devices there are, the machine says.
    println!("devices: {}", devices.iter().filter(|device| device.device.backend.as_str() == "host").count());
    match trunnion::default_client() {
        Ok(client) => {
            let budget = client.create_from_slice(&vec![0; 8 << 20]).and_then(|handle| client.read_one(&handle));
            println!("opened: {}; 8 MiB: {}", client.device_id(), if budget.is_ok() { "yes" } else { "no" });
        }
        Err(error) => println!("refused: {error}"),
    }
}

/// Runs the ignored test `child` in a directory, with these variables and none of `TRUNNION_*` besides that is a setting.
pub fn in_process(directory: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // Where a machine has CUDA's compilers is none.
        if text.starts_with("TRUNNION_") && text != "TRUNNION_CUDA_COMPILERS" {
            command.env_remove(&name);
        }
    }
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .current_dir(directory)
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A directory of its own, removed when dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trunnion-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
