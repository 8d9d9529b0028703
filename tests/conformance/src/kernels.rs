//! The kernels the tests use: each a function for the host, and WGSL and CUDA C that give the same bytes.
//!
//! Workgroups have [`GROUP`] invocations and work on as many elements of 32 bits. What only a host can do, fail and panic within a kernel,
//! has no text.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use core::time::Duration;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{KernelFault, Result};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::kernel::{Interface, Source, SourceKernel, TensorMap, Workgroup};
use trunnion_server_layers::program::KernelTable;

/// Invocations in a workgroup.
pub const GROUP: u32 = 64;

/// The bytes a workgroup works on.
pub const PART: u64 = GROUP as u64 * 4;

/// The name of the kernel that does not compile where a variant says so.
pub const BROKEN: &str = "does_not_compile";

/// What [`fails`] answers.
pub const FAULT: &str = "a fault on purpose";

/// What the failure of a launch says whose counts are over every limit.
pub const TOO_MANY: &str = "4294967295 workgroups on axis x";

/// What [`panics`] panics with.
pub const PANIC: &str = "on purpose, in a kernel";

/// A macro that the text of the kernel [`broken`] looks at: where it is defined, no compiler of CUDA C takes that kernel.
pub const BROKEN_MACRO: &str = "CONFORMANCE_BROKEN";

/// What stands before the WGSL of each kernel.
const PLACE: &str = include_str!("kernels/place.wgsl");

/// What stands before the CUDA C of each kernel.
const CUDA_PLACE: &str = include_str!("kernels/place.cu");

/// The texts of the kernel of this name.
macro_rules! texts {
    ($name:literal) => {
        [
            Source::wgsl(concat!(
                include_str!("kernels/place.wgsl"),
                include_str!(concat!("kernels/", $name, ".wgsl"))
            )),
            cuda_c(concat!(include_str!("kernels/place.cu"), include_str!(concat!("kernels/", $name, ".cu")))),
        ]
    };
}

/// CUDA C that stands here or under `kernels`.
#[allow(unsafe_code, reason = "the texts are vouched for")]
fn cuda_c(text: impl Into<Arc<str>>) -> Source {
    // SAFETY: each of them is told how many bytes its buffers have, and touches an element of a buffer only after `have` has found it in all of
    // those it touches there, or, in `count`, after its index was compared with the number of elements. `echo` reads its parameters modulo
    // their number, and shared memory is an element for each of a workgroup's invocations. `tiles` has its tensor held against its buffer by whoever
    // launches it.
    unsafe { Source::cuda_c(text) }
}

/// The grid that covers `elements`.
///
/// # Errors
/// As for `Grid::cover`.
pub fn cover(elements: usize) -> Result<Grid> {
    Grid::cover(elements as u64, GROUP)
}

/// The kernels by name, for programs that launch them.
pub fn table() -> KernelTable {
    all().into_iter().fold(KernelTable::new(), KernelTable::with)
}

/// Every kernel here that has a name of its own, and those of several sizes in several.
pub fn all() -> Vec<SourceKernel> {
    let simple: [fn() -> SourceKernel; 12] =
        [add, saxpy, step, scramble, put, carry, sum, count, indices, axes, claims_overlap, out_of_bounds];
    let others: [fn() -> SourceKernel; 5] = [fails, panics, broken, accumulate, shared_memory];
    let sized = [gather(2), gather(3), gather(4), echo(16), echo(256), slow(Duration::from_millis(1))];
    simple.into_iter().chain(others).map(|kernel| kernel()).chain(sized).collect()
}

fn kernel(
    name: &str,
    interface: Interface,
    texts: [Source; 2],
    host: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
) -> SourceKernel {
    texts.into_iter().fold(host_kernel(name, interface, host), SourceKernel::source)
}

fn host_kernel(
    name: &str,
    interface: Interface,
    host: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
) -> SourceKernel {
    SourceKernel::new(name, interface).workgroup_size([GROUP, 1, 1]).source(Source::host(host))
}

/// `[a, b, out]`: `out = a + b` in `f32`, replacing all of `out`.
pub fn add() -> SourceKernel {
    kernel("add", Interface::new().read().read().overwrite(PART), texts!("add"), |group| {
        let (a, b) = (group.read::<f32>(0)?, group.read::<f32>(1)?);
        let range = group.part_range::<f32>(2)?;
        for (i, out) in range.zip(group.part::<f32>(2)?) {
            *out = a[i] + b[i];
        }
        Ok(())
    })
}

