//! Instructions with forms of their own: barriers, warps, barrier objects, asynchronous copies.

use super::decode::{Decoder, Parts};
use super::inst::{Gather, Mbarrier, Op, Reduce, SINK, Shuffle, Src, TensorCopy, Together};
use super::lex::SyntaxError;
use super::operand::Operands;
use super::types::Space;

type Found = Result<Option<Op>, SyntaxError>;

/// Decodes what is left after the name; nothing is what is not known.
pub(super) fn operation(operands: &mut Operands<'_, '_, '_, '_, '_>, name: &str, parts: &mut Parts<'_>) -> Found {
    match name {
        "bar" if parts.take("warp") => warp_barrier(operands, parts),
        "bar" => block_barrier(operands, parts),
        "barrier" => {
            parts.take("cta");
            block_barrier(operands, parts)
        }
        "vote" => vote(operands, parts),
        "shfl" => shuffle(operands, parts),
        "match" => matching(operands, parts),
        "redux" => reduce(operands, parts),
        "elect" => elect(operands, parts),
        "activemask" => Ok(if parts.take("b32") { Some(Op::ActiveMask { dst: operands.dst(0)? }) } else { None }),
        "fence" => fence(parts),
        "mbarrier" => mbarrier(operands, parts),
        "cp" if parts.take("async") => copy(operands, parts),
        // What only makes things faster.
        "prefetch" => {
            parts.one_of(&["global", "local"]);
            let known = parts.one_of(&["L1", "L2", "L2::evict_last", "L2::evict_normal", "tensormap"]);
            Ok(known.map(|_| Op::Nothing))
        }
        "prefetchu" => Ok(parts.one_of(&["L1"]).map(|_| Op::Nothing)),
        "griddepcontrol" => Ok(parts.one_of(&["wait", "launch_dependents"]).map(|_| Op::Nothing)),
        "setmaxnreg" => Ok(parts.one_of(&["inc", "dec"]).and_then(|_| aligned(parts, true)).map(|()| {
            parts.take("u32");
            Op::Nothing
        })),
        _ => Ok(None),
    }
}

/// `sync.aligned`, of which the second may be missing.
fn aligned(parts: &mut Parts<'_>, wanted: bool) -> Option<()> {
    let found = parts.take("sync");
    parts.take("aligned");
    (found || !wanted).then_some(())
}

fn warp(what: Together, dst: [u32; 2], src: [Src; 3], mask: Src) -> Op {
    Op::Warp { what, dst, src, negate: false, mask }
}

const NONE: [Src; 3] = [Src::Constant(0); 3];

fn warp_barrier(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    if !parts.take("sync") {
        return Ok(None);
    }
    operands.expect_count(1)?;
    Ok(Some(warp(Together::Barrier, [SINK; 2], NONE, operands.src(0)?)))
}

fn block_barrier(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    let waits = match parts.one_of(&["sync", "arrive", "red"]) {
        Some("sync") => true,
        Some("arrive") => false,
        Some(_) => return gathering_barrier(operands, parts),
        None => return Ok(None),
    };
    parts.take("aligned");
    if operands.count() == 0 || operands.count() > 2 || (!waits && operands.count() != 2) {
        return operands.error("a barrier has a number, and perhaps a count of threads");
    }
    let threads = if operands.count() == 2 { Some(operands.src(1)?) } else { None };
    let id = operands.src(0)?;
    let (gather, dst, predicate) = (Gather::Nothing, SINK, Decoder::zero());
    Ok(Some(Op::Barrier { id, threads, waits, gather, dst, predicate, negate: false }))
}

fn gathering_barrier(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    let gather = match parts.next() {
        "popc" => Gather::Count,
        "and" => Gather::All,
        "or" => Gather::Any,
        _ => return Ok(None),
    };
    parts.take("aligned");
    if !parts.take(if gather == Gather::Count { "u32" } else { "pred" }) {
        return Ok(None);
    }
    let last = operands.count().wrapping_sub(1);
    if !(2..=3).contains(&last) {
        return operands
            .error("a gathering barrier has a result, a number, perhaps a count of threads, and a predicate");
    }
    let threads = if last == 3 { Some(operands.src(2)?) } else { None };
    let (predicate, negate) = operands.predicate(last)?;
    let (dst, id) = (operands.dst(0)?, operands.src(1)?);
    Ok(Some(Op::Barrier { id, threads, waits: true, gather, dst, predicate, negate }))
}

