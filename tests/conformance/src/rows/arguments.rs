//! L5, L6, L11: what a kernel is given, what it may need, and what may overlap.

use crate::check::{Failure, Outcome, pattern, raw};
use crate::context::{Context, needs_host_kernels};
use crate::factory::Variant;
use crate::kernels::{self, PART, cover};
use crate::{ensure, ensure_eq, ensure_err, tests};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::{Error, KernelFault, Resource};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::kernel::{Args, Interface, Source, SourceKernel, TensorMap};

tests! {
    L5 as_many_buffers_as_the_limit_says_work_and_one_more_is_refused;
    L5 sixteen_buffers_work;
    L5 another_number_of_buffers_is_refused;
    L5 parameters_of_another_size_are_refused;
    L5 as_many_parameters_as_the_limit_says_work_and_more_are_refused;
    L5 a_buffer_smaller_than_the_interface_asks_is_refused;
    L5 a_buffer_larger_than_the_device_binds_is_refused;
    L5 a_buffer_at_a_misaligned_offset_is_refused;
    L5 a_slice_is_what_the_kernel_sees;
    L5 a_buffer_used_in_another_way_than_declared_fails_the_launch;
    L5 tiles_of_a_tensor_are_what_its_buffer_holds_and_zeros_outside;
    L5 a_map_of_a_tensor_that_leaves_its_buffer_is_refused;
    L5 a_device_without_tensor_maps_refuses_a_kernel_that_has_one;
    L6 every_resource_over_its_limit_is_refused_with_both_numbers;
    L6 a_kernel_at_its_limits_works;
    L6 shared_memory_is_each_workgroups_own_and_zero;
    L11 the_same_bytes_may_be_read_twice;
    L11 a_written_range_that_overlaps_another_is_refused;
    L11 neighbouring_ranges_of_one_allocation_are_no_overlap;
    L11 a_kernel_that_works_in_place_may_be_given_the_same_bytes;
    L11 in_place_on_the_host_is_for_atomic_elements_only;
}

fn gathered(client: &Client, n: u32) -> Outcome {
    let gather = client.prepare(kernels::gather(n))?;
    let handles = (0..n).map(|i| client.create_from_slice(raw(&[i + 1; 64]))).collect::<Result<Vec<Handle>, _>>()?;
    let buffers: Vec<&Handle> = handles.iter().collect();
    client.launch(&gather, Grid::x(1), &buffers[..])?;
    let expected = (1..n).sum::<u32>();
    ensure_eq!(client.read_one(&handles[n as usize - 1])?.to_vec::<u32>()?, [expected; 64], "{n} buffers");
    Ok(())
}

fn as_many_buffers_as_the_limit_says_work_and_one_more_is_refused(cx: &Context) -> Outcome {
    for variant in [Variant::plain(), Variant { max_buffers: Some(3), ..Variant::plain() }] {
        let client = cx.open(&variant)?;
        let max = client.limits().max_buffers;
        gathered(&client, max)?;
        let error = ensure_err!(client.prepare(kernels::gather(max + 1)), Error::TooManyResources { .. });
        let expected = Error::TooManyResources {
            kernel: "gather".into(),
            resource: Resource::Buffers,
            requested: u64::from(max) + 1,
            max: max.into(),
        };
        ensure_eq!(error, expected);
    }
    Ok(())
}

fn sixteen_buffers_work(cx: &Context) -> Outcome {
    let client = cx.client()?;
    if client.limits().max_buffers < 16 {
        return Err(Failure::Skipped(format!("the device binds {} buffers", client.limits().max_buffers)));
    }
    for n in [2, 4, 5, 15, 16, 17] {
        if n <= client.limits().max_buffers {
            gathered(&client, n)?;
        }
    }
    Ok(())
}

fn another_number_of_buffers_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let add = client.prepare(kernels::add())?;
    let buffers = (0..4).map(|_| client.zeros(256)).collect::<Result<Vec<_>, _>>()?;
    for got in [0usize, 1, 2, 4] {
        let given: Vec<&Handle> = buffers[..got].iter().collect();
        let error = ensure_err!(client.launch(&add, cover(64)?, &given[..]), Error::BufferCount { .. });
        ensure_eq!(error, Error::BufferCount { kernel: "add".into(), got, expected: 3 });
    }
    Ok(())
}

