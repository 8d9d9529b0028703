//! Pages that grow: pieces of memory side by side are as one, and a piece comes behind those in use without waiting.

use crate::assumption::{Answer, assumptions, gave, is};
use crate::device::{Device, LEGACY};
use crate::gate::Gate;
use trunnion_cuda_raw::{Address, Copy2D, Pieces};

assumptions! {
    a_kernel_reads_and_writes_across_a_seam,
    bytes_are_copied_across_a_seam,
    rows_are_copied_across_a_seam,
    a_piece_is_mapped_behind_others_without_waiting_for_work_on_them,
    addresses_are_mapped_anew_when_what_lay_there_is_gone,
}

/// The only device that is asked.
const DEVICE: i32 = 0;

/// Bytes on either side of a seam that are looked at.
const SIDE: usize = 192;

/// Where two pieces of memory meet; nothing where a driver maps none.
fn seam(device: &Device) -> Result<Option<Address>, String> {
    let Some(mut pieces) = Pieces::reserve(device.driver, DEVICE, 2)? else { return Ok(None) };
    pieces.add()?;
    let seam = pieces.end();
    pieces.add()?;
    let (before, words) = (seam - SIDE as Address, SIDE / 4);
    // SAFETY: there are as many words on either side.
    unsafe {
        device.must("cuMemsetD32", device.driver.cuMemsetD32_v2(before, 10, words))?;
        device.must("cuMemsetD32", device.driver.cuMemsetD32_v2(seam, 20, words))?;
        device.must("cuCtxSynchronize", device.driver.cuCtxSynchronize())?;
    }
    Ok(Some(seam))
}

/// The bytes around a seam, each side by a copy of its own.
fn sides(device: &Device, seam: Address) -> Result<[u8; 2 * SIDE], String> {
    let mut found = [0; 2 * SIDE];
    for (side, from) in found.chunks_exact_mut(SIDE).zip([seam - SIDE as Address, seam]) {
        // SAFETY: the side has as many bytes, on the device and here.
        let code = unsafe { device.driver.cuMemcpyDtoH_v2(side.as_mut_ptr().cast(), from, SIDE) };
        device.must("cuMemcpyDtoH", code)?;
    }
    Ok(found)
}

/// That the bytes around a seam are as they should be.
fn are(what: &str, found: &[u8], expected: &[u8]) -> Answer {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(format!(
            "{what}: the byte {} from the seam on is {}, assumed was {}",
            at as i64 - SIDE as i64,
            found[at],
            expected[at]
        )),
    }
}

/// Bytes of which no two near each other are the same, and none is what memory begins with.
fn counted() -> [u8; 2 * SIDE] {
    core::array::from_fn(|i| (i % 200) as u8 + 50)
}

fn a_kernel_reads_and_writes_across_a_seam(device: &Device) -> Answer {
    const THREADS: u32 = 32;
    let Some(seam) = seam(device)? else { return Ok(()) };
    // Each thread writes so many words behind what it reads: the first kernel reads on both sides of the seam, the other one writes there.
    for words in [16, 48] {
        let code = device.launch(c"carry", THREADS, 0, LEGACY, seam - 4 * words);
        device.must("cuLaunchKernel", code)?;
    }
    gave("the stream", device.end_of(LEGACY), 0)?;
    let expected = [vec![10_u32; 32], vec![11; 48], vec![21; 16]].concat();
    let expected: Vec<u8> = expected.into_iter().flat_map(u32::to_ne_bytes).collect();
    are("a kernel", &sides(device, seam)?, &expected)
}

fn bytes_are_copied_across_a_seam(device: &Device) -> Answer {
    const ASIDE: Address = 64;
    let (Some(seam), Some(other)) = (seam(device)?, seam(device)?) else { return Ok(()) };
    let (driver, start, bytes, mut found) = (device.driver, seam - SIDE as Address, counted(), [0; 2 * SIDE]);
    // SAFETY: all ranges are within their memory, and what is here stays until the stream has ended.
    unsafe {
        let code = driver.cuMemcpyHtoDAsync_v2(start, bytes.as_ptr().cast(), bytes.len(), LEGACY);
        device.must("cuMemcpyHtoDAsync", code)?;
        gave("the stream", device.end_of(LEGACY), 0)?;
        are("cuMemcpyHtoDAsync", &sides(device, seam)?, &bytes)?;
        let code = driver.cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), start, found.len(), LEGACY);
        device.must("cuMemcpyDtoHAsync", code)?;
        gave("the stream", device.end_of(LEGACY), 0)?;
        are("cuMemcpyDtoHAsync", &found, &bytes)?;
        // The seams are at different places in what is copied.
        let size = bytes.len() - 2 * ASIDE as usize;
        let code = driver.cuMemcpyDtoDAsync_v2(other - SIDE as Address + 2 * ASIDE, start + ASIDE, size, LEGACY);
        device.must("cuMemcpyDtoDAsync", code)?;
    }
    gave("the stream", device.end_of(LEGACY), 0)?;
    let aside = ASIDE as usize;
    let mut expected = [[10, 0, 0, 0]; SIDE / 4].concat();
    expected.truncate(2 * aside);
    expected.extend_from_slice(&bytes[aside..bytes.len() - aside]);
    are("cuMemcpyDtoDAsync", &sides(device, other)?, &expected)
}

