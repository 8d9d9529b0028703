//! A module: its variables, its kernels and functions, and how the text says so.

use std::collections::HashMap;

use super::body::{self, Frame};
use super::inst::Inst;
pub(crate) use super::lex::SyntaxError;
use super::lex::{Kind, Token, Words, tokens};
use super::types::{FUNCTION_WINDOW, Type};

/// Bytes between the addresses of two functions.
pub(crate) const FUNCTION_STRIDE: u64 = 16;

/// Where a variable lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    Global,
    Constant,
    Shared,
    /// Shared memory whose size the launch gives.
    DynamicShared,
}

/// A variable of a module.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) home: Home,
    pub(crate) size: usize,
    pub(crate) align: usize,
    /// The first bytes of its value; what is missing is zero.
    pub(crate) initial: Vec<u8>,
    /// Where the value holds addresses of others: the distance in bytes, the name, and what is added.
    pub(crate) addresses: Vec<(usize, String, u64)>,
    pub(crate) line: u32,
}

/// A parameter: where in the parameters' bytes it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// A kernel or a function, ready to be executed.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) is_kernel: bool,
    pub(crate) inputs: Vec<Parameter>,
    pub(crate) outputs: Vec<Parameter>,
    /// Bytes of the kernel's or function's own parameters.
    pub(crate) parameter_bytes: usize,
    /// Bytes of a call's parameters: its own, and those of the calls it makes.
    pub(crate) frame_bytes: usize,
    pub(crate) registers: usize,
    pub(crate) local_bytes: usize,
    /// Shared memory that does not depend on the launch.
    pub(crate) shared_bytes: usize,
    pub(crate) uses_dynamic_shared: bool,
    /// Threads a block may have at most, where the text says so.
    pub(crate) most_threads: Option<u32>,
    /// Threads a block must have along each axis, where the text says so.
    pub(crate) needed_threads: Option<[u32; 3]>,
    pub(crate) constants: Vec<u64>,
    pub(crate) code: Vec<Inst>,
    /// Indices of the functions it calls by name.
    pub(crate) calls: Vec<usize>,
    /// Why it cannot be executed: something in it is not known here.
    pub(crate) defect: Option<SyntaxError>,
}

/// A module whose names are resolved.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) functions: Vec<Function>,
    /// Each variable in device memory, with its address and bytes.
    pub(crate) variables: HashMap<String, (u64, usize)>,
}

impl Module {
    /// The kernel of this name.
    pub(crate) fn kernel(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|function| function.is_kernel && function.name == name)
    }

    /// Why a kernel cannot run: a defect of its own, or of something it may call.
    pub(crate) fn defect_of(&self, kernel: usize) -> Option<(&Function, &SyntaxError)> {
        let (mut seen, mut open) = (vec![false; self.functions.len()], vec![kernel]);
        while let Some(index) = open.pop() {
            if core::mem::replace(&mut seen[index], true) {
                continue;
            }
            let function = &self.functions[index];
            if let Some(defect) = &function.defect {
                return Some((function, defect));
            }
            open.extend(&function.calls);
        }
        None
    }

    /// The function at an address, if there is one.
    pub(crate) fn function_at(&self, address: u64) -> Option<usize> {
        let distance = address.checked_sub(FUNCTION_WINDOW)?;
        let index = (distance / FUNCTION_STRIDE) as usize;
        (distance % FUNCTION_STRIDE == 0 && index < self.functions.len()).then_some(index)
    }
}

/// What stands before a kernel's or function's body.
pub(crate) struct Header<'t, 'a> {
    pub(crate) name: &'a str,
    pub(crate) is_kernel: bool,
    pub(crate) frame: Frame<'a>,
    pub(crate) inputs: Vec<Parameter>,
    pub(crate) outputs: Vec<Parameter>,
    pub(crate) most_threads: Option<u32>,
    pub(crate) needed_threads: Option<[u32; 3]>,
    pub(crate) body: Option<&'t [Token<'a>]>,
}

/// A module's text, read as far as possible without knowing where its variables lie.
pub(crate) struct Outline<'t, 'a> {
    /// The version of the language.
    pub(crate) version: (u32, u32),
    /// The architecture the text is for: 90 for `sm_90`.
    pub(crate) target: u32,
    pub(crate) variables: Vec<Variable>,
    headers: Vec<Header<'t, 'a>>,
}

/// The names a body can use beside its own.
pub(crate) struct Outside<'o, 't, 'a> {
    pub(crate) headers: &'o [Header<'t, 'a>],
    pub(crate) variables: &'o HashMap<String, (u64, usize)>,
    pub(crate) shared: &'o HashMap<&'o str, usize>,
    pub(crate) shared_bytes: usize,
    pub(crate) dynamic_shared: &'o [&'o str],
}

/// Splits a module's text into words.
pub(crate) fn words(text: &str) -> Result<Vec<Token<'_>>, SyntaxError> {
    tokens(text)
}

