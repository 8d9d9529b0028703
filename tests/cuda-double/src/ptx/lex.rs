//! Words of PTX text, each with the line it stands on. Comments are gone after this.

/// What a word is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A name, a directive, an opcode or a number: letters, digits and `_ . % $ ::`.
    Word,
    /// One character of punctuation.
    Mark,
    /// A quoted text, without its quotes.
    Quoted,
}

/// One word of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) kind: Kind,
    /// Counted from 1, as compilers do.
    pub(crate) line: u32,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != Kind::Quoted && self.text == text
    }
}

/// What is wrong with a text, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SyntaxError {
    pub(crate) line: u32,
    pub(crate) what: String,
}

impl SyntaxError {
    pub(crate) fn new(line: u32, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'%' | b'$')
}

/// Splits a text into its words.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, SyntaxError> {
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = &bytes[at..];
        match rest[0] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            byte if byte.is_ascii_whitespace() => at += 1,
            b'/' if rest.starts_with(b"//") => at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with(b"/*") => {
                let end = text[at + 2..].find("*/").ok_or_else(|| SyntaxError::new(line, "a comment has no end"))?;
                line += text[at..at + 2 + end].matches('\n').count() as u32;
                at += end + 4;
            }
            b'"' => {
                let end = text[at + 1..].find('"').ok_or_else(|| SyntaxError::new(line, "a quoted text has no end"))?;
                found.push(Token { text: &text[at + 1..at + 1 + end], kind: Kind::Quoted, line });
                at += end + 2;
            }
            byte if is_word(byte) => {
                let start = at;
                // Two colons belong to the word (`.shared::cta`), one ends a label.
                while at < bytes.len() && (is_word(bytes[at]) || bytes[at..].starts_with(b"::")) {
                    at += if bytes[at] == b':' { 2 } else { 1 };
                }
                found.push(Token { text: &text[start..at], kind: Kind::Word, line });
            }
            byte if byte.is_ascii_punctuation() => {
                found.push(Token { text: &text[at..at + 1], kind: Kind::Mark, line });
                at += 1;
            }
            byte => return Err(SyntaxError::new(line, format!("the byte 0x{byte:02x} belongs to no word"))),
        }
    }
    Ok(found)
}

/// The words that are still to be read.
pub(crate) struct Words<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'t, 'a> Words<'t, 'a> {
    pub(crate) fn new(tokens: &'t [Token<'a>]) -> Self {
        Self { tokens, at: 0 }
    }

    /// The line of the next word, or of the last one at the end.
    pub(crate) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |token| token.line)
    }

    pub(crate) fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    pub(crate) fn peek_second(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at + 1).copied()
    }

    pub(crate) fn is_next(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| token.is(text))
    }

    pub(crate) fn next(&mut self) -> Result<Token<'a>, SyntaxError> {
        let token = self.peek().ok_or_else(|| SyntaxError::new(self.line(), "the text ends early"))?;
        self.at += 1;
        Ok(token)
    }

    /// Takes the next word if it is `text`.
    pub(crate) fn take(&mut self, text: &str) -> bool {
        let is = self.is_next(text);
        self.at += usize::from(is);
        is
    }

    pub(crate) fn expect(&mut self, text: &str) -> Result<(), SyntaxError> {
        let token = self.next()?;
        if token.is(text) {
            return Ok(());
        }
        Err(SyntaxError::new(token.line, format!("`{text}` was expected and `{}` found", token.text)))
    }

    pub(crate) fn integer(&mut self) -> Result<u64, SyntaxError> {
        let token = self.next()?;
        super::constants::unsigned(token.text)
            .ok_or_else(|| SyntaxError::new(token.line, format!("a number was expected and `{}` found", token.text)))
    }

    /// Everything up to the next `;`, which is taken too.
    pub(crate) fn until_semicolon(&mut self) -> Result<&'t [Token<'a>], SyntaxError> {
        let start = self.at;
        while !self.next()?.is(";") {}
        Ok(&self.tokens[start..self.at - 1])
    }

    /// Everything inside the braces that open here; nothing of it is read.
    pub(crate) fn braces(&mut self) -> Result<&'t [Token<'a>], SyntaxError> {
        self.expect("{")?;
        let (start, mut depth) = (self.at, 1);
        while depth > 0 {
            let token = self.next()?;
            if token.is("{") {
                depth += 1;
            } else if token.is("}") {
                depth -= 1;
            }
        }
        Ok(&self.tokens[start..self.at - 1])
    }

    /// Skips the rest of a line, for the directives that end with one.
    pub(crate) fn skip_line(&mut self) {
        let line = self.line();
        while self.peek().is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }
}
