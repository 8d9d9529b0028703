//! Kernels are launched.

use crate::check::{Check, Outcome, same};
use crate::device::{download, holds_elements, open, upload};
use crate::kernels::{PART, PART_BYTES, add, double};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel};

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "launches in a row each see what the one before left", run: chain },
    Check { name: "a buffer is read and another one replaced", run: replaced },
    Check { name: "workgroups claim what they write", run: claimed },
    Check { name: "workgroups count together in atomic elements", run: counted },
    Check { name: "shared memory is zeroed for every workgroup", run: shared },
    Check { name: "a grid that is in a buffer is read when the launch runs", run: dynamic },
    Check { name: "a workgroup knows where it is on three axes", run: axes },
    Check { name: "a launch that was prepared once runs often", run: prepared },
    Check { name: "kernels compute with 64 bits and with fractions", run: wide },
    Check { name: "a launch takes sixteen buffers and 256 bytes of parameters", run: many_arguments },
];

fn chain() -> Outcome {
    let client = open()?;
    let add = client.prepare(add())?;
    let a = upload(&client, &[0u32; 100])?;
    for number in 1..=200u32 {
        client.launch(&add, Grid::cover(100, PART as u32)?, ([&a], &number))?;
    }
    holds_elements(&client, &a, &[20_100u32; 100])
}

fn replaced() -> Outcome {
    let client = open()?;
    let double = client.prepare(double())?;
    let a = upload(&client, &(0..40).collect::<Vec<u32>>())?;
    let b = client.empty(160)?;
    client.launch(&double, Grid::x(3), [&a, &b])?;
    holds_elements(&client, &b, &(0..40).map(|i| 2 * i).collect::<Vec<u32>>())
}

fn claimed() -> Outcome {
    let client = open()?;
    let kernel =
        SourceKernel::new("reverse", Interface::new().read().claim(Access::Write)).source(Source::host(|group| {
            let (from, i) = (group.read::<u32>(0)?, group.id()[0] as usize);
            group.claim::<u32>(1, from.len() - 1 - i..from.len() - i)?[0] = from[i];
            Ok(())
        }));
    let kernel = client.prepare(kernel)?;
    let (a, b) = (upload(&client, &[1u32, 2, 3, 4, 5])?, client.zeros(20)?);
    client.launch(&kernel, Grid::x(5), [&a, &b])?;
    holds_elements(&client, &b, &[5u32, 4, 3, 2, 1])
}