impl<'t, 'a> Outline<'t, 'a> {
    /// Reads what stands outside the bodies.
    pub(crate) fn read(tokens: &'t [Token<'a>]) -> Result<Self, SyntaxError> {
        let mut words = Words::new(tokens);
        let mut outline = Self { version: (0, 0), target: 0, variables: Vec::new(), headers: Vec::new() };
        while let Some(token) = words.peek() {
            match token.text {
                ".version" => {
                    words.next()?;
                    let name = words.next()?;
                    let numbers = name.text.split_once('.');
                    let version = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
                    outline.version =
                        version.ok_or_else(|| SyntaxError::new(name.line, format!("`{}` is no version", name.text)))?;
                }
                ".target" => {
                    words.next()?;
                    let name = words.next()?;
                    let digits = name.text.strip_prefix("sm_").map(|rest| rest.trim_end_matches(['a', 'f']));
                    outline.target = digits
                        .and_then(|digits| digits.parse().ok())
                        .ok_or_else(|| SyntaxError::new(name.line, format!("`{}` is no target", name.text)))?;
                    // What else the code was compiled with, as `debug`.
                    while words.take(",") {
                        words.next()?;
                    }
                }
                ".address_size" => {
                    words.next()?;
                    if words.integer()? != 64 {
                        return Err(SyntaxError::new(token.line, "addresses have 64 bits"));
                    }
                }
                ".file" | ".loc" => words.skip_line(),
                ".pragma" => {
                    words.until_semicolon()?;
                }
                ".section" => {
                    words.next()?;
                    words.next()?;
                    words.braces()?;
                }
                _ => outline.definition(&mut words)?,
            }
        }
        if outline.target == 0 {
            return Err(SyntaxError::new(1, "the text names no target"));
        }
        Ok(outline)
    }

    fn definition(&mut self, words: &mut Words<'t, 'a>) -> Result<(), SyntaxError> {
        let mut is_external = false;
        while let Some(token) = words.peek() {
            match token.text {
                ".extern" => is_external = true,
                ".visible" | ".weak" | ".common" => {}
                _ => break,
            }
            words.next()?;
        }
        let token = words.next()?;
        match token.text {
            ".entry" | ".func" => {
                let header = header(words, token.is(".entry"))?;
                // A declaration may come before the definition, which then takes its place.
                match self.headers.iter_mut().find(|known| known.name == header.name) {
                    Some(known) if header.body.is_some() => *known = header,
                    Some(_) => {}
                    None => self.headers.push(header),
                }
                Ok(())
            }
            ".global" | ".const" | ".shared" => {
                let home = match token.text {
                    ".const" => Home::Constant,
                    ".shared" if is_external => Home::DynamicShared,
                    ".shared" => Home::Shared,
                    _ => Home::Global,
                };
                if is_external && home != Home::DynamicShared {
                    return Err(SyntaxError::new(token.line, "a variable of another module cannot be linked here"));
                }
                self.variables.push(variable(words, home)?);
                Ok(())
            }
            _ => Err(SyntaxError::new(token.line, format!("`{}` begins no definition", token.text))),
        }
    }

    /// Resolves every name, given the address of each variable in device memory.
    ///
    /// A function that has something unknown in it is kept with its defect; nothing is guessed.
    pub(crate) fn link(&self, addresses: &HashMap<String, (u64, usize)>) -> Module {
        let (mut shared, mut shared_bytes) = (HashMap::new(), 0usize);
        for variable in self.variables.iter().filter(|variable| variable.home == Home::Shared) {
            shared_bytes = shared_bytes.next_multiple_of(variable.align);
            shared.insert(variable.name.as_str(), shared_bytes);
            shared_bytes += variable.size;
        }
        let dynamic: Vec<_> = self
            .variables
            .iter()
            .filter(|variable| variable.home == Home::DynamicShared)
            .map(|variable| variable.name.as_str())
            .collect();
        let outside = Outside {
            headers: &self.headers,
            variables: addresses,
            shared: &shared,
            shared_bytes,
            dynamic_shared: &dynamic,
        };
        let functions = self.headers.iter().map(|header| body::function(header, &outside)).collect();
        Module { functions, variables: addresses.clone() }
    }

    /// The address a name in an initialiser stands for.
    pub(crate) fn address_of(&self, name: &str, addresses: &HashMap<String, (u64, usize)>) -> Option<u64> {
        let function = self.headers.iter().position(|header| header.name == name);
        addresses
            .get(name)
            .map(|(address, _)| *address)
            .or(function.map(|index| FUNCTION_WINDOW + index as u64 * FUNCTION_STRIDE))
    }
}

