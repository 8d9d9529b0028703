//! Compiled kernels: in memory by the kernel's slot and the bounds mode, on disk by what the code depends on.

#[cfg(feature = "std")]
use super::disk::Folder;
use super::{DriverServer, ServerSettings};
use crate::driver::{CompileJob, Compiled, Driver, StoredCode};
use alloc::vec::Vec;
use trunnion_resource_tracker::{Name, Tracker};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::kernel::KernelHandle;
use trunnion_runtime_core::server::{Bounds, CompileStatistics};

const MODES: usize = 3;

struct Slot<C> {
    name: Option<Name>,
    /// A failure is kept too, so that the compiler is not asked again.
    codes: [Option<Result<C>>; MODES],
}

pub(super) struct CodeCache<C> {
    slots: Vec<Slot<C>>,
    statistics: CompileStatistics,
    #[cfg(feature = "std")]
    folder: Option<Folder>,
}

const fn mode(bounds: Bounds) -> usize {
    match bounds {
        Bounds::Checked => 0,
        Bounds::Unchecked => 1,
        Bounds::Validated => 2,
    }
}

impl<C> CodeCache<C> {
    #[cfg_attr(not(feature = "std"), allow(unused_variables, reason = "there is no disk"))]
    pub(super) fn new<D: Driver>(settings: &ServerSettings, driver: &D) -> Self {
        Self {
            slots: Vec::new(),
            statistics: CompileStatistics::default(),
            #[cfg(feature = "std")]
            folder: settings
                .kernel_cache
                .as_ref()
                .map(|path| Folder::new(path, driver.compiler_identity(), &driver.properties().hardware_identity())),
        }
    }

    fn slot(&mut self, kernel: &KernelHandle) -> &mut Slot<C> {
        let slot = kernel.slot() as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || Slot { name: None, codes: [const { None }; MODES] });
        }
        &mut self.slots[slot]
    }

    /// What the tracker calls the kernel's launches.
    #[inline]
    pub(super) fn name(&mut self, kernel: &KernelHandle, tracker: &mut Tracker) -> Name {
        let slot = self.slot(kernel);
        *slot.name.get_or_insert_with(|| tracker.name(kernel.name()))
    }

    /// What became of compiling the kernel, where that was tried.
    #[inline]
    fn known(&self, kernel: &KernelHandle, bounds: Bounds) -> Option<&Result<C>> {
        self.slots.get(kernel.slot() as usize)?.codes[mode(bounds)].as_ref()
    }

    /// The code of a kernel that was compiled.
    #[inline]
    pub(super) fn get(&self, kernel: &KernelHandle, bounds: Bounds) -> Result<&C> {
        match self.known(kernel, bounds) {
            Some(Ok(code)) => Ok(code),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::InvalidKernel { kernel: kernel.name().into(), why: "it was not compiled".into() }),
        }
    }

    pub(super) fn statistics(&self) -> &CompileStatistics {
        &self.statistics
    }

    /// The slot will be another kernel's.
    pub(super) fn retire(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            *slot = Slot { name: None, codes: [const { None }; MODES] };
        }
    }

    /// Drops all code.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }
}

