//! Whether the code of a source depends on files that may change: what is kept on disk is known by the source, the options and the
//! compiler, and not by what else the compiler reads.
//!
//! The toolkit's own headers change with the compiler's version, which is part of what code is known by.

/// Directories that are searched for headers, and files that are read without being asked for, as options of NVRTC.
const SEARCHED: [&str; 2] = ["-I", "--include-path"];
const READ: [&str; 5] = ["-include", "--pre-include", "--preinclude", "-optf", "--options-file"];

/// What of the compiler's options makes it read files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Includes {
    /// There are directories of headers besides the toolkit's.
    searches: bool,
    /// A file is read before any source.
    reads: bool,
}

impl Includes {
    /// What options say; `searches` when there are directories of headers besides those they name.
    pub(crate) fn of<'a>(searches: bool, options: impl Iterator<Item = &'a str>) -> Self {
        let mut includes = Self { searches, reads: false };
        for option in options {
            let begins = |names: &[&str]| names.iter().any(|name| option.starts_with(name));
            includes.searches |= begins(&SEARCHED);
            // Headers that were compiled before are files too.
            includes.reads |= begins(&READ) || option.contains("pch");
        }
        includes
    }

    /// Whether a source has nothing but the toolkit's headers. Where that cannot be told, it is not so.
    pub(crate) fn are_the_toolkits(self, source: &str) -> bool {
        if self.reads {
            return false;
        }
        let joined = source.replace("\\\r\n", "").replace("\\\n", "");
        joined.lines().filter(|line| line.contains("include")).all(|line| !self.searches && is_angled(line))
    }
}

/// Whether a line is `#include <name>` and nothing else, with a name that leads to no other directory. A name in quotes is sought in the
/// process's own directory first.
fn is_angled(line: &str) -> bool {
    let directive = line.trim_start().strip_prefix('#').and_then(|line| line.trim_start().strip_prefix("include"));
    let name = directive.and_then(|rest| rest.trim_start().strip_prefix('<'));
    name.and_then(|name| name.split_once('>')).is_some_and(|(name, rest)| stays(name) && !rest.contains("include"))
}

/// Whether a name is one of a file within the directories that are searched.
fn stays(name: &str) -> bool {
    let name = name.trim_start();
    !name.starts_with(['/', '\\']) && !name.contains("..") && !name.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_includes_nothing_or_what_the_toolkit_has_is_known_by_its_text() {
        let none = Includes::of(false, ["--use_fast_math", "-DN=1"].into_iter());
        for source in
            ["__global__ void k() {}", "#include <cuda_fp16.h>\n  #  include\t<mma.h> // tiles", "#define N 1"]
        {
            assert!(none.are_the_toolkits(source), "{source}");
        }
    }

    #[test]
    fn what_could_read_another_file_is_not_known_by_its_text() {
        let none = Includes::of(false, core::iter::empty());
        for source in [
            "#include \"step.h\"",
            "#include HEADER",
            "#inc\\\nlude \"step.h\"",
            "#inc\\\r\nlude \"step.h\"",
            "%:include \"step.h\"",
            "#include_next <step.h>",
            "#include <a.h> /*\n*/ #include \"b.h\"",
            "/* */ #include \"b.h\"",
            "#if __has_include(\"step.h\")",
            "#include </here/step.h>",
            "#include < /here/step.h>",
            "#include <\\here\\step.h>",
            "#include <C:/here/step.h>",
            "#include <../../step.h>",
            "#include <cooperative_groups/../../step.h>",
            "#include <cuda_fp16.h>\n#include \"step.h\"",
        ] {
            assert!(!none.are_the_toolkits(source), "{source}");
        }
    }

    #[test]
    fn options_that_name_files_or_directories_count() {
        let (plain, angled) = ("__global__ void k() {}", "#include <cuda_fp16.h>");
        for option in ["-I/here", "-I", "--include-path=/here"] {
            let searches = Includes::of(false, [option].into_iter());
            assert!(searches.are_the_toolkits(plain) && !searches.are_the_toolkits(angled), "{option}");
        }
        assert!(!Includes::of(true, core::iter::empty()).are_the_toolkits(angled));
        for option in ["-include=a.h", "--pre-include=a.h", "--use-pch=a.pch", "--options-file=more", "-pch"] {
            assert!(!Includes::of(false, [option].into_iter()).are_the_toolkits(plain), "{option}");
        }
    }
}