fn vote(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    if !parts.take("sync") {
        return Ok(None);
    }
    let (what, kind) = match parts.next() {
        "all" => (Together::All, "pred"),
        "any" => (Together::Any, "pred"),
        "uni" => (Together::Uniform, "pred"),
        "ballot" => (Together::Ballot, "b32"),
        _ => return Ok(None),
    };
    if !parts.take(kind) {
        return Ok(None);
    }
    operands.expect_count(3)?;
    let (predicate, negate) = operands.predicate(1)?;
    let src = [predicate, Decoder::zero(), Decoder::zero()];
    Ok(Some(Op::Warp { what, dst: [operands.dst(0)?, SINK], src, negate, mask: operands.src(2)? }))
}

fn shuffle(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    if !parts.take("sync") {
        return Ok(None);
    }
    let mode = match parts.next() {
        "up" => Shuffle::Up,
        "down" => Shuffle::Down,
        "bfly" => Shuffle::Butterfly,
        "idx" => Shuffle::Index,
        _ => return Ok(None),
    };
    if !parts.take("b32") {
        return Ok(None);
    }
    operands.expect_count(5)?;
    let src = [operands.src(1)?, operands.src(2)?, operands.src(3)?];
    Ok(Some(warp(Together::Shuffle(mode), operands.dst_pair(0)?, src, operands.src(4)?)))
}

fn matching(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    let any = match parts.next() {
        "any" => true,
        "all" => false,
        _ => return Ok(None),
    };
    if !parts.take("sync") {
        return Ok(None);
    }
    let size = match parts.next() {
        "b32" => 4,
        "b64" => 8,
        _ => return Ok(None),
    };
    operands.expect_count(3)?;
    let what = if any { Together::MatchAny(size) } else { Together::MatchAll(size) };
    let src = [operands.src(1)?, Decoder::zero(), Decoder::zero()];
    Ok(Some(warp(what, operands.dst_pair(0)?, src, operands.src(2)?)))
}

fn reduce(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    if !parts.take("sync") {
        return Ok(None);
    }
    let operation = match parts.next() {
        "add" => Reduce::Add,
        "min" => Reduce::Min,
        "max" => Reduce::Max,
        "and" => Reduce::And,
        "or" => Reduce::Or,
        "xor" => Reduce::Xor,
        _ => return Ok(None),
    };
    let bitwise = matches!(operation, Reduce::And | Reduce::Or | Reduce::Xor);
    let signed = match parts.next() {
        "b32" if bitwise => false,
        "u32" if !bitwise => false,
        "s32" if !bitwise => true,
        _ => return Ok(None),
    };
    operands.expect_count(3)?;
    let src = [operands.src(1)?, Decoder::zero(), Decoder::zero()];
    Ok(Some(warp(Together::Reduce(operation, signed), [operands.dst(0)?, SINK], src, operands.src(2)?)))
}

fn elect(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    if !parts.take("sync") {
        return Ok(None);
    }
    operands.expect_count(2)?;
    Ok(Some(warp(Together::Elect, operands.dst_pair(0)?, NONE, operands.src(1)?)))
}

fn fence(parts: &mut Parts<'_>) -> Found {
    if parts.take("proxy") {
        let kind = parts.one_of(&["async", "async::generic", "alias"]);
        parts.one_of(&["global", "shared::cta", "shared::cluster"]);
        return Ok(kind.map(|_| Op::Fence));
    }
    if parts.take("mbarrier_init") {
        return Ok(if parts.take("release") && parts.take("cluster") { Some(Op::Fence) } else { None });
    }
    parts.one_of(&["sc", "acq_rel", "acquire", "release"]);
    Ok(parts.one_of(&["cta", "cluster", "gpu", "sys"]).map(|_| Op::Fence))
}

fn mbarrier(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    let name = parts.next();
    if name == "pending_count" {
        operands.expect_count(2)?;
        let what = Mbarrier::Pending { found: operands.dst(0)?, state: operands.src(1)? };
        let at = super::inst::Address { base: Decoder::zero(), offset: 0 };
        return Ok(parts.take("b64").then_some(Op::Mbarrier { what, space: Space::Shared, at }));
    }
    let arrives = matches!(name, "arrive" | "arrive_drop");
    let waits = matches!(name, "test_wait" | "try_wait");
    let expects = arrives && parts.take("expect_tx");
    let parity = waits && parts.take("parity");
    parts.one_of(&["relaxed", "acquire", "release"]);
    parts.one_of(&["cta", "cluster"]);
    let space = parts.space();
    if !matches!(space, Space::Shared | Space::Generic) || !parts.take("b64") {
        return Ok(None);
    }
    let first = usize::from(arrives || waits);
    let count = operands.count();
    let what = match name {
        "init" => Mbarrier::Initialise { count: operands.src(1)? },
        "inval" => Mbarrier::Invalidate,
        "arrive" if expects => {
            let count = operands.decoder.constant(1);
            Mbarrier::Arrive { state: operands.dst(0)?, count, bytes: Some(operands.src(2)?) }
        }
        "arrive" | "arrive_drop" if !expects => {
            let times = if count == 3 { operands.src(2)? } else { operands.decoder.constant(1) };
            let state = operands.dst(0)?;
            if name == "arrive" {
                Mbarrier::Arrive { state, count: times, bytes: None }
            } else {
                Mbarrier::ArriveDrop { state, count: times }
            }
        }
        "expect_tx" => Mbarrier::ExpectBytes { bytes: operands.src(1)? },
        "complete_tx" => Mbarrier::CompleteBytes { bytes: operands.src(1)? },
        "test_wait" | "try_wait" if parity => Mbarrier::TestParity { done: operands.dst(0)?, parity: operands.src(2)? },
        "test_wait" | "try_wait" => Mbarrier::TestState { done: operands.dst(0)?, state: operands.src(2)? },
        _ => return Ok(None),
    };
    Ok(Some(Op::Mbarrier { what, space, at: operands.address(first)? }))
}

