//! The body of a kernel or function: what it declares, in which braces, and its statements.

use std::collections::HashMap;

use super::decode::{self, Decoder};
use super::lex::{Kind, SyntaxError, Token, Words};
use super::module::{Function, Header, Outside, declared};

/// The bytes that parameters of a function, and of the calls it makes, lie in.
#[derive(Clone, Default, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) names: HashMap<&'a str, (usize, usize)>,
    pub(crate) bytes: usize,
}

impl<'a> Frame<'a> {
    /// Gives a parameter its place, which is returned.
    pub(crate) fn place(&mut self, name: &'a str, size: usize, align: usize) -> usize {
        let offset = self.bytes.next_multiple_of(align);
        self.names.insert(name, (offset, size));
        self.bytes = offset + size;
        offset
    }
}

/// What a name means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Symbol {
    Register(u32),
    /// Offset and size in the call's parameters.
    Param(usize, usize),
    Local(u32),
    Shared(u64),
    DynamicShared,
    /// Address in device memory.
    Global(u64),
    /// Index of an instruction.
    Label(u32),
    /// Index of a list of labels.
    Table(usize),
    Function(usize),
    Prototype,
}

/// The names of one pair of braces.
#[derive(Default, Debug)]
struct Scope<'a> {
    parent: Option<usize>,
    names: HashMap<&'a str, Symbol>,
    /// Registers declared by the number, `%r<9>`: the first, and how many.
    ranges: HashMap<&'a str, (u32, u32)>,
}

impl Scope<'_> {
    fn find(&self, name: &str) -> Option<Symbol> {
        if let Some(symbol) = self.names.get(name) {
            return Some(*symbol);
        }
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (1..=digits).rev().find_map(|count| {
            let (prefix, index) = name.split_at(name.len() - count);
            let (first, declared) = *self.ranges.get(prefix)?;
            let index: u32 = index.parse().ok()?;
            (index < declared).then_some(Symbol::Register(first + index))
        })
    }
}

/// One statement, not yet decoded.
#[derive(Debug)]
pub(crate) struct Statement<'t, 'a> {
    pub(crate) guard: Option<(&'a str, bool)>,
    pub(crate) opcode: &'a str,
    pub(crate) operands: &'t [Token<'a>],
    pub(crate) line: u32,
    pub(crate) scope: usize,
}

/// Everything a body declares.
pub(crate) struct Names<'o, 't, 'a> {
    scopes: Vec<Scope<'a>>,
    /// Lists of labels, by name and scope, for branches by index.
    pub(crate) tables: Vec<(usize, Vec<&'a str>)>,
    pub(crate) outside: &'o Outside<'o, 't, 'a>,
}

impl Names<'_, '_, '_> {
    /// What a name means where it is used.
    pub(crate) fn find(&self, name: &str, scope: usize) -> Option<Symbol> {
        let mut at = Some(scope);
        while let Some(index) = at {
            if let Some(symbol) = self.scopes[index].find(name) {
                return Some(symbol);
            }
            at = self.scopes[index].parent;
        }
        let outside = self.outside;
        if let Some((address, _)) = outside.variables.get(name) {
            return Some(Symbol::Global(*address));
        }
        if let Some(offset) = outside.shared.get(name) {
            return Some(Symbol::Shared(*offset as u64));
        }
        if outside.dynamic_shared.contains(&name) {
            return Some(Symbol::DynamicShared);
        }
        outside.headers.iter().position(|header| header.name == name).map(Symbol::Function)
    }
}

/// Reads and decodes a body.
pub(crate) fn function(header: &Header<'_, '_>, outside: &Outside<'_, '_, '_>) -> Function {
    let mut function = Function {
        name: header.name.to_owned(),
        is_kernel: header.is_kernel,
        inputs: header.inputs.clone(),
        outputs: header.outputs.clone(),
        parameter_bytes: header.frame.bytes,
        frame_bytes: header.frame.bytes,
        registers: 1,
        local_bytes: 0,
        shared_bytes: 0,
        uses_dynamic_shared: false,
        most_threads: header.most_threads,
        needed_threads: header.needed_threads,
        constants: vec![0],
        code: Vec::new(),
        calls: Vec::new(),
        defect: None,
    };
    if let Err(defect) = fill(&mut function, header, outside) {
        function.defect = Some(defect);
    }
    function
}

fn fill(function: &mut Function, header: &Header<'_, '_>, outside: &Outside<'_, '_, '_>) -> Result<(), SyntaxError> {
    let Some(body) = header.body else {
        return Err(SyntaxError::new(0, "it is declared only, and nothing is linked here"));
    };
    let mut reader = Reader {
        frame: header.frame.clone(),
        names: Names { scopes: vec![Scope::default()], tables: Vec::new(), outside },
        statements: Vec::new(),
        open: vec![0],
        registers: 1,
        local: 0,
        shared: 0,
    };
    for (name, (offset, size)) in &header.frame.names {
        reader.names.scopes[0].names.insert(name, Symbol::Param(*offset, *size));
    }
    // Variables of the module come first in shared memory wherever one of them may be used.
    let mentions = |token: &Token<'_>| outside.shared.contains_key(token.text);
    if outside
        .headers
        .iter()
        .filter(|other| !other.is_kernel || other.name == header.name)
        .any(|other| other.body.is_some_and(|body| body.iter().any(mentions)))
    {
        reader.shared = outside.shared_bytes;
    }
    reader.read(body)?;
    function.registers = reader.registers as usize;
    function.local_bytes = reader.local.next_multiple_of(16);
    function.shared_bytes = reader.shared;
    function.frame_bytes = reader.frame.bytes;
    let mut decoder = Decoder::new(&reader.names);
    function.code =
        reader.statements.iter().map(|statement| decode::decode(&mut decoder, statement)).collect::<Result<_, _>>()?;
    function.constants = decoder.constants;
    function.calls = decoder.calls;
    function.uses_dynamic_shared = decoder.uses_dynamic_shared;
    Ok(())
}