fn counted() -> Outcome {
    let client = open()?;
    let kernel = SourceKernel::new("histogram", Interface::new().read().atomic()).source(Source::host(|group| {
        let (values, counts) = (group.read::<u8>(0)?, group.atomic(1)?);
        let i = group.id()[0] as usize;
        for value in values.iter().skip(i).step_by(group.grid()[0] as usize) {
            counts[usize::from(*value)].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }));
    let kernel = client.prepare(kernel)?;
    let values: Vec<u8> = (0..1000u32).map(|i| (i * i % 7) as u8).collect();
    let (a, counts) = (upload(&client, &values)?, client.zeros(28)?);
    client.launch(&kernel, Grid::x(9), [&a, &counts])?;
    let expected: Vec<u32> = (0..7).map(|i| values.iter().filter(|value| **value == i).count() as u32).collect();
    holds_elements(&client, &counts, &expected)
}

fn shared() -> Outcome {
    let client = open()?;
    let interface = Interface::new().overwrite(8).shared(64);
    let kernel = SourceKernel::new("shared", interface).source(Source::host(|group| {
        let scratch = group.shared::<u64>()?;
        let before: u64 = scratch.iter().sum();
        scratch.fill(group.linear_id() + 1);
        group.part::<u64>(0)?[0] = before * 1000 + scratch.iter().sum::<u64>();
        Ok(())
    }));
    let kernel = client.prepare(kernel)?;
    let a = client.empty(32)?;
    client.launch(&kernel, Grid::x(4), [&a])?;
    holds_elements(&client, &a, &[8u64, 16, 24, 32])
}

fn dynamic() -> Outcome {
    let client = open()?;
    let add = client.prepare(add())?;
    let (a, counts) = (client.zeros(4 * PART_BYTES)?, upload(&client, &[0u32, 1, 1])?);
    let once = |count: u32| client.write_slice(&counts, bytemuck::cast_slice(&[count, 1, 1]));
    for count in [2, 0, 4] {
        once(count)?;
        client.launch(&add, Grid::Dynamic(counts.clone()), ([&a], &1u32))?;
    }
    let mut expected = [1u32; 4 * PART];
    expected[..2 * PART].fill(2);
    holds_elements(&client, &a, &expected)
}

fn axes() -> Outcome {
    let client = open()?;
    let kernel = SourceKernel::new("where", Interface::new().overwrite(4)).source(Source::host(|group| {
        let [x, y, z] = group.id();
        group.part::<u32>(0)?[0] = 100 * z + 10 * y + x;
        Ok(())
    }));
    let kernel = client.prepare(kernel)?;
    let a = client.empty(48)?;
    client.launch(&kernel, Grid::Static(3, 2, 2), [&a])?;
    holds_elements(&client, &a, &[0u32, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112])
}

fn prepared() -> Outcome {
    let client = open()?;
    let add = client.prepare(add())?;
    let a = client.zeros(PART_BYTES)?;
    let mut launch = client.prepare_launch(&add, Grid::x(1), ([&a], &1u32))?;
    for number in 1..=5u32 {
        launch.set_parameters(&number)?;
        launch.launch()?;
        launch.launch()?;
    }
    holds_elements(&client, &a, &[30u32; PART])
}

fn wide() -> Outcome {
    let client = open()?;
    let interface = Interface::new().partition(8).partition(8);
    let kernel = SourceKernel::new("wide", interface).source(Source::host(|group| {
        let (whole, fraction) = (group.part::<u64>(0)?, group.part::<f64>(1)?);
        whole[0] = whole[0].wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
        fraction[0] = fraction[0] * 1.25 + 1.0 / 3.0;
        Ok(())
    }));
    let kernel = client.prepare(kernel)?;
    let (a, b) = (upload(&client, &[3u64, u64::MAX])?, upload(&client, &[2.0f64, -1e100])?);
    client.launch(&kernel, Grid::x(2), [&a, &b])?;
    let whole = |x: u64| x.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    holds_elements(&client, &a, &[whole(3), whole(u64::MAX)])?;
    same(download::<f64>(&client, &b)?, [2.0 * 1.25 + 1.0 / 3.0, -1e100 * 1.25 + 1.0 / 3.0])
}

fn many_arguments() -> Outcome {
    let client = open()?;
    let interface = (0..16).fold(Interface::new(), |interface, _| interface.partition(4)).parameters(256);
    let kernel = SourceKernel::new("many", interface).source(Source::host(|group| {
        let parameters: [u32; 64] = group.parameters()?;
        for binding in 0..16 {
            group.part::<u32>(binding)?[0] += parameters[binding] + parameters[63];
        }
        Ok(())
    }));
    let kernel = client.prepare(kernel)?;
    let all = upload(&client, &[0u32; 64])?;
    let parts = (0..16).map(|i| all.slice(16 * i..16 * i + 4)).collect::<Result<Vec<_>, _>>()?;
    let parameters: [u32; 64] = core::array::from_fn(|i| i as u32);
    let buffers: Vec<_> = parts.iter().collect();
    client.launch(&kernel, Grid::x(1), (&buffers[..], &parameters))?;
    let mut expected = vec![0; 64];
    (0..16).for_each(|i| expected[4 * i] = i as u32 + 63);
    holds_elements(&client, &all, &expected)
}
