//! PTX, from text to what can be executed: words, declarations, statements, and instructions decoded by whitelist.

pub(crate) mod body;
pub(crate) mod compute;
mod constants;
mod decode;
pub(crate) mod inst;
mod lex;
pub(crate) mod module;
pub(crate) mod number;
mod operand;
mod special_forms;
pub(crate) mod types;

pub(crate) use inst::{Inst, Op};
pub(crate) use module::{Function, Module};