impl<D: Driver> DriverServer<D> {
    /// Compiles the kernel unless that was tried.
    ///
    /// # Errors
    /// What the compiler said, this time or the first time; or the device's fault.
    #[inline]
    pub(super) fn compiled(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        match self.code.known(kernel, bounds) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error.clone()),
            None => self.compile_first(kernel, bounds),
        }
    }

    #[cold]
    #[inline(never)]
    fn compile_first(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()> {
        self.service.get_or_insert(kernel.service());
        let stored = self.load(kernel, bounds);
        let compiled = self.hardware.driver.compile(kernel, bounds, stored.as_deref());
        self.keep(kernel, bounds, compiled)
    }

    /// Compiles the first of these kernels that were not tried, as many as the driver compiles at the same time, and answers for them and
    /// for those among them that were.
    #[cold]
    pub(super) fn compiled_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        let most = self.hardware.driver.compiles_at_once().max(1);
        let mut new: Vec<&(KernelHandle, Bounds)> = Vec::new();
        let mut answered = 0;
        for compilation in kernels {
            let (kernel, bounds) = compilation;
            let same = |other: &&(KernelHandle, Bounds)| (other.0.slot(), other.1) == (kernel.slot(), *bounds);
            if self.code.known(kernel, *bounds).is_none() && !new.iter().any(same) {
                if new.len() == most {
                    break;
                }
                self.service.get_or_insert(kernel.service());
                new.push(compilation);
            }
            answered += 1;
        }
        let stored: Vec<_> = new.iter().map(|(kernel, bounds)| self.load(kernel, *bounds)).collect();
        let jobs: Vec<_> = new
            .iter()
            .zip(&stored)
            .map(|((kernel, bounds), stored)| CompileJob { kernel, bounds: *bounds, stored: stored.as_deref() })
            .collect();
        let compiled = if jobs.is_empty() { Vec::new() } else { self.hardware.driver.compile_together(&jobs) };
        for ((kernel, bounds), compiled) in new.into_iter().zip(compiled) {
            // A failure is kept, and answered below.
            self.keep(kernel, *bounds, compiled).ok();
        }
        let mut answers = Vec::with_capacity(answered);
        for (kernel, bounds) in &kernels[..answered] {
            answers.push(match &self.ended {
                Some(error) => Err(error.clone()),
                None => self.compiled(kernel, *bounds),
            });
        }
        answers
    }

    /// Keeps what came of compiling a kernel.
    fn keep(&mut self, kernel: &KernelHandle, bounds: Bounds, compiled: Result<Compiled<D::Code>>) -> Result<()> {
        let statistics = &mut self.code.statistics;
        let result = match compiled {
            Ok(compiled) => {
                let keep = match compiled.stored {
                    StoredCode::Used => {
                        statistics.from_disk += 1;
                        None
                    }
                    StoredCode::None => {
                        statistics.compiled += 1;
                        None
                    }
                    StoredCode::Keep(bytes) => {
                        statistics.compiled += 1;
                        Some((bytes, false))
                    }
                    StoredCode::Damaged(bytes) => {
                        statistics.compiled += 1;
                        Some((bytes, true))
                    }
                };
                if let Some((bytes, damaged)) = keep {
                    self.store(kernel, bounds, &bytes, damaged);
                }
                Ok(compiled.code)
            }
            Err(error) => {
                if error.is_device_lost() {
                    self.lose(error.clone());
                    return Err(self.ended.clone().unwrap_or(error));
                }
                statistics.failed += 1;
                log::warn!("{error}");
                Err(error)
            }
        };
        let answer = result.as_ref().map(|_| ()).map_err(Error::clone);
        self.code.slot(kernel).codes[mode(bounds)] = Some(result);
        answer
    }

    /// What an earlier run kept of the kernel's code.
    #[cfg(feature = "std")]
    fn load(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Option<Vec<u8>> {
        let (folder, statistics) = (self.code.folder.as_ref()?, &mut self.code.statistics);
        folder.load(kernel, bounds).unwrap_or_else(|damaged| {
            log::warn!("{damaged} is damaged and ignored; the kernel `{}` is compiled anew", kernel.name());
            statistics.damaged.push(damaged);
            None
        })
    }

    #[cfg(feature = "std")]
    fn store(&mut self, kernel: &KernelHandle, bounds: Bounds, bytes: &[u8], damaged: bool) {
        let (Some(folder), statistics) = (self.code.folder.as_mut(), &mut self.code.statistics) else { return };
        if damaged && let Some(path) = folder.path(kernel, bounds) {
            let path = alloc::format!("{}", path.display());
            log::warn!("the driver does not take the code in {path}; the kernel `{}` was compiled anew", kernel.name());
            statistics.damaged.push(path);
        }
        if let Err(error) = folder.store(kernel, bounds, bytes) {
            log::warn!("the code of kernel `{}` was not kept: {error}", kernel.name());
        }
    }

    #[cfg(not(feature = "std"))]
    fn load(&mut self, _: &KernelHandle, _: Bounds) -> Option<Vec<u8>> {
        None
    }

    #[cfg(not(feature = "std"))]
    fn store(&mut self, _: &KernelHandle, _: Bounds, _: &[u8], _: bool) {}
}
