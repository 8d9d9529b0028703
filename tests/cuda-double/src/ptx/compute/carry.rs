//! Additions and products of many words, a word at a time: what takes and what leaves the carry bit.

use super::Register;
use crate::ptx::inst::Carrying;

macro_rules! carrying {
    ($unsigned:ty, $bits:literal) => {
        &[
            (concat!("add.u", $bits, " add.s", $bits), 2, |[a, b, _], carry| {
                let (sum, out) = <$unsigned>::read(a).carrying_add(<$unsigned>::read(b), carry);
                (sum.write(), out)
            }),
            (concat!("sub.u", $bits, " sub.s", $bits), 2, |[a, b, _], borrow| {
                let (difference, out) = <$unsigned>::read(a).borrowing_sub(<$unsigned>::read(b), borrow);
                (difference.write(), out)
            }),
            (concat!("mad.lo.u", $bits, " mad.lo.s", $bits), 3, |[a, b, c], carry| {
                let product = <$unsigned>::read(a).wrapping_mul(<$unsigned>::read(b));
                let (sum, out) = product.carrying_add(<$unsigned>::read(c), carry);
                (sum.write(), out)
            }),
            (concat!("mad.hi.u", $bits), 3, |[a, b, c], carry| {
                let product = <$unsigned>::read(a).carrying_mul(<$unsigned>::read(b), 0).1;
                let (sum, out) = product.carrying_add(<$unsigned>::read(c), carry);
                (sum.write(), out)
            }),
        ]
    };
}

const TABLES: &[&[(&str, usize, Carrying)]] = &[carrying!(u32, "32"), carrying!(u64, "64")];

/// A computation with the carry bit.
#[derive(Clone, Copy)]
pub(crate) struct Carry {
    pub(crate) sources: usize,
    pub(crate) f: Carrying,
    /// It takes the bit; otherwise the bit counts as zero.
    pub(crate) takes: bool,
    /// It leaves the bit.
    pub(crate) leaves: bool,
}

/// What `add.cc.u32`, `addc.u32`, `madc.hi.cc.u32` and the like do.
pub(crate) fn find(opcode: &str) -> Option<Carry> {
    let (name, rest) = opcode.split_once('.')?;
    let (name, takes) = match name {
        "addc" => ("add", true),
        "subc" => ("sub", true),
        "madc" => ("mad", true),
        "add" | "sub" | "mad" => (name, false),
        _ => return None,
    };
    let plain = rest.replacen("cc.", "", 1);
    let leaves = plain.len() != rest.len();
    if !takes && !leaves {
        return None;
    }
    let wanted = format!("{name}.{plain}");
    let mut rows = TABLES.iter().flat_map(|rows| rows.iter());
    let (_, sources, f) = rows.find(|(names, ..)| names.split(' ').any(|name| name == wanted))?;
    Some(Carry { sources: *sources, f: *f, takes, leaves })
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn two_words_are_added_with_their_carry() {
        let low = find("add.cc.u32").unwrap();
        let high = find("addc.u32").unwrap();
        assert!(low.leaves && !low.takes && high.takes && !high.leaves);
        let (sum, carry) = (low.f)([0xFFFF_FFFF, 2, 0], false);
        assert_eq!((sum, carry), (1, true));
        assert_eq!((high.f)([3, 4, 0], carry).0, 8);
        assert!(find("add.u32").is_none());
        assert!(find("mad.lo.cc.u32").is_some_and(|carry| carry.sources == 3));
    }
}
