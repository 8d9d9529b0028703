//! Kernels that the real compiler made compute what the host computes.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use trunnion_cuda_double::ReportKind;

use crate::gpu::{Gpu, block, shape};

/// Numbers that look like chance and are the same every time.
fn numbers(count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * scale).collect()
}

#[track_caller]
fn close(found: &[f32], expected: impl IntoIterator<Item = f32>, tolerance: f32) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / expected.abs().max(1.0);
        assert!(error <= tolerance, "at {at}: {found} instead of {expected}");
    }
}

#[test]
fn a_product_and_a_sum_of_vectors() {
    let gpu = Gpu::claim();
    let (x, y) = (numbers(1000, 3.0), numbers(1000, 5.0));
    let (dx, mut dy) = (gpu.stream.clone_htod(&x).unwrap(), gpu.stream.clone_htod(&y).unwrap());
    let kernel = gpu.kernel("arithmetic", "saxpy");
    unsafe {
        gpu.stream.launch_builder(&kernel).arg(&2.5f32).arg(&dx).arg(&mut dy).arg(&1000i32).launch(shape(8, 128))
    }
    .unwrap();
    let found = gpu.stream.clone_dtoh(&dy).unwrap();
    assert_eq!(found, x.iter().zip(&y).map(|(x, y)| x.mul_add(2.5, *y)).collect::<Vec<_>>());
    gpu.clean();
}

#[test]
fn mathematics_of_single_precision() {
    let gpu = Gpu::claim();
    let input = numbers(256, 20.0);
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<f32>(256).unwrap();
    let kernel = gpu.kernel("arithmetic", "single_math");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).launch(block(256)) }.unwrap();
    let found = gpu.stream.clone_dtoh(&out).unwrap();
    // erf is not in the standard library: what the kernel adds for it is taken from a series here.
    let erf = |x: f64| {
        let steps = 4000;
        let h = x / f64::from(steps);
        let f = |t: f64| (-t * t).exp();
        let inner: f64 = (1..steps).map(|i| f(h * f64::from(i)) * if i % 2 == 0 { 2.0 } else { 4.0 }).sum();
        (f(0.0) + inner + f(x)) * h / 3.0 * 2.0 / core::f64::consts::PI.sqrt()
    };
    let expected = input.iter().map(|v| {
        let v = f64::from(*v);
        let a = v.abs();
        ((a + 1.0).ln()
            + a.powf(1.7f32.into())
            + v.sin()
            + v.cos()
            + erf(v)
            + v % 3.0
            + v.floor()
            + v.round_ties_even()
            + v.atan2(2.0)
            + v.exp()
            + v.tanh()
            + 1.0 / (a + 1.0).sqrt()
            + v / 3.0) as f32
    });
    close(&found, expected, 2e-6);
    gpu.clean();
}

#[test]
fn mathematics_of_double_precision() {
    let gpu = Gpu::claim();
    let input: Vec<f64> = numbers(128, 9.0).into_iter().map(f64::from).collect();
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<f64>(128).unwrap();
    let kernel = gpu.kernel("arithmetic", "double_math");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).launch(block(128)) }.unwrap();
    let found = gpu.stream.clone_dtoh(&out).unwrap();
    for (v, found) in input.iter().zip(found) {
        let a = v.abs();
        let expected =
            v.exp() + (a + 1.0).ln() + v.powf(3.0) + v.sin() / (a + 1.0).sqrt() + 1.0 / (a + 1.0).sqrt() + v % 3.0;
        assert!((found - expected).abs() <= expected.abs().max(1.0) * 1e-13, "{v}: {found} instead of {expected}");
    }
    gpu.clean();
}

#[test]
fn sines_of_large_angles() {
    let gpu = Gpu::claim();
    let input = numbers(64, 1e9);
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<f32>(64).unwrap();
    let kernel = gpu.kernel("arithmetic", "large_angles");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).launch(block(64)) }.unwrap();
    let found = gpu.stream.clone_dtoh(&out).unwrap();
    close(&found, input.iter().map(|v| f64::from(*v).sin() as f32), 2e-6);
    gpu.clean();
}

