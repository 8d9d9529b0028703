//! Compiled code as the driver takes it: PTX, which it compiles on, or a file for one kind of hardware.
//!
//! The driver is given a pointer and no length, so what is not whole would be read past its end. A file is therefore looked over before it
//! is handed on, and text ends with a zero.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ffi::c_void;

/// How an ELF file begins.
const ELF: &[u8] = b"\x7fELF";

/// How the archives begin that hold code for several kinds of hardware, as little-endian words; each with the place of its length behind
/// its header, and how long the header is.
const ARCHIVE: u32 = 0xBA55_ED50;

/// The machine of an ELF file for NVIDIA's hardware.
const EM_CUDA: u16 = 190;

/// A section without bytes in the file.
const SHT_NOBITS: u32 = 8;

/// Bytes of an ELF header of 64 bits.
const HEADER: usize = 64;

/// Code that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Image<'a> {
    /// PTX, with the zero that ends it.
    Ptx(Vec<u8>),
    /// A file for hardware.
    Binary(&'a [u8]),
}

impl<'a> Image<'a> {
    /// PTX.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn ptx(text: &[u8]) -> Result<Self, String> {
        let shown = core::str::from_utf8(text).map_err(|error| format!("the PTX is not UTF-8: {error}"))?;
        if let Some(at) = text.iter().position(|byte| *byte == 0) {
            return Err(format!("the PTX has a zero at byte {at} of {}", text.len()));
        }
        if directive(shown, ".version").is_none() || directive(shown, ".target").is_none() {
            return Err("the text has no `.version` and `.target`, as PTX begins".to_string());
        }
        Ok(Self::Ptx([text, &[0]].concat()))
    }

    /// A file for hardware, or an archive of such.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn binary(bytes: &'a [u8]) -> Result<Self, String> {
        match word(bytes, 0) {
            Some(ARCHIVE) => check_archive(bytes)?,
            _ if bytes.starts_with(ELF) => check_elf(bytes)?,
            _ => {
                let first: Vec<_> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
                return Err(format!(
                    "a CUDA binary begins as an ELF file, this one with the bytes [{}]",
                    first.join(" ")
                ));
            }
        }
        Ok(Self::Binary(bytes))
    }

    /// Code of either kind.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, String> {
        match bytes.starts_with(ELF) || word(bytes, 0) == Some(ARCHIVE) {
            true => Self::binary(bytes),
            false => Self::ptx(bytes),
        }
    }

    /// Where it begins, for the driver.
    pub(crate) fn pointer(&self) -> *const c_void {
        match self {
            Self::Ptx(text) => text.as_ptr().cast(),
            Self::Binary(bytes) => bytes.as_ptr().cast(),
        }
    }

    /// Bytes of it.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Ptx(text) => text.len() as u64,
            Self::Binary(bytes) => bytes.len() as u64,
        }
    }

    /// The version of PTX that it is written in, where it is text.
    pub(crate) fn version(&self) -> Option<&str> {
        directive(self.text()?, ".version")
    }

    /// What hardware it is for, where it is text.
    pub(crate) fn target(&self) -> Option<&str> {
        directive(self.text()?, ".target").map(|target| target.trim_end_matches(','))
    }

    /// The kernels in it, as far as that can be seen.
    pub(crate) fn entries(&self) -> Vec<&str> {
        match (self, self.text()) {
            (_, Some(text)) => {
                let mut entries = Vec::new();
                let mut words = code_words(text);
                while let Some(word) = words.next() {
                    if word == ".entry"
                        && let Some(name) = words.next()
                    {
                        entries.push(name);
                    }
                }
                entries
            }
            (Self::Binary(bytes), None) => {
                let name = |section: Section| elf_name(bytes, section)?.strip_prefix(".text.");
                sections(bytes).into_iter().flatten().filter_map(name).collect()
            }
            (Self::Ptx(_), None) => Vec::new(),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Ptx(text) => core::str::from_utf8(text).ok()?.strip_suffix('\0'),
            Self::Binary(_) => None,
        }
    }
}

/// What follows a directive of PTX.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut words = code_words(text);
    words.find(|word| *word == name)?;
    words.next()
}

/// The words of PTX outside comments.
fn code_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .flat_map(|line| line.split(|part: char| part.is_whitespace() || part == '(' || part == ';'))
        .filter(|word| !word.is_empty())
}

/// A part of an ELF file.
#[derive(Clone, Copy)]
struct Section {
    name: usize,
    kind: u32,
    offset: u64,
    size: u64,
}

fn check_elf(bytes: &[u8]) -> Result<(), String> {
    const CLASS_64: u8 = 2;
    const LITTLE: u8 = 1;
    if bytes.len() < HEADER {
        return Err(format!("the ELF file has {} bytes, a header alone {HEADER}", bytes.len()));
    }
    if bytes[4] != CLASS_64 || bytes[5] != LITTLE {
        return Err("the ELF file is not one of 64 bits, low bytes first".to_string());
    }
    match half(bytes, 18) {
        Some(EM_CUDA) => {}
        machine => return Err(format!("the ELF file is for machine {}, not {EM_CUDA}", machine.unwrap_or_default())),
    }
    let table = |at, size_at, what: &str| {
        let start = long(bytes, at).unwrap_or(u64::MAX);
        let (size, count) = (half(bytes, size_at).unwrap_or(0), half(bytes, size_at + 2).unwrap_or(0));
        within(bytes, start, u64::from(size) * u64::from(count), what)
    };
    table(32, 54, "its program headers")?;
    table(40, 58, "its section headers")?;
    let sections = sections(bytes).ok_or("the ELF file has section headers of an unknown size")?;
    for section in sections.iter().filter(|section| section.kind != SHT_NOBITS) {
        within(bytes, section.offset, section.size, "one of its sections")?;
    }
    Ok(())
}