fn parameters_of_another_size_are_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let (put, step) = (client.prepare(kernels::put())?, client.prepare(kernels::step())?);
    let out = client.zeros(256)?;
    for (kernel, got, expected) in [(&put, 0usize, 4usize), (&put, 3, 4), (&put, 8, 4), (&step, 4, 0)] {
        let parameters = vec![0; got];
        let error = ensure_err!(
            client.launch(kernel, cover(64)?, Args::new().buffer(&out).parameter_bytes(&parameters)),
            Error::ParameterSize { .. }
        );
        ensure_eq!(error, Error::ParameterSize { kernel: kernel.name().into(), got, expected });
    }
    Ok(())
}

fn as_many_parameters_as_the_limit_says_work_and_more_are_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let max = client.limits().max_parameters.min(256);
    if max >= 256 {
        let echo = client.prepare(kernels::echo(256))?;
        let (out, parameters) = (client.zeros(256)?, pattern(256, 7));
        client.launch(&echo, Grid::x(1), Args::new().buffer(&out).parameter_bytes(&parameters))?;
        ensure_eq!(client.read_one(&out)?.as_slice()?, parameters);
    }
    let small = cx.open(&Variant { max_parameters: Some(16), ..Variant::plain() })?;
    let echo = small.prepare(kernels::echo(16))?;
    let (out, parameters) = (small.zeros(256)?, pattern(16, 7));
    small.launch(&echo, Grid::x(1), Args::new().buffer(&out).parameter_bytes(&parameters))?;
    ensure_eq!(small.read_one(&out)?.as_slice()?, parameters.repeat(16));
    for (client, max, requested) in [(&client, max, max + 16), (&small, 16, 256)] {
        let error = ensure_err!(client.prepare(kernels::echo(requested)), Error::TooManyResources { .. });
        let expected = Error::TooManyResources {
            kernel: "echo".into(),
            resource: Resource::Parameters,
            requested: requested.into(),
            max: max.into(),
        };
        ensure_eq!(error, expected);
    }
    Ok(())
}

fn a_buffer_smaller_than_the_interface_asks_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let text = "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn wants_forty() { out[0] = x[9]; }";
    let interface = Interface::new().read().at_least(40).overwrite(4);
    let kernel = SourceKernel::new("wants_forty", interface.clone())
        .source(Source::host(|_| Ok(())))
        .source(kernels::idle_cuda_c("wants_forty", &interface))
        .source(Source::wgsl(text));
    let kernel = client.prepare(kernel)?;
    let (input, output) = (client.zeros(64)?, client.zeros(4)?);
    let error =
        ensure_err!(client.launch(&kernel, Grid::x(1), [&input.slice(..36)?, &output]), Error::BufferSize { .. });
    let Error::BufferSize { kernel: name, index, got, why } = &error else { return Err(Failure::new("unreachable")) };
    ensure_eq!((name.as_str(), *index, *got), ("wants_forty", 0, 36));
    ensure!(why.contains("40") && error.is_refusal(), "{error}");
    ensure_err!(client.launch(&kernel, Grid::x(1), [&input.slice(..0)?, &output]), Error::BufferSize { .. });
    client.launch(&kernel, Grid::x(1), [&input.slice(..40)?, &output])?;
    client.sync_buffers(&[&output])?;
    Ok(())
}

fn a_buffer_larger_than_the_device_binds_is_refused(cx: &Context) -> Outcome {
    let client = cx.open(&Variant { max_binding: Some(1024), ..Variant::plain() })?;
    let step = client.prepare(kernels::step())?;
    let memory = client.create_from_slice(raw(&[0u32; 512]))?;
    let error = ensure_err!(client.launch(&step, cover(512)?, [&memory]), Error::BufferSize { .. });
    ensure!(matches!(&error, Error::BufferSize { index: 0, got: 2048, why, .. } if why.contains("1024")), "{error:?}");
    // In pieces it can be used.
    client.launch(&step, cover(256)?, [&memory.slice(..1024)?])?;
    client.launch(&step, cover(256)?, [&memory.slice(1024..)?])?;
    ensure_eq!(client.read_one(&memory)?.to_vec::<u32>()?, [1; 512]);
    Ok(())
}