#[test]
fn integers_of_64_bits() {
    let gpu = Gpu::claim();
    let input: Vec<i64> = vec![0, 1, -1, 7, -7, i64::MAX, i64::MIN + 1, 0x0123_4567_89AB_CDEF];
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<i64>(8).unwrap();
    let kernel = gpu.kernel("arithmetic", "wide_integers");
    for by in [3i64, -11, 1 << 40] {
        unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).arg(&by).launch(block(8)) }.unwrap();
        let found = gpu.stream.clone_dtoh(&out).unwrap();
        for (v, found) in input.iter().zip(found) {
            let first = if *v == 0 { 0 } else { v.trailing_zeros() as i64 + 1 };
            let high = ((i128::from(*v) * i128::from(by)) >> 64) as i64;
            let bits = i64::from(v.count_ones()) + i64::from(v.leading_zeros()) + first;
            let expected = (v / by + v % by + bits).wrapping_add(high).wrapping_add(v.reverse_bits());
            assert_eq!(found, expected, "{v} by {by}");
        }
    }
    gpu.clean();
}

#[test]
fn integers_of_8_and_16_bits() {
    let gpu = Gpu::claim();
    let input: Vec<u8> = (0..=255).collect();
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut bytes = gpu.stream.alloc_zeros::<i8>(256).unwrap();
    let mut shorts = gpu.stream.alloc_zeros::<i16>(256).unwrap();
    let kernel = gpu.kernel("arithmetic", "narrow_integers");
    unsafe {
        gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut bytes).arg(&mut shorts).arg(&256i32).launch(block(256))
    }
    .unwrap();
    let (bytes, shorts) = (gpu.stream.clone_dtoh(&bytes).unwrap(), gpu.stream.clone_dtoh(&shorts).unwrap());
    assert!(input.iter().zip(bytes).all(|(v, b)| (i32::from(*v) * 2 - 7) as i8 == b));
    assert!(input.iter().zip(shorts).all(|(v, s)| i16::from(*v) << 3 == s));
    gpu.clean();
}

#[test]
fn a_product_of_128_bits() {
    let gpu = Gpu::claim();
    let input = [0xFFFF_FFFF_FFFF_FFF1u64, 0xFEDC_BA98_7654_3210, u64::MAX];
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<u64>(2).unwrap();
    let kernel = gpu.kernel("arithmetic", "long_product");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).launch(block(1)) }.unwrap();
    let product = u128::from(input[0]) * u128::from(input[1]) + u128::from(input[2]);
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [product as u64, (product >> 64) as u64]);
    gpu.clean();
}

#[test]
fn halves_and_brain_floats() {
    let gpu = Gpu::claim();
    // 1, 2, 0.5, -3 as f16, and 1, 2, 0.5, -3 as bf16.
    let a = [0x3C00u16, 0x4000, 0x3800, 0xC200];
    let b = [0x4000u16, 0x4000, 0x3C00, 0x3C00];
    let (da, db) = (gpu.stream.clone_htod(&a).unwrap(), gpu.stream.clone_htod(&b).unwrap());
    let mut sums = gpu.stream.alloc_zeros::<u16>(4).unwrap();
    let mut wide = gpu.stream.alloc_zeros::<f32>(4).unwrap();
    let mut squares = gpu.stream.alloc_zeros::<u16>(4).unwrap();
    let kernel = gpu.kernel("arithmetic", "halves");
    unsafe {
        gpu.stream
            .launch_builder(&kernel)
            .arg(&da)
            .arg(&db)
            .arg(&mut sums)
            .arg(&mut wide)
            .arg(&mut squares)
            .launch(block(4))
    }
    .unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&sums).unwrap(), [0x4200, 0x4400, 0x3E00, 0xC000]);
    assert_eq!(gpu.stream.clone_dtoh(&wide).unwrap(), [3.0, 6.0, 1.0, -6.0]);
    assert_eq!(gpu.stream.clone_dtoh(&squares).unwrap(), [0x3C00, 0x4400, 0x3400, 0x4880]);

    let a = [0x3F80u16, 0x4000, 0x3F00, 0xC040];
    let da = gpu.stream.clone_htod(&a).unwrap();
    let mut out = gpu.stream.alloc_zeros::<u16>(4).unwrap();
    let mut less = gpu.stream.alloc_zeros::<i32>(4).unwrap();
    let kernel = gpu.kernel("arithmetic", "brains");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&da).arg(&mut out).arg(&mut less).launch(block(4)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [0x4020, 0x40A0, 0x3FA0, 0xC0F0]);
    assert_eq!(gpu.stream.clone_dtoh(&less).unwrap(), [0, 0, 1, 1]);
    gpu.clean();
}

