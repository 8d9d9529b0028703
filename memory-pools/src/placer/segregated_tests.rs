//! The placer against a naive model: exhaustively over small spans, at random over large ones.

use super::super::classes::CLASSES;
use super::*;
use proptest::prelude::*;

/// Every invariant that holds between calls.
fn check(placer: &SegregatedFit, spans: &[(&SpanKey, u32)], lanes: u32) {
    let mut free = 0;
    for (span, size) in spans {
        let (mut offset, mut before, mut before_lane) = (0, NOBODY, USED);
        for (index, length, _) in placer.blocks(span) {
            let node = &placer.nodes[index as usize];
            assert_eq!((node.place as u32, node.before), (offset, before), "blocks follow each other");
            assert!(length > 0 || *size == 0);
            let lane = if node.list == USED { USED } else { node.lane() };
            let merges = lane != USED && lane != APART;
            assert!(!(merges && before_lane == lane), "free neighbours of a lane are merged");
            free += usize::from(lane != USED);
            (offset, before, before_lane) = (offset + length, index, lane);
        }
        assert_eq!(offset, *size, "blocks fill the span");
    }
    let mut listed = 0;
    for lane in 0..lanes {
        let lists = placer.lists(lane);
        for class in 0..CLASSES as u32 {
            let (mut at, mut previous) = (lists.head(class), NOBODY);
            let found = lists.first_from(class) == Some(class);
            assert_eq!(found, at != NOBODY, "the bits say whether the list is empty");
            while at != NOBODY {
                let node = &placer.nodes[at as usize];
                if previous == NOBODY {
                    assert_eq!(lists.rank(class), node.rank());
                }
                assert_eq!((node.lane(), node.class(), node.previous), (lane, class, previous));
                assert_eq!(class_of(node.size), class, "a block is listed by its size");
                (previous, at) = (at, node.next);
                listed += 1;
            }
        }
    }
    assert_eq!(listed, free, "every free block is in one list");
}

/// The lengths of the gaps between used blocks of one span.
fn gaps(used: &[Block], size: u32) -> Vec<u32> {
    let mut sorted: Vec<_> = used.iter().map(|b| (b.offset, b.size)).collect();
    sorted.sort_unstable();
    let mut at = 0;
    let mut gaps = Vec::new();
    for (offset, length) in sorted {
        assert!(offset >= at, "blocks don't overlap");
        gaps.push(offset - at);
        at = offset + length;
    }
    assert!(at <= size, "blocks stay inside the span");
    gaps.push(size - at);
    gaps
}

fn explore(actions: &mut Vec<u32>, depth: usize, size: u32, count: &mut usize) {
    let mut placer = SegregatedFit::new();
    let span = placer.add_span(3, size);
    let mut used: Vec<Block> = Vec::new();
    for action in &*actions {
        if *action < size {
            let wanted = action + 1;
            let fits = gaps(&used, size).into_iter().max() >= Some(wanted);
            let block = placer.allocate(wanted);
            assert_eq!(block.is_ok(), fits, "sizes below a row are exact");
            used.extend(block.ok());
        } else {
            let block = used.remove((action - size) as usize);
            assert!(placer.free(block.key));
            assert!(!placer.free(block.key), "a stale key is noticed");
        }
    }
    check(&placer, &[(&span, size)], 2);
    gaps(&used, size);
    assert_eq!(placer.is_span_free(&span), used.is_empty());
    *count += 1;
    if depth > 0 {
        for action in 0..size + used.len() as u32 {
            actions.push(action);
            explore(actions, depth - 1, size, count);
            actions.pop();
        }
    }
}

#[test]
fn every_short_program_over_a_small_span_agrees_with_the_model() {
    let mut count = 0;
    explore(&mut Vec::new(), 6, 4, &mut count);
    assert!(count > 10_000, "{count} programs");
}

