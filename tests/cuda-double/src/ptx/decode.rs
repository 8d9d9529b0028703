//! Decoding by whitelist: an opcode is known as a whole or not at all.

use super::body::{Statement, Symbol};
use super::compute::{self, atomic, carry, compare, convert::Conversion};
use super::inst::{Call, Callee, Combine, FramePart, Inst, Op, Src};
use super::lex::{Kind, SyntaxError, Token};
pub(crate) use super::operand::Decoder;
use super::operand::{Operands, split};
use super::special_forms;
use super::types::{Space, Type};

/// The dotted parts of an opcode that are not read yet.
pub(super) struct Parts<'a> {
    rest: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(opcode: &'a str) -> Self {
        let mut rest: Vec<_> = opcode.split('.').collect();
        rest.reverse();
        Self { rest }
    }

    pub(super) fn next(&mut self) -> &'a str {
        self.rest.pop().unwrap_or("")
    }

    pub(super) fn peek(&self) -> &'a str {
        self.rest.last().copied().unwrap_or("")
    }

    /// Reads the next part if it is one of these.
    pub(super) fn one_of(&mut self, names: &[&str]) -> Option<&'a str> {
        let next = self.rest.last().copied().filter(|part| names.contains(part))?;
        self.rest.pop();
        Some(next)
    }

    pub(super) fn take(&mut self, name: &str) -> bool {
        self.one_of(&[name]).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The parts that are left, dots between them.
    pub(super) fn remainder(&mut self) -> String {
        self.rest.reverse();
        core::mem::take(&mut self.rest).join(".")
    }

    /// The state space, if one is named.
    pub(super) fn space(&mut self) -> Space {
        match self.one_of(&[
            "global",
            "const",
            "shared",
            "shared::cta",
            "shared::cluster",
            "local",
            "param",
            "param::entry",
            "param::func",
        ]) {
            Some("global" | "const") => Space::Global,
            Some("local") => Space::Local,
            Some("shared" | "shared::cta" | "shared::cluster") => Space::Shared,
            Some(_) => Space::Param,
            None => Space::Generic,
        }
    }
}

const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];
const CACHING: &[&str] = &[
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];

/// Decodes one statement.
pub(super) fn decode<'t, 'a>(
    decoder: &mut Decoder<'_, '_, 't, 'a>,
    statement: &Statement<'t, 'a>,
) -> Result<Inst, SyntaxError> {
    let line = statement.line;
    let mut operands = Operands { decoder, parts: split(statement.operands), line, scope: statement.scope };
    let guard = match statement.guard {
        None => None,
        Some((name, negated)) => match operands.find(name) {
            Some(Symbol::Register(register)) => Some((register, negated)),
            _ => return operands.error(format!("`{name}` is no predicate")),
        },
    };
    let op = operation(&mut operands, statement.opcode)
        .map_err(|error| SyntaxError { what: format!("`{}`: {}", statement.opcode, error.what), ..error })?;
    Ok(Inst { guard, op, line })
}

fn operation(operands: &mut Operands<'_, '_, '_, '_, '_>, opcode: &str) -> Result<Op, SyntaxError> {
    if let Some((sources, f)) = compute::find(opcode) {
        operands.expect_count(sources + 1)?;
        let dst = operands.dst(0)?;
        return Ok(match sources {
            1 => Op::Unary { f, dst, a: operands.src(1)? },
            2 => Op::Binary { f, dst, a: operands.src(1)?, b: operands.src(2)? },
            _ => {
                let mut src = [Decoder::zero(); 4];
                for (at, src) in src[..sources].iter_mut().enumerate() {
                    *src = operands.src(at + 1)?;
                }
                Op::Compute { f, dst, src }
            }
        });
    }
    if let Some(carry) = carry::find(opcode) {
        operands.expect_count(carry.sources + 1)?;
        let mut src = [Decoder::zero(); 3];
        for (at, src) in src[..carry.sources].iter_mut().enumerate() {
            *src = operands.src(at + 1)?;
        }
        return Ok(Op::Carry { f: carry.f, dst: operands.dst(0)?, src, takes: carry.takes, leaves: carry.leaves });
    }
    if let Some(conversion) = Conversion::parse(opcode) {
        operands.expect_count(2)?;
        return Ok(Op::Convert { conversion, dst: operands.dst(0)?, src: operands.src(1)? });
    }
    let mut parts = Parts::new(opcode);
    let found = match parts.next() {
        "mov" => move_value(operands, &mut parts)?,
        "setp" => compare_to_predicate(operands, &mut parts)?,
        "set" => compare_to_value(operands, &mut parts)?,
        "ld" | "ldu" => load(operands, &mut parts)?,
        "st" => store(operands, &mut parts)?,
        "atom" => atomically(operands, &mut parts, true)?,
        "red" => match parts.peek() {
            "async" => None,
            _ => atomically(operands, &mut parts, false)?,
        },
        "bra" => {
            parts.take("uni");
            Some(Op::Branch(operands.label(0)?))
        }
        "brx" if parts.take("idx") => {
            parts.take("uni");
            Some(branch_table(operands)?)
        }
        "call" => {
            parts.take("uni");
            Some(call(operands)?)
        }
        "ret" => {
            parts.take("uni");
            Some(Op::Return)
        }
        "exit" => Some(Op::Exit),
        "trap" => Some(Op::Trap),
        "nanosleep" if parts.take("u32") => Some(Op::Sleep),
        "membar" => parts.one_of(&["cta", "gl", "sys"]).map(|_| Op::Fence),
        "pragma" => Some(Op::Nothing),
        name => special_forms::operation(operands, name, &mut parts)?,
    };
    match found {
        Some(op) if parts.is_empty() => Ok(op),
        _ => operands.error("this instruction is not known to the double"),
    }
}