struct Reader<'o, 't, 'a> {
    frame: Frame<'a>,
    names: Names<'o, 't, 'a>,
    statements: Vec<Statement<'t, 'a>>,
    /// The scopes that are open here, outermost first.
    open: Vec<usize>,
    registers: u32,
    local: usize,
    shared: usize,
}

impl<'t, 'a> Reader<'_, 't, 'a> {
    fn read(&mut self, body: &'t [Token<'a>]) -> Result<(), SyntaxError> {
        let mut words = Words::new(body);
        while let Some(token) = words.peek() {
            match token.text {
                "{" => {
                    words.next()?;
                    self.names.scopes.push(Scope { parent: self.open.last().copied(), ..Scope::default() });
                    self.open.push(self.names.scopes.len() - 1);
                }
                "}" => {
                    words.next()?;
                    self.open.pop();
                }
                ";" => {
                    words.next()?;
                }
                ".reg" => self.register(&mut words)?,
                ".local" | ".shared" | ".param" => self.variable(&mut words)?,
                ".loc" | ".file" => words.skip_line(),
                ".pragma" => {
                    words.until_semicolon()?;
                }
                _ if token.kind == Kind::Word && words.peek_second().is_some_and(|next| next.is(":")) => {
                    self.label(&mut words)?;
                }
                text if text.starts_with('.') => {
                    return Err(SyntaxError::new(token.line, format!("the directive `{text}` is not known")));
                }
                _ => self.statement(&mut words)?,
            }
        }
        Ok(())
    }

    fn scope(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    fn declare(&mut self, name: &'a str, symbol: Symbol) {
        let scope = self.scope();
        self.names.scopes[scope].names.insert(name, symbol);
    }

    fn register(&mut self, words: &mut Words<'t, 'a>) -> Result<(), SyntaxError> {
        words.expect(".reg")?;
        let kind = words.next()?;
        if kind.is(".b128") || kind.text.starts_with(".v") {
            return Err(SyntaxError::new(kind.line, format!("registers of `{}` are not known", kind.text)));
        }
        loop {
            let name = words.next()?.text;
            if words.take("<") {
                let count = words.integer()? as u32;
                words.expect(">")?;
                let scope = self.scope();
                self.names.scopes[scope].ranges.insert(name, (self.registers, count));
                self.registers += count;
            } else {
                self.registers += 1;
                self.declare(name, Symbol::Register(self.registers - 1));
            }
            if !words.take(",") {
                return words.expect(";");
            }
        }
    }

    fn variable(&mut self, words: &mut Words<'t, 'a>) -> Result<(), SyntaxError> {
        let home = words.next()?;
        let (name, size, align, _) = declared(words)?;
        let symbol = match home.text {
            ".local" => {
                self.local = self.local.next_multiple_of(align) + size;
                Symbol::Local((self.local - size) as u32)
            }
            ".shared" => {
                self.shared = self.shared.next_multiple_of(align) + size;
                Symbol::Shared((self.shared - size) as u64)
            }
            _ => Symbol::Param(self.frame.place(name, size, align), size),
        };
        self.declare(name, symbol);
        words.expect(";")
    }

    fn label(&mut self, words: &mut Words<'t, 'a>) -> Result<(), SyntaxError> {
        let name = words.next()?.text;
        words.expect(":")?;
        let symbol = match words.peek() {
            Some(token) if token.is(".branchtargets") => {
                words.next()?;
                let list = words.until_semicolon()?;
                let labels = list.iter().filter(|token| token.kind == Kind::Word).map(|token| token.text).collect();
                self.names.tables.push((self.scope(), labels));
                Symbol::Table(self.names.tables.len() - 1)
            }
            Some(token) if token.is(".callprototype") => {
                words.until_semicolon()?;
                Symbol::Prototype
            }
            _ => Symbol::Label(self.statements.len() as u32),
        };
        self.declare(name, symbol);
        Ok(())
    }

    fn statement(&mut self, words: &mut Words<'t, 'a>) -> Result<(), SyntaxError> {
        let mut guard = None;
        if words.take("@") {
            let negated = words.take("!");
            guard = Some((words.next()?.text, negated));
        }
        let opcode = words.next()?;
        if opcode.kind != Kind::Word {
            return Err(SyntaxError::new(opcode.line, format!("`{}` begins no statement", opcode.text)));
        }
        let operands = words.until_semicolon()?;
        let scope = self.scope();
        self.statements.push(Statement { guard, opcode: opcode.text, operands, line: opcode.line, scope });
        Ok(())
    }
}