fn a_buffer_at_a_misaligned_offset_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let alignment = client.limits().binding_alignment;
    let memory = client.create_from_slice(&vec![0; alignment as usize * 4])?;
    if alignment > 1 {
        let error = ensure_err!(client.launch(&step, Grid::x(1), [&memory.slice(1..5)?]), Error::Misaligned { .. });
        ensure!(matches!(error, Error::Misaligned { value: 1, alignment: a, .. } if a == alignment), "{error:?}");
    }
    client.launch(&step, Grid::x(1), [&memory.slice(alignment..alignment + 4)?])?;
    ensure_eq!(client.read_one(&memory.slice(alignment..alignment + 4)?)?.to_vec::<u32>()?, [1]);
    Ok(())
}

fn a_slice_is_what_the_kernel_sees(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let step = client.prepare(kernels::step())?;
    let memory = client.create_from_slice(raw(&[1u32; 192]))?;
    client.launch(&step, Grid::x(3), [&memory.slice(PART..2 * PART)?])?;
    ensure_eq!(client.read_one(&memory)?.to_vec::<u32>()?, [[1; 64], [2; 64], [1; 64]].concat());
    Ok(())
}

fn a_buffer_used_in_another_way_than_declared_fails_the_launch(cx: &Context) -> Outcome {
    let client = cx.client()?;
    needs_host_kernels(&client)?;
    let misuse = |name: &str, host: fn(&trunnion_runtime_core::kernel::Workgroup<'_>) -> Result<(), KernelFault>| {
        client.prepare(SourceKernel::new(name, Interface::new().read().overwrite(256)).source(Source::host(host)))
    };
    let kernels = [
        misuse("claims_a_partition", |group| group.claim::<u32>(1, 0..1).map(drop))?,
        misuse("writes_what_it_reads", |group| group.part::<u32>(0).map(drop))?,
        misuse("reads_what_it_writes", |group| group.read::<u32>(1).map(drop))?,
        misuse("takes_its_part_twice", |group| {
            group.part::<u32>(1)?;
            group.part::<u32>(1).map(drop)
        })?,
        misuse("takes_a_buffer_there_is_not", |group| group.read::<u32>(2).map(drop))?,
        misuse("takes_elements_that_do_not_fit", |group| group.read::<[u8; 7]>(0).map(drop))?,
        misuse("takes_parameters_there_are_not", |group| group.parameters::<u32>().map(drop))?,
        misuse("takes_shared_memory_twice", |group| {
            group.shared::<u8>()?;
            group.shared::<u8>().map(drop)
        })?,
    ];
    let input = client.create_from_slice(&[1; 256])?;
    for kernel in &kernels {
        let output = client.zeros(256)?;
        client.launch(kernel, Grid::x(1), [&input, &output])?;
        let error = ensure_err!(client.read_one(&output), Error::KernelFailed { .. });
        ensure!(error.to_string().contains(kernel.name()), "the kernel is not named: {error}");
    }
    ensure_eq!(client.read_one(&input)?.as_slice()?, [1; 256]);
    Ok(())
}

// ---- L6

