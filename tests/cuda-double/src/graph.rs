//! Graphs: nodes and what they come after, made executable, and launched as one thing.

use alloc::sync::Arc;
use std::collections::HashMap;
use std::sync::Mutex;

use crate::clock::{Clock, Stamp};
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::driver::driver;
use crate::handles;
use crate::memory::Region;
use crate::stream::{Moment, Stream};
use crate::sync::lock;
use crate::work::Work;

/// One node of a graph. Equivalent to: `CUgraphNode`.
pub(crate) struct Node {
    pub(crate) handle: usize,
    /// The graph it belongs to.
    pub(crate) graph: usize,
    pub(crate) work: Mutex<Work>,
    /// Handles of the nodes it comes after.
    pub(crate) after: Mutex<Vec<usize>>,
}

impl Node {
    /// What kind of node it is. Equivalent to: `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        kind(&lock(&self.work))
    }
}

fn kind(work: &Work) -> u32 {
    match work {
        Work::Launch(_) => 0,
        Work::Copy(_) => 1,
        Work::Fill(_) => 2,
        Work::Host(_) => 3,
        Work::Graph(_) => 4,
        Work::Nothing | Work::Mark(_) => 5,
        Work::Allocate(_) => 10,
        Work::Free(_) => 11,
    }
}

/// Memory that a graph allocates: counted from the first recording until nobody has the graph any more.
pub(crate) struct GraphMemory {
    pub(crate) context: Arc<Context>,
    pub(crate) region: Arc<Region>,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.region.free();
        self.region.backing.clear();
        self.context.device.give(self.region.size);
    }
}

/// A graph. Equivalent to: `CUgraph`.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    nodes: Mutex<Vec<Arc<Node>>>,
    memory: Mutex<Vec<Arc<GraphMemory>>>,
}

impl Graph {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self { handle: handles::fresh(), context, nodes: Mutex::default(), memory: Mutex::default() })
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.nodes).clone()
    }

    /// Adds a node that comes after others of the graph.
    pub(crate) fn add(&self, work: Work, after: Vec<usize>) -> Outcome<Arc<Node>> {
        let mut nodes = lock(&self.nodes);
        if after.iter().any(|handle| !nodes.iter().any(|node| node.handle == *handle)) {
            return Err(Code::INVALID_VALUE);
        }
        let (work, after) = (Mutex::new(work), Mutex::new(after));
        let node = Arc::new(Node { handle: handles::fresh(), graph: self.handle, work, after });
        nodes.push(node.clone());
        driver().nodes.keep(node.handle, node.clone());
        Ok(node)
    }

    pub(crate) fn hold(&self, memory: Arc<GraphMemory>) {
        lock(&self.memory).push(memory);
    }

    /// Pairs of nodes of which the second comes after the first.
    pub(crate) fn edges(&self) -> Vec<(usize, usize)> {
        let nodes = self.nodes();
        let edges = nodes.iter().map(|node| (node.handle, lock(&node.after).clone()));
        edges.flat_map(|(to, after)| after.into_iter().map(move |from| (from, to))).collect()
    }

    /// Takes a node out, and with it what came after it.
    pub(crate) fn remove(&self, handle: usize) -> Outcome {
        let mut nodes = lock(&self.nodes);
        let at = nodes.iter().position(|node| node.handle == handle).ok_or(Code::INVALID_VALUE)?;
        nodes.remove(at);
        for node in nodes.iter() {
            lock(&node.after).retain(|before| *before != handle);
        }
        driver().nodes.remove(handle).map(drop)
    }

    /// A graph like this one, whose nodes are its own.
    pub(crate) fn copy(&self) -> Outcome<Arc<Self>> {
        let copy = Self::new(self.context.clone());
        let mut twins = HashMap::new();
        for node in self.nodes() {
            let after = lock(&node.after).iter().filter_map(|before| twins.get(before).copied()).collect();
            let twin = copy.add(lock(&node.work).clone(), after)?;
            twins.insert(node.handle, twin.handle);
        }
        *lock(&copy.memory) = lock(&self.memory).clone();
        Ok(copy)
    }

    /// Forgets its nodes' handles.
    pub(crate) fn forget(&self) {
        for node in self.nodes() {
            let _ = driver().nodes.remove(node.handle);
        }
    }

    /// The nodes in an order in which each comes after those it must; none if they form a circle.
    fn ordered(&self) -> Outcome<Vec<Arc<Node>>> {
        let (mut left, mut done) = (self.nodes(), Vec::<Arc<Node>>::new());
        while !left.is_empty() {
            let ready = |node: &Arc<Node>| {
                lock(&node.after).iter().all(|before| done.iter().any(|node| node.handle == *before))
            };
            let at = left.iter().position(ready).ok_or(Code::INVALID_VALUE)?;
            done.push(left.remove(at));
        }
        Ok(done)
    }

    /// Whether every node comes before one of these, or is one.
    pub(crate) fn all_before(&self, ends: &[usize]) -> bool {
        let nodes = self.nodes();
        let (mut seen, mut open) = (Vec::new(), ends.to_vec());
        while let Some(handle) = open.pop() {
            if !seen.contains(&handle) {
                seen.push(handle);
                open.extend(
                    nodes.iter().filter(|node| node.handle == handle).flat_map(|node| lock(&node.after).clone()),
                );
            }
        }
        nodes.iter().all(|node| seen.contains(&node.handle))
    }
}

