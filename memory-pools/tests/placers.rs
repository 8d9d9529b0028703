//! Every placer against a naive map of intervals: all short programs over a small span, and random ones over large spans.

extern crate alloc;

use alloc::collections::BTreeMap;
use proptest::prelude::*;
use trunnion_memory_pools::placer::{
    Block, BlockKey, Linear, MAX_SPAN, PlaceError, Placer, SegregatedFit, Slabs, SpanKey,
};

/// What a placer of a kind counts as a free piece.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Segregated { minimal: u32 },
    Slabs { slot: u32 },
    Linear,
}

/// The length of a used piece and its key, by where it begins.
type Used = BTreeMap<u32, (u32, BlockKey)>;

struct Span {
    key: Option<SpanKey>,
    size: u32,
    used: Used,
    /// Where the last block ended that was placed since the span was empty.
    top: u32,
}

/// A placer, and what it should hold.
struct Model {
    kind: Kind,
    placer: Box<dyn Placer>,
    spans: BTreeMap<u32, Span>,
    stale: Vec<BlockKey>,
    next_tag: u32,
}

impl Model {
    fn new(kind: Kind) -> Self {
        let placer: Box<dyn Placer> = match kind {
            Kind::Segregated { minimal } => Box::new(SegregatedFit::with_minimal_block(minimal)),
            Kind::Slabs { slot } => Box::new(Slabs::new(slot)),
            Kind::Linear => Box::new(Linear::new()),
        };
        Self { kind, placer, spans: BTreeMap::new(), stale: Vec::new(), next_tag: 10 }
    }

    fn add_span(&mut self, size: u32) {
        self.next_tag += 1;
        let key = Some(self.placer.add_span(self.next_tag, size));
        self.spans.insert(self.next_tag, Span { key, size, used: Used::new(), top: 0 });
    }

    /// Removes a span if that should be possible, and checks that it isn't if not.
    fn remove_span(&mut self, which: usize) {
        let which = which % self.spans.len().max(1);
        let Some((tag, span)) = self.spans.iter_mut().nth(which) else { return };
        let (tag, key) = (*tag, span.key.take().unwrap());
        let empty = span.used.is_empty();
        assert_eq!(self.placer.is_span_free(&key), empty);
        match self.placer.remove_span(key) {
            Ok(()) => {
                assert!(empty);
                self.spans.remove(&tag);
            }
            Err(key) => {
                assert!(!empty);
                span.key = Some(key);
            }
        }
    }

    /// The free pieces of a span: where they begin and end.
    fn pieces(&self, span: &Span) -> Vec<(u32, u32)> {
        match self.kind {
            Kind::Segregated { .. } => {
                let mut at = 0;
                let mut pieces = Vec::new();
                for (begin, (length, _)) in &span.used {
                    pieces.push((at, *begin));
                    at = begin + length;
                }
                pieces.push((at, span.size));
                pieces
            }
            Kind::Slabs { slot } => {
                let slots = (0..span.size / slot).map(|index| index * slot);
                slots.filter(|begin| !span.used.contains_key(begin)).map(|begin| (begin, begin + slot)).collect()
            }
            Kind::Linear => vec![(span.top, span.size)],
        }
    }

    /// Whether a request should be placed.
    fn fits(&self, size: u32, alignment: u32) -> bool {
        self.spans.values().any(|span| {
            self.pieces(span).into_iter().any(|(begin, end)| {
                begin.checked_next_multiple_of(alignment).is_some_and(|at| at <= end && end - at >= size)
            })
        })
    }

