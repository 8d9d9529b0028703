//! Recording streams into graphs.

use super::pointers::Out;
use super::{exports, stream_of};
use crate::capture::{self, Capturing, Mode};
use crate::codes::{Code, Outcome};
use crate::context as contexts;

/// What a stream is doing, as `CUstreamCaptureStatus`.
fn status(capturing: Option<&Capturing>) -> u32 {
    match capturing {
        None => 0,
        Some(capturing) if capturing.capture.is_invalid() => 2,
        Some(_) => 1,
    }
}

fn info(
    stream: usize,
    state: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    count: Out<usize>,
    wants_nodes: bool,
) -> Outcome {
    let capturing = capture::of(&*stream_of(stream)?);
    state.set(status(capturing.as_ref()))?;
    let Some(capturing) = capturing else { return Ok(()) };
    // The nodes would be given as a pointer into what the driver keeps.
    if wants_nodes {
        return Err(Code::NOT_SUPPORTED);
    }
    id.set_if_wanted(capturing.capture.id);
    graph.set_if_wanted(capturing.capture.graph.handle);
    count.set_if_wanted(capturing.tail.len());
    Ok(())
}

exports! {
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) {
        capture::begin(&stream_of(stream)?, Mode::from_number(mode)?)
    }

    fn cuStreamEndCapture(stream: usize, graph: Out<usize>) {
        let stream = stream_of(stream)?;
        graph.set(0)?;
        graph.set(capture::end(&stream)?.handle)
    }

    fn cuStreamIsCapturing(stream: usize, out: Out<u32>) {
        out.set(status(capture::of(&*stream_of(stream)?).as_ref()))
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: usize, state: Out<u32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, count: Out<usize>,
    ) {
        info(stream, state, id, graph, count, !nodes.is_null())
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: usize, state: Out<u32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, edges: Out<usize>, count: Out<usize>,
    ) {
        info(stream, state, id, graph, count, !nodes.is_null() || !edges.is_null())
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        contexts::current()?;
        let wanted = Mode::from_number(mode.get()?)?;
        mode.set(capture::exchange_mode(wanted).number())
    }
}
