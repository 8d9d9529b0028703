//! The nodes of graphs: adding them, reading and changing what they do.

use alloc::sync::Arc;
use core::ffi::c_void;

use super::copy::Cuboid;
use super::launch::prepare;
use super::pointers::{Arguments, Host, In, Out};
use super::{exports, require};
use crate::codes::{Code, Outcome};
use crate::driver::driver;
use crate::graph::Node;
use crate::host::HostFunction;
use crate::loaded::Shape;
use crate::sync::lock;
use crate::work::{Fill, Work};

/// What a kernel's node does. Equivalent to: `CUDA_KERNEL_NODE_PARAMS_v2`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KernelNode {
    kernel: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: Arguments,
    extra: In<Host>,
    library_kernel: usize,
    context: usize,
}

/// What a fill's node does. Equivalent to: `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FillNode {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// What a node of the program's does. Equivalent to: `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HostNode {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: Host,
}

impl KernelNode {
    fn work(&self) -> Outcome<Work> {
        // Kernels of libraries that are loaded without a context are not played.
        require(self.library_kernel == 0)?;
        let shape = Shape { grid: self.grid, block: self.block, shared: self.shared, is_cooperative: false };
        Ok(Work::Launch(prepare(self.kernel, shape, self.arguments, self.extra)?))
    }
}

impl FillNode {
    fn work(&self) -> Outcome<Work> {
        let FillNode { to, pitch, value, element, width, height } = *self;
        require(matches!(element, 1 | 2 | 4) && width > 0 && height > 0)?;
        Ok(Work::Fill(Fill { to, value, element: element as usize, width, height, pitch }))
    }
}

impl HostNode {
    fn work(&self) -> Outcome<Work> {
        let function = self.function.ok_or(Code::INVALID_VALUE)?;
        Ok(Work::Host(HostFunction::new(function, self.argument.pointer())))
    }
}

fn add(out: Out<usize>, graph: usize, after: In<usize>, count: usize, work: Work) -> Outcome {
    require(!out.is_null())?;
    let node = driver().graphs.get(graph)?.add(work, after.list(count)?)?;
    out.set(node.handle)
}

/// Lets nodes of a graph come after others of it.
pub(super) fn depend(graph: usize, from: &[usize], to: &[usize]) -> Outcome {
    let graph = driver().graphs.get(graph)?;
    let nodes = graph.nodes();
    let find = |handle: usize| nodes.iter().find(|node| node.handle == handle).ok_or(Code::INVALID_VALUE);
    for (from, to) in from.iter().zip(to) {
        find(*from)?;
        let to = find(*to)?;
        let mut after = lock(&to.after);
        require(!after.contains(from) && to.handle != *from)?;
        after.push(*from);
    }
    Ok(())
}

/// A node, and what it does if that is of the wanted kind.
fn node(handle: usize, kind: u32) -> Outcome<Arc<Node>> {
    let node = driver().nodes.get(handle).map_err(|_| Code::INVALID_VALUE)?;
    require(node.kind() == kind)?;
    Ok(node)
}

fn set(handle: usize, kind: u32, work: Work) -> Outcome {
    *lock(&node(handle, kind)?.work) = work;
    Ok(())
}

fn set_in(executable: usize, handle: usize, kind: u32, work: Work) -> Outcome {
    driver().executables.get(executable)?.set(node(handle, kind)?.handle, work)
}

const KERNEL: u32 = 0;
const COPY: u32 = 1;
const FILL: u32 = 2;
const HOST: u32 = 3;

fn copy(cuboid: In<Cuboid>) -> Outcome<Work> {
    Ok(Work::Copy(cuboid.get()?.copy()?))
}

exports! {
    fn cuGraphAddKernelNode_v2(out: Out<usize>, graph: usize, after: In<usize>, count: usize, what: In<KernelNode>) {
        add(out, graph, after, count, what.get()?.work()?)
    }

    fn cuGraphAddMemcpyNode(out: Out<usize>, graph: usize, after: In<usize>, count: usize, what: In<Cuboid>, _context: usize) {
        add(out, graph, after, count, copy(what)?)
    }

    fn cuGraphAddMemsetNode(out: Out<usize>, graph: usize, after: In<usize>, count: usize, what: In<FillNode>, _context: usize) {
        add(out, graph, after, count, what.get()?.work()?)
    }

    fn cuGraphAddHostNode(out: Out<usize>, graph: usize, after: In<usize>, count: usize, what: In<HostNode>) {
        add(out, graph, after, count, what.get()?.work()?)
    }

    fn cuGraphAddEmptyNode(out: Out<usize>, graph: usize, after: In<usize>, count: usize) {
        add(out, graph, after, count, Work::Nothing)
    }

    fn cuGraphDestroyNode(handle: usize) {
        let node = driver().nodes.get(handle).map_err(|_| Code::INVALID_VALUE)?;
        driver().graphs.get(node.graph)?.remove(handle)
    }

    fn cuGraphNodeGetType(handle: usize, kind: Out<u32>) {
        kind.set(driver().nodes.get(handle).map_err(|_| Code::INVALID_VALUE)?.kind())
    }

    fn cuGraphKernelNodeGetParams_v2(handle: usize, out: Out<KernelNode>) {
        let node = node(handle, KERNEL)?;
        let Work::Launch(launch) = lock(&node.work).clone() else { return Err(Code::INVALID_VALUE) };
        let Shape { grid, block, shared, .. } = launch.shape;
        // The parameters are the driver's own by now; a program that wants them back asks a real one.
        let (arguments, extra) = (Arguments::null(), In::null());
        out.set(KernelNode { kernel: launch.kernel.handle, grid, block, shared, arguments, extra, library_kernel: 0, context: 0 })
    }

    fn cuGraphKernelNodeSetParams_v2(handle: usize, what: In<KernelNode>) {
        set(handle, KERNEL, what.get()?.work()?)
    }

    fn cuGraphMemcpyNodeSetParams(handle: usize, what: In<Cuboid>) {
        set(handle, COPY, copy(what)?)
    }

    fn cuGraphMemsetNodeSetParams(handle: usize, what: In<FillNode>) {
        set(handle, FILL, what.get()?.work()?)
    }

    fn cuGraphHostNodeSetParams(handle: usize, what: In<HostNode>) {
        set(handle, HOST, what.get()?.work()?)
    }

    fn cuGraphExecKernelNodeSetParams_v2(executable: usize, handle: usize, what: In<KernelNode>) {
        set_in(executable, handle, KERNEL, what.get()?.work()?)
    }

    fn cuGraphExecMemcpyNodeSetParams(executable: usize, handle: usize, what: In<Cuboid>, _context: usize) {
        set_in(executable, handle, COPY, copy(what)?)
    }

    fn cuGraphExecMemsetNodeSetParams(executable: usize, handle: usize, what: In<FillNode>, _context: usize) {
        set_in(executable, handle, FILL, what.get()?.work()?)
    }

    fn cuGraphExecHostNodeSetParams(executable: usize, handle: usize, what: In<HostNode>) {
        set_in(executable, handle, HOST, what.get()?.work()?)
    }
}
