//! What functions say of their arguments, and what can be asked for them.

use crate::assumption::{Answer, assumptions, gave};
use crate::device::{Device, LEGACY};
use trunnion_cuda_raw::MISSING;

assumptions! {
    the_arguments_of_a_function_end_with_1,
    more_shared_memory_than_a_block_can_have_is_1,
    shared_memory_that_was_asked_for_is_had,
}

/// Equivalent to: `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED: u32 = 8;

fn the_arguments_of_a_function_end_with_1(device: &Device) -> Answer {
    let function = device.find(c"takes_time").map_err(|code| format!("cuModuleGetFunction gave {code}"))?;
    for (index, code, place) in [(0, 0, (0, 8)), (1, 0, (8, 4)), (2, 1, (8, 4))] {
        let mut found = if index == 2 { place } else { (99, 99) };
        // SAFETY: the places are for numbers, and the function is the driver's.
        let answer = unsafe { device.driver.cuFuncGetParamInfo(function, index, &raw mut found.0, &raw mut found.1) };
        if answer == MISSING {
            // What a driver does not have is not used.
            return Ok(());
        }
        gave(&format!("cuFuncGetParamInfo of argument {index}"), answer, code)?;
        if code == 0 && found != place {
            return Err(format!("argument {index} has offset and bytes {found:?}, assumed was {place:?}"));
        }
    }
    Ok(())
}

/// What asking for so much dynamic shared memory gives.
fn allow(device: &Device, bytes: i32) -> Result<u32, String> {
    let function = device.find(c"store").map_err(|code| format!("cuModuleGetFunction gave {code}"))?;
    // SAFETY: the function is the driver's.
    Ok(unsafe { device.driver.cuFuncSetAttribute(function, DYNAMIC_SHARED, bytes) })
}

fn more_shared_memory_than_a_block_can_have_is_1(device: &Device) -> Answer {
    gave("cuFuncSetAttribute", allow(device, 1 << 24)?, 1)
}

fn shared_memory_that_was_asked_for_is_had(device: &Device) -> Answer {
    // As much as every generation has, beyond what needs no asking.
    const BYTES: u32 = 64 << 10;
    gave("cuFuncSetAttribute", allow(device, BYTES as i32)?, 0)?;
    let memory = device.memory(1)?;
    gave("cuLaunchKernel", device.launch(c"store", 1, BYTES, LEGACY, memory), 0)?;
    gave("the stream", device.end_of(LEGACY), 0)?;
    gave("the word", device.word(memory)?, 7)
}
