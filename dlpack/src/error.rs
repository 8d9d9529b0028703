//! Why a tensor cannot be handed out or taken in.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::Error;

/// Why a tensor cannot be handed out or taken in.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum DlpackError {
    /// Memory that the host does not reach.
    #[error(
        "the tensor is on a device of DLPack's type {kind}, number {index}; only type 1, memory of the host, is taken"
    )]
    Device {
        /// The type of device, as DLPack numbers them.
        kind: u32,
        /// Which device of that type.
        index: i32,
    },
    /// An element type that no device has.
    #[error(
        "elements of DLPack's type code {code} with {bits} bits and {lanes} lanes; there are: {}",
        DisplayElems(&ElemType::ALL)
    )]
    Elem {
        /// The type code.
        code: u8,
        /// The bits of an element.
        bits: u8,
        /// The elements that are one.
        lanes: u16,
    },
    /// A tensor that must not be written, where a device could.
    #[error("the tensor is read-only, and a device may write what it uses in place; `copy_from_dlpack` copies it")]
    ReadOnly,
    /// A layout that a device's memory does not have.
    #[error("shape {shape:?} with strides {strides:?}: {why}")]
    Layout {
        /// Elements by dimension, outermost first.
        shape: Vec<i64>,
        /// The distances between neighbours, in elements.
        strides: Vec<i64>,
        /// What is wrong with it.
        why: Cow<'static, str>,
    },
    /// A tensor that contradicts itself.
    #[error("the tensor is not valid: {0}")]
    Invalid(#[from] dlpark::tensor::Error),
    /// What the device answered.
    #[error(transparent)]
    Runtime(#[from] Error),
}

struct DisplayElems<'a>(&'a [ElemType]);

impl core::fmt::Display for DisplayElems<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (index, elem) in self.0.iter().enumerate() {
            write!(f, "{}{elem:?}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