/// A kernel that uses all it declares, as far as that is looked at: read buffers, one that is replaced, parameters in units of 16 bytes, shared memory in units of 4.
fn sized(size: [u32; 3], interface: Interface) -> SourceKernel {
    let (mut text, mut body) = (String::new(), String::new());
    for (i, buffer) in interface.buffers.iter().enumerate() {
        let mode = if buffer.access.writes() { "read_write" } else { "read" };
        text += &format!("@group(0) @binding({i}) var<storage, {mode}> b{i}: array<u32>;\n");
        body += &if buffer.access.writes() { format!("b{i}[at] = 1u;") } else { format!("sum += b{i}[0];") };
    }
    if interface.parameters > 0 {
        let (count, binding) = (interface.parameters / 16, interface.buffers.len());
        text += &format!("struct Parameters {{ words: array<vec4<u32>, {count}> }}\n");
        text += &format!("@group(0) @binding({binding}) var<uniform> parameters: Parameters;\n");
        body += "sum += parameters.words[0].x;";
    }
    if interface.shared > 0 {
        text += &format!("var<workgroup> part: array<u32, {}>;\n", interface.shared / 4);
        body += "part[lane] = sum;";
    }
    let [x, y, z] = size;
    text += &format!(
        "@compute @workgroup_size({x}, {y}, {z})
        fn sized(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {{
            let at = group.x * {}u + lane;
            var sum = 0u;
            {body}
        }}",
        x.saturating_mul(y).saturating_mul(z)
    );
    let cuda = kernels::idle_cuda_c("sized", &interface);
    SourceKernel::new("sized", interface)
        .workgroup_size(size)
        .source(Source::host(|_| Ok(())))
        .source(cuda)
        .source(Source::wgsl(text))
}

fn every_resource_over_its_limit_is_refused_with_both_numbers(cx: &Context) -> Outcome {
    let variant = Variant {
        max_workgroup: Some([32, 16, 8]),
        max_invocations: Some(64),
        max_shared: Some(128),
        max_buffers: Some(2),
        max_parameters: Some(32),
        ..Variant::plain()
    };
    let client = cx.open(&variant)?;
    let none = Interface::new;
    for (size, interface, resource, requested, max) in [
        ([33, 1, 1], none(), Resource::WorkgroupSizeX, 33, 32),
        ([1, 17, 1], none(), Resource::WorkgroupSizeY, 17, 16),
        ([1, 1, 9], none(), Resource::WorkgroupSizeZ, 9, 8),
        ([32, 2, 2], none(), Resource::Invocations, 128, 64),
        ([1, 1, 1], none().shared(132), Resource::SharedMemory, 132, 128),
        ([1, 1, 1], none().read().read().read(), Resource::Buffers, 3, 2),
        ([1, 1, 1], none().parameters(48), Resource::Parameters, 48, 32),
    ] {
        let error = ensure_err!(client.prepare(sized(size, interface)), Error::TooManyResources { .. });
        ensure_eq!(error, Error::TooManyResources { kernel: "sized".into(), resource, requested, max });
        let text = error.to_string();
        ensure!(
            error.is_refusal() && text.contains(&requested.to_string()) && text.contains(&max.to_string()),
            "{text}"
        );
    }
    let huge = ensure_err!(client.prepare(sized([u32::MAX; 3], none())), Error::TooManyResources { .. });
    ensure!(matches!(huge, Error::TooManyResources { resource: Resource::WorkgroupSizeX, .. }), "{huge:?}");
    ensure_eq!(client.compile_statistics()?.compiled, 0);
    Ok(())
}

fn a_kernel_at_its_limits_works(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let limits = client.limits().clone();
    let x = limits.max_workgroup[0].min(limits.max_invocations);
    let kernel = client.prepare(sized([x, 1, 1], Interface::new().overwrite(256).shared(limits.max_shared)))?;
    let output = client.zeros(1024)?;
    client.launch(&kernel, Grid::x(4), [&output])?;
    client.sync_buffers(&[&output])?;
    client.prepare(sized([1, limits.max_workgroup[1].min(limits.max_invocations), 1], Interface::new()))?;
    client.prepare(sized([1, 1, limits.max_workgroup[2].min(limits.max_invocations)], Interface::new()))?;
    Ok(())
}

fn shared_memory_is_each_workgroups_own_and_zero(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let kernel = client.prepare(kernels::shared_memory())?;
    let output = client.empty(1000 * 4)?;
    for round in 0..3 {
        client.launch(&kernel, Grid::x(1000), [&output])?;
        let expected: Vec<u32> = (1..=1000).map(|i| i * 64).collect();
        ensure_eq!(client.read_one(&output)?.to_vec::<u32>()?, expected, "round {round}");
    }
    Ok(())
}

// ---- L11

fn the_same_bytes_may_be_read_twice(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let add = client.prepare(kernels::add())?;
    let (x, out) = (client.create_from_slice(raw(&[1.5f32; 128]))?, client.zeros(512)?);
    client.launch(&add, cover(128)?, [&x, &x, &out])?;
    ensure_eq!(client.read_one(&out)?.to_vec::<f32>()?, [3.0; 128]);
    client.launch(&add, cover(64)?, [&x.slice(..256)?, &x.slice(256..)?, &out.slice(..256)?])?;
    ensure_eq!(client.read_one(&out)?.to_vec::<f32>()?, [3.0; 128]);
    Ok(())
}

fn a_written_range_that_overlaps_another_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let add = client.prepare(kernels::add())?;
    let memory = client.create_from_slice(raw(&[1f32; 256]))?;
    let (a, b, out) = (memory.slice(..256)?, memory.slice(256..512)?, memory.slice(512..768)?);
    // As little as a device can be bound to that begins where it may.
    let overlap = client.limits().binding_alignment.clamp(16, 256);
    let beside = memory.slice(512 - overlap..768)?;
    for (buffers, first, second) in [
        ([&out, &b, &out], 0, 2),
        ([&a, &out, &out], 1, 2),
        ([&a, &b, &b], 1, 2),
        ([&a, &b, &memory], 0, 2),
        ([&a, &beside, &out], 1, 2),
    ] {
        let error = ensure_err!(client.launch(&add, cover(64)?, buffers), Error::Overlap { .. });
        ensure_eq!(error, Error::Overlap { what: "add".into(), first, second });
        ensure!(error.is_refusal(), "{error:?}");
    }
    // Two written ones.
    let text = "@group(0) @binding(0) var<storage, read_write> x: array<atomic<u32>>;
        @group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
        @compute @workgroup_size(1) fn two() { atomicAdd(&x[0], atomicAdd(&y[0], 1u)); }";
    let interface = Interface::new().atomic().atomic();
    let cuda = kernels::idle_cuda_c("two", &interface);
    let two = SourceKernel::new("two", interface).source(Source::host(|_| Ok(()))).source(cuda);
    let two = client.prepare(two.source(Source::wgsl(text)))?;
    ensure_err!(client.launch(&two, Grid::x(1), [&a, &a]), Error::Overlap { .. });
    ensure_eq!(client.read_one(&memory)?.to_vec::<f32>()?, [1.0; 256]);
    Ok(())
}

