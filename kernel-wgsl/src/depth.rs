//! How deep a text goes, as the stack that reading it takes. The compiler calls itself for what is inside something else, and does not
//! count all of it: a long sum is a tree as deep as it is long. Counted here before, so that no text ends the process.
//!
//! The costs are what calls measured without optimisation take, rounded up; optimised they take a fraction.

/// What reading anything takes, in bytes.
const ANYTHING: usize = 160 << 10;
/// What a block adds that is inside another one, or behind another's `else`.
const BLOCK: usize = 40 << 10;
/// What a bracket adds that is inside another one.
const BRACKET: usize = 16 << 10;
/// What an operator adds, an index or a member, for each further one of the same expression.
const OPERATOR: usize = 8 << 10;
/// What a declaration adds, each of which may be behind the next.
const DECLARATION: usize = 1 << 10;

/// How much stack a text takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depth {
    /// In bytes, at most.
    pub(crate) stack: usize,
    /// The line where it goes deepest, from 1.
    pub(crate) line: u32,
}

/// What is open at a place of the text: a bracket, and what came behind it.
#[derive(Clone, Copy, Default)]
struct Level {
    bracket: usize,
    /// Operators since the expression began, and blocks since the first of a chain of `else`.
    chain: usize,
    /// Templates that were not closed, or comparisons.
    templates: usize,
}

impl Level {
    fn all(self) -> usize {
        self.bracket + self.chain + self.templates
    }
}

struct Scan {
    /// Those around, the outermost first, and the innermost.
    around: alloc::vec::Vec<Level>,
    level: Level,
    /// What those around take.
    outside: usize,
    /// A block has just ended.
    block_ended: bool,
    declarations: usize,
    deepest: usize,
    line: u32,
    deepest_line: u32,
}

impl Depth {
    pub(crate) fn of(text: &str) -> Self {
        let mut scan = Scan {
            around: alloc::vec::Vec::new(),
            level: Level::default(),
            outside: 0,
            block_ended: false,
            declarations: 1,
            deepest: 0,
            line: 1,
            deepest_line: 1,
        };
        let mut rest = text.as_bytes();
        while let [first, ..] = rest {
            let length = match first {
                b'\n' => {
                    scan.line = scan.line.saturating_add(1);
                    1
                }
                byte if byte.is_ascii_whitespace() => 1,
                b'/' if rest.starts_with(b"//") => line_comment(rest),
                b'/' if rest.starts_with(b"/*") => {
                    let length = block_comment(rest);
                    let lines = rest[..length].iter().filter(|byte| **byte == b'\n').count();
                    scan.line = scan.line.saturating_add(lines as u32);
                    length
                }
                _ => {
                    let length = word(rest);
                    scan.token(&rest[..length]);
                    length
                }
            };
            rest = &rest[length..];
        }
        let stack = ANYTHING + scan.deepest + scan.declarations.saturating_mul(DECLARATION);
        Self { stack, line: scan.deepest_line }
    }
}

impl Scan {
    fn token(&mut self, token: &[u8]) {
        if core::mem::take(&mut self.block_ended) {
            if token == b"else" {
                return self.add(BLOCK);
            }
            self.begin_anew();
        }
        match token {
            b"{" => self.open(BLOCK),
            b"(" | b"[" => self.open(BRACKET),
            b")" => self.close(),
            // What is indexed is inside the index, as an operand is inside its operator.
            b"]" => {
                self.close();
                self.add(OPERATOR);
            }
            b"}" => {
                self.close();
                self.block_ended = true;
                self.declared();
            }
            b";" => {
                self.begin_anew();
                self.declared();
            }
            b"," => self.level.chain = 0,
            b"<" => {
                self.level.templates += OPERATOR;
                self.deeper();
            }
            b">" => self.level.templates = self.level.templates.saturating_sub(OPERATOR),
            b"+" | b"-" | b"*" | b"/" | b"%" | b"&" | b"|" | b"^" | b"!" | b"~" | b"." => self.add(OPERATOR),
            _ => {}
        }
    }

    fn open(&mut self, bracket: usize) {
        self.around.push(self.level);
        self.outside += self.level.all();
        self.level = Level { bracket, ..Level::default() };
        self.deeper();
    }

    /// What closes nothing is an error that the compiler finds.
    fn close(&mut self) {
        if let Some(level) = self.around.pop() {
            self.outside -= level.all();
            self.level = level;
        }
    }

    fn add(&mut self, cost: usize) {
        self.level.chain += cost;
        self.deeper();
    }

