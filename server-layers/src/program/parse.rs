//! Reading the text form: strict, so that a damaged file is noticed, and with memory in proportion to the text.

use super::check::{Checker, content_fits};
use super::content::Content;
use super::defect::{Defect, ParseError, cut};
use super::kernels::KernelInfo;
use super::step::{Call, Counts, LaunchCall, Program, Step, View};
use super::text::MAX_NAME;
use super::token::{self, Words, counts, hex, number, quoted, tagged, unknown};
use super::{MAX_DIMENSIONS, MAX_LINE, MAX_VIEWS, VERSION};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::kernel::{BufferInterface, HostUse, Interface, MAX_PARAMETERS};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Pattern;

type Result<T = ()> = core::result::Result<T, Defect>;

impl Program {
    /// Reads the text form.
    ///
    /// # Errors
    /// The first line that is wrong. A text without its `end` line is cut off, and refused: [`recover`](Self::recover) takes what there is.
    pub fn parse(text: &str) -> core::result::Result<Self, ParseError> {
        let (parser, error) = Parser::read(text);
        error.map_or_else(|| parser.finish(text), Err)
    }

    /// Reads the text form up to the first line that is wrong or missing, as a recording that was cut off leaves it. Bytes that were to
    /// come later are then lost: the program says so where they were used.
    pub fn recover(text: &str) -> (Self, Option<ParseError>) {
        let (parser, error) = Parser::read(text);
        let error = error.or_else(|| parser.truncated(text));
        parser.finish_anyway(error)
    }
}

/// What was read so far.
#[derive(Default)]
struct Parser {
    program: Program,
    checker: Checker,
    contents: HashMap<u32, Given>,
    /// Where contents are used that stand in lines of their own, with their lines.
    uses: Vec<Use>,
    used: hashbrown::HashSet<u32>,
    line: usize,
    ended: bool,
}

enum Given {
    Partly(Vec<u8>),
    Whole(Content),
}

struct Use {
    content: u32,
    line: usize,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Write(usize),
    Read(usize, usize),
    Source(usize),
}

impl Parser {
    /// Reads lines until one is wrong.
    fn read(text: &str) -> (Self, Option<ParseError>) {
        let mut parser = Self::default();
        for line in text.split('\n') {
            parser.line += 1;
            if let Err(defect) = parser.any_line(line) {
                let line = parser.line;
                return (parser, Some(ParseError { line, defect }));
            }
        }
        (parser, None)
    }

    fn any_line(&mut self, line: &str) -> Result {
        if line.len() > MAX_LINE {
            return Err(Defect::LineTooLong { length: line.len() });
        }
        if self.line == 1 {
            return first_line(line);
        }
        match line.bytes().next() {
            None | Some(b'#') => Ok(()),
            Some(_) if self.ended => Err(Defect::BehindTheEnd),
            Some(b'@') => self.content_line(Words::of(line)),
            Some(b'0'..=b'9') => self.step_line(Words::of(line)),
            Some(_) => {
                let mut words = Words::of(line);
                match words.next("word")? {
                    "config" => self.config_line(words),
                    "kernel" => self.kernel_line(words),
                    "end" => self.end_line(words),
                    other => {
                        Err(unknown("line", other, "config, kernel, a number and its step, @ and its bytes, end, #"))
                    }
                }
            }
        }
    }

