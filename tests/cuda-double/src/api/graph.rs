//! Graphs as wholes: making, copying, instantiating, launching, updating.

use super::pointers::{In, Out};
use super::{exports, require, stream_of};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::context as contexts;
use crate::driver::driver;
use crate::graph::{Executable, Graph};

/// What became of an update. Equivalent to: `CUgraphExecUpdateResultInfo`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UpdateResult {
    result: u32,
    node: usize,
    from: usize,
}

fn instantiate(out: Out<usize>, graph: usize, flags: u64) -> Outcome {
    let graph = driver().graphs.get(graph)?;
    // Launching from the device is not played, and memory is given back at each launch only where that is asked for.
    require(flags & !(1 | 2 | 8) == 0 && !out.is_null())?;
    let executable = Executable::new(&graph)?;
    driver().executables.keep(executable.handle, executable.clone());
    out.set(executable.handle)
}

/// Writes as many handles as there is room for, and says how many there are.
fn list(out: Out<usize>, count: Out<usize>, handles: &[usize]) -> Outcome {
    if !out.is_null() {
        let room = count.get()?.min(handles.len());
        out.set_all(&handles[..room])?;
    }
    count.set(handles.len())
}

fn edges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>) -> Outcome {
    let edges = driver().graphs.get(graph)?.edges();
    let (starts, ends): (Vec<usize>, Vec<usize>) = edges.into_iter().unzip();
    let room = count;
    if !from.is_null() && !to.is_null() {
        let wanted = room.get()?.min(starts.len());
        from.set_all(&starts[..wanted])?;
        to.set_all(&ends[..wanted])?;
    }
    room.set(starts.len())
}

exports! {
    fn cuGraphCreate(out: Out<usize>, flags: u32) {
        let context = contexts::current()?;
        require(flags == 0 && !out.is_null())?;
        let graph = Graph::new(context);
        driver().graphs.keep(graph.handle, graph.clone());
        out.set(graph.handle)
    }

    fn cuGraphDestroy(graph: usize) {
        driver().graphs.remove(graph)?.forget();
        Ok(())
    }

    fn cuGraphClone(out: Out<usize>, graph: usize) {
        let copy = driver().graphs.get(graph)?.copy()?;
        driver().graphs.keep(copy.handle, copy.clone());
        out.set(copy.handle)
    }

    fn cuGraphInstantiateWithFlags(out: Out<usize>, graph: usize, flags: u64) {
        instantiate(out, graph, flags)
    }

    fn cuGraphExecDestroy(executable: usize) {
        driver().executables.remove(executable).map(drop)
    }

    fn cuGraphUpload(executable: usize, stream: usize) {
        stream_of(stream)?;
        driver().executables.get(executable).map(drop)
    }

    fn cuGraphLaunch(executable: usize, stream: usize) {
        let stream = stream_of(stream)?;
        let executable = driver().executables.get(executable)?;
        // A graph within a graph is not played.
        if capture::is_capturing(&stream) {
            return Err(Code::NOT_SUPPORTED);
        }
        if executable.context.handle != stream.context.handle {
            return Err(Code::INVALID_HANDLE);
        }
        executable.launch(&stream);
        Ok(())
    }

    fn cuGraphExecUpdate_v2(executable: usize, graph: usize, result: Out<UpdateResult>) {
        let (executable, graph) = (driver().executables.get(executable)?, driver().graphs.get(graph)?);
        match executable.update(&graph) {
            Ok(()) => {
                result.set_if_wanted(UpdateResult { result: 0, node: 0, from: 0 });
                Ok(())
            }
            Err((changed, node)) => {
                result.set_if_wanted(UpdateResult { result: changed as u32, node, from: 0 });
                Err(Code::GRAPH_EXEC_UPDATE_FAILURE)
            }
        }
    }

    fn cuGraphGetNodes(graph: usize, out: Out<usize>, count: Out<usize>) {
        let nodes: Vec<usize> = driver().graphs.get(graph)?.nodes().iter().map(|node| node.handle).collect();
        list(out, count, &nodes)
    }

    fn cuGraphGetRootNodes(graph: usize, out: Out<usize>, count: Out<usize>) {
        let nodes = driver().graphs.get(graph)?.nodes();
        let roots = nodes.iter().filter(|node| crate::sync::lock(&node.after).is_empty());
        list(out, count, &roots.map(|node| node.handle).collect::<Vec<_>>())
    }

    fn cuGraphGetEdges(graph: usize, from: Out<usize>, to: Out<usize>, count: Out<usize>) {
        edges(graph, from, to, count)
    }

    fn cuGraphGetEdges_v2(graph: usize, from: Out<usize>, to: Out<usize>, data: Out<u64>, count: Out<usize>) {
        if !data.is_null() {
            let all = driver().graphs.get(graph)?.edges().len().min(count.get()?);
            data.set_all(&vec![0; all])?;
        }
        edges(graph, from, to, count)
    }

    fn cuGraphAddDependencies(graph: usize, from: In<usize>, to: In<usize>, count: usize) {
        super::graph_nodes::depend(graph, &from.list(count)?, &to.list(count)?)
    }

    fn cuGraphAddDependencies_v2(graph: usize, from: In<usize>, to: In<usize>, data: In<u64>, count: usize) {
        require(data.is_null() || data.list(count)?.iter().all(|edge| *edge == 0))?;
        super::graph_nodes::depend(graph, &from.list(count)?, &to.list(count)?)
    }
}