#[test]
fn vectors_of_four() {
    let gpu = Gpu::claim();
    let dx = gpu.stream.clone_htod(&numbers(64, 4.0)).unwrap();
    let mut out = gpu.stream.alloc_zeros::<f32>(64).unwrap();
    let kernel = gpu.kernel("arithmetic", "vectors");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).launch(block(16)) }.unwrap();
    let found = gpu.stream.clone_dtoh(&out).unwrap();
    let expected = numbers(64, 4.0).into_iter().enumerate().map(|(i, v)| match i % 4 {
        0 => v + 1.0,
        1 => v * 2.0,
        2 => v - 3.0,
        _ => v / 4.0,
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
    gpu.clean();
}

#[test]
fn sums_over_blocks_warps_and_the_grid() {
    let gpu = Gpu::claim();
    let input = vec![1.0f32; 1000];
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<f32>(4).unwrap();
    let kernel = gpu.kernel("threads", "block_sum");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).arg(&1000i32).launch(shape(4, 256)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [256.0, 256.0, 256.0, 232.0]);
    for (name, shared) in [("dynamic_sum", 512), ("warp_sum", 0)] {
        let mut out = gpu.stream.alloc_zeros::<f32>(1).unwrap();
        let kernel = gpu.kernel("threads", name);
        let shape = LaunchConfig { shared_mem_bytes: shared, ..shape(3, 128) };
        unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).arg(&1000i32).launch(shape) }.unwrap();
        assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [1000.0], "{name}");
    }
    gpu.clean();
}

#[test]
fn a_transpose_and_a_product_of_matrices() {
    let gpu = Gpu::claim();
    let (w, h) = (50, 37);
    let input = numbers(w * h, 1.0);
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<f32>(w * h).unwrap();
    let kernel = gpu.kernel("threads", "transpose");
    let shape = LaunchConfig { grid_dim: (2, 2, 1), block_dim: (32, 8, 1), shared_mem_bytes: 0 };
    unsafe {
        gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).arg(&(w as i32)).arg(&(h as i32)).launch(shape)
    }
    .unwrap();
    let found = gpu.stream.clone_dtoh(&out).unwrap();
    assert!((0..w * h).all(|i| found[i] == input[i % h * w + i / h]));

    let (m, n, k) = (20usize, 33, 40);
    let (a, b) = (numbers(m * k, 1.0), numbers(k * n, 1.0));
    let (da, db) = (gpu.stream.clone_htod(&a).unwrap(), gpu.stream.clone_htod(&b).unwrap());
    let mut c = gpu.stream.alloc_zeros::<f32>(m * n).unwrap();
    let kernel = gpu.kernel("threads", "gemm");
    let shape = LaunchConfig { grid_dim: (3, 2, 1), block_dim: (16, 16, 1), shared_mem_bytes: 0 };
    let (mi, ni, ki) = (m as i32, n as i32, k as i32);
    unsafe {
        gpu.stream.launch_builder(&kernel).arg(&da).arg(&db).arg(&mut c).arg(&mi).arg(&ni).arg(&ki).launch(shape)
    }
    .unwrap();
    let found = gpu.stream.clone_dtoh(&c).unwrap();
    let expected = (0..m * n).map(|i| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum::<f32>());
    close(&found, expected, 1e-5);
    gpu.clean();
}

#[test]
fn a_histogram_by_atomic_additions() {
    let gpu = Gpu::claim();
    let data: Vec<u8> = (0..5000).map(|i: u32| (i * i % 251) as u8).collect();
    let dx = gpu.stream.clone_htod(&data).unwrap();
    let mut bins = gpu.stream.alloc_zeros::<u32>(256).unwrap();
    let kernel = gpu.kernel("threads", "histogram");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut bins).arg(&5000i32).launch(shape(4, 256)) }.unwrap();
    let mut expected = vec![0u32; 256];
    data.iter().for_each(|byte| expected[usize::from(*byte)] += 1);
    assert_eq!(gpu.stream.clone_dtoh(&bins).unwrap(), expected);
    gpu.clean();
}

