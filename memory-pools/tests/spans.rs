//! Spans that grow, against placers that had them at once.

use proptest::prelude::*;
use trunnion_memory_pools::placer::{Block, Linear, PlaceError, Placer, SegregatedFit, Slabs, SpanKey};

fn placers() -> [Box<dyn Placer>; 5] {
    [
        Box::new(SegregatedFit::new()),
        Box::new(SegregatedFit::with_minimal_block(3)),
        Box::new(Slabs::new(1)),
        Box::new(Slabs::new(7)),
        Box::new(Linear::new()),
    ]
}

#[test]
fn a_block_as_large_as_the_span_became_is_placed_when_nothing_is_in_it() {
    for mut placer in placers() {
        let span = placer.add_span(3, 0);
        assert_eq!(placer.largest_free(), 0);
        placer.grow_span(&span, 700);
        assert!(placer.is_span_free(&span) && placer.largest_free() > 0);
        let block = placer.allocate(placer.largest_free()).unwrap();
        assert_eq!((block.span, block.offset), (3, 0));
        assert!(placer.free(block.key));
        assert!(placer.remove_span(span).is_ok());
        assert_eq!(placer.largest_free(), 0);
    }
}

#[test]
fn a_free_piece_at_the_end_and_what_is_added_are_one() {
    let mut fit = SegregatedFit::new();
    let span = fit.add_span(1, 100);
    let (a, b) = (fit.allocate(60).unwrap(), fit.allocate(20).unwrap());
    fit.grow_span(&span, 1000);
    let large = fit.allocate(920).unwrap();
    assert_eq!((a.offset, b.offset, large.offset), (0, 60, 80));
    fit.grow_span(&span, 1001);
    assert_eq!(fit.largest_free(), 1, "behind a block in use it stands alone");
    assert!(fit.free(large.key));
    assert_eq!(fit.largest_free(), 921);
}

#[test]
fn a_size_that_is_no_larger_changes_nothing() {
    for mut placer in placers() {
        let span = placer.add_span(1, 70);
        let largest = placer.largest_free();
        [0, 69, 70].iter().for_each(|size| placer.grow_span(&span, *size));
        assert_eq!(placer.largest_free(), largest);
        assert!(placer.remove_span(span).is_ok());
    }
}

#[test]
fn a_key_of_another_placer_that_names_no_block_grows_nothing() {
    for (mut one, mut other) in placers().into_iter().zip(placers()) {
        one.add_span(0, 100);
        // Two are one again, and the second one's place is spare.
        let block = one.allocate(7.min(one.largest_free())).unwrap();
        assert!(one.free(block.key));
        let largest = one.largest_free();
        other.add_span(0, 1);
        for tag in 1..40 {
            let key = other.add_span(tag, 1);
            one.grow_span(&key, 1000);
        }
        assert_eq!(one.largest_free(), largest);
    }
}

#[test]
fn a_full_span_of_slabs_has_room_again() {
    let mut slabs = Slabs::new(10);
    let span = slabs.add_span(1, 29);
    let blocks: Vec<Block> = (0..2).map(|_| slabs.allocate(10).unwrap()).collect();
    assert!(matches!(slabs.allocate(10), Err(PlaceError::Full { .. })));
    slabs.grow_span(&span, 31);
    let third = slabs.allocate(10).unwrap();
    assert_eq!(third.offset, 20, "what was cut off at the end is used");
    blocks.iter().chain([&third]).for_each(|block| assert!(slabs.free(block.key)));
    slabs.grow_span(&span, 50);
    assert_eq!((0..5).filter_map(|_| slabs.allocate(10).ok()).count(), 5);
}

#[derive(Clone, Debug)]
enum Action {
    Allocate(u32),
    Free(usize),
    Grow(usize, u32),
    Add(u32),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (1u32..60).prop_map(Action::Allocate),
        5 => any::<usize>().prop_map(Action::Free),
        2 => (any::<usize>(), 0u32..200).prop_map(|(which, by)| Action::Grow(which, by)),
        1 => (0u32..120).prop_map(Action::Add),
    ]
}

/// Runs a program: every unit has at most one block, what is placed stays, what is refused has no room.
fn run(placer: &mut dyn Placer, actions: &[Action]) {
    let mut spans: Vec<(SpanKey, u32)> = Vec::new();
    let mut live: Vec<Block> = Vec::new();
    for action in actions {
        match *action {
            Action::Allocate(size) => match placer.allocate(size) {
                Ok(block) => {
                    let (_, length) = spans[block.span as usize];
                    assert!(block.size >= size && block.offset + block.size <= length, "{block:?} in {length}");
                    let meets = |other: &Block| {
                        other.span == block.span
                            && other.offset < block.offset + block.size
                            && block.offset < other.offset + other.size
                    };
                    assert!(!live.iter().any(meets), "{block:?} overlaps");
                    live.push(block);
                }
                Err(PlaceError::Full { .. }) => assert!(placer.largest_free() < size),
                Err(PlaceError::TooLarge { limit, .. }) => assert!(size > limit),
                Err(other) => panic!("{other}"),
            },
            Action::Free(which) if !live.is_empty() => {
                let block = live.swap_remove(which % live.len());
                assert!(placer.free(block.key) && !placer.free(block.key));
            }
            Action::Grow(which, by) if !spans.is_empty() => {
                let which = which % spans.len();
                let (span, size) = &mut spans[which];
                *size += by;
                placer.grow_span(span, *size);
            }
            Action::Add(size) => spans.push((placer.add_span(spans.len() as u32, size), size)),
            Action::Free(_) | Action::Grow(..) => {}
        }
        for block in &live {
            assert_eq!(placer.block(block.key), Some(*block), "what is placed stays");
        }
        for (index, (span, _)) in spans.iter().enumerate() {
            assert_eq!(placer.is_span_free(span), !live.iter().any(|block| block.span as usize == index));
        }
    }
    live.iter().for_each(|block| assert!(placer.free(block.key)));
    for (span, _) in spans {
        assert!(placer.remove_span(span).is_ok());
    }
    assert_eq!(placer.largest_free(), 0, "nothing is left behind");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn spans_that_grow_lose_no_unit_and_give_none_twice(actions in prop::collection::vec(action(), 1..120)) {
        for mut placer in placers() {
            run(&mut *placer, &actions);
        }
    }

    #[test]
    fn a_span_that_grew_while_it_was_empty_holds_what_one_of_its_size_does(steps in prop::collection::vec(0u32..50, 1..8), sizes in prop::collection::vec(1u32..40, 1..40)) {
        for (mut grown, mut whole) in placers().into_iter().zip(placers()) {
            let span = grown.add_span(0, 0);
            let mut size = 0;
            for step in &steps {
                size += step;
                grown.grow_span(&span, size);
            }
            whole.add_span(0, size);
            for size in &sizes {
                let of = |placed: Result<Block, PlaceError>| placed.map(|block| (block.offset, block.size));
                prop_assert_eq!(of(grown.allocate(*size)), of(whole.allocate(*size)));
            }
        }
    }
}
