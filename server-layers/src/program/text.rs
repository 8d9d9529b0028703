//! Writing the text form, line by line: what `Display` of a program and the recorder share.

use super::content::{self, Content};
use super::kernels::KernelInfo;
use super::step::{Call, Counts, Program, Step, View};
use super::token::{access_name, bounds_name, form_name, mode_name, push_quoted};
use super::{MAX_TEXT, VERSION};
use alloc::string::{String, ToString};
use core::fmt::{self, Write};
use core::ops::Range;
use trunnion_runtime_core::kernel::{BufferInterface, HostUse};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Bounds;
use trunnion_runtime_core::sink::Sink;

/// The most bytes that stand in the line of their call.
const INLINE: usize = 1024;

/// The bytes in a line of their own.
const PIECE: usize = 8 << 10;

/// Writes a program to a sink. After the sink's first failure it writes nothing.
pub(crate) struct Writer<K> {
    sink: K,
    line: String,
    piece: String,
    contents: u32,
    kernels: u32,
    steps: u64,
    fault: Option<String>,
}

impl<K: Sink> Writer<K> {
    /// Writes the first line.
    pub(crate) fn new(sink: K) -> Self {
        let mut writer = Self::bare(sink);
        writer.put(|line| write!(line, "trunnion-program {VERSION}"));
        writer
    }

    /// Writes no first line.
    fn bare(sink: K) -> Self {
        let (line, piece) = (String::new(), String::new());
        Self { sink, line, piece, contents: 0, kernels: 0, steps: 0, fault: None }
    }

    /// Why the sink took no more.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// How many steps were written.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// See [`Sink::flush`].
    pub(crate) fn flush(&mut self) {
        if self.fault.is_none() {
            self.fault = self.sink.flush().err();
        }
    }

    /// Writes a line of its own, also while that of a step is being put together.
    fn put(&mut self, write: impl FnOnce(&mut String) -> fmt::Result) {
        self.piece.clear();
        // Writing to a string cannot fail.
        write(&mut self.piece).ok();
        if self.fault.is_none() {
            self.fault = self.sink.line(&self.piece).err();
        }
    }

    /// A line for people.
    pub(crate) fn comment(&mut self, text: &str) {
        self.put(|line| {
            text.chars().take(MAX_TEXT).filter(|c| !c.is_control()).try_fold((), |(), c| line.write_char(c))
        });
    }

    pub(crate) fn config(&mut self, name: &str, value: &str) {
        self.put(|line| {
            line.push_str("config ");
            let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
            line.extend(name.chars().take(MAX_NAME).map(plain));
            line.push(' ');
            push_quoted(line, value);
            Ok(())
        });
    }

    /// Writes a kernel and what is needed to know it; says its place.
    pub(crate) fn kernel(&mut self, kernel: &KernelInfo) -> u32 {
        let source = kernel.source.as_deref().map(|source| match kernel.text() {
            Some(text) => self.text(text),
            None => self.pieces(source),
        });
        let place = self.kernels;
        self.kernels += 1;
        self.put(|line| {
            let [x, y, z] = kernel.workgroup;
            write!(line, "kernel k{place} ")?;
            push_quoted(line, &kernel.name);
            let interface = &kernel.interface;
            write!(line, " {x}x{y}x{z} parameters:{} shared:{}", interface.parameters, interface.shared)?;
            // A form that came after this version of the text is written as one that needs the table.
            write!(line, " {}", form_name(kernel.form).unwrap_or("host"))?;
            source.map_or(Ok(()), |number| write!(line, "=@{number}"))?;
            for (name, value) in &kernel.constants {
                line.push_str(" constant:");
                push_quoted(line, name);
                write!(line, "={value:?}")?;
            }
            if interface.in_place {
                line.push_str(" in-place");
            }
            interface.buffers.iter().try_for_each(|buffer| write_buffer(line, buffer))
        });
        place
    }

    // ---- content

    fn new_content(&mut self) -> u32 {
        let number = self.contents;
        self.contents += 1;
        number
    }