fn check_archive(bytes: &[u8]) -> Result<(), String> {
    let header = half(bytes, 6).map_or(u64::MAX, u64::from);
    within(bytes, header, long(bytes, 8).unwrap_or(u64::MAX), "what its header announces")
}

fn within(bytes: &[u8], start: u64, size: u64, what: &str) -> Result<(), String> {
    match start.checked_add(size) {
        Some(end) if end <= bytes.len() as u64 => Ok(()),
        end => {
            let end = end.unwrap_or(u64::MAX);
            Err(format!("the file is cut off: {what} are bytes {start}..{end} of {}", bytes.len()))
        }
    }
}

/// The sections of an ELF file whose table lies in it.
fn sections(bytes: &[u8]) -> Option<Vec<Section>> {
    const ENTRY: usize = 64;
    if !bytes.starts_with(ELF) {
        return None;
    }
    let start = usize::try_from(long(bytes, 40)?).ok()?;
    let (size, count) = (usize::from(half(bytes, 58)?), usize::from(half(bytes, 60)?));
    if count > 0 && size != ENTRY {
        return None;
    }
    let section = |index: usize| {
        let at = start.checked_add(index * ENTRY)?;
        Some(Section {
            name: word(bytes, at)? as usize,
            kind: word(bytes, at + 4)?,
            offset: long(bytes, at + 24)?,
            size: long(bytes, at + 32)?,
        })
    };
    (0..count).map(section).collect()
}

fn elf_name(bytes: &[u8], section: Section) -> Option<&str> {
    let names = *sections(bytes)?.get(usize::from(half(bytes, 62)?))?;
    let start = usize::try_from(names.offset).ok()?.checked_add(section.name)?;
    let rest = bytes.get(start..)?;
    core::str::from_utf8(rest.split(|byte| *byte == 0).next()?).ok()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "// .version 1.0\n.version 9.0\n.target sm_90, debug\n.visible .entry one(\n)\n{ ret; }\n.entry two () { ret; }";

    /// An ELF file with a table of names and one kernel.
    fn elf() -> Vec<u8> {
        let names = b"\0.shstrtab\0.text.add\0";
        let mut bytes = alloc::vec![0; HEADER];
        bytes[..4].copy_from_slice(ELF);
        (bytes[4], bytes[5]) = (2, 1);
        bytes[18..20].copy_from_slice(&EM_CUDA.to_le_bytes());
        bytes.extend_from_slice(names);
        let table = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&table.to_le_bytes());
        bytes[58..60].copy_from_slice(&64_u16.to_le_bytes());
        bytes[60..62].copy_from_slice(&2_u16.to_le_bytes());
        for (name, kind, size) in [(1_u32, 3_u32, names.len() as u64), (11, 1, 4)] {
            let mut section = alloc::vec![0; 64];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&(HEADER as u64).to_le_bytes());
            section[32..40].copy_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&section);
        }
        bytes
    }

    #[test]
    fn ptx_says_its_version_its_target_and_its_kernels() {
        let image = Image::of(PTX.as_bytes()).unwrap();
        assert_eq!((image.version(), image.target()), (Some("9.0"), Some("sm_90")));
        assert_eq!(image.entries(), ["one", "two"]);
        assert!(matches!(&image, Image::Ptx(text) if text.ends_with(b"}\0")));
    }

    #[test]
    fn what_is_no_ptx_is_said_to_be_none() {
        for (text, why) in
            [(&b"hello"[..], "no `.version`"), (b".version 1.0\0", "zero at byte 12"), (b"\xFF", "UTF-8")]
        {
            let wrong = Image::of(text).unwrap_err();
            assert!(wrong.contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_binary_says_its_kernels() {
        let bytes = elf();
        assert_eq!(Image::of(&bytes).unwrap().entries(), ["add"]);
    }

    #[test]
    fn a_binary_that_is_cut_off_anywhere_is_refused() {
        let bytes = elf();
        for length in 0..bytes.len() {
            assert!(Image::binary(&bytes[..length]).is_err(), "{length} bytes");
        }
        let mut archive = [0; 32];
        archive[..4].copy_from_slice(&ARCHIVE.to_le_bytes());
        archive[6] = 16;
        archive[8] = 16;
        assert!(Image::of(&archive).is_ok());
        archive[8] = 17;
        assert!(Image::of(&archive).unwrap_err().contains("16..33 of 32"));
    }

    #[test]
    fn a_binary_whose_bytes_lie_is_refused() {
        for (at, value) in [(18, 62), (4, 1), (47, 1), (60, 200), (58, 1)] {
            let mut bytes = elf();
            bytes[at] = value;
            assert!(Image::binary(&bytes).is_err(), "byte {at}");
        }
        let mut bytes = elf();
        let last = bytes.len() - 64 + 39;
        bytes[last] = 0xFF;
        assert!(Image::binary(&bytes).unwrap_err().contains("one of its sections"));
        assert!(Image::binary(&b"MZ\x90\0"[..]).unwrap_err().contains("[4d 5a 90 00]"));
    }
}
