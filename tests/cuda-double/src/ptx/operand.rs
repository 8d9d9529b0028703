//! Operands: what stands between the commas of a statement.

use super::body::{Names, Symbol};
use super::inst::{Address, LaneMask, Special, Src};
use super::lex::{Kind, SyntaxError, Token};
use super::types::{FUNCTION_WINDOW, Space};
use super::{constants, module::FUNCTION_STRIDE};

/// What the operands of one statement mean, and what decoding a function gathers.
pub(crate) struct Decoder<'n, 'o, 't, 'a> {
    pub(super) names: &'n Names<'o, 't, 'a>,
    pub(crate) constants: Vec<u64>,
    pub(crate) calls: Vec<usize>,
    pub(crate) uses_dynamic_shared: bool,
}

impl<'n, 'o, 't, 'a> Decoder<'n, 'o, 't, 'a> {
    pub(crate) fn new(names: &'n Names<'o, 't, 'a>) -> Self {
        // Constant 0 is zero, for sources that are not there.
        Self { names, constants: vec![0], calls: Vec::new(), uses_dynamic_shared: false }
    }

    pub(super) fn constant(&mut self, value: u64) -> Src {
        let known = self.constants.iter().position(|constant| *constant == value);
        let index = known.unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        Src::Constant(index as u32)
    }

    pub(super) fn zero() -> Src {
        Src::Constant(0)
    }
}

/// The operands of a statement, each a few words.
pub(super) struct Operands<'d, 'n, 'o, 't, 'a> {
    pub(super) decoder: &'d mut Decoder<'n, 'o, 't, 'a>,
    pub(super) parts: Vec<&'t [Token<'a>]>,
    pub(super) line: u32,
    pub(super) scope: usize,
}

