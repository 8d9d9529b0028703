//! Which bytes of a buffer the workgroups of one launch have claimed.

use crate::lock::Lock;
use alloc::vec::Vec;
use core::ops::Range;

/// Claimed ranges, none of which overlap. Neighbours become one, so that claims in order cost no memory.
#[derive(Debug, Default)]
pub(crate) struct Claims(Lock<Vec<Range<u64>>>);

impl Claims {
    /// Claims a range; false when a byte of it was claimed before. An empty range can always be had.
    pub(crate) fn claim(&self, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let mut claimed = self.0.lock();
        // The first that ends behind the range's start: of all that do, the only one the range can reach before it reaches this one.
        let at = claimed.partition_point(|known| known.end <= range.start);
        if claimed.get(at).is_some_and(|known| known.start < range.end) {
            return false;
        }
        let joins_before = at > 0 && claimed[at - 1].end == range.start;
        let joins_after = claimed.get(at).is_some_and(|known| known.start == range.end);
        match (joins_before, joins_after) {
            (true, true) => {
                claimed[at - 1].end = claimed[at].end;
                claimed.remove(at);
            }
            (true, false) => claimed[at - 1].end = range.end,
            (false, true) => claimed[at].start = range.start,
            (false, false) => claimed.insert(at, range.clone()),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_overlaps_an_earlier_one_is_refused_and_leaves_no_trace() {
        let claims = Claims::default();
        assert!(claims.claim(&(10..20)) && claims.claim(&(30..40)));
        for range in [10..20, 0..11, 19..21, 12..13, 5..50, 39..41, 20..31] {
            assert!(!claims.claim(&range), "{range:?}");
        }
        assert!(claims.claim(&(20..30)) && claims.claim(&(0..10)) && claims.claim(&(5..5)) && claims.claim(&(41..42)));
    }

    #[test]
    fn neighbours_become_one() {
        let claims = Claims::default();
        for i in (0..1000).rev().step_by(2).chain((0..1000).step_by(2)) {
            assert!(claims.claim(&(i..i + 1)));
        }
        assert_eq!(claims.0.lock().as_slice(), core::slice::from_ref(&(0..1000)));
    }

    #[test]
    fn random_claims_agree_with_a_table_of_bytes() {
        let (claims, mut table, mut state) = (Claims::default(), [false; 256], 1_u64);
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let start = (state >> 40) as usize % 250;
            let range = start..start + (state >> 20) as usize % 6;
            let free = !table[range.clone()].contains(&true);
            assert_eq!(claims.claim(&(range.start as u64..range.end as u64)), free, "{range:?}");
            if free {
                table[range].fill(true);
            }
        }
    }
}