const CACHING: &[&str] = &["L2::64B", "L2::128B", "L2::256B"];

fn copy(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    match parts.next() {
        "ca" | "cg" => {
            if parts.space() != Space::Shared || !parts.take("global") {
                return Ok(None);
            }
            parts.one_of(CACHING);
            let given = if operands.count() == 4 { Some(operands.src(3)?) } else { None };
            operands.expect_count(if given.is_some() { 4 } else { 3 })?;
            let Src::Constant(size) = operands.src(2)? else { return operands.error("its size is no number") };
            let size = operands.decoder.constants[size as usize];
            if !matches!(size, 4 | 8 | 16) {
                return operands.error(format!("it copies 4, 8 or 16 bytes, not {size}"));
            }
            let (shared, global) = (operands.address(0)?, operands.address(1)?);
            Ok(Some(Op::CopyAsync { size: size as u8, given, shared, global }))
        }
        "commit_group" => Ok(Some(Op::CopyCommit)),
        "wait_group" => Ok(Some(Op::CopyWait { groups: operands.src(0)? })),
        "wait_all" => Ok(Some(Op::CopyWaitAll)),
        "mbarrier" if parts.take("arrive") => {
            let counted = !parts.take("noinc");
            let space = parts.space();
            let at = operands.address(0)?;
            Ok(parts.take("b64").then_some(Op::CopyArrive { counted, space, at }))
        }
        "bulk" => bulk_copy(operands, parts),
        _ => Ok(None),
    }
}

const COMPLETE: &str = "mbarrier::complete_tx::bytes";

fn bulk_copy(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    // Bulk copies are done at once here, so that there is nothing to wait for.
    if parts.take("commit_group") {
        return Ok(Some(Op::Nothing));
    }
    if parts.take("wait_group") {
        parts.take("read");
        return Ok(Some(Op::Nothing));
    }
    if parts.take("tensor") {
        return tensor_copy(operands, parts);
    }
    let loads = match parts.space() {
        Space::Shared => parts.take("global") && parts.take(COMPLETE),
        Space::Global if parts.space() == Space::Shared && parts.take("bulk_group") => false,
        _ => return Ok(None),
    };
    operands.expect_count(if loads { 4 } else { 3 })?;
    let (to, from, size) = (operands.address(0)?, operands.address(1)?, operands.src(2)?);
    Ok(Some(if loads {
        Op::CopyBulk { size, shared: to, global: from, barrier: Some(operands.address(3)?) }
    } else {
        Op::CopyBulk { size, shared: from, global: to, barrier: None }
    }))
}

fn tensor_copy(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Found {
    let rank = match parts.next() {
        "1d" => 1,
        "2d" => 2,
        "3d" => 3,
        "4d" => 4,
        "5d" => 5,
        _ => return Ok(None),
    };
    let loads = match parts.space() {
        Space::Shared if parts.take("global") => true,
        Space::Global if parts.space() == Space::Shared => false,
        _ => return Ok(None),
    };
    parts.take("tile");
    if !parts.take(if loads { COMPLETE } else { "bulk_group" }) {
        return Ok(None);
    }
    operands.expect_count(if loads { 3 } else { 2 })?;
    let (map, found) = operands.tensor(usize::from(loads))?;
    if found.len() != rank {
        return operands.error(format!("it has {} coordinates, and needs {rank}", found.len()));
    }
    let mut coordinates = [Decoder::zero(); 5];
    coordinates[..rank].copy_from_slice(&found);
    let shared = operands.address(usize::from(!loads))?;
    let barrier = if loads { Some(operands.address(2)?) } else { None };
    Ok(Some(Op::CopyTensor(Box::new(TensorCopy { rank: rank as u8, map, coordinates, shared, barrier }))))
}