    fn config_line(&mut self, mut words: Words<'_>) -> Result {
        let name = words.next("the name of a setting")?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
            return Err(unknown("name of a setting", name, "up to 64 letters, digits, dots, dashes and underscores"));
        }
        let value = quoted(words.next("the setting's value")?)?;
        words.end()?;
        self.program.config.push((name.to_string(), value));
        Ok(())
    }

    fn end_line(&mut self, mut words: Words<'_>) -> Result {
        let got = number("count of steps", words.next("the count of steps")?)?;
        words.end()?;
        let expected = self.program.steps.len() as u64;
        if got != expected {
            return Err(Defect::Size { what: "steps counted by the `end` line", got, expected });
        }
        self.ended = true;
        Ok(())
    }

    // ---- kernels

    fn kernel_line(&mut self, mut words: Words<'_>) -> Result {
        let place = self.program.kernels.len();
        let number: u64 = tagged("kernel", "k", words.next("a kernel's number")?, "k and a number, as in `k0`")?;
        if number != place as u64 {
            return Err(Defect::Size { what: "number of the next kernel", got: number, expected: place as u64 });
        }
        let name = quoted(words.next("the kernel's name")?)?;
        let workgroup = counts("workgroup size", words.next("the workgroup size")?)?;
        let mut interface = Interface::new();
        interface.parameters = sized("parameters", "parameters:", words.next("the bytes of parameters")?)?;
        if interface.parameters as usize > MAX_PARAMETERS {
            let (value, limit) = (interface.parameters.into(), MAX_PARAMETERS as u64);
            return Err(Defect::TooLarge { what: "the size of the parameters", value, limit });
        }
        interface.shared = sized("shared memory", "shared:", words.next("the bytes of shared memory")?)?;
        let source = words.next("the form of the source")?;
        let (form, content) = source.split_once("=@").map_or((source, None), |(form, number)| (form, Some(number)));
        let form: SourceForm = token::form(form)?;
        if let Some(content) = content {
            self.uses_content(content, Place::Source(place))?;
        }
        let mut constants = Vec::new();
        while let Some(word) = words.try_next() {
            match word {
                _ if interface.buffers.is_empty() && !interface.in_place && word.starts_with("constant:") => {
                    constants.push(read_constant(word)?);
                }
                "in-place" if interface.buffers.is_empty() && !interface.in_place => interface.in_place = true,
                _ if interface.buffers.len() == MAX_VIEWS => return Err(Defect::TooManyViews),
                _ => interface.buffers.push(read_buffer(word)?),
            }
        }
        self.program.kernels.push(KernelInfo { name, workgroup, interface, constants, form, source: None });
        Ok(())
    }

    // ---- content

    /// Notes where a content of a line of its own belongs.
    fn uses_content(&mut self, digits: &str, place: Place) -> Result {
        let content: u32 = number("content", digits)?;
        if !self.used.insert(content) {
            return Err(Defect::Twice { what: "use of the bytes", number: content.into() });
        }
        self.uses.push(Use { content, line: self.line, place });
        Ok(())
    }

    fn content_line(&mut self, mut words: Words<'_>) -> Result {
        let content: u32 = tagged("content", "@", words.next("a content's number")?, "@ and a number, as in `@0`")?;
        let twice = Defect::Twice { what: "content", number: content.into() };
        let verb = words.next("what the bytes are")?;
        match verb {
            "is" => {
                let whole = read_content(words.next("the content")?)?;
                if self.contents.insert(content, Given::Whole(whole)).is_some() {
                    return Err(twice);
                }
            }
            "more" | "text" | "end" => {
                let known = self.contents.entry(content).or_insert_with(|| Given::Partly(Vec::new()));
                let Given::Partly(bytes) = known else { return Err(twice) };
                let word = words.next("bytes, or how many there were")?;
                match verb {
                    "more" => bytes.extend(hex(strip("bytes", "hex:", word)?)?),
                    "text" => bytes.extend(quoted(word)?.bytes()),
                    _ => {
                        let (got, expected) = (bytes.len() as u64, number("count of bytes", word)?);
                        if got != expected {
                            return Err(Defect::Size { what: "bytes given", got, expected });
                        }
                        *known = Given::Whole(Content::Bytes(Arc::from(core::mem::take(bytes))));
                    }
                }
            }
            other => return Err(unknown("line of a content", other, "is, more, text, end")),
        }
        words.end()
    }

    /// The content of a word, which may stand in lines of its own: then nothing is known of it yet.
    fn content(&mut self, word: &str, place: Place) -> Result<Content> {
        match word.strip_prefix('@') {
            Some(number) => self.uses_content(number, place).map(|()| Content::Nothing),
            None => read_content(word),
        }
    }

    // ---- steps

    fn step_line(&mut self, mut words: Words<'_>) -> Result {
        let number = number("number of a step", words.next("a number")?)?;
        let stream = stream(words.next("a stream")?)?;
        let verb = words.next("a call")?;
        let call = self.call(verb, &mut words)?;
        words.end()?;
        let step = Step { number, stream, call };
        self.checker.step(&step, &self.program.kernels)?;
        self.program.steps.push(step);
        Ok(())
    }

    fn call(&mut self, verb: &str, words: &mut Words<'_>) -> Result<Call> {
        let place = self.program.steps.len();
        Ok(match verb {
            "reserve" => Call::Reserve {
                buffer: buffer(words.next("a buffer")?)?,
                size: number("size", words.next("the buffer's size")?)?,
                mode: token::mode(words.next("the allocation mode")?)?,
            },
            "free" => Call::Free { buffer: buffer(words.next("a buffer")?)? },
            "write" => Call::Write {
                target: view(words.next("the bytes of a buffer")?)?,
                content: self.content(words.next("what is written")?, Place::Write(place))?,
            },
            "read" => {
                let mut sources = Vec::new();
                while let Some(word) = words.try_next() {
                    if sources.len() == MAX_VIEWS {
                        return Err(Defect::TooManyViews);
                    }
                    // A view has no equals sign in it.
                    let (source, content) = word.split_once('=').map_or((word, None), |(a, b)| (a, Some(b)));
                    let at = Place::Read(place, sources.len());
                    let content = content.map(|word| self.content(word, at)).transpose()?;
                    sources.push((view(source)?, content));
                }
                Call::Read { sources }
            }
            "copy" => Call::Copy {
                source: view(words.next("where the bytes come from")?)?,
                target: view(words.next("where the bytes go")?)?,
            },
            "fill" => Call::Fill {
                target: view(words.next("the bytes of a buffer")?)?,
                pattern: {
                    let word = words.next("a pattern")?;
                    Pattern::new(&hex(word)?).map_err(|_| unknown("pattern", word, "1, 2, 4, 8 or 16 bytes"))?
                },
            },
            "launch" => self.launch(words).map(Call::Launch)?,
            "mark" => Call::Mark,
            "wait" => Call::Wait {
                stream: stream(words.next("the other stream")?)?,
                number: number("number", words.next("the number waited for")?)?,
            },
            "outside" => Call::Outside,
            "flush" => Call::Flush,
            "lost" => Call::Lost { why: quoted(words.next("what was lost")?)? },
            other => {
                let valid = "reserve, free, write, read, copy, fill, launch, mark, wait, outside, flush, lost";
                return Err(unknown("call", other, valid));
            }
        })
    }

    fn launch(&self, words: &mut Words<'_>) -> Result<LaunchCall> {
        let kernel = tagged("kernel", "k", words.next("a kernel")?, "k and a number, as in `k0`")?;
        let word = words.next("the workgroups")?;
        let counts = match word.bytes().next() {
            Some(b'0'..=b'9') => Counts::Static(counts("grid", word)?),
            _ => Counts::Dynamic(view(word)?),
        };
        let bounds = token::bounds(words.next("what happens out of bounds")?)?;
        let parameters = hex(strip("parameters", "parameters:", words.next("the parameters")?)?)?;
        let mut buffers = Vec::new();
        while let Some(word) = words.try_next() {
            if buffers.len() == MAX_VIEWS {
                return Err(Defect::TooManyViews);
            }
            buffers.push(view(word)?);
        }
        Ok(LaunchCall { kernel, counts, bounds, buffers, parameters })
    }

    // ---- the end

    fn truncated(&self, text: &str) -> Option<ParseError> {
        let line = self.line + usize::from(!text.ends_with('\n'));
        (!self.ended).then_some(ParseError { line, defect: Defect::Truncated })
    }

    /// Puts every content where it belongs.
    fn finish(mut self, text: &str) -> core::result::Result<Program, ParseError> {
        if let Some(error) = self.truncated(text) {
            return Err(error);
        }
        for Use { content, line, place } in core::mem::take(&mut self.uses) {
            let Some(Given::Whole(whole)) = self.contents.remove(&content) else {
                return Err(ParseError { line, defect: Defect::NoBytes { number: content } });
            };
            self.put(place, whole).map_err(|defect| ParseError { line, defect })?;
        }
        match self.unused() {
            None => Ok(self.program),
            Some(error) => Err(error),
        }
    }

    /// Bytes that were given and belong nowhere, once all others are where they belong.
    fn unused(&self) -> Option<ParseError> {
        let number = *self.contents.keys().min()?;
        let defect = Defect::NotKnown { what: "use of the bytes", number: number.into() };
        Some(ParseError { line: self.line, defect })
    }

    /// Puts the contents there are where they belong, and says of the others that they are lost.
    fn finish_anyway(mut self, mut error: Option<ParseError>) -> (Program, Option<ParseError>) {
        for Use { content, line, place } in core::mem::take(&mut self.uses) {
            let known = match self.contents.remove(&content) {
                Some(Given::Whole(whole)) => self.put(place, whole),
                _ => Err(Defect::NoBytes { number: content }),
            };
            if let Err(defect) = known {
                self.put(place, Content::Lost(defect.to_string())).ok();
                error.get_or_insert(ParseError { line, defect });
            }
        }
        let error = error.or_else(|| self.unused());
        (self.program, error)
    }

    fn put(&mut self, place: Place, whole: Content) -> Result {
        match place {
            Place::Source(place) => match (self.program.kernels.get_mut(place), whole) {
                (Some(kernel), Content::Bytes(source)) => kernel.source = Some(source),
                // What was lost needs the table.
                (_, Content::Lost(_)) => {}
                _ => return Err(unknown("source", "no bytes", "bytes")),
            },
            Place::Write(step) => {
                if let Some(Step { call: Call::Write { target, content }, .. }) = self.program.steps.get_mut(step) {
                    content_fits(&whole, target)?;
                    *content = whole;
                }
            }
            Place::Read(step, index) => {
                if let Some(Step { call: Call::Read { sources }, .. }) = self.program.steps.get_mut(step)
                    && let Some((view, content)) = sources.get_mut(index)
                {
                    content_fits(&whole, view)?;
                    *content = Some(whole);
                }
            }
        }
        Ok(())
    }
}