    fn allocate(&mut self, size: u32, alignment: u32) {
        let fits = self.fits(size, alignment);
        let answer = match alignment {
            1 => self.placer.allocate(size),
            alignment => self.placer.allocate_aligned(size, alignment),
        };
        match answer {
            Ok(block) => {
                assert!(fits, "{:?} placed {block:?}, which does not fit", self.kind);
                self.place(block, size, alignment);
            }
            Err(PlaceError::Full { size: told, alignment: also }) => {
                assert_eq!((told, also), (size, alignment));
                assert!(!fits, "{:?}: {size} units at a multiple of {alignment} fit and were refused", self.kind);
            }
            Err(PlaceError::TooLarge { size: told, limit }) => {
                assert!(told == size && size > limit && matches!(self.kind, Kind::Slabs { slot } if slot == limit));
            }
            Err(PlaceError::Alignment { alignment: told, limit }) => {
                assert!(told == alignment && alignment > limit);
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn place(&mut self, block: Block, size: u32, alignment: u32) {
        let span = self.spans.get_mut(&block.span).expect("the span exists");
        let most = match self.kind {
            Kind::Segregated { minimal } => size + minimal - 1,
            Kind::Slabs { slot } => slot,
            Kind::Linear => size,
        };
        assert!(size <= block.size && block.size <= most, "{block:?} for {size} units");
        assert_eq!(block.offset % alignment, 0);
        let end = block.offset.checked_add(block.size).filter(|end| *end <= span.size);
        let end = end.expect("the block lies inside the span");
        let before = span.used.range(..end).next_back();
        assert!(before.is_none_or(|(begin, (length, _))| begin + length <= block.offset), "{block:?} overlaps");
        span.used.insert(block.offset, (block.size, block.key));
        span.top = end;
        assert_eq!(self.placer.block(block.key), Some(block));
    }

    fn free(&mut self, which: usize) {
        let live: Vec<_> = self
            .spans
            .iter()
            .flat_map(|(tag, span)| span.used.iter().map(|(at, (_, key))| (*tag, *at, *key)))
            .collect();
        let Some((tag, at, key)) = live.get(which % live.len().max(1)).copied() else { return };
        assert!(self.placer.free(key));
        assert!(!self.placer.free(key), "a key is good once");
        assert_eq!(self.placer.block(key), None);
        let span = self.spans.get_mut(&tag).unwrap();
        span.used.remove(&at);
        if span.used.is_empty() {
            span.top = 0;
        }
        self.stale.push(key);
    }

    fn live(&self) -> usize {
        self.spans.values().map(|span| span.used.len()).sum()
    }

    /// What holds between calls.
    fn check(&mut self) {
        let pieces = self.spans.values().flat_map(|span| self.pieces(span));
        let largest = pieces.map(|(begin, end)| end - begin).max().unwrap_or(0);
        assert_eq!(self.placer.largest_free(), largest, "free pieces are whole, and none is lost");
        assert!(self.stale.iter().all(|key| !self.placer.free(*key)), "a stale key stays stale");
        for span in self.spans.values() {
            assert_eq!(self.placer.is_span_free(span.key.as_ref().unwrap()), span.used.is_empty());
            for (offset, (size, key)) in &span.used {
                let block = self.placer.block(*key).expect("what is used stays");
                assert_eq!((block.offset, block.size), (*offset, *size), "and stays where it is");
            }
        }
    }
}

const KINDS: [Kind; 6] = [
    Kind::Segregated { minimal: 1 },
    Kind::Segregated { minimal: 2 },
    Kind::Slabs { slot: 1 },
    Kind::Slabs { slot: 2 },
    Kind::Slabs { slot: 3 },
    Kind::Linear,
];

const SMALL_SPAN: u32 = 5;
/// Sizes and alignments that the short programs ask for.
const REQUESTS: [(u32, u32); 7] = [(1, 1), (2, 1), (3, 1), (5, 1), (1, 2), (2, 2), (1, 4)];

fn run(kind: Kind, program: &[usize]) -> Model {
    let mut model = Model::new(kind);
    model.add_span(SMALL_SPAN);
    for action in program {
        match *action {
            0 => model.add_span(2),
            1 => model.remove_span(model.spans.len().wrapping_sub(1)),
            action if action < 2 + REQUESTS.len() => {
                let (size, alignment) = REQUESTS[action - 2];
                model.allocate(size, alignment);
            }
            action => model.free(action - 2 - REQUESTS.len()),
        }
    }
    model.check();
    model
}

fn explore(kind: Kind, program: &mut Vec<usize>, depth: usize) -> usize {
    let model = run(kind, program);
    if depth == 0 {
        return 1;
    }
    let actions = 2 + REQUESTS.len() + model.live();
    let mut count = 1;
    for action in 0..actions {
        program.push(action);
        count += explore(kind, program, depth - 1);
        program.pop();
    }
    count
}

#[test]
fn every_short_program_over_a_small_span_agrees_with_a_map_of_intervals() {
    for kind in KINDS {
        let count = explore(kind, &mut Vec::new(), 5);
        assert!(count > 50_000, "{kind:?}: {count} programs");
    }
}

#[test]
fn what_cannot_be_asked_is_refused_with_the_value_and_the_limit() {
    let mut placers: [Box<dyn Placer>; 3] =
        [Box::new(SegregatedFit::new()), Box::new(Slabs::new(12)), Box::new(Linear::new())];
    for placer in &mut placers {
        assert_eq!(placer.largest_free(), 0);
        assert!(matches!(placer.allocate(1), Err(PlaceError::Full { size: 1, alignment: 1 })));
        placer.add_span(0, 100);
        assert_eq!(placer.allocate(0), Err(PlaceError::Empty));
        assert_eq!(placer.allocate_aligned(0, 4), Err(PlaceError::Empty));
        for alignment in [0, 3, u32::MAX] {
            let refused = placer.allocate_aligned(1, alignment).unwrap_err();
            assert!(matches!(refused, PlaceError::Alignment { alignment: told, .. } if told == alignment));
        }
        assert_eq!(placer.largest_free() > 0, placer.allocate_aligned(1, 4).is_ok(), "nothing was lost on the way");
    }
    let mut slabs = Slabs::new(12);
    slabs.add_span(0, 100);
    assert_eq!(slabs.allocate_aligned(1, 8), Err(PlaceError::Alignment { alignment: 8, limit: 4 }));
    assert_eq!(slabs.allocate(13), Err(PlaceError::TooLarge { size: 13, limit: 12 }));
    assert_eq!(slabs.allocate(13).unwrap_err().to_string(), "13 units: a block of this placer has at most 12");
}

#[test]
fn keys_of_another_placer_are_no_ones_and_do_no_harm() {
    let mut other = SegregatedFit::new();
    let spans: Vec<_> = (0..8).map(|tag| other.add_span(tag, 10)).collect();
    let keys: Vec<_> = (0..8).map(|_| other.allocate(10).unwrap().key).collect();
    let mut placers: [Box<dyn Placer>; 3] =
        [Box::new(SegregatedFit::new()), Box::new(Slabs::new(10)), Box::new(Linear::new())];
    for placer in &mut placers {
        assert!(keys.iter().all(|key| !placer.free(*key) && placer.block(*key).is_none()));
        assert!(spans.iter().all(|span| !placer.is_span_free(span)));
        let span = placer.add_span(0, 10);
        assert!(placer.allocate(10).is_ok());
        assert!(placer.remove_span(span).is_err());
    }
}

#[test]
fn the_longest_span_is_used_to_its_end_by_every_placer() {
    let half = 1 << 31;
    let mut placers: [Box<dyn Placer>; 3] =
        [Box::new(SegregatedFit::new()), Box::new(Slabs::new(half - 1)), Box::new(Linear::new())];
    for placer in &mut placers {
        let span = placer.add_span(u32::MAX, MAX_SPAN);
        let (a, b) = (placer.allocate(half - 1).unwrap(), placer.allocate(half - 1).unwrap());
        assert_eq!((a.offset, b.offset, a.span, b.span), (0, half - 1, u32::MAX, u32::MAX));
        assert!(placer.allocate(half - 1).is_err());
        assert!(placer.allocate_aligned(1, half).is_err());
        assert!(placer.free(a.key) && placer.free(b.key));
        assert_eq!(placer.remove_span(span), Ok(()));
    }
}

#[test]
fn a_block_that_fits_is_found_behind_any_number_of_slightly_smaller_ones() {
    const COUNT: u32 = 300;
    let mut placer = SegregatedFit::new();
    placer.add_span(0, COUNT * 1601 + 1651);
    let mut apart = |size| {
        let block = placer.allocate(size).unwrap();
        placer.allocate(1).unwrap();
        block
    };
    let narrow: Vec<_> = (0..COUNT).map(|_| apart(1600)).collect();
    let wide = apart(1650);
    assert_eq!(placer.largest_free(), 0);
    // What was freed first, but for the lowest, is looked at last.
    let (lowest, others) = narrow.split_first().unwrap();
    for block in [lowest, &wide].into_iter().chain(others) {
        assert!(placer.free(block.key));
    }
    assert_eq!(placer.allocate(1651), Err(PlaceError::Full { size: 1651, alignment: 1 }));
    assert_eq!(placer.allocate(1650).unwrap().offset, wide.offset);
}

#[test]
fn slabs_fill_the_span_that_is_used_and_leave_others_empty() {
    let mut slabs = Slabs::new(4);
    let spans = [1, 2, 3].map(|tag| slabs.add_span(tag, 40));
    let mut blocks: Vec<_> = (0..25).map(|_| slabs.allocate(4).unwrap()).collect();
    assert!(!spans.iter().any(|span| slabs.is_span_free(span)), "twenty-five slots of ten a span");
    // Of each span but three, and then what is placed goes where something is.
    blocks.retain(|block| block.offset < 12 || !slabs.free(block.key));
    for _ in 0..100 {
        let (index, block) = (blocks.len() / 2, slabs.allocate(4).unwrap());
        blocks.push(block);
        assert!(slabs.free(blocks.swap_remove(index).key));
    }
    for block in blocks {
        assert!(slabs.free(block.key));
    }
    assert!(spans.into_iter().all(|span| slabs.remove_span(span).is_ok()));
    assert_eq!(slabs.largest_free(), 0);
}

/// A number for the span, one of many sizes and alignments, or a free.
fn action() -> impl Strategy<Value = (u8, u16, u32, u32)> {
    (0u8..40, any::<u16>(), 1u32..3000, 0u32..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_programs_agree_with_a_map_of_intervals(
        kind in prop_oneof![
            (1u32..40).prop_map(|minimal| Kind::Segregated { minimal }),
            (1u32..3000).prop_map(|slot| Kind::Slabs { slot }),
            Just(Kind::Linear),
        ],
        actions in prop::collection::vec(action(), 1..300),
    ) {
        let mut model = Model::new(kind);
        model.add_span(20_000);
        for (what, choice, size, log) in actions {
            match what {
                0 => model.add_span(size * 8),
                1 => model.remove_span(choice.into()),
                2..16 => model.free(choice.into()),
                16..30 => model.allocate(if what < 24 { size / 16 + 1 } else { size }, 1),
                _ => model.allocate(size / 4 + 1, 1 << log),
            }
            model.check();
        }
    }
}

/// A thousand blocks of 256 bytes to 64 MiB, as many of each power of two, that come and go at random: what is wasted of one arena, 1 − what
/// was live at most / where a block ended at most.
fn waste(seed: u64) -> f64 {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    };
    let mut placer = SegregatedFit::new();
    placer.add_span(0, MAX_SPAN);
    let mut live: Vec<Block> = Vec::new();
    let (mut units, mut peak, mut high_water) = (0u64, 0, 0);
    for _ in 0..10_000 {
        if live.len() >= 1000 {
            let block = live.swap_remove((next() % live.len() as u64) as usize);
            units -= u64::from(block.size);
            assert!(placer.free(block.key));
        } else {
            let base = 1u64 << (8 + next() % 18);
            let block = placer.allocate((base + next() % base).div_ceil(256) as u32).unwrap();
            units += u64::from(block.size);
            (peak, high_water) = (peak.max(units), high_water.max(block.offset + block.size));
            live.push(block);
        }
    }
    1.0 - peak as f64 / f64::from(high_water)
}

#[test]
fn blocks_of_many_sizes_that_come_and_go_leave_a_ninth_of_an_arena_unused() {
    let seeds = [1, 42, 0x5EED].map(waste);
    assert!(seeds.iter().all(|waste| *waste <= 0.107), "{seeds:?}");
    // An exact best fit wastes 0.128 with these, which nothing was chosen by.
    let others = (100..140).map(waste).sum::<f64>() / 40.0;
    assert!(others <= 0.112, "{others}");
}