#[test]
fn classes_are_in_order_and_every_block_of_the_next_class_is_larger() {
    let mut sizes: Vec<u32> = (0..4096).collect();
    for bit in 4..32 {
        let power = 1u32 << bit;
        sizes.extend([power - 1, power, power + 1, power + power / 2, power + power / 16, power + power / 16 - 1]);
    }
    sizes.push(u32::MAX);
    sizes.sort_unstable();
    for pair in sizes.windows(2) {
        assert!(class_of(pair[0]) <= class_of(pair[1]), "{pair:?}");
    }
    assert_eq!(class_of(u32::MAX) as usize, 28 * 16 + 15);
    assert!((class_of(u32::MAX) + 1) < CLASSES as u32);
}

#[test]
fn the_largest_span_is_given_out_whole_and_in_parts() {
    let mut placer = SegregatedFit::new();
    let span = placer.add_span(0, MAX_SPAN);
    let all = placer.allocate(MAX_SPAN).unwrap();
    assert_eq!((all.offset, all.size), (0, u32::MAX));
    assert!(placer.allocate(1).is_err());
    assert!(placer.free(all.key));
    let half = placer.allocate(1 << 31).unwrap();
    let rest = placer.allocate((1 << 31) - 1).unwrap();
    assert_eq!((half.offset, rest.offset), (0, 1 << 31));
    assert_eq!(placer.largest_free(), 0);
    let span = placer.remove_span(span).unwrap_err();
    assert!(placer.free(rest.key) && placer.free(half.key));
    assert_eq!(placer.remove_span(span), Ok(()));
    assert!(placer.allocate(1).is_err());
}

#[test]
fn spans_never_merge_and_an_empty_one_holds_nothing() {
    let mut placer = SegregatedFit::new();
    let (a, b) = (placer.add_span(1, 10), placer.add_span(2, 10));
    let c = placer.add_span(3, 0);
    assert!(placer.allocate(11).is_err());
    let x = placer.allocate(10).unwrap();
    let y = placer.allocate(10).unwrap();
    assert_ne!(x.span, y.span);
    assert!(placer.free(x.key) && placer.free(y.key));
    check(&placer, &[(&a, 10), (&b, 10), (&c, 0)], 2);
}

#[test]
fn the_lowest_first_block_of_so_many_classes_is_chosen_and_none_too_far_above() {
    let mut lists = Lists::EMPTY;
    for (class, rank) in [(40, 9), (43, 7), (50, 5), (90, 3), (103, 2), (104, 1)] {
        lists.set_head(class, class, rank);
    }
    assert_eq!([lists.lowest::<1>(40, 500), lists.lowest::<2>(40, 500)], [43, 50], "one look, and two");
    assert_eq!([lists.lowest::<11>(40, 90), lists.lowest::<11>(40, 89)], [90, 50], "up to the last, with it");
    assert_eq!(lists.lowest::<11>(40, 500), 103, "63 classes above at most");
    assert_eq!([lists.lowest::<11>(40, 40), lists.lowest::<11>(41, 40)], [40, 41], "no class but the first");
    let found = [0, 44, 51, 104, 105].map(|class| lists.first_from(class));
    assert_eq!(found, [Some(40), Some(50), Some(90), Some(104), None]);
    lists.replace_head(90, NOBODY, LAST);
    assert_eq!((lists.first_from(51), lists.last_class()), (Some(103), Some(104)));
}