/// Reads `.align 8 .b8 name[16]`, `.v4 .f32 name`, `.reg`less: alignment, bytes and name of what is declared.
pub(crate) fn declared<'a>(words: &mut Words<'_, 'a>) -> Result<(&'a str, usize, usize, usize), SyntaxError> {
    let (mut align, mut vector, mut element) = (0, 1, None);
    loop {
        let token = words.next()?;
        match token.text {
            ".align" => align = words.integer()? as usize,
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            // What a pointer parameter points to is of no use here.
            ".ptr" | ".global" | ".const" | ".shared" | ".local" if element.is_some() => {}
            text if text.starts_with('.') => {
                let kind = Type::parse(&text[1..])
                    .ok_or_else(|| SyntaxError::new(token.line, format!("`{text}` is no type of a variable")))?;
                element = Some(kind.size());
            }
            name => {
                let element = element
                    .ok_or_else(|| SyntaxError::new(token.line, format!("`{name}` is declared without a type")))?;
                let mut count = 1;
                while words.take("[") {
                    count *= if words.is_next("]") { 0 } else { words.integer()? as usize };
                    words.expect("]")?;
                }
                let align = if align == 0 { element * vector } else { align };
                if !align.is_power_of_two() {
                    return Err(SyntaxError::new(token.line, format!("{align} is no alignment")));
                }
                return Ok((name, element * vector * count, align, element));
            }
        }
    }
}

fn variable<'a>(words: &mut Words<'_, 'a>, home: Home) -> Result<Variable, SyntaxError> {
    let line = words.line();
    // `.attribute(.managed)` and the like would change what the variable is.
    if words.is_next(".attribute") {
        return Err(SyntaxError::new(line, "attributes of variables are not known"));
    }
    let (name, size, align, element) = declared(words)?;
    let (mut initial, mut addresses) = (Vec::new(), Vec::new());
    if words.take("=") {
        loop {
            let token = words.next()?;
            match token.text {
                "{" | "}" | "," => {}
                ";" => break,
                _ => initialise(words, token, element, &mut initial, &mut addresses)?,
            }
        }
    } else {
        words.expect(";")?;
    }
    if initial.len() > size {
        return Err(SyntaxError::new(line, format!("{} bytes of `{name}` are given, it has {size}", initial.len())));
    }
    Ok(Variable { name: name.to_owned(), home, size, align, initial, addresses, line })
}

fn initialise(
    words: &mut Words<'_, '_>,
    token: Token<'_>,
    element: usize,
    initial: &mut Vec<u8>,
    addresses: &mut Vec<(usize, String, u64)>,
) -> Result<(), SyntaxError> {
    let negative = token.is("-");
    let token = if negative { words.next()? } else { token };
    if let Some(value) = super::constants::number(token.text, negative) {
        initial.extend_from_slice(&value.to_le_bytes()[..element.min(8)]);
        initial.extend(core::iter::repeat_n(0, element.saturating_sub(8)));
        return Ok(());
    }
    if token.kind != Kind::Word || element != 8 {
        return Err(SyntaxError::new(token.line, format!("`{}` initialises nothing of {element} bytes", token.text)));
    }
    let name = if token.is("generic") {
        words.expect("(")?;
        let name = words.next()?.text;
        words.expect(")")?;
        name
    } else {
        token.text
    };
    let more = if words.take("+") { words.integer()? } else { 0 };
    addresses.push((initial.len(), name.to_owned(), more));
    initial.extend_from_slice(&[0; 8]);
    Ok(())
}

fn header<'t, 'a>(words: &mut Words<'t, 'a>, is_kernel: bool) -> Result<Header<'t, 'a>, SyntaxError> {
    let mut frame = Frame::default();
    let mut outputs = Vec::new();
    if !is_kernel && words.is_next("(") {
        outputs = parameters(words, &mut frame)?;
    }
    let name = words.next()?.text;
    let inputs = if words.is_next("(") { parameters(words, &mut frame)? } else { Vec::new() };
    let (mut most_threads, mut needed_threads) = (None, None);
    loop {
        let token = words
            .peek()
            .ok_or_else(|| SyntaxError::new(words.line(), format!("`{name}` has neither a body nor an end")))?;
        if token.is("{") {
            break;
        }
        words.next()?;
        match token.text {
            ";" => break,
            ".maxntid" => most_threads = Some(sizes(words)?.iter().product()),
            ".reqntid" => needed_threads = Some(sizes(words)?),
            // Hints to the register allocator.
            ".minnctapersm" | ".maxnreg" => {
                words.integer()?;
            }
            ".noreturn" => {}
            ".pragma" => {
                words.until_semicolon()?;
            }
            other => return Err(SyntaxError::new(token.line, format!("`{other}` is not known of `{name}`"))),
        }
    }
    let body = if words.is_next("{") { Some(words.braces()?) } else { None };
    Ok(Header { name, is_kernel, frame, inputs, outputs, most_threads, needed_threads, body })
}

fn sizes(words: &mut Words<'_, '_>) -> Result<[u32; 3], SyntaxError> {
    let mut sizes = [1; 3];
    for (axis, size) in sizes.iter_mut().enumerate() {
        if axis > 0 && !words.take(",") {
            break;
        }
        *size = words.integer()? as u32;
    }
    Ok(sizes)
}

fn parameters<'a>(words: &mut Words<'_, 'a>, frame: &mut Frame<'a>) -> Result<Vec<Parameter>, SyntaxError> {
    words.expect("(")?;
    let mut found = Vec::new();
    while !words.take(")") {
        words.take(",");
        words.expect(".param")?;
        let (name, size, align, _) = declared(words)?;
        let offset = frame.place(name, size, align);
        found.push(Parameter { offset, size });
    }
    Ok(found)
}
