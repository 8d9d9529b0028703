//! The text form: what is written comes back, and what is damaged is refused with its line.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

use proptest::prelude::*;
use std::sync::Arc;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::kernel::{HostUse, Interface};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::{Bounds, Pattern};
use trunnion_server_layers::program::{
    Call, Content, Counts, Defect, KernelInfo, LaunchCall, MAX_LINE, MAX_TEXT, MAX_VIEWS, ParseError, Program, Step,
    VERSION, View,
};

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    fn text(&mut self) -> String {
        const PARTS: [&str; 10] = ["a", " ", "\"", "\\", "\n", "\u{0}", "é", "\u{1F600}", "=", "@0"];
        (0..self.below(12)).map(|_| PARTS[self.below(10) as usize]).collect()
    }

    fn mode(&mut self) -> AllocationMode {
        [AllocationMode::Auto, AllocationMode::Persistent, AllocationMode::Dedicated][self.below(3) as usize]
    }

    fn content(&mut self, size: u64) -> Content {
        match self.below(8) {
            0 => Content::Random(self.below(u32::MAX.into())),
            1 => Content::Nothing,
            2 => Content::Failed(self.text()),
            3 => Content::Lost(self.text()),
            4 if size.is_multiple_of(4) => Content::Repeat(self.bytes(4).into()),
            _ => Content::Bytes(self.bytes(size).into()),
        }
    }

    fn kernel(&mut self) -> KernelInfo {
        let mut interface = Interface::new().parameters(self.below(64) as u32).shared(self.below(9) as u32);
        if self.below(2) == 0 {
            interface = interface.in_place();
        }
        for _ in 0..self.below(5) {
            interface = match self.below(5) {
                0 => interface.read(),
                1 => interface.partition(self.below(999)),
                2 => interface.claim(Access::Write),
                3 => interface.atomic(),
                _ => interface.buffer(Access::Overwrite, HostUse::Partition(4)).at_least(self.below(99)),
            };
        }
        let (form, source) = match self.below(4) {
            0 => (SourceForm::Host, None),
            1 => (SourceForm::Wgsl, Some(Arc::from("fn main() {\n\t\"ü\"\n}\n".as_bytes()))),
            2 => (SourceForm::SpirV, Some(self.bytes(20_000).into())),
            _ => (SourceForm::Cubin, Some(Arc::from([]))),
        };
        let workgroup = [self.below(65) as u32, 1, 2];
        let constants = (0..self.below(3)).map(|_| (self.text(), self.below(999) as f64 / -7e-30)).collect();
        KernelInfo { name: self.text(), workgroup, interface, constants, form, source }
    }

    fn view(&mut self, buffers: &[(u32, u64)]) -> View {
        if self.below(9) == 0 {
            return View::empty();
        }
        let (buffer, size) = buffers[self.below(buffers.len() as u64) as usize];
        let start = self.below(size + 1);
        View::new(buffer, start..start + self.below(size - start + 1))
    }

    /// A view of which some are only rows.
    fn rows(&mut self, buffers: &[(u32, u64)]) -> View {
        let mut view = self.view(buffers);
        let size = view.size();
        if size >= 24 && self.below(2) == 0 {
            view.rows = Some(Rows { row: self.below(5), outer: vec![(2, 12), (1, 99), (2, 5)] });
        }
        view
    }

    fn program(&mut self) -> Program {
        let mut program = Program::default();
        for i in 0..self.below(4) {
            program.config.push((format!("setting.{i}_a-b"), self.text()));
        }
        for _ in 0..self.below(4) {
            program.kernels.push(self.kernel());
        }
        let mut buffers = vec![(7, 4000)];
        let mut number = self.below(5);
        let first = Call::Reserve { buffer: 7, size: 4000, mode: AllocationMode::Auto };
        program.steps.push(Step { number, stream: 0, call: first });
        for i in 0..self.below(60) as u32 {
            let call = match self.below(13) {
                0 | 1 => {
                    let size = self.below(6000);
                    buffers.push((10 + i, size));
                    Call::Reserve { buffer: 10 + i, size, mode: self.mode() }
                }
                2 if buffers.len() > 1 => {
                    let place = self.below(buffers.len() as u64) as usize;
                    Call::Free { buffer: buffers.swap_remove(place).0 }
                }
                3 | 4 => {
                    let target = self.rows(&buffers);
                    let content = self.content(target.size());
                    Call::Write { target, content }
                }
                5 => {
                    let views: Vec<_> = (0..self.below(4)).map(|_| self.rows(&buffers)).collect();
                    let mut with = |view: View| {
                        let content = (self.below(2) == 0).then(|| self.content(view.size()));
                        (view, content)
                    };
                    Call::Read { sources: views.into_iter().map(&mut with).collect() }
                }
                6 => {
                    let view = self.view(&buffers);
                    Call::Copy { source: view.clone(), target: view }
                }
                7 => Call::Fill { target: self.view(&buffers), pattern: Pattern::new(&self.bytes(1)).unwrap() },
                8 if !program.kernels.is_empty() => {
                    let kernel = self.below(program.kernels.len() as u64) as u32;
                    let interface = program.kernels[kernel as usize].interface.clone();
                    Call::Launch(LaunchCall {
                        kernel,
                        counts: match self.below(2) {
                            0 => Counts::Static([self.below(99) as u32, 1, 0]),
                            _ => Counts::Dynamic(self.view(&buffers)),
                        },
                        bounds: [Bounds::Checked, Bounds::Unchecked, Bounds::Validated][self.below(3) as usize],
                        buffers: interface.buffers.iter().map(|_| self.view(&buffers)).collect(),
                        parameters: self.bytes(interface.parameters.into()),
                    })
                }
                9 => Call::Wait { stream: self.below(9) as u32, number: self.below(99) },
                10 => Call::Outside,
                11 => Call::Flush,
                12 => Call::Lost { why: self.text() },
                _ => Call::Mark,
            };
            number += self.below(3);
            program.steps.push(Step { number, stream: self.below(5) as u32, call });
        }
        program
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_comes_back(seed: u64) {
        let program = Random(seed).program();
        prop_assert_eq!(program.check(), Ok(()));
        let text = program.to_string();
        prop_assert!(text.lines().all(|line| line.len() <= MAX_LINE));
        prop_assert_eq!(Program::parse(&text), Ok(program.clone()));
        prop_assert_eq!(Program::recover(&text), (program, None));
    }

    #[test]
    fn a_text_that_is_cut_off_is_refused_and_recovered_to_a_program(seed: u64, at: prop::sample::Index) {
        let mut random = Random(seed);
        let text = random.program().to_string();
        let mut end = at.index(text.len() - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // Without its last line end alone it is still whole.
        let cut = &text[..end];
        let lines = cut.split('\n').count();
        match Program::parse(cut) {
            Ok(_) => prop_assert_eq!(cut, text.trim_end()),
            Err(ParseError { line, .. }) => prop_assert!(line <= lines + 1),
        }
        let (recovered, error) = Program::recover(cut);
        prop_assert_eq!(recovered.check(), Ok(()));
        prop_assert_eq!(error.is_none(), cut == text.trim_end());
        prop_assert_eq!(Program::parse(&recovered.to_string()), Ok(recovered));
    }

    #[test]
    fn a_damaged_text_is_refused_or_is_another_program(
        seed: u64,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = Random(seed).program().to_string().into_bytes();
        for (at, byte) in edits {
            // Often something that has a meaning somewhere.
            let known = b" \n\"\\@:=[].0919sbk;x,/-";
            let at = at.index(bytes.len());
            match byte {
                0..=9 => _ = bytes.remove(at),
                10..=150 => bytes[at] = known[usize::from(byte) % known.len()],
                byte => bytes.insert(at, byte),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(program) = Program::parse(&text) {
            prop_assert_eq!(program.check(), Ok(()));
            prop_assert_eq!(Program::parse(&program.to_string()), Ok(program));
        }
        let (recovered, _) = Program::recover(&text);
        prop_assert_eq!(recovered.check(), Ok(()));
    }
}

const SMALL: &str = "\
trunnion-program 1
# made by hand
config seed \"7\"
kernel k0 \"step\" 64x1x1 parameters:4 shared:0 host readwrite/partition:256/0
1 s0 reserve b0 512 auto
2 s0 write b0[0..512] @0
@0 more hex:0011
@0 end 2
3 s1 launch k0 2x1x1 checked parameters:01000000 b0[0..512]
4 s1 read b0[0..512]=repeat:0a
end 4
";

fn parsed(from: &str, to: &str) -> Result<Program, ParseError> {
    assert_eq!(SMALL.matches(from).count(), 1, "{from}");
    Program::parse(&SMALL.replace(from, to))
}

#[test]
fn every_damage_is_named_with_its_line() {
    let cases: &[(&str, &str, usize, &str)] = &[
        ("trunnion-program 1", "trunnion-program 2", 1, "version 2 is not known; this library reads 1"),
        ("trunnion-program 1", "trunnion-program +1", 1, "version +1 is not known"),
        ("trunnion-program 1", "# trunnion", 1, "`# trunnion` is not the first line of a program"),
        ("config seed \"7\"", "config se/ed \"7\"", 3, "`se/ed` is no name of a setting"),
        ("config seed \"7\"", "config seed 7", 3, "`7` is no text"),
        ("config seed \"7\"", "config seed \"7", 3, "is no text"),
        ("config seed \"7\"", "conf seed \"7\"", 3, "`conf` is no line; valid: config, kernel"),
        ("kernel k0", "kernel k1", 4, "number of the next kernel: 1, where 0 belong"),
        ("64x1x1", "64x1", 4, "`64x1` is no workgroup size"),
        ("parameters:4", "parameters:257", 4, "the size of the parameters is 257, at most 256 is allowed"),
        ("readwrite/partition:256/0", "readwrite/slice/0", 4, "`readwrite/slice/0` is no buffer of a kernel"),
        ("b0 512 auto", "b0 281474976710657 auto", 5, "at most 281474976710656 is allowed"),
        ("b0 512 auto", "b0 99999999999999999999 auto", 5, "`99999999999999999999` is no size"),
        ("b0 512 auto", "b0 512 automatic", 5, "valid: auto, persistent, dedicated"),
        ("b0 512 auto", "b0 512", 5, "the line ends where the allocation mode is needed"),
        ("b0 512 auto", "b0 512 auto ", 5, "`` is too much"),
        ("b0 512 auto", "b0 512 auto b1", 5, "`b1` is too much"),
        ("2 s0 write b0[0..512]", "2 s0 write b0[0..513]", 6, "buffer: bytes 0..513 of 512"),
        ("2 s0 write b0[0..512]", "2 s0 write b0[5..4]", 6, "buffer: bytes 5..4 of 512"),
        ("2 s0 write b0[0..512]", "2 s0 write b1[0..512]", 6, "buffer 1 is not known here"),
        ("2 s0 write b0[0..512]", "2 s0 write b0[0..512;8,3x4]", 6, "the rows have"),
        ("2 s0 write b0[0..512]", "2 s0 write b0[0..512;8,65x8]", 6, "buffer: bytes 0..520 of 512"),
        (
            "2 s0 write b0[0..512]",
            "2 s0 write b0[0..512;1,18446744073709551615x18446744073709551615]",
            6,
            "the rows have",
        ),
        ("2 s0 write b0[0..512]", "2 s0 write b0[0..512;8,0x8]", 6, "the rows have"),
        ("2 s0 write", "0 s0 write", 6, "number 0 comes after 1"),
        ("2 s0 write", "2 t0 write", 6, "`t0` is no stream"),
        ("2 s0 write", "2 s0 wright", 6, "`wright` is no call; valid: reserve"),
        ("[0..512] @0", "[0..512] @1", 6, "the bytes @1 of this line are nowhere"),
        ("[0..512] @0", "[0..512] hex:00", 6, "bytes given for a view: 1, where 512 belong"),
        ("[0..512] @0", "[0..512] hex:0", 6, "`0` is no sequence of bytes"),
        ("[0..512] @0", "[0..512] repeat:000102", 6, "`000102` is no pattern"),
        ("[0..512] @0", "[0..512] maybe", 6, "`maybe` is no content"),
        ("@0 more hex:0011", "@0 more hex:001g", 7, "`001g` is no sequence of bytes"),
        ("@0 more hex:0011", "@0 moor hex:0011", 7, "`moor` is no line of a content"),
        ("@0 end 2", "@0 end 3", 8, "bytes given: 2, where 3 belong"),
        ("@0 end 2", "", 6, "the bytes @0 of this line are nowhere"),
        ("@0 end 2", "@0 end 2\n@0 is none", 9, "content 0 is there already"),
        ("launch k0", "launch k1", 9, "kernel 1 is not known here"),
        ("2x1x1 checked", "2x1x1 unsafe", 9, "valid: checked, unchecked, validated"),
        ("parameters:01000000", "parameters:01", 9, "bytes of a launch's parameters: 1, where 4 belong"),
        (" b0[0..512]\n4", "\n4", 9, "buffers of a launch: 0, where 1 belong"),
        ("=repeat:0a", "=@0", 10, "use of the bytes 0 is there already"),
        ("=repeat:0a", "=repeat:", 10, "`` is no pattern"),
        ("end 4", "end 5", 11, "steps counted by the `end` line: 5, where 4 belong"),
        ("end 4\n", "", 11, "the text ends before its `end` line"),
        ("end 4", "end 4\n5 s0 mark", 12, "something stands behind the `end` line"),
    ];
    // As it stands, its bytes are too few: all other damage is found before that.
    assert_eq!(
        parsed("end 4", "end 4").unwrap_err().to_string(),
        "line 6: bytes given for a view: 2, where 512 belong"
    );
    for (from, to, line, says) in cases {
        let error = parsed(from, to).expect_err(to);
        assert_eq!(error.line, *line, "{to}: {error}");
        assert!(error.to_string().contains(says), "{to}: {error}");
    }
}

#[test]
fn what_is_too_long_is_refused_before_it_is_kept() {
    let refused = |line: String| {
        let error = Program::parse(&format!("trunnion-program {VERSION}\n1 s0 reserve b0 8 auto\n{line}\nend 2\n"));
        error.map_err(|error| (error.line, error.defect)).expect_err("too long")
    };
    let long = "#".repeat(MAX_LINE + 1);
    assert_eq!(refused(long), (3, Defect::LineTooLong { length: MAX_LINE + 1 }));
    let views = " b0[0..1]".repeat(MAX_VIEWS + 1);
    assert_eq!(refused(format!("2 s0 read{views}")), (3, Defect::TooManyViews));
    let dimensions = ",1x9".repeat(17);
    assert_eq!(refused(format!("2 s0 read b0[0..1;1{dimensions}]")), (3, Defect::Rows));
    let text = "a".repeat(MAX_TEXT + 1);
    assert_eq!(refused(format!("2 s0 lost \"{text}\"")), (3, Defect::TextTooLong));
}

#[test]
fn a_few_bytes_of_text_stand_for_no_more_than_the_limit() {
    let text = |size: u64, content: &str| {
        format!("trunnion-program 1\n1 s0 reserve b0 {size} auto\n2 s0 write b0[0..{size}] {content}\nend 2\n")
    };
    for content in ["repeat:00", "random:1"] {
        assert!(Program::parse(&text(1 << 30, content)).is_ok());
        let error = Program::parse(&text((1 << 30) + 1, content)).unwrap_err();
        assert!(matches!(error.defect, Defect::TooLarge { limit: 1_073_741_824, .. }), "{error}");
    }
}

#[test]
fn a_recording_that_was_cut_off_is_recovered_as_far_as_it_goes() {
    let cut = SMALL.split("@0 end").next().unwrap();
    let (program, error) = Program::recover(cut);
    assert_eq!(error, Some(ParseError { line: 8, defect: Defect::Truncated }));
    assert_eq!((program.steps.len(), program.kernels.len()), (2, 1));
    let Call::Write { content, .. } = &program.steps[1].call else { panic!("{program}") };
    assert!(matches!(content, Content::Lost(why) if why.contains("@0")), "{content:?}");
    assert_eq!(program.setting("seed"), Some("7"));
}

#[test]
fn the_example_of_the_page_is_a_program() {
    let page = include_str!("../REPRODUCER.md");
    let example = page.split("```").nth(1).and_then(|text| text.strip_prefix("text\n")).unwrap();
    let program = Program::parse(example).unwrap();
    assert_eq!((program.steps.len(), program.kernels[0].name.as_str()), (6, "scale"));
    let Call::Read { sources } = &program.steps[4].call else { panic!("{program}") };
    assert_eq!(sources[0].1, Some(Content::Repeat(Arc::from([0, 0, 0, 0x40]))));
}

#[test]
fn bytes_that_belong_nowhere_are_damage_however_the_text_is_read() {
    let text = "trunnion-program 1\n@0 is hex:00\nend 0\n";
    let (recovered, damage) = Program::recover(text);
    assert_eq!((recovered, damage.clone()), (Program::default(), Program::parse(text).err()));
    assert!(damage.is_some());
}