#[test]
fn votes_matches_and_reductions_of_a_warp() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.alloc_zeros::<i32>(32).unwrap();
    let kernel = gpu.kernel("threads", "votes");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(32)) }.unwrap();
    let found = gpu.stream.clone_dtoh(&out).unwrap();
    let expected = |t: i32| 16 + 100 + 200 + 15 * 1000 + 496 * 100_000 + 5 + if t < 7 { 7 } else { 0 };
    assert_eq!(found, (0..32).map(expected).collect::<Vec<_>>());
    gpu.clean();
}

#[test]
fn exchanges_that_are_tried_again() {
    let gpu = Gpu::claim();
    let mut p = gpu.stream.clone_htod(&[0i32, 0, 0]).unwrap();
    let kernel = gpu.kernel("threads", "swaps");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut p).launch(block(20)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&p).unwrap(), [(1 << 20) - 1, 19, 0]);
    gpu.clean();
}

#[test]
fn lanes_are_ordered_by_a_barrier_of_their_warp() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.alloc_zeros::<i32>(32).unwrap();
    let kernel = gpu.kernel("threads", "warp_exchange");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(32)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), (0..32).rev().collect::<Vec<_>>());
    gpu.clean();
}

#[test]
fn local_arrays_switches_and_variables() {
    let gpu = Gpu::claim();
    let input: Vec<i32> = (0..32).collect();
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<i32>(1).unwrap();
    let kernel = gpu.kernel("memory", "local_array");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).arg(&20i32).launch(block(1)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [(0..20).map(|i| 2 * ((i * 7 + 20) & 31)).sum::<i32>()]);

    let input = [0i32, 1, 2, 3, 4, 5, 6, 7, 9, 12];
    let dx = gpu.stream.clone_htod(&input).unwrap();
    let mut out = gpu.stream.alloc_zeros::<i32>(8).unwrap();
    let kernel = gpu.kernel("memory", "choose");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&dx).arg(&mut out).launch(block(8)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [5, 2, 6, 12, 4, 2, 216, -1]);

    let module = gpu.module("memory");
    let kernel = module.load_function("variables").unwrap();
    let mut out = gpu.stream.alloc_zeros::<f32>(8).unwrap();
    for counter in [5.0, 9.0] {
        unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(8)) }.unwrap();
        let expected: Vec<f32> = (0..8).map(|i| [1.0, 2.0, 4.0, 8.0][i & 3] + counter).collect();
        assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), expected);
    }
    gpu.clean();
}

#[test]
fn functions_are_called_by_name_by_address_and_by_themselves() {
    let gpu = Gpu::claim();
    let mut out = gpu.stream.clone_htod(&[1.0f32, 2.0, 3.0]).unwrap();
    let kernel = gpu.kernel("calls", "call");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(3)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [3.0, 5.0, 7.0]);

    let mut out = gpu.stream.alloc_zeros::<i64>(2).unwrap();
    let kernel = gpu.kernel("calls", "recurse");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).arg(&100i32).launch(block(1)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [5050, 100]);

    let mut out = gpu.stream.clone_htod(&[3i32, 4, 5, 6]).unwrap();
    let kernel = gpu.kernel("calls", "by_address");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut out).launch(block(4)) }.unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap(), [6, 16, 10, 36]);
    gpu.clean();
}

#[test]
fn what_kernels_print_is_reported() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("calls", "print");
    unsafe { gpu.stream.launch_builder(&kernel).arg(&-3i32).arg(&1.25f64).launch(block(1)) }.unwrap();
    gpu.stream.synchronize().unwrap();
    gpu.noticed(ReportKind::Printed, &["x=-3 y=1.25 text|    7|%"]);
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let gpu = Gpu::claim();
    let kernel = gpu.kernel("threads", "grid_barrier");
    let mut counter = gpu.stream.alloc_zeros::<u32>(1).unwrap();
    let mut out = gpu.stream.alloc_zeros::<i32>(16).unwrap();
    unsafe { gpu.stream.launch_builder(&kernel).arg(&mut counter).arg(&mut out).launch_cooperative(shape(8, 1)) }
        .unwrap();
    assert_eq!(gpu.stream.clone_dtoh(&out).unwrap()[8..], [36; 8]);
    gpu.clean();
    let outcome = unsafe {
        gpu.stream.launch_builder(&kernel).arg(&mut counter).arg(&mut out).launch_cooperative(shape(100_000, 1))
    };
    assert_eq!(crate::gpu::code(outcome), 720);
}
