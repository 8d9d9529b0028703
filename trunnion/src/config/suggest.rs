//! What a misspelt name was meant to be.

use alloc::string::String;
use alloc::vec::Vec;

/// The known name nearest to `written`, if a few edits lead from one to the other.
pub(super) fn near(written: &str, known: &[String]) -> Option<String> {
    let near = known.iter().map(|name| (distance(written, name), name)).min_by_key(|(edits, _)| *edits);
    near.filter(|(edits, name)| *edits <= name.chars().count() / 3).map(|(_, name)| name.clone())
}

/// How many characters must be put in, taken out, replaced or swapped with their neighbour to make one name of the other. Names far too
/// long to be a misspelling are not compared.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 128;
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // `table[i][j]` is the distance between the first `i` and the first `j` characters.
    let mut table = alloc::vec![alloc::vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let edited = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { edited.min(table[i - 2][j - 2] + 1) } else { edited }
            };
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in [
            ("", "", 0),
            ("ring", "ring", 0),
            ("rng", "ring", 1),
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("é", "e", 1),
            ("hots", "host", 1),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn only_a_name_that_is_near_is_suggested() {
        let known = ["ring", "spin", "wait_timeout"].map(String::from);
        assert_eq!(near("rign", &known), Some("ring".into()));
        assert_eq!(near("pins", &known), None);
        assert_eq!(near("rin", &known), Some("ring".into()));
        assert_eq!(near("wait-timout", &known), Some("wait_timeout".into()));
        assert_eq!(near("colour", &known), None);
        assert_eq!(near(&"x".repeat(1 << 20), &known), None);
    }
}