    /// Writes text as content of its own, in lines where it has lines.
    fn text(&mut self, text: &str) -> u32 {
        let number = self.new_content();
        for line in text.split_inclusive('\n') {
            let mut rest = line;
            while !rest.is_empty() {
                let mut end = rest.len().min(MAX_TEXT);
                while !rest.is_char_boundary(end) {
                    end -= 1;
                }
                let (piece, after) = rest.split_at(end);
                rest = after;
                self.put(|line| {
                    write!(line, "@{number} text ")?;
                    push_quoted(line, piece);
                    Ok(())
                });
            }
        }
        self.put(|line| write!(line, "@{number} end {}", text.len()));
        number
    }

    /// Writes bytes as content of its own.
    fn pieces(&mut self, bytes: &[u8]) -> u32 {
        let number = self.new_content();
        bytes.chunks(PIECE).for_each(|piece| self.more(number, piece));
        self.all(number, bytes.len() as u64);
        number
    }

    /// More bytes of a content.
    pub(crate) fn more(&mut self, number: u32, bytes: &[u8]) {
        self.put(|line| {
            write!(line, "@{number} more hex:")?;
            content::push_hex(line, bytes);
            Ok(())
        });
    }

    /// A content's bytes were written, so many.
    pub(crate) fn all(&mut self, number: u32, length: u64) {
        self.put(|line| write!(line, "@{number} end {length}"));
    }

    /// A content is known.
    pub(crate) fn given(&mut self, number: u32, bytes: &[u8]) {
        let pattern = content::repeated(bytes);
        if pattern.is_none() && bytes.len() > INLINE {
            bytes.chunks(PIECE).for_each(|piece| self.more(number, piece));
            return self.all(number, bytes.len() as u64);
        }
        self.put(|line| {
            write!(line, "@{number} is ")?;
            push_bytes(line, bytes, pattern);
            Ok(())
        });
    }

    /// A content is what it is, without bytes.
    pub(crate) fn given_as(&mut self, number: u32, content: &Content) {
        self.put(|line| {
            write!(line, "@{number} is ")?;
            push_content(line, content);
            Ok(())
        });
    }

    // ---- steps, word by word

    pub(crate) fn start(&mut self, number: u64, stream: u32, verb: &str) {
        self.line.clear();
        write!(self.line, "{number} s{stream} {verb}").ok();
    }

    /// One more word of the step's line.
    pub(crate) fn word(&mut self, word: fmt::Arguments<'_>) {
        self.line.push(' ');
        self.line.write_fmt(word).ok();
    }

    pub(crate) fn quoted(&mut self, text: &str) {
        self.line.push(' ');
        push_quoted(&mut self.line, text);
    }

    pub(crate) fn bounds(&mut self, bounds: Bounds) {
        self.word(format_args!("{}", bounds_name(bounds).unwrap_or("checked")));
    }

    pub(crate) fn hex(&mut self, tag: &str, bytes: &[u8]) {
        self.line.push(' ');
        self.line.push_str(tag);
        content::push_hex(&mut self.line, bytes);
    }

    pub(crate) fn view(&mut self, buffer: Option<u32>, range: &Range<u64>, rows: Option<&Rows>) {
        let line = &mut self.line;
        line.push(' ');
        let Some(buffer) = buffer else { return line.push_str("empty") };
        let written = write!(line, "b{buffer}[{}..{}", range.start, range.end).and_then(|()| match rows {
            None => Ok(()),
            Some(rows) => {
                write!(line, ";{}", rows.row)?;
                rows.outer.iter().try_for_each(|(count, stride)| write!(line, ",{count}x{stride}"))
            }
        });
        written.ok();
        line.push(']');
    }

    /// Bytes, behind `mark`: in the line where they are few, else in lines before it.
    pub(crate) fn bytes(&mut self, mark: char, bytes: &[u8]) {
        self.bytes_as(mark, bytes, content::repeated(bytes));
    }

    fn bytes_as(&mut self, mark: char, bytes: &[u8], pattern: Option<&[u8]>) {
        let number = (pattern.is_none() && bytes.len() > INLINE).then(|| self.pieces(bytes));
        self.line.push(mark);
        match number {
            Some(number) => _ = write!(self.line, "@{number}"),
            None => push_bytes(&mut self.line, bytes, pattern),
        }
    }

    /// Bytes that are given later, by the number answered, behind `mark`.
    pub(crate) fn later(&mut self, mark: char) -> u32 {
        let number = self.new_content();
        self.line.push(mark);
        write!(self.line, "@{number}").ok();
        number
    }

