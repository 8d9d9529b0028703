//! Calls of functions, returns, and what the runtime offers kernels to call.

use super::block::Block;
use super::print;
use super::step::Next;
use super::thread::{DEEPEST, State, Thread};
use crate::codes::{Code, Fault};
use crate::memory::Access;
use crate::ptx::inst::{Call, Callee, FramePart};
use crate::ptx::types::Space;
use crate::ptx::{Function, Op};
use crate::report::ReportKind;

/// Longest text a kernel's string is read to.
const LONGEST: usize = 4096;

pub(super) fn enter(
    block: &mut Block<'_>,
    thread: &mut Thread,
    function: &Function,
    line: u32,
    call: &Call,
    access: &mut Access<'_>,
) -> Result<Next, Fault> {
    let index = match &call.callee {
        Callee::Function(index) => *index as usize,
        Callee::Address(src) => {
            let address = block.value(thread, function, *src);
            match block.launch.module.function_at(address) {
                Some(index) => index,
                None => {
                    let what = format_args!("a call of 0x{address:x}, which is no function");
                    return Err(block.fault(thread, line, Code::INVALID_PC, what));
                }
            }
        }
        Callee::Print => return print_text(block, thread, line, call, access),
        Callee::AssertFail => return Err(assert_failed(block, thread, line, call, access)),
    };
    let callee = &block.launch.module.functions[index];
    let fits = |parts: &[FramePart], wanted: &[crate::ptx::module::Parameter]| {
        parts.len() == wanted.len() && parts.iter().zip(wanted).all(|(part, wanted)| part.size == wanted.size)
    };
    if callee.is_kernel || !fits(&call.inputs, &callee.inputs) || !fits(&call.outputs, &callee.outputs) {
        let what = format_args!("a call of {} with other parameters than it has", callee.name);
        return Err(block.fault(thread, line, Code::INVALID_PC, what));
    }
    if let Some(defect) = &callee.defect {
        let what = format_args!("a call of {}, line {}: {}", callee.name, defect.line, defect.what);
        return Err(block.fault(thread, line, Code::ILLEGAL_INSTRUCTION, what));
    }
    if thread.callers.len() >= DEEPEST {
        let what = format_args!("the stack is used up: {DEEPEST} calls within calls");
        return Err(block.fault(thread, line, Code::LAUNCH_FAILED, what));
    }
    let mut parameters = vec![0; callee.frame_bytes];
    for (part, parameter) in call.inputs.iter().zip(&callee.inputs) {
        parameters[parameter.offset..parameter.offset + parameter.size]
            .copy_from_slice(&thread.parameters[part.offset..part.offset + part.size]);
    }
    thread.enter(index, callee, parameters);
    Ok(Next::At(0))
}

/// Returns to the caller; whether there is one. Without one the thread is done.
pub(super) fn leave(block: &mut Block<'_>, thread: &mut Thread, access: &mut Access<'_>) -> Result<bool, Fault> {
    let callee = block.function(thread);
    let Some(parameters) = thread.leave() else {
        exit(block, thread, access)?;
        return Ok(false);
    };
    if let Op::Call(call) = &block.function(thread).code[thread.pc].op {
        for (part, parameter) in call.outputs.iter().zip(&callee.outputs) {
            thread.parameters[part.offset..part.offset + part.size]
                .copy_from_slice(&parameters[parameter.offset..parameter.offset + parameter.size]);
        }
    }
    thread.pc += 1;
    Ok(true)
}

/// Ends a thread.
pub(super) fn exit(block: &mut Block<'_>, thread: &mut Thread, access: &mut Access<'_>) -> Result<(), Fault> {
    block.abandon_copies(thread, access)?;
    thread.state = State::Done;
    Ok(())
}

fn parameter(thread: &Thread, call: &Call, at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(part) = call.inputs.get(at) {
        let size = part.size.min(8);
        word[..size].copy_from_slice(&thread.parameters[part.offset..part.offset + size]);
    }
    u64::from_le_bytes(word)
}

/// A text that ends with a zero, from wherever it lies.
pub(super) fn text(
    block: &mut Block<'_>,
    thread: &Thread,
    line: u32,
    address: u64,
    access: &mut Access<'_>,
) -> Result<String, Fault> {
    let mut found = Vec::new();
    while found.len() < LONGEST {
        let mut byte = [0];
        block.load(thread, line, Space::Generic, address + found.len() as u64, &mut byte, access)?;
        if byte[0] == 0 {
            break;
        }
        found.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&found).into_owned())
}

fn print_text(
    block: &mut Block<'_>,
    thread: &mut Thread,
    line: u32,
    call: &Call,
    access: &mut Access<'_>,
) -> Result<Next, Fault> {
    let (format, arguments) = (parameter(thread, call, 0), parameter(thread, call, 1));
    let format = text(block, thread, line, format, access)?;
    let (printed, count) = print::format(&format, |size, from| {
        let mut word = [0; 8];
        block.load(thread, line, Space::Generic, arguments + from, &mut word[..size], access)?;
        Ok(u64::from_le_bytes(word))
    })?;
    let printed = print::with_texts(printed, |address| text(block, thread, line, address, access))?;
    access.report(ReportKind::Printed, printed);
    if let Some(part) = call.outputs.first() {
        thread.parameters[part.offset..part.offset + 4].copy_from_slice(&(count as u32).to_le_bytes());
    }
    Ok(Next::Along)
}

fn assert_failed(block: &mut Block<'_>, thread: &Thread, line: u32, call: &Call, access: &mut Access<'_>) -> Fault {
    let mut read = |at| {
        let address = parameter(thread, call, at);
        text(block, thread, line, address, access).unwrap_or_else(|_| "?".to_owned())
    };
    let (what, file, function) = (read(0), read(1), read(3));
    let source = parameter(thread, call, 2);
    block.fault(thread, line, Code::ASSERT, format_args!("assertion `{what}` failed in {function}, {file}:{source}"))
}