/// `[x, y]` with parameter `a: f32`: `y += a * x`.
pub fn saxpy() -> SourceKernel {
    kernel("saxpy", Interface::new().read().partition(PART).parameters_of::<f32>(), texts!("saxpy"), |group| {
        let (a, x) = (group.parameters::<f32>()?, group.read::<f32>(0)?);
        let range = group.part_range::<f32>(1)?;
        for (i, y) in range.zip(group.part::<f32>(1)?) {
            *y += a * x[i];
        }
        Ok(())
    })
}

/// `[x]`: adds 1 to every `u32`.
pub fn step() -> SourceKernel {
    kernel("step", Interface::new().partition(PART), texts!("step"), |group| {
        group.part::<u32>(0)?.iter_mut().for_each(|x| *x = x.wrapping_add(1));
        Ok(())
    })
}

/// `[x]`: `x = 3 x + 1` in every `u32`; unlike [`step`], it does not commute with other operations.
pub fn scramble() -> SourceKernel {
    kernel("scramble", Interface::new().partition(PART), texts!("scramble"), |group| {
        group.part::<u32>(0)?.iter_mut().for_each(|x| *x = x.wrapping_mul(3).wrapping_add(1));
        Ok(())
    })
}

/// `[out]` with parameter `value: u32`: replaces every `u32`.
pub fn put() -> SourceKernel {
    kernel("put", Interface::new().overwrite(PART).parameters_of::<u32>(), texts!("put"), |group| {
        group.part::<u32>(0)?.fill(group.parameters()?);
        Ok(())
    })
}

/// `[from, to]`: copies `u32`s, replacing all of `to`.
pub fn carry() -> SourceKernel {
    kernel("carry", Interface::new().read().overwrite(PART), texts!("carry"), |group| {
        let from = group.read::<u32>(0)?;
        let range = group.part_range::<u32>(1)?;
        group.part::<u32>(1)?.copy_from_slice(&from[range]);
        Ok(())
    })
}

/// `[from, to]`: as [`carry`], and slow: it takes `time` on a host, and about as long elsewhere, up to half a second.
pub fn slow(time: Duration) -> SourceKernel {
    // Some drivers end loops of more turns without a word.
    let turns = (time.as_secs_f64() * 100_000.0).clamp(1.0, 50_000.0).round();
    let slow = kernel("slow", Interface::new().read().overwrite(PART).shared(4), texts!("slow"), move |group| {
        let from = group.read::<u32>(0)?;
        let range = group.part_range::<u32>(1)?;
        std::thread::sleep(time);
        group.part::<u32>(1)?.copy_from_slice(&from[range]);
        Ok(())
    });
    slow.constant("turns", turns)
}

/// `[x, sum]`: adds all `u32` of `x` to the first of `sum`, atomically.
pub fn sum() -> SourceKernel {
    kernel("sum", Interface::new().read().atomic(), texts!("sum"), |group| {
        let (x, sum) = (group.read::<u32>(0)?, group.atomic(1)?);
        let span = group.span_x();
        let part = &x[span.start.min(x.len())..span.end.min(x.len())];
        sum[0].fetch_add(part.iter().fold(0, |sum, x| sum.wrapping_add(*x)), Ordering::Relaxed);
        Ok(())
    })
}