    /// A content, behind `mark`.
    pub(crate) fn content(&mut self, mark: char, content: &Content) {
        match content {
            Content::Bytes(bytes) => self.bytes_as(mark, bytes, None),
            other => {
                self.line.push(mark);
                push_content(&mut self.line, other);
            }
        }
    }

    /// The step's line is complete.
    pub(crate) fn finish(&mut self) {
        self.steps += 1;
        if self.fault.is_none() {
            self.fault = self.sink.line(&self.line).err();
        }
    }

    /// A whole step.
    pub(crate) fn step(&mut self, step: &Step) {
        self.start(step.number, step.stream, step.call.verb());
        match &step.call {
            Call::Reserve { buffer, size, mode } => {
                self.word(format_args!("b{buffer} {size} {}", mode_name(*mode).unwrap_or("auto")))
            }
            Call::Free { buffer } => self.word(format_args!("b{buffer}")),
            Call::Write { target, content } => {
                self.whole(target);
                self.content(' ', content);
            }
            Call::Read { sources } => {
                for (view, content) in sources {
                    self.whole(view);
                    if let Some(content) = content {
                        self.content('=', content);
                    }
                }
            }
            Call::Copy { source, target } => {
                self.whole(source);
                self.whole(target);
            }
            Call::Fill { target, pattern } => {
                self.whole(target);
                self.hex("", pattern.bytes());
            }
            Call::Launch(launch) => {
                self.word(format_args!("k{}", launch.kernel));
                match &launch.counts {
                    Counts::Static([x, y, z]) => self.word(format_args!("{x}x{y}x{z}")),
                    Counts::Dynamic(view) => self.whole(view),
                }
                self.bounds(launch.bounds);
                self.hex("parameters:", &launch.parameters);
                launch.buffers.iter().for_each(|view| self.whole(view));
            }
            Call::Wait { stream, number } => self.word(format_args!("s{stream} {number}")),
            Call::Lost { why } => self.quoted(why),
            Call::Mark | Call::Outside | Call::Flush => {}
        }
        self.finish();
    }

    fn whole(&mut self, view: &View) {
        self.view(view.buffer, &view.range, view.rows.as_ref());
    }

    /// Writes the last line.
    pub(crate) fn end(&mut self) {
        let steps = self.steps;
        self.put(|line| write!(line, "end {steps}"));
        self.flush();
    }
}

/// The longest name of a setting.
pub(super) const MAX_NAME: usize = 64;

fn write_buffer(line: &mut String, buffer: &BufferInterface) -> fmt::Result {
    write!(line, " {}/", access_name(buffer.access).unwrap_or("readwrite"))?;
    match buffer.host {
        HostUse::Slice => line.write_str("slice")?,
        HostUse::Partition(bytes) => write!(line, "partition:{bytes}")?,
        HostUse::Claim => line.write_str("claim")?,
        HostUse::Atomic => line.write_str("atomic")?,
    }
    write!(line, "/{}", buffer.min_size)
}

fn push_bytes(line: &mut String, bytes: &[u8], pattern: Option<&[u8]>) {
    line.push_str(if pattern.is_some() { "repeat:" } else { "hex:" });
    content::push_hex(line, pattern.unwrap_or(bytes));
}

fn push_content(line: &mut String, content: &Content) {
    match content {
        Content::Bytes(bytes) => push_bytes(line, bytes, None),
        Content::Repeat(pattern) => push_bytes(line, pattern, Some(pattern)),
        Content::Random(seed) => _ = write!(line, "random:{seed}"),
        Content::Nothing => line.push_str("none"),
        Content::Failed(message) => {
            line.push_str("failed:");
            push_quoted(line, message);
        }
        Content::Lost(why) => {
            line.push_str("lost:");
            push_quoted(line, why);
        }
    }
}

struct Lines<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Sink for Lines<'_, '_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.0, "{line}").map_err(|error| error.to_string())
    }
}

/// The step's lines in the text form, those with its bytes first.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer::bare(Lines(f));
        writer.step(self);
        writer.fault().map_or(Ok(()), |_| Err(fmt::Error))
    }
}

/// The text form.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer::new(Lines(f));
        self.config.iter().for_each(|(name, value)| writer.config(name, value));
        self.kernels.iter().for_each(|kernel| _ = writer.kernel(kernel));
        self.steps.iter().for_each(|step| writer.step(step));
        writer.end();
        writer.fault().map_or(Ok(()), |_| Err(fmt::Error))
    }
}