fn neighbouring_ranges_of_one_allocation_are_no_overlap(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let add = client.prepare(kernels::add())?;
    let memory = client.create_from_slice(raw(&[1f32; 192]))?;
    let (a, b, out) = (memory.slice(..256)?, memory.slice(256..512)?, memory.slice(512..)?);
    client.launch(&add, cover(64)?, [&a, &b, &out])?;
    ensure_eq!(client.read_one(&memory)?.to_vec::<f32>()?, [[1.0; 64], [1.0; 64], [2.0; 64]].concat());
    // No bytes overlap nothing, wherever they are.
    client.launch(&add, Grid::x(1), [&out.slice(16..16)?, &out.slice(33..33)?, &a.slice(..0)?])?;
    client.sync()?.wait()?;
    Ok(())
}

fn a_kernel_that_works_in_place_may_be_given_the_same_bytes(cx: &Context) -> Outcome {
    let client = cx.client()?;
    let accumulate = client.prepare(kernels::accumulate())?;
    let data: Vec<u32> = (0..200).collect();
    let (x, y) = (client.create_from_slice(raw(&data))?, client.create_from_slice(raw(&[1u32; 200]))?);
    client.launch(&accumulate, cover(200)?, [&x, &y])?;
    ensure_eq!(client.read_one(&y)?.to_vec::<u32>()?, data.iter().map(|i| i + 1).collect::<Vec<_>>());
    client.launch(&accumulate, cover(200)?, [&x, &x])?;
    client.launch(&accumulate, cover(200)?, [&x, &x])?;
    ensure_eq!(client.read_one(&x)?.to_vec::<u32>()?, data.iter().map(|i| i * 4).collect::<Vec<_>>());
    Ok(())
}

fn in_place_on_the_host_is_for_atomic_elements_only(cx: &Context) -> Outcome {
    let client = cx.client()?;
    needs_host_kernels(&client)?;
    let kernel =
        SourceKernel::new("half_atomic", Interface::new().read().atomic().in_place()).source(Source::host(|_| Ok(())));
    let kernel = client.prepare(kernel)?;
    let (a, b) = (client.zeros(256)?, client.zeros(256)?);
    client.launch(&kernel, Grid::x(1), [&a, &b])?;
    // Safe code would hold a shared slice of bytes that others write.
    ensure_err!(client.launch(&kernel, Grid::x(1), [&a, &a]), Error::Overlap { .. });
    Ok(())
}