/// One step of an executable graph.
struct Step {
    /// The node it was made from.
    node: usize,
    work: Work,
    /// Steps before it that it comes after.
    after: Vec<usize>,
    /// Which of the lines of work it is on.
    line: u32,
}

/// A graph that can be launched. Equivalent to: `CUgraphExec`.
pub(crate) struct Executable {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    steps: Mutex<Vec<Step>>,
    memory: Mutex<Vec<Arc<GraphMemory>>>,
    /// When the launch before is over, which the next waits for.
    last: Mutex<Option<Moment>>,
}

/// Why an executable graph cannot become like another. Equivalent to: `CUgraphExecUpdateResult`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changed {
    /// Other nodes, or in another order.
    Topology = 2,
    /// A node of another kind.
    Kind = 3,
    /// A kernel of another module's.
    Parameters = 5,
}

/// One launch of a graph: each step with its moment and what is over before.
pub(crate) struct Run {
    pub(crate) steps: Vec<(Work, Stamp, Arc<Clock>)>,
}

impl Executable {
    pub(crate) fn new(graph: &Graph) -> Outcome<Arc<Self>> {
        let nodes = graph.ordered()?;
        let (mut steps, mut ends): (Vec<Step>, Vec<(usize, u32)>) = (Vec::new(), Vec::new());
        for (at, node) in nodes.iter().enumerate() {
            let before = lock(&node.after).clone();
            let after: Vec<usize> =
                before.iter().filter_map(|handle| nodes.iter().position(|node| node.handle == *handle)).collect();
            // A chain of nodes is one line of work; where it forks, all but one begin a new one.
            let continued = ends.iter().position(|(end, _)| after.contains(end));
            let line = match continued {
                Some(continued) => ends.remove(continued).1,
                None => driver().new_line(),
            };
            ends.push((at, line));
            steps.push(Step { node: node.handle, work: lock(&node.work).clone(), after, line });
        }
        Ok(Arc::new(Self {
            handle: handles::fresh(),
            context: graph.context.clone(),
            steps: Mutex::new(steps),
            memory: Mutex::new(lock(&graph.memory).clone()),
            last: Mutex::default(),
        }))
    }

    /// Launches it on a stream.
    pub(crate) fn launch(&self, stream: &Arc<Stream>) {
        let mut last = lock(&self.last);
        let before: Vec<Moment> = last.iter().cloned().collect();
        stream.accept(&before, |clock, _| {
            let steps = lock(&self.steps);
            let mut done: Vec<(Work, Stamp, Arc<Clock>)> = Vec::with_capacity(steps.len());
            let mut end = clock.clone();
            for step in steps.iter() {
                // What the launch before did on this line is known: this one comes after it.
                let mut known = clock.clone();
                for before in &step.after {
                    known.join(&done[*before].2);
                }
                let stamp = known.tick(step.line);
                end.join(&known);
                done.push((step.work.clone(), stamp, Arc::new(known)));
            }
            *clock = end;
            Work::Graph(Arc::new(Run { steps: done }))
        });
        *last = Some(stream.moment());
    }

    /// Becomes like a graph of the same shape.
    pub(crate) fn update(&self, graph: &Graph) -> Result<(), (Changed, usize)> {
        let nodes = graph.ordered().map_err(|_| (Changed::Topology, 0))?;
        let mut steps = lock(&self.steps);
        if nodes.len() != steps.len() {
            return Err((Changed::Topology, 0));
        }
        for (node, step) in nodes.iter().zip(steps.iter()) {
            let before = lock(&node.after).clone();
            let after: Vec<usize> =
                before.iter().filter_map(|handle| nodes.iter().position(|node| node.handle == *handle)).collect();
            if after != step.after {
                return Err((Changed::Topology, node.handle));
            }
            if node.kind() != kind(&step.work) {
                return Err((Changed::Kind, node.handle));
            }
            if matches!(step.work, Work::Allocate(_) | Work::Free(_)) {
                return Err((Changed::Parameters, node.handle));
            }
        }
        for (node, step) in nodes.iter().zip(steps.iter_mut()) {
            step.work = lock(&node.work).clone();
        }
        *lock(&self.memory) = lock(&graph.memory).clone();
        Ok(())
    }

    /// Gives the step that was made from a node other work of the same kind.
    pub(crate) fn set(&self, node: usize, work: Work) -> Outcome {
        let mut steps = lock(&self.steps);
        let step = steps.iter_mut().find(|step| step.node == node).ok_or(Code::INVALID_VALUE)?;
        if kind(&step.work) != kind(&work) {
            return Err(Code::INVALID_VALUE);
        }
        step.work = work;
        Ok(())
    }
}