fn mask(size: usize) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (size * 8)) - 1 }
}

fn move_value(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Result<Option<Op>, SyntaxError> {
    let Some(kind) = Type::parse(parts.next()).filter(|kind| kind.size() <= 8) else { return Ok(None) };
    operands.expect_count(2)?;
    let (to, from) = (operands.elements(0)?, operands.elements(1)?);
    let bits = kind.size() * 8;
    Ok(Some(match (to.len(), from.len()) {
        (1, 1) => Op::Move { dst: operands.dst(0)?, src: operands.src(1)?, mask: mask(kind.size()) },
        (1, count @ (2 | 4)) => {
            let mut src = [Decoder::zero(); 4];
            for (src, part) in src.iter_mut().zip(from) {
                *src = operands.value(part)?;
            }
            Op::Pack { dst: operands.dst(0)?, src, count: count as u8, bits: (bits / count) as u8 }
        }
        (count @ (2 | 4), 1) => {
            let mut dst = [super::inst::SINK; 4];
            for (dst, part) in dst.iter_mut().zip(to) {
                *dst = operands.register(part)?;
            }
            Op::Unpack { dst, count: count as u8, bits: (bits / count) as u8, src: operands.src(1)? }
        }
        _ => return operands.error("it moves between one register and two or four"),
    }))
}

/// `lt.and.ftz.f32`: what is compared, and what the result meets.
fn comparison(parts: &mut Parts<'_>) -> Option<(super::inst::Compute, Combine)> {
    let relation = parts.next();
    let combine = match parts.one_of(&["and", "or", "xor"]) {
        Some("and") => Combine::And,
        Some("or") => Combine::Or,
        Some(_) => Combine::Xor,
        None => Combine::Alone,
    };
    let kind = parts.remainder();
    compare::find(&format!("{relation}.{kind}")).map(|f| (f, combine))
}

fn compare_to_predicate(
    operands: &mut Operands<'_, '_, '_, '_, '_>,
    parts: &mut Parts<'_>,
) -> Result<Option<Op>, SyntaxError> {
    let Some((f, combine)) = comparison(parts) else { return Ok(None) };
    let alone = combine == Combine::Alone;
    operands.expect_count(if alone { 3 } else { 4 })?;
    let (met, negate) = if alone { (Decoder::zero(), false) } else { operands.predicate(3)? };
    let src = [operands.src(1)?, operands.src(2)?, met];
    Ok(Some(Op::Compare { f, combine, dst: operands.dst_pair(0)?, src, negate }))
}

fn compare_to_value(
    operands: &mut Operands<'_, '_, '_, '_, '_>,
    parts: &mut Parts<'_>,
) -> Result<Option<Op>, SyntaxError> {
    let relation = parts.next();
    let flush = parts.take("ftz");
    let yes = match parts.next() {
        "u32" | "s32" => 0xFFFF_FFFF,
        "f32" => 0x3F80_0000,
        "f16" => 0x3C00,
        "bf16" => 0x3F80,
        _ => return Ok(None),
    };
    let kind = parts.next();
    let Some(f) = compare::find(&format!("{relation}.{}{kind}", if flush { "ftz." } else { "" })) else {
        return Ok(None);
    };
    operands.expect_count(3)?;
    Ok(Some(Op::Select { f, dst: operands.dst(0)?, src: [operands.src(1)?, operands.src(2)?], yes }))
}

/// How an access is ordered: whether it acquires or releases.
fn ordering(parts: &mut Parts<'_>) -> bool {
    let order = parts.one_of(&["weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"]);
    if order.is_some_and(|order| !matches!(order, "weak" | "volatile")) {
        parts.one_of(SCOPES);
    }
    matches!(order, Some("acquire" | "release" | "acq_rel"))
}

/// The space, the vector length and the type of a load or store.
fn access(operands: &Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>, at: usize) -> Option<(Space, usize, Type)> {
    let mut space = parts.space();
    while parts.one_of(CACHING).is_some() {}
    let count = match parts.one_of(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    };
    let kind = Type::parse(parts.next()).filter(|kind| kind.size() <= 8 && *kind != Type::Predicate)?;
    if space == Space::Generic {
        space = operands.space_named(at).unwrap_or(space);
    }
    Some((space, count, kind))
}

fn load(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Result<Option<Op>, SyntaxError> {
    let acquire = ordering(parts);
    let Some((space, count, kind)) = access(operands, parts, 1) else { return Ok(None) };
    operands.expect_count(2)?;
    let to = operands.elements(0)?;
    if to.len() != count {
        return operands.error(format!("it loads {count} values into {} registers", to.len()));
    }
    let mut dst = [super::inst::SINK; 4];
    for (dst, part) in dst.iter_mut().zip(to) {
        *dst = operands.register(part)?;
    }
    let at = operands.address(1)?;
    let (count, size) = (count as u8, kind.size() as u8);
    Ok(Some(Op::Load { dst, count, size, signed: kind.is_signed(), acquire, space, at }))
}

fn store(operands: &mut Operands<'_, '_, '_, '_, '_>, parts: &mut Parts<'_>) -> Result<Option<Op>, SyntaxError> {
    if matches!(parts.peek(), "async" | "bulk") {
        return Ok(None);
    }
    let release = ordering(parts);
    let Some((space, count, kind)) = access(operands, parts, 0) else { return Ok(None) };
    operands.expect_count(2)?;
    let from = operands.elements(1)?;
    if from.len() != count {
        return operands.error(format!("it stores {count} values from {} registers", from.len()));
    }
    let mut src = [Decoder::zero(); 4];
    for (src, part) in src.iter_mut().zip(from) {
        *src = operands.value(part)?;
    }
    let at = operands.address(0)?;
    Ok(Some(Op::Store { src, count: count as u8, size: kind.size() as u8, release, space, at }))
}

fn atomically(
    operands: &mut Operands<'_, '_, '_, '_, '_>,
    parts: &mut Parts<'_>,
    returns: bool,
) -> Result<Option<Op>, SyntaxError> {
    let ordered = ordering(parts);
    // The scope may stand alone, as `atom.cta.global.add`.
    parts.one_of(SCOPES);
    let space = parts.space();
    if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
        return Ok(None);
    }
    let operation = parts.remainder();
    let Some((count, f)) = atomic::find(&operation) else { return Ok(None) };
    let first = usize::from(returns);
    operands.expect_count(first + 1 + count)?;
    let Some(kind) = operation.rsplit('.').next().and_then(Type::parse) else { return Ok(None) };
    let dst = if returns { operands.dst(0)? } else { super::inst::SINK };
    let c = if count == 2 { operands.src(first + 2)? } else { Decoder::zero() };
    let (at, b) = (operands.address(first)?, operands.src(first + 1)?);
    Ok(Some(Op::Atomic { f, dst, size: kind.size() as u8, ordered, space, at, b, c }))
}

fn branch_table(operands: &mut Operands<'_, '_, '_, '_, '_>) -> Result<Op, SyntaxError> {
    operands.expect_count(2)?;
    let index = operands.src(0)?;
    let table = match operands.part(1)? {
        [token] => operands.find(token.text),
        _ => None,
    };
    let Some(Symbol::Table(table)) = table else { return operands.error("its targets are no list of labels") };
    let (scope, labels) = &operands.decoder.names.tables[table];
    let targets = labels.iter().map(|label| operands.label_named(label, *scope)).collect::<Result<_, _>>()?;
    Ok(Op::BranchTable { index, targets })
}

/// `(out), name, (in, in), prototype`, of which all but the name may be missing.
fn call(operands: &mut Operands<'_, '_, '_, '_, '_>) -> Result<Op, SyntaxError> {
    let is_list = |part: &[Token<'_>]| part.first().is_some_and(|token| token.is("("));
    let parts = operands.parts.clone();
    let mut left = parts.iter().copied().peekable();
    let outputs = match left.next_if(|part| is_list(part)) {
        Some(list) => frame_parts(operands, list)?,
        None => Vec::new(),
    };
    let Some([name]) = left.next().filter(|part| part.len() == 1 && part[0].kind == Kind::Word) else {
        return operands.error("it calls nothing");
    };
    let inputs = match left.next_if(|part| is_list(part)) {
        Some(list) => frame_parts(operands, list)?,
        None => Vec::new(),
    };
    let callee = match (name.text, operands.find(name.text)) {
        ("vprintf", _) => Callee::Print,
        ("__assertfail", _) => Callee::AssertFail,
        (_, Some(Symbol::Function(index))) => {
            operands.decoder.calls.push(index);
            Callee::Function(index as u32)
        }
        (_, Some(Symbol::Register(register))) => Callee::Address(Src::Register(register)),
        (text, _) => return operands.error(format!("`{text}` is no function")),
    };
    Ok(Op::Call(Box::new(Call { callee, inputs, outputs })))
}

fn frame_parts(operands: &Operands<'_, '_, '_, '_, '_>, list: &[Token<'_>]) -> Result<Vec<FramePart>, SyntaxError> {
    let names = list.iter().filter(|token| token.kind == Kind::Word);
    names
        .map(|token| match operands.find(token.text) {
            Some(Symbol::Param(offset, size)) => Ok(FramePart { offset, size }),
            _ => operands.error(format!("`{}` is no parameter of a call", token.text)),
        })
        .collect()
}