/// Splits words at the commas that stand in no brackets.
pub(super) fn split<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Mark {
            match token.text {
                "{" | "[" | "(" => depth += 1,
                "}" | "]" | ")" => depth -= 1,
                "," if depth == 0 => {
                    parts.push(&tokens[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
    }
    if !tokens.is_empty() {
        parts.push(&tokens[start..]);
    }
    parts
}

fn spelled(tokens: &[Token<'_>]) -> String {
    tokens.iter().map(|token| token.text).collect()
}

impl<'t, 'a> Operands<'_, '_, '_, 't, 'a> {
    pub(super) fn error<T>(&self, what: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(self.line, what))
    }

    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn expect_count(&self, count: usize) -> Result<(), SyntaxError> {
        if self.parts.len() == count {
            return Ok(());
        }
        self.error(format!("it has {} operands, and takes {count}", self.parts.len()))
    }

    pub(super) fn part(&self, at: usize) -> Result<&'t [Token<'a>], SyntaxError> {
        match self.parts.get(at) {
            Some(part) => Ok(part),
            None => self.error(format!("its operand {} is missing", at + 1)),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<Symbol> {
        self.decoder.names.find(name, self.scope)
    }

    /// A register to write; `_` writes nowhere.
    pub(super) fn register(&self, tokens: &[Token<'a>]) -> Result<u32, SyntaxError> {
        if let [token] = tokens {
            if token.is("_") {
                return Ok(super::inst::SINK);
            }
            if let Some(Symbol::Register(register)) = self.find(token.text) {
                return Ok(register);
            }
        }
        self.error(format!("`{}` is no register", spelled(tokens)))
    }

    pub(super) fn dst(&self, at: usize) -> Result<u32, SyntaxError> {
        self.register(self.part(at)?)
    }

    /// One register, or two as `p|q`.
    pub(super) fn dst_pair(&self, at: usize) -> Result<[u32; 2], SyntaxError> {
        let part = self.part(at)?;
        match part.iter().position(|token| token.is("|")) {
            Some(bar) => Ok([self.register(&part[..bar])?, self.register(&part[bar + 1..])?]),
            None => Ok([self.register(part)?, super::inst::SINK]),
        }
    }

    /// The parts of `{a, b}`; of anything else, itself.
    pub(super) fn elements(&self, at: usize) -> Result<Vec<&'t [Token<'a>]>, SyntaxError> {
        let part = self.part(at)?;
        match part {
            [open, inner @ .., close] if open.is("{") && close.is("}") => Ok(split(inner)),
            _ => Ok(vec![part]),
        }
    }

    pub(super) fn src(&mut self, at: usize) -> Result<Src, SyntaxError> {
        let part = self.part(at)?;
        self.value(part)
    }

    /// A predicate to read, and whether it is negated.
    pub(super) fn predicate(&mut self, at: usize) -> Result<(Src, bool), SyntaxError> {
        let part = self.part(at)?;
        match part {
            [mark, rest @ ..] if mark.is("!") => Ok((self.value(rest)?, true)),
            _ => Ok((self.value(part)?, false)),
        }
    }

    /// A value to read: a register, a number, a name, or a name and a distance.
    pub(super) fn value(&mut self, tokens: &[Token<'a>]) -> Result<Src, SyntaxError> {
        match tokens {
            [sign, token] if sign.is("-") => match constants::number(token.text, true) {
                Some(value) => Ok(self.decoder.constant(value)),
                None => self.error(format!("`-{}` is no number", token.text)),
            },
            [token] if token.kind == Kind::Word => self.word(token.text),
            [name, plus, token] if plus.is("+") => {
                let distance = constants::unsigned(token.text);
                match (self.word(name.text)?, distance) {
                    (Src::Constant(index), Some(distance)) => {
                        let value = self.decoder.constants[index as usize].wrapping_add(distance);
                        Ok(self.decoder.constant(value))
                    }
                    (Src::Special(Special::Local(offset)), Some(distance)) => {
                        Ok(Src::Special(Special::Local(offset + distance as u32)))
                    }
                    _ => self.error(format!("`{}` is no operand", spelled(tokens))),
                }
            }
            _ => self.error(format!("`{}` is no operand", spelled(tokens))),
        }
    }

    fn word(&mut self, text: &str) -> Result<Src, SyntaxError> {
        if let Some(value) = constants::number(text, false) {
            return Ok(self.decoder.constant(value));
        }
        if let Some(special) = special(text) {
            return Ok(Src::Special(special));
        }
        match (self.find(text), text) {
            (_, "_") => Ok(Decoder::zero()),
            (_, "WARP_SZ") => Ok(self.decoder.constant(32)),
            (Some(Symbol::Register(register)), _) => Ok(Src::Register(register)),
            (Some(Symbol::Param(offset, _)), _) => Ok(self.decoder.constant(offset as u64)),
            (Some(Symbol::Local(offset)), _) => Ok(Src::Special(Special::Local(offset))),
            (Some(Symbol::Shared(offset)), _) => Ok(self.decoder.constant(offset)),
            (Some(Symbol::Global(address)), _) => Ok(self.decoder.constant(address)),
            (Some(Symbol::DynamicShared), _) => {
                self.decoder.uses_dynamic_shared = true;
                Ok(Src::Special(Special::DynamicShared))
            }
            (Some(Symbol::Function(index)), _) => {
                // Its address is taken, so it may be called through it.
                self.decoder.calls.push(index);
                Ok(self.decoder.constant(FUNCTION_WINDOW + index as u64 * FUNCTION_STRIDE))
            }
            _ => self.error(format!("`{text}` is not known here")),
        }
    }

    /// `[base + distance]`, without its brackets.
    fn inside(&mut self, tokens: &[Token<'a>]) -> Result<Address, SyntaxError> {
        let plus = tokens.iter().position(|token| token.is("+") || token.is("-"));
        let Some(plus) = plus.filter(|plus| *plus > 0) else {
            return Ok(Address { base: self.value(tokens)?, offset: 0 });
        };
        let base = self.value(&tokens[..plus])?;
        let (mut negative, mut rest) = (tokens[plus].is("-"), &tokens[plus + 1..]);
        if let [sign, after @ ..] = rest
            && sign.is("-")
        {
            (negative, rest) = (!negative, after);
        }
        let distance = match rest {
            [token] => constants::unsigned(token.text),
            _ => None,
        };
        match distance.and_then(|distance| i64::try_from(distance).ok()) {
            Some(distance) => Ok(Address { base, offset: if negative { -distance } else { distance } }),
            None => self.error(format!("`{}` is no address", spelled(tokens))),
        }
    }

    fn bracketed(&self, at: usize) -> Result<&'t [Token<'a>], SyntaxError> {
        let part = self.part(at)?;
        match part {
            [open, inner @ .., close] if open.is("[") && close.is("]") => Ok(inner),
            _ => self.error(format!("`{}` is no address", spelled(part))),
        }
    }

    pub(super) fn address(&mut self, at: usize) -> Result<Address, SyntaxError> {
        let inner = self.bracketed(at)?;
        self.inside(inner)
    }

    /// A name in brackets whose space is the call's parameters, wherever the opcode leaves the space open.
    pub(super) fn space_named(&self, at: usize) -> Option<Space> {
        match self.bracketed(at).ok()?.first().and_then(|token| self.find(token.text))? {
            Symbol::Param(..) => Some(Space::Param),
            _ => None,
        }
    }

    /// `[map, {x, y}]`.
    pub(super) fn tensor(&mut self, at: usize) -> Result<(Src, Vec<Src>), SyntaxError> {
        let parts = split(self.bracketed(at)?);
        let [map, [open, inner @ .., close]] = parts.as_slice() else {
            return self.error("a tensor is a map and its coordinates");
        };
        if !open.is("{") || !close.is("}") {
            return self.error("coordinates stand in braces");
        }
        let map = self.value(map)?;
        let coordinates = split(inner).into_iter().map(|part| self.value(part)).collect::<Result<_, _>>()?;
        Ok((map, coordinates))
    }

    pub(super) fn label(&self, at: usize) -> Result<u32, SyntaxError> {
        let part = self.part(at)?;
        match part {
            [token] => self.label_named(token.text, self.scope),
            _ => self.error(format!("`{}` is no label", spelled(part))),
        }
    }

    pub(super) fn label_named(&self, name: &str, scope: usize) -> Result<u32, SyntaxError> {
        match self.decoder.names.find(name, scope) {
            Some(Symbol::Label(index)) => Ok(index),
            _ => self.error(format!("`{name}` is no label")),
        }
    }
}

fn special(text: &str) -> Option<Special> {
    let axis = |rest: &str| match rest {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((name, rest)) = text.split_once('.') {
        return match name {
            "%tid" => axis(rest).map(Special::Thread),
            "%ntid" => axis(rest).map(Special::Threads),
            "%ctaid" => axis(rest).map(Special::Block),
            "%nctaid" => axis(rest).map(Special::Blocks),
            _ => None,
        };
    }
    Some(match text {
        "%laneid" => Special::Lane,
        "%lanemask_eq" => Special::LaneMask(LaneMask::Equal),
        "%lanemask_lt" => Special::LaneMask(LaneMask::Less),
        "%lanemask_le" => Special::LaneMask(LaneMask::LessOrEqual),
        "%lanemask_gt" => Special::LaneMask(LaneMask::Greater),
        "%lanemask_ge" => Special::LaneMask(LaneMask::GreaterOrEqual),
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%smid" => Special::Multiprocessor,
        "%nsmid" => Special::Multiprocessors,
        "%gridid" => Special::Grid,
        "%clock" | "%clock64" | "%globaltimer" => Special::Clock,
        "%dynamic_smem_size" => Special::DynamicSharedSize,
        "%total_smem_size" => Special::TotalSharedSize,
        _ => return None,
    })
}