fn first_line(line: &str) -> Result {
    let Some(version) = line.strip_prefix("trunnion-program ") else {
        return Err(Defect::NotAProgram { found: cut(line) });
    };
    match number::<u32>("version", version) {
        Ok(VERSION) => Ok(()),
        _ => Err(Defect::UnknownVersion { found: cut(version) }),
    }
}

/// What follows a name that must be there.
fn strip<'a>(what: &'static str, name: &'static str, word: &'a str) -> Result<&'a str> {
    word.strip_prefix(name).ok_or_else(|| unknown(what, word, name))
}

fn sized(what: &'static str, name: &'static str, word: &str) -> Result<u32> {
    number(what, strip(what, name, word)?)
}

fn stream(word: &str) -> Result<u32> {
    tagged("stream", "s", word, "s and a number, as in `s0`")
}

fn buffer(word: &str) -> Result<u32> {
    tagged("buffer", "b", word, "b and a number, as in `b0`")
}

/// The content of a word.
fn read_content(word: &str) -> Result<Content> {
    let valid = "hex:…, repeat:…, random:…, none, failed:\"…\", lost:\"…\"";
    let wrong = || unknown("content", word, valid);
    if word == "none" {
        return Ok(Content::Nothing);
    }
    let (kind, rest) = word.split_once(':').ok_or_else(wrong)?;
    match kind {
        "hex" => hex(rest).map(|bytes| Content::Bytes(bytes.into())),
        "repeat" => match hex(rest)? {
            pattern if [1, 2, 4, 8, 16].contains(&pattern.len()) => Ok(Content::Repeat(pattern.into())),
            _ => Err(unknown("pattern", rest, "1, 2, 4, 8 or 16 bytes")),
        },
        "random" => number("seed", rest).map(Content::Random),
        "failed" => quoted(rest).map(Content::Failed),
        "lost" => quoted(rest).map(Content::Lost),
        _ => Err(wrong()),
    }
}

