//! Modules: loading PTX, and finding what it defines.

use alloc::sync::Arc;
use std::fs;

use super::pointers::{Host, In, Out, Text};
use super::{exports, require};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::context as contexts;
use crate::driver::driver;
use crate::loaded::{Kernel, Loaded, Refused};
use crate::report::ReportKind;

/// How compiled code begins that only hardware executes: ELF, and two kinds of archives.
const COMPILED: [u32; 3] = [0x464C_457F, 0xBA55_ED50, 0x4662_43B1];

/// Options of the compiler, with their numbers of `CUjit_option`: where its logs go, and how long they may be.
const INFO_LOG: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;

fn load(text: &str) -> Result<Arc<Loaded>, Refused> {
    let refuse = |code| Refused { code, why: String::new() };
    let context = contexts::current().map_err(refuse)?;
    capture::forbid_meanwhile(&context).map_err(refuse)?;
    let loaded = Loaded::new(context.clone(), text);
    match &loaded {
        Ok(loaded) => driver().modules.keep(loaded.handle, loaded.clone()),
        Err(refused) => context.device.report(ReportKind::BadCall, format!("module: {}", refused.why)),
    }
    loaded
}

fn load_image(out: Out<usize>, image: Host) -> Result<Arc<Loaded>, Refused> {
    let refuse = |code: Code| Refused {
        code,
        why: "the image is compiled for hardware, and the double executes PTX".to_owned(),
    };
    if image.is_null() || out.is_null() {
        return Err(Refused { code: Code::INVALID_VALUE, why: String::new() });
    }
    if image.magic().is_ok_and(|magic| COMPILED.contains(&magic)) {
        return Err(refuse(Code::NO_BINARY_FOR_GPU));
    }
    let text = image.as_text().get().map_err(|_| refuse(Code::INVALID_IMAGE))?;
    load(&text)
}

/// Writes a log where the options say, cut to the room there is, and how long it became.
fn write_log(options: &[(u32, Out<u8>)], buffer: u32, size: u32, log: &str) -> Outcome {
    let find = |wanted: u32| options.iter().enumerate().find(|(_, (option, _))| *option == wanted);
    let (Some((_, (_, place))), Some((_, (_, room)))) = (find(buffer), find(size)) else { return Ok(()) };
    // The size is a number in the place of a pointer.
    let mut bytes = log.as_bytes().to_vec();
    bytes.truncate((room.address() & 0xFFFF_FFFF).saturating_sub(1));
    bytes.push(0);
    place.set_all(&bytes)
}

/// Tells the caller how long a log became, in the list of option values.
fn tell_size(options: &[(u32, Out<u8>)], values: Out<usize>, size: u32, log: &str) {
    let mut all: Vec<usize> = options.iter().map(|(_, value)| value.address()).collect();
    if let Some(at) = options.iter().position(|(option, _)| *option == size) {
        all[at] = all[at].min(log.len() + 1);
        let _ = values.set_all(&all);
    }
}

exports! {
    fn cuModuleLoad(out: Out<usize>, path: Text) {
        contexts::current()?;
        let text = fs::read_to_string(path.get()?).map_err(|_| Code::NOT_FOUND)?;
        let loaded = load(&text).map_err(|refused| refused.code)?;
        out.set(loaded.handle)
    }

    fn cuModuleLoadData(out: Out<usize>, image: Host) {
        let loaded = load_image(out, image).map_err(|refused| refused.code)?;
        out.set(loaded.handle)
    }

    fn cuModuleLoadDataEx(out: Out<usize>, image: Host, count: u32, options: In<u32>, values: Out<usize>) {
        let numbers = options.list(count as usize)?;
        let pointers: Vec<Out<u8>> = In::from(values.cast::<Out<u8>>()).list(count as usize)?;
        let options: Vec<_> = numbers.into_iter().zip(pointers).collect();
        let loaded = load_image(out, image);
        let (info, error) = match &loaded {
            Ok(loaded) => (loaded.log(), String::new()),
            Err(refused) => (String::new(), refused.why.clone()),
        };
        write_log(&options, INFO_LOG, INFO_LOG_SIZE, &info)?;
        write_log(&options, ERROR_LOG, ERROR_LOG_SIZE, &error)?;
        tell_size(&options, values, INFO_LOG_SIZE, &info);
        let loaded = loaded.map_err(|refused| refused.code)?;
        out.set(loaded.handle)
    }

    fn cuModuleUnload(module: usize) {
        let context = contexts::current()?;
        let loaded = driver().modules.get(module)?;
        capture::forbid_meanwhile(&context)?;
        loaded.context.wait();
        // Its functions are gone with it, and so is what they kept of it.
        let kernels = driver().kernels.all().into_iter().filter(|kernel| Arc::ptr_eq(&kernel.loaded, &loaded));
        for kernel in kernels {
            driver().kernels.remove(kernel.handle)?;
        }
        driver().modules.remove(module).map(drop)
    }

    fn cuModuleGetLoadingMode(mode: Out<u32>) {
        // Everything is loaded at once.
        mode.set(1)
    }

    fn cuModuleGetFunction(out: Out<usize>, module: usize, name: Text) {
        contexts::current()?;
        let (loaded, name) = (driver().modules.get(module)?, name.get()?);
        // A function is one, however often it is asked for: what is set on it holds for all.
        let is_it = |kernel: &Kernel| Arc::ptr_eq(&kernel.loaded, &loaded) && kernel.function().name == name;
        let kernel = match driver().kernels.find(is_it) {
            Some(known) => known,
            None => {
                let kernel = Kernel::new(loaded, &name)?;
                driver().kernels.keep(kernel.handle, kernel.clone());
                kernel
            }
        };
        out.set(kernel.handle)
    }

    fn cuModuleGetFunctionCount(count: Out<u32>, module: usize) {
        let loaded = driver().modules.get(module)?;
        count.set(loaded.module.functions.iter().filter(|function| function.is_kernel).count() as u32)
    }

    fn cuModuleGetGlobal_v2(address: Out<u64>, size: Out<usize>, module: usize, name: Text) {
        contexts::current()?;
        let loaded = driver().modules.get(module)?;
        let (found, bytes) = *loaded.module.variables.get(&name.get()?).ok_or(Code::NOT_FOUND)?;
        require(!address.is_null() || !size.is_null())?;
        address.set_if_wanted(found);
        size.set_if_wanted(bytes);
        Ok(())
    }
}
