//! How an operation uses bytes.

/// How an operation uses a range of bytes: what it must wait for, and what a failure on those bytes means to it.
///
/// Equivalent to: the access flags of a Vulkan buffer barrier; `var<storage, read>` and `var<storage, read_write>` in WGSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Access {
    /// Reads, changes nothing.
    Read,
    /// Writes some of the bytes, or all of them, and may leave the others as they were. What was there is therefore still an input.
    Write,
    /// Reads, and writes some of the bytes or all of them.
    ReadWrite,
    /// Replaces every byte without reading any. Declared by whoever knows, never guessed from a kernel's code.
    Overwrite,
}

impl Access {
    /// Whether what the bytes were before can be seen in what is there afterwards: a failure on them is then a failure of the
    /// operation. True but for [`Overwrite`](Self::Overwrite).
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Overwrite)
    }

    /// Whether the bytes may change. True but for [`Read`](Self::Read).
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::Access::*;

    #[test]
    fn only_an_overwrite_does_not_depend_on_what_was_there_and_only_a_read_leaves_it() {
        let all = [Read, Write, ReadWrite, Overwrite];
        assert_eq!(all.map(|a| a.reads()), [true, true, true, false]);
        assert_eq!(all.map(|a| a.writes()), [false, true, true, true]);
    }
}