fn rows_are_copied_across_a_seam(device: &Device) -> Answer {
    // No distance is a multiple of anything; of each side the row in the midst lies on both sides of a seam.
    const WIDTH: usize = 5;
    const HEIGHT: usize = 7;
    const PITCHES: [usize; 2] = [13, 29];
    let (Some(seam), Some(other)) = (seam(device)?, seam(device)?) else { return Ok(()) };
    let [source, target] = PITCHES.map(|pitch| HEIGHT / 2 * pitch + 2);
    let (from, to) = ((seam - source as Address, PITCHES[0]), (other - target as Address, PITCHES[1]));
    let (bytes, mut found) = (counted(), [0_u8; WIDTH * HEIGHT]);
    let copies = [
        ("to the device", Copy2D::to_device((bytes.as_ptr().cast(), WIDTH), from, WIDTH, HEIGHT)),
        ("within it", Copy2D::within_device(from, to, WIDTH, HEIGHT)),
        ("to the host", Copy2D::to_host(to, (found.as_mut_ptr().cast(), WIDTH), WIDTH, HEIGHT)),
    ];
    for (what, copy) in copies {
        // SAFETY: the rows are within their memory, and what is here stays until the stream has ended.
        let code = unsafe { device.driver.cuMemcpy2DAsync_v2(&raw const copy, LEGACY) };
        gave(&format!("cuMemcpy2DAsync {what}"), code, 0)?;
        gave("the stream", device.end_of(LEGACY), 0)?;
    }
    is("what comes back is what was sent", found == bytes[..found.len()])?;
    for (what, seam, first, pitch) in [("to the device", seam, source, 13), ("within it", other, target, 29)] {
        let mut expected = [[10, 0, 0, 0], [20, 0, 0, 0]].map(|word| word.repeat(SIDE / 4)).concat();
        for (row, sent) in bytes[..found.len()].chunks_exact(WIDTH).enumerate() {
            let start = SIDE - first + row * pitch;
            expected[start..start + WIDTH].copy_from_slice(sent);
        }
        are(&format!("cuMemcpy2DAsync {what}"), &sides(device, seam)?, &expected)?;
    }
    Ok(())
}

fn a_piece_is_mapped_behind_others_without_waiting_for_work_on_them(device: &Device) -> Answer {
    let Some(mut pieces) = Pieces::reserve(device.driver, DEVICE, 2)? else { return Ok(()) };
    pieces.add()?;
    let (first, second) = (pieces.address, pieces.end());
    // SAFETY: the memory has a word.
    unsafe {
        device.must("cuMemsetD32", device.driver.cuMemsetD32_v2(first, 3, 1))?;
        device.must("cuCtxSynchronize", device.driver.cuCtxSynchronize())?;
    }
    let gate = Gate::behind_work(device, first)?;
    pieces.add()?;
    gate.stands("mapping behind what is in use")?;
    gave("the stream", gate.end(), 0)?;
    // SAFETY: as above.
    device.must("cuMemsetD32", unsafe { device.driver.cuMemsetD32_v2(second, 4, 1) })?;
    device.must("cuLaunchKernel", device.launch(c"add_one", 1, 0, LEGACY, second))?;
    gave("the stream", device.end_of(LEGACY), 0)?;
    gave("a word of the new piece", device.word(second)?, 5)?;
    is("the work on the first was done", device.word(first)? > 3)
}

fn addresses_are_mapped_anew_when_what_lay_there_is_gone(device: &Device) -> Answer {
    let Some(mut pieces) = Pieces::reserve(device.driver, DEVICE, 2)? else { return Ok(()) };
    pieces.add()?;
    // Nobody was given access to it.
    pieces.map()?;
    pieces.unmap()?;
    let second = pieces.end();
    pieces.add()?;
    // SAFETY: the memory has a word.
    device.must("cuMemsetD32", unsafe { device.driver.cuMemsetD32_v2(second, 4, 1) })?;
    device.must("cuLaunchKernel", device.launch(c"add_one", 1, 0, LEGACY, second))?;
    gave("the stream", device.end_of(LEGACY), 0)?;
    gave("the word", device.word(second)?, 5)
}
