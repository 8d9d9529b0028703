//! Compiling ahead of the first launch.

use super::Client;
use crate::error::{Error, Result};
use crate::kernel::KernelHandle;
use crate::server::{Bounds, CompileStatistics};
use alloc::sync::Arc;
use alloc::vec::Vec;

impl Client {
    /// Compiles every kernel that was prepared and not compiled yet, several at a time where the device can, and says how many those
    /// were. A kernel is compiled as a [`launch`](Self::launch) needs it, and as launches in the mode
    /// [`Queue`](crate::kernel::LaunchMode::Queue) needed it. Others' work goes on in between.
    ///
    /// # Errors
    /// What does not compile, each kernel once, also where that was known before; the others are compiled. The device's fault.
    pub fn compile_queued(&self) -> Result<u64> {
        let list = self.to_compile();
        let (mut made, mut done, mut failed) = (0, 0, Vec::<(u32, Error)>::new());
        while done < list.len() {
            let all = list.clone();
            let (answers, statistics) = self.service.call("compile_queued", move |core, _| {
                let before = core.server.compile_statistics();
                let answers = core.server.compile_together(&all[done..]);
                (answers, core.server.compile_statistics().since(&before))
            })?;
            made += statistics.compiled + statistics.from_disk;
            if answers.is_empty() {
                return Err(self.unsupported("compile_queued"));
            }
            let next = list.len().min(done + answers.len());
            for ((kernel, _), answer) in list[done..next].iter().zip(answers) {
                match answer {
                    Err(error) if error.is_device_lost() => return Err(error),
                    // The same kernel with other bounds comes next to it.
                    Err(error) if failed.last().is_none_or(|last| *last != (kernel.slot(), error.clone())) => {
                        failed.push((kernel.slot(), error));
                    }
                    _ => {}
                }
            }
            self.service.launches.unqueue(&list[done..next]);
            done = next;
        }
        match failed.len() {
            0 => Ok(made),
            1 => Err(failed.remove(0).1),
            _ => Err(Error::Several(failed.into_iter().map(|(_, error)| error).collect())),
        }
    }

    /// What [`compile_queued`](Self::compile_queued) compiles, by slot.
    fn to_compile(&self) -> Arc<[(KernelHandle, Bounds)]> {
        let key = |(kernel, bounds): &(KernelHandle, Bounds)| (kernel.slot(), *bounds as u8);
        let bounds = self.bounds(Bounds::Checked);
        let mut list = self.service.launches.queued();
        list.extend(self.service.prepared().into_iter().map(|kernel| (kernel, bounds)));
        list.sort_by_key(key);
        list.dedup_by_key(|compilation| key(compilation));
        list.into()
    }

    /// What the cache of compiled code did since the device started.
    ///
    /// # Errors
    /// The device's fault.
    pub fn compile_statistics(&self) -> Result<CompileStatistics> {
        self.service.call("compile_statistics", |core, _| core.server.compile_statistics())
    }
}