/// `[counts]`: each workgroup adds 1 to the `u32` at its linear index, as far as there is one, and to the last.
pub fn count() -> SourceKernel {
    kernel("count", Interface::new().atomic(), texts!("count"), |group| {
        let counts = group.atomic(0)?;
        let Some((total, each)) = counts.split_last() else { return Ok(()) };
        if let Some(one) = usize::try_from(group.linear_id()).ok().and_then(|i| each.get(i)) {
            one.fetch_add(1, Ordering::Relaxed);
        }
        total.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// `[out]`: each workgroup claims one `u32` and writes its linear index there.
pub fn indices() -> SourceKernel {
    kernel("indices", Interface::new().claim(Access::Overwrite), texts!("indices"), |group| {
        let i = group.linear_id() as usize;
        group.claim::<u32>(0, i..i + 1)?[0] = i as u32;
        Ok(())
    })
}

/// `[out]`: each workgroup writes where it is and the counts of its grid, six `u32`.
pub fn axes() -> SourceKernel {
    kernel("axes", Interface::new().claim(Access::Overwrite), texts!("axes"), |group| {
        let at = group.linear_id() as usize * 6;
        let here = group.claim::<u32>(0, at..at + 6)?;
        here[..3].copy_from_slice(&group.id());
        here[3..].copy_from_slice(&group.grid());
        Ok(())
    })
}

/// `[out]`: every workgroup claims the same bytes.
pub fn claims_overlap() -> SourceKernel {
    host_kernel("claims_overlap", Interface::new().claim(Access::Overwrite), |group| {
        group.claim::<u32>(0, 0..1)?.fill(1);
        Ok(())
    })
}

/// `[out]`: writes an element beyond the end. On a host that is a failure; elsewhere it changes nothing outside `out`.
pub fn out_of_bounds() -> SourceKernel {
    kernel("out_of_bounds", Interface::new().claim(Access::Write), texts!("out_of_bounds"), |group| {
        let beyond = group.len::<u32>(0)?;
        group.claim::<u32>(0, beyond..beyond + 1)?.fill(1);
        Ok(())
    })
}

/// `[in, out]`: fails, in every workgroup.
pub fn fails() -> SourceKernel {
    host_kernel("fails", Interface::new().read().partition(PART), |_| Err(KernelFault::Message(FAULT.into())))
}

/// `[in, out]`: panics, in every workgroup.
pub fn panics() -> SourceKernel {
    host_kernel("panics", Interface::new().read().partition(PART), |_| panic!("{PANIC}"))
}

/// `[in, out]`: as [`carry`], where it compiles; a variant can see to it that it does not.
pub fn broken() -> SourceKernel {
    kernel(BROKEN, Interface::new().read().partition(PART), texts!("does_not_compile"), |group| {
        let from = group.read::<u32>(0)?;
        let range = group.part_range::<u32>(1)?;
        group.part::<u32>(1)?.copy_from_slice(&from[range]);
        Ok(())
    })
}

/// `[a, b]`: adds every `u32` of `a` to that of `b`; works when they are the same bytes.
pub fn accumulate() -> SourceKernel {
    kernel("accumulate", Interface::new().atomic().atomic().in_place(), texts!("accumulate"), |group| {
        let (a, b) = (group.atomic(0)?, group.atomic(1)?);
        let span = group.span_x();
        for (a, b) in a.iter().zip(b).take(span.end).skip(span.start) {
            b.fetch_add(a.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    })
}

/// `[out]`: writes its index and what it found into shared memory, and the sum of what is there to its own element of `out`.
pub fn shared_memory() -> SourceKernel {
    kernel("shared_memory", Interface::new().overwrite(4).shared(PART as u32), texts!("shared_memory"), |group| {
        let shared = group.shared::<u32>()?;
        shared.iter_mut().for_each(|x| *x += group.linear_id() as u32 + 1);
        group.part::<u32>(0)?[0] = shared.iter().sum();
        Ok(())
    })
}

/// `n` buffers, the last of which becomes the sum of the others in its first `u32`.
pub fn gather(n: u32) -> SourceKernel {
    let interface = (1..n).fold(Interface::new(), |interface, _| interface.read()).overwrite(PART);
    kernel("gather", interface, [Source::wgsl(gather_wgsl(n)), cuda_c(gather_cuda(n))], move |group| {
        let last = n as usize - 1;
        let mut sum = 0u32;
        for i in 0..last {
            sum += group.read::<u32>(i)?[0];
        }
        group.part::<u32>(last)?.fill(sum);
        Ok(())
    })
}

/// CUDA C of a kernel that is given what the interface says and touches nothing of it: for tests of what is refused before a kernel runs.
#[allow(unsafe_code, reason = "the text is vouched for")]
pub fn idle_cuda_c(name: &str, interface: &Interface) -> Source {
    let buffers = (0..interface.buffers.len()).map(|i| format!("unsigned *b{i}"));
    let words = interface.parameters.div_ceil(4);
    let parameters = (words > 0).then(|| "Parameters parameters".to_string());
    let all: Vec<String> = buffers.chain(parameters).collect();
    let text = format!(
        "struct Parameters {{\n    unsigned words[{}];\n}};\n\nextern \"C\" __global__ void {name}({}) {{}}\n",
        words.max(1),
        all.join(", ")
    );
    // SAFETY: it touches nothing.
    unsafe { Source::cuda_c(text) }
}

/// `[x, out]` with the tensor's width, height and pitch in bytes as `u64`: tiles of `x`, eight numbers wide and four high, which the device
/// copies by itself, are put into `out` one after the other, row by row of the grid. Only devices with tensor maps have it.
pub fn tiles() -> SourceKernel {
    let interface = Interface::new().read().claim(Access::ReadWrite).parameters_of::<[u64; 3]>();
    let map = TensorMap::new(0, ElemType::U32, [8, 4]);
    let text = cuda_c(concat!(include_str!("kernels/place.cu"), include_str!("kernels/tiles.cu")));
    SourceKernel::new("tiles", interface.tensor_map(map)).workgroup_size([32, 1, 1]).source(text)
}

fn gather_wgsl(n: u32) -> String {
    let (last, mut buffers, mut sum) = (n.saturating_sub(1), String::new(), String::new());
    for i in 0..last {
        buffers += &format!("@group(0) @binding({i}) var<storage, read> b{i}: array<u32>;\n");
        sum += &format!("        sum += b{i}[0];\n");
    }
    format!(
        "{PLACE}{buffers}@group(0) @binding({last}) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn gather(here: Here) {{
    let i = element_of(here);
    if i < arrayLength(&out) {{
        var sum = 0u;
{sum}        out[i] = sum;
    }}
}}
"
    )
}

fn gather_cuda(n: u32) -> String {
    let (mut buffers, mut lengths, mut all, mut sum) = (String::new(), String::new(), String::new(), String::new());
    for i in 0..n.saturating_sub(1) {
        buffers += &format!("const u32 *b{i}, ");
        lengths += &format!("u64 bytes{i}, ");
        all += &format!("have(0, bytes{i}) && ");
        sum += &format!(" + b{i}[0]");
    }
    format!(
        "{CUDA_PLACE}extern \"C\" __global__ void gather({buffers}u32 *out, {lengths}u64 out_bytes) {{
    u64 i = element_of();
    if ({all}have(i, out_bytes)) {{
        out[i] = 0{sum};
    }}
}}
"
    )
}

/// `[out]` with `bytes` of parameters, a multiple of 16, which it copies out until 256 bytes are full.
pub fn echo(bytes: u32) -> SourceKernel {
    let vectors = bytes / 16;
    let wgsl = format!("{PLACE}const vectors = {vectors}u;\n{}", include_str!("kernels/echo.wgsl"));
    let cuda = format!("{CUDA_PLACE}constexpr u32 vectors = {vectors};\n{}", include_str!("kernels/echo.cu"));
    kernel(
        "echo",
        Interface::new().overwrite(256).parameters(bytes),
        [Source::wgsl(wgsl), cuda_c(cuda)],
        move |group| {
            let out = group.part::<u8>(0)?;
            match bytes {
                256 => out.copy_from_slice(&group.parameters::<[u8; 256]>()?),
                _ => out.copy_from_slice(&group.parameters::<[u8; 16]>()?.repeat(16)),
            }
            Ok(())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_kernel_wgsl::{Capabilities, Reader};
    use trunnion_runtime_core::error::SourceForm;
    use trunnion_runtime_core::id::{BackendName, DeviceId};
    use trunnion_runtime_core::kernel::{Kernel, KernelReader};
    use trunnion_runtime_core::properties::{
        DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, Target, TargetProperties,
    };

    #[test]
    fn the_text_of_a_kernel_does_what_it_declares() {
        let reader = Reader::new(vec![SourceForm::Wgsl], Capabilities::default());
        let device = DeviceId { backend: BackendName::new("test").unwrap(), index: 0 };
        let properties = DeviceProperties::new(
            DeviceInfo::new(device, DeviceKind::Other, "", "", ""),
            Features::new(Vec::new(), Vec::new()),
            Limits::default(),
            TargetProperties::new("", 16, 1),
        );
        let target = Target { properties: &properties, takes: reader.takes() };
        let mut read = 0;
        for kernel in all().into_iter().chain([gather(31), echo(272)]) {
            let Some(source) = Kernel::source(&kernel, &target) else { continue };
            let reading = reader.read(&kernel, &source).unwrap();
            assert_eq!(Some(reading.interface), kernel.interface());
            assert_eq!(Some(reading.workgroup), Kernel::workgroup_size(&kernel));
            read += 1;
        }
        assert_eq!(read, 22);
    }
}
