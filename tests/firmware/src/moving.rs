//! Bytes are moved: to the device, on it, between two of them, and back.

use crate::check::{Check, Outcome, same};
use crate::device::{device, holds_elements, open, open_with, upload};
use alloc::vec;
use alloc::vec::Vec;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::client::{Client, TensorView};
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::layout::TensorDescriptor;

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "bytes that were written are read", run: written },
    Check { name: "a fill repeats its pattern, and a copy takes a part", run: filled_and_copied },
    Check { name: "rows lie at the device's pitch and come back without gaps", run: rows },
    Check { name: "large slices are moved in place", run: in_place },
    Check { name: "bytes are read when they are looked at", run: lazy },
    Check { name: "memory that the host does not see is reached through a staging copy", run: staged },
    Check { name: "bytes go to another device and back", run: between },
    Check { name: "operations over nothing do nothing", run: nothing },
];

fn written() -> Outcome {
    let client = open()?;
    let a = upload(&client, &[1u8, 2, 3, 4, 5, 6, 7])?;
    let b = client.create(Bytes::from_elems(vec![1.5f32, -2.0, 1e30]))?;
    holds_elements(&client, &b, &[1.5f32, -2.0, 1e30])?;
    client.write_slice(&a.slice(2..4)?, &[30, 40])?;
    holds_elements(&client, &a, &[1u8, 2, 30, 40, 5, 6, 7])?;
    client.write(&a, Bytes::from_vec(vec![9; 7]))?;
    let both = client.read(&[&a, &b.slice(4..8)?])?;
    same((both[0].to_vec::<u8>()?, both[1].to_vec::<f32>()?), (vec![9; 7], vec![-2.0]))
}

fn filled_and_copied() -> Outcome {
    let client = open()?;
    let a = client.zeros(64)?;
    client.fill(&a.slice(16..32)?, &0x0102_0304_0506_0708u64.to_ne_bytes())?;
    let b = upload(&client, &[u64::MAX; 3])?;
    client.copy(&a.slice(8..24)?, &b.slice(8..24)?)?;
    holds_elements(&client, &b, &[u64::MAX, 0, 0x0102_0304_0506_0708])
}

fn rows() -> Outcome {
    let client = open()?;
    let elements: Vec<u16> = (0..21).collect();
    let padded = TensorDescriptor::optimized([3, 7], ElemType::U16);
    let layout = client.create_tensor(&padded, Bytes::copy_from_slice(&elements))?;
    same(layout.strides[0] * 2, client.limits().row_pitch)?;
    same(client.read_tensor(&TensorView::new(&layout, &padded))?.to_vec::<u16>()?, &elements[..])?;
    let dense = TensorDescriptor::contiguous([3, 7], ElemType::U16);
    let copy = client.empty_tensor(&dense)?;
    client.copy_tensor(&TensorView::new(&layout, &padded), &TensorView::new(&copy, &dense))?;
    holds_elements(&client, &copy.memory, &elements)
}

fn in_place() -> Outcome {
    let client = open()?;
    let bytes: Vec<u8> = (0..300_001u32).map(|i| (i % 251) as u8).collect();
    let a = client.create_from_slice(&bytes)?;
    let mut read = vec![0; bytes.len()];
    client.read_into(&a, &mut read)?;
    same(read == bytes, true)?;
    client.fill(&a, &[7])?;
    client.read_into(&a, &mut read)?;
    same(read.iter().all(|byte| *byte == 7), true)
}

fn lazy() -> Outcome {
    let client = open()?;
    let a = upload(&client, &[1u32, 2])?;
    let bytes = client.read_lazy(&a)?;
    client.write_slice(&a, bytemuck::cast_slice(&[3u32, 4]))?;
    drop((a, client));
    same(bytes.to_vec::<u32>()?, [3, 4])
}

fn staged() -> Outcome {
    let client = open_with(&[("separate_memory", "true")])?;
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 249) as u8).collect();
    let a = client.create_from_slice(&bytes)?;
    let mut read = vec![0; bytes.len()];
    client.read_into(&a, &mut read)?;
    same(read == bytes, true)
}

fn between() -> Outcome {
    let (here, there) = (open()?, Client::load(device(1))?);
    let a = upload(&here, &[1u32, 2, 3])?;
    let b = here.to_client(&a, &there)?;
    there.fill(&b.slice(4..8)?, &[0xFF])?;
    let c = there.to_client(&b, &here)?;
    holds_elements(&here, &c, &[1, u32::MAX, 3])?;
    holds_elements(&here, &a, &[1u32, 2, 3])
}

fn nothing() -> Outcome {
    let client = open()?;
    let none = client.empty(0)?;
    client.write_slice(&none, &[])?;
    client.fill(&none, &[1])?;
    client.copy(&none, &client.empty(0)?)?;
    same(client.read(&[&none])?[0].len(), 0)?;
    same(client.read(&[])?.len(), 0)
}