/// The view of a word: `b0[0..16]`, with rows `b0[0..16;4,2x8]`.
fn view(word: &str) -> Result<View> {
    if word == "empty" {
        return Ok(View::empty());
    }
    let wrong =
        || unknown("part of a buffer", word, "as in `b0[0..16]`, with rows as in `b0[0..64;4,2x8]`, or `empty`");
    let (name, inside) = word.strip_suffix(']').and_then(|rest| rest.split_once('[')).ok_or_else(wrong)?;
    let (range, rows) = inside.split_once(';').map_or((inside, None), |(range, rows)| (range, Some(rows)));
    let (start, end) = range.split_once("..").ok_or_else(wrong)?;
    let range = number("start of a range", start)?..number("end of a range", end)?;
    let rows = rows.map(read_rows).transpose()?;
    Ok(View { buffer: Some(buffer(name)?), range, rows })
}

fn read_rows(text: &str) -> Result<Rows> {
    let mut parts = text.split(',');
    let row = number("bytes of a row", parts.next().unwrap_or_default())?;
    let mut outer = Vec::new();
    for part in parts {
        if outer.len() == MAX_DIMENSIONS {
            return Err(Defect::Rows);
        }
        let wrong = || unknown("dimension of rows", part, "a count and a distance, as in `2x8`");
        let (count, stride) = part.split_once('x').ok_or_else(wrong)?;
        outer.push((number("count of rows", count)?, number("distance of rows", stride)?));
    }
    Ok(Rows { row, outer })
}

/// A constant of a kernel: `constant:"scale"=0.5`.
fn read_constant(word: &str) -> Result<(String, f64)> {
    let wrong = || unknown("constant of a kernel", word, "a name and a finite number, as in `constant:\"scale\"=0.5`");
    let (name, value) = word.strip_prefix("constant:").and_then(|rest| rest.rsplit_once('=')).ok_or_else(wrong)?;
    let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(wrong)?;
    Ok((quoted(name)?, value))
}

/// A buffer of a kernel: `readwrite/partition:256/0`.
fn read_buffer(word: &str) -> Result<BufferInterface> {
    let wrong = || unknown("buffer of a kernel", word, "as in `read/slice/0`, `overwrite/partition:256/4`");
    let mut parts = word.split('/');
    let mut next = || parts.next().ok_or_else(wrong);
    let access = token::access(next()?)?;
    let host = match next()? {
        "slice" => HostUse::Slice,
        "claim" => HostUse::Claim,
        "atomic" => HostUse::Atomic,
        other => HostUse::Partition(number("bytes of a part", other.strip_prefix("partition:").ok_or_else(wrong)?)?),
    };
    let min_size = number("fewest bytes of a buffer", next()?)?;
    if parts.next().is_some() || !host.fits(access) {
        return Err(wrong());
    }
    Ok(BufferInterface { access, host, min_size })
}