/// A skip where the device has no tensor maps.
fn needs_tensor_maps(client: &Client) -> Outcome {
    match client.features().tensor_maps {
        true => Ok(()),
        false => Err(Failure::Skipped(format!("{}: the device has no tensor maps", client.name()))),
    }
}

fn tiles_of_a_tensor_are_what_its_buffer_holds_and_zeros_outside(cx: &Context) -> Outcome {
    let client = cx.client()?;
    needs_tensor_maps(&client)?;
    let tiles = client.prepare(kernels::tiles())?;
    // Ten numbers a row and six rows, at a distance of twelve numbers, in the middle of an allocation.
    let numbers: Vec<u32> = (0..200).collect();
    let all = client.create_from_slice(raw(&numbers))?;
    let alignment = client.limits().binding_alignment.max(16);
    let start = alignment.max(64);
    let x = all.slice(start..start + 12 * 6 * 4)?;
    let out = client.create_from_slice(raw(&[99u32; 128]))?;
    let shape = [10u64, 6, 48];
    client.launch(&tiles, Grid::Static(2, 2, 1), Args::new().buffer(&x).buffer(&out).parameters(&shape))?;
    let element = |i: usize| {
        let (tile, within) = (i / 32, i % 32);
        let (column, row) = (tile % 2 * 8 + within % 8, tile / 2 * 4 + within / 8);
        if column < 10 && row < 6 { numbers[start as usize / 4 + row * 12 + column] } else { 0 }
    };
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, (0..128).map(element).collect::<Vec<_>>());
    // Another shape is another launch of the same kernel, behind what wrote the buffer.
    client.launch(&client.prepare(kernels::step())?, cover(200)?, [&all])?;
    client.launch(&tiles, Grid::x(1), Args::new().buffer(&x).buffer(&out).parameters(&[4u64, 2, 32]))?;
    let first = start as u32 / 4 + 1;
    let expected = [0, 1, 2, 3].map(|i| first + i).into_iter().chain([0; 4]);
    let expected: Vec<u32> = expected.chain([8, 9, 10, 11].map(|i| first + i)).chain([0; 20]).collect();
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?[..32], expected);
    Ok(())
}

fn a_map_of_a_tensor_that_leaves_its_buffer_is_refused(cx: &Context) -> Outcome {
    let client = cx.client()?;
    needs_tensor_maps(&client)?;
    let tiles = client.prepare(kernels::tiles())?;
    let (x, out) = (client.create_from_slice(raw(&[1u32; 64]))?, client.create_from_slice(raw(&[7u32; 32]))?);
    for shape in [[8u64, 9, 32], [9, 8, 32], [8, 8, 33], [0, 8, 32], [8, u64::MAX, 32]] {
        let refused = client.launch(&tiles, Grid::x(1), Args::new().buffer(&x).buffer(&out).parameters(&shape));
        let error = ensure_err!(refused, Error::BufferSize { index: 0, got: 256, .. });
        ensure!(error.is_refusal(), "{shape:?}: {error:?}");
    }
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, [7; 32], "what was refused wrote something");
    client.launch(&tiles, Grid::x(1), Args::new().buffer(&x).buffer(&out).parameters(&[8u64, 8, 32]))?;
    ensure_eq!(client.read_one(&out)?.to_vec::<u32>()?, [1; 32]);
    Ok(())
}

fn a_device_without_tensor_maps_refuses_a_kernel_that_has_one(cx: &Context) -> Outcome {
    let client = cx.client()?;
    if client.features().tensor_maps {
        return Err(Failure::Skipped(format!("{}: the device has tensor maps", client.name())));
    }
    let interface = Interface::new().read().parameters(8).tensor_map(TensorMap::new(0, ElemType::F32, [4]));
    let text =
        "@group(0) @binding(0) var<storage> x: array<f32>; @compute @workgroup_size(1) fn mapped() { _ = x[0]; }";
    let mapped =
        SourceKernel::new("mapped", interface.clone()).source(Source::host(|_| Ok(()))).source(Source::wgsl(text));
    let mapped = mapped.source(kernels::idle_cuda_c("mapped", &interface));
    let error = ensure_err!(client.prepare(mapped), Error::Unsupported { .. });
    ensure_eq!(error, Error::Unsupported { what: "a kernel with tensor maps".into(), backend: cx.backend()? });
    Ok(())
}