    fn begin_anew(&mut self) {
        (self.level.chain, self.level.templates) = (0, 0);
    }

    fn declared(&mut self) {
        self.declarations += usize::from(self.around.is_empty());
    }

    fn deeper(&mut self) {
        let depth = self.outside + self.level.all();
        if depth > self.deepest {
            (self.deepest, self.deepest_line) = (depth, self.line);
        }
    }
}

/// The bytes of a name, of a number, or of a single character.
fn word(text: &[u8]) -> usize {
    let number = text[0].is_ascii_digit() || (text[0] == b'.' && text.get(1).is_some_and(u8::is_ascii_digit));
    let mut end = 1;
    while let Some(byte) = text.get(end) {
        let last = text[end - 1].to_ascii_lowercase();
        let more = match byte {
            b'.' => number,
            // An exponent's sign, but behind a hexadecimal digit.
            b'+' | b'-' => number && (last == b'p' || (last == b'e' && !text[..end].contains(&b'x'))),
            byte => (number || is_name(text[0])) && is_name(*byte),
        };
        if !more {
            break;
        }
        end += 1;
    }
    end
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Up to the end of the line, whichever character ends it.
fn line_comment(text: &[u8]) -> usize {
    let ends = |at: &usize| match text[*at] {
        0x0A..=0x0D => true,
        0xC2 => text.get(at + 1) == Some(&0x85),
        0xE2 => matches!(text.get(at + 1..at + 3), Some([0x80, 0xA8 | 0xA9])),
        _ => false,
    };
    (0..text.len()).find(ends).unwrap_or(text.len())
}

/// Up to the end of the comment, which may have others inside.
fn block_comment(text: &[u8]) -> usize {
    let (mut open, mut at) = (0_usize, 0);
    while at < text.len() {
        match text[at..] {
            [b'/', b'*', ..] => (open, at) = (open + 1, at + 2),
            [b'*', b'/', ..] => (open, at) = (open - 1, at + 2),
            _ => at += 1,
        }
        if open == 0 {
            return at;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// What a text takes beside what all take.
    fn cost(text: &str) -> usize {
        Depth::of(text).stack - Depth::of("").stack
    }

    #[test]
    fn what_is_inside_something_else_adds_up_and_what_is_beside_it_does_not() {
        assert_eq!(cost("fn f() { { { } } }"), 3 * BLOCK + DECLARATION);
        assert_eq!(cost("fn f() { { } { } { } }"), 2 * BLOCK + DECLARATION);
        assert_eq!(cost("((()))"), 3 * BRACKET);
        assert_eq!(cost("x = a + b * -c; y = d + e;"), 3 * OPERATOR + 2 * DECLARATION);
        assert_eq!(cost("f(a + b, c + d, e.x)"), BRACKET + OPERATOR);
        assert_eq!(cost("a[i][j][k]"), 2 * OPERATOR + BRACKET);
    }

    #[test]
    fn a_chain_of_else_is_as_deep_as_it_is_long() {
        let chain = |n: usize| cost(&format!("{{ if a {{ }} {} ; }}", "else if b { }".repeat(n)));
        assert_eq!(chain(10) - chain(5), 5 * BLOCK);
        assert_eq!(cost("{ if a { } else { } if a { } else { } }"), cost("{ if a { } else { } }"));
    }

    #[test]
    fn numbers_templates_and_comments_are_not_deep() {
        assert_eq!(cost(&format!("array<f32, 9>({})", "-1.5e-3, 0x1p+4, .5, 0xAe".repeat(9))), OPERATOR + BRACKET);
        assert_eq!(cost(&"vec2<f32>(1, 2), ".repeat(99)), BRACKET.max(OPERATOR));
        assert_eq!(cost("/* ((( /* {{{ */ --- */ // ((( {{{"), 0);
        assert_eq!(cost("0xe+1+1"), 2 * OPERATOR);
    }

    #[test]
    fn a_comment_hides_nothing_that_the_compiler_may_see() {
        for end in ["\n", "\r", "\u{85}", "\u{2028}", "\u{2029}", "\u{b}", "\u{c}"] {
            assert_eq!(cost(&format!("// {end} (((")), 3 * BRACKET, "{end:?}");
        }
    }

    #[test]
    fn the_deepest_line_is_named() {
        assert_eq!(Depth::of("(\n/*\n*/ ((\n)) (\n)").line, 3);
        assert_eq!(Depth::of("").line, 1);
    }

    #[test]
    fn brackets_that_close_nothing_are_passed_over() {
        assert_eq!(cost(")]}("), BRACKET + DECLARATION);
    }
}