#[test]
fn a_key_of_a_block_that_was_merged_away_stays_stale() {
    let mut placer = SegregatedFit::new();
    placer.add_span(0, 100);
    let mut stale = Vec::new();
    for _ in 0..1000 {
        let (a, b) = (placer.allocate(30).unwrap(), placer.allocate(30).unwrap());
        assert!(stale.iter().all(|key| !placer.free(*key)));
        assert!(placer.free(a.key) && placer.free(b.key));
        stale = alloc::vec![a.key, b.key];
    }
    assert!(placer.nodes() <= 1 + SPARES_AT_ONCE, "spare nodes are reused");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_programs_agree_with_the_model(actions in prop::collection::vec((any::<u16>(), 1u32..3000), 1..400)) {
        let size = 40_000;
        let mut placer = SegregatedFit::new();
        let span = placer.add_span(0, size);
        let mut used: Vec<Block> = Vec::new();
        for (choice, wanted) in actions {
            if choice % 5 < 2 && !used.is_empty() {
                let block = used.swap_remove(choice as usize % used.len());
                prop_assert!(placer.free(block.key));
                continue;
            }
            let largest = gaps(&used, size).into_iter().max().unwrap_or(0);
            prop_assert_eq!(placer.largest_free(), largest);
            prop_assert_eq!(placer.find_any(ANYONE, wanted).is_some(), largest >= wanted);
            match placer.allocate(wanted) {
                Ok(block) => used.push(block),
                Err(_) => prop_assert!(largest < wanted, "a request that fits is never refused"),
            }
        }
        check(&placer, &[(&span, size)], 2);
    }

    #[test]
    fn lanes_keep_their_blocks_apart(actions in prop::collection::vec((any::<u16>(), 1u32..300, 0u32..4), 1..300)) {
        let size = 6000;
        let mut placer = SegregatedFit::new();
        placer.ensure_lane(3);
        let span = placer.add_span(0, size);
        let mut used: Vec<u32> = Vec::new();
        for (choice, wanted, lane) in actions {
            if choice % 2 == 0 && !used.is_empty() {
                let node = used.swap_remove(choice as usize % used.len());
                let (became, absorbed) = placer.put(node, lane);
                prop_assert_eq!(placer.lane(became), lane);
                prop_assert!(absorbed == NOBODY || lane != APART);
            } else if let Some(node) = placer.find(lane, wanted) {
                prop_assert!(placer.lane(node) == lane && placer.size(node) >= wanted);
                let taken = placer.take(node, lane, wanted);
                prop_assert_eq!(placer.size(taken), wanted);
                used.push(taken);
            } else if let Some(node) = placer.find(3 - lane, 1) {
                placer.move_to(node, lane);
            }
            check(&placer, &[(&span, size)], 4);
        }
    }
}

#[test]
fn what_came_last_in_its_span_has_its_turn_by_its_place_once_something_comes_after_it() {
    for lane in [ANYONE, 2] {
        let mut placer = SegregatedFit::new();
        placer.ensure_lane(2);
        let spans = [placer.add_span(1, 100), placer.add_span(2, 150)];
        let blocks = [50, 50, 50, 50, 50].map(|size| placer.allocate(size).unwrap());
        let nodes = |tag: u32| blocks.iter().filter(move |block| block.span == tag).map(|block| block.key.index);
        let (last, middle) = (nodes(1).next_back().unwrap(), nodes(2).nth(1).unwrap());
        // The one that is last in its span comes last, though it lies lower.
        placer.put(last, lane);
        placer.put(middle, lane);
        assert_eq!(placer.find(lane, 50), Some(middle));
        let used = placer.take(middle, lane, 50);
        placer.grow_span(&spans[0], 101);
        placer.put(used, lane);
        check(&placer, &[(&spans[0], 101), (&spans[1], 150)], 3);
        let behind = if lane == ANYONE { used } else { last };
        assert_eq!(placer.find(lane, 50), Some(behind), "what is added to what is anyone's is last with it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_span_grows_whatever_lane_its_end_lies_in(actions in prop::collection::vec((any::<u16>(), 1u32..300, 0u32..4), 1..200)) {
        let mut size = 100;
        let mut placer = SegregatedFit::new();
        placer.ensure_lane(3);
        let span = placer.add_span(0, size);
        let mut used: Vec<u32> = Vec::new();
        for (choice, wanted, lane) in actions {
            if choice % 3 == 0 {
                size += wanted;
                placer.grow_span(&span, size);
            } else if choice % 3 == 1 && !used.is_empty() {
                let node = used.swap_remove(choice as usize % used.len());
                placer.put(node, lane);
            } else if let Some(node) = placer.find(lane, wanted) {
                used.push(placer.take(node, lane, wanted));
            }
            check(&placer, &[(&span, size)], 4);
        }
    }
}
