//! The tests, a file a group of rows.

mod allocation;
mod arguments;
mod between;
mod budget;
mod bytes;
mod compile;
mod copies;
mod deadlines;
mod dry;
mod exclusive;
mod failure;
mod grids;
mod growing;
mod handles;
mod hooks;
mod identity;
mod import;
mod launch;
mod launch_modes;
mod layouts;
mod lazy;
mod lost;
mod modes;
mod opening;
mod points;
mod pool_layouts;
mod pressure;
mod program;
mod reads;
mod recording;
mod reports;
mod resource;
mod shutdown;
mod staging;
mod streams;
mod sweep;
mod syncing;
mod taint;
mod text;
mod writes;

use crate::test::Test;

/// The rows of the contract that the suite covers, in its order. `X` rows but X5 are above this library and come with the binary.
pub const ROWS: [&str; 65] = [
    "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C14", "C15", "C16", "C17",
    "C18", "C19", "M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "M12", "M13", "M14", "M15",
    "M16", "M17", "M18", "M19", "M20", "M21", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10", "L11",
    "L12", "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "K1", "X2", "X4", "X5",
];

/// Where a row stands in the contract; unknown ones come last.
pub fn order(row: &str) -> usize {
    ROWS.iter().position(|known| *known == row).unwrap_or(ROWS.len())
}

/// Every test of the library.
pub fn tests() -> Vec<Test> {
    [
        opening::tests(),
        pool_layouts::tests(),
        growing::tests(),
        identity::tests(),
        streams::tests(),
        syncing::tests(),
        exclusive::tests(),
        shutdown::tests(),
        lost::tests(),
        deadlines::tests(),
        points::tests(),
        allocation::tests(),
        layouts::tests(),
        handles::tests(),
        writes::tests(),
        reads::tests(),
        lazy::tests(),
        copies::tests(),
        staging::tests(),
        resource::tests(),
        import::tests(),
        modes::tests(),
        reports::tests(),
        recording::tests(),
        pressure::tests(),
        budget::tests(),
        hooks::tests(),
        dry::tests(),
        bytes::tests(),
        launch::tests(),
        launch_modes::tests(),
        grids::tests(),
        text::tests(),
        arguments::tests(),
        compile::tests(),
        failure::tests(),
        taint::tests(),
        sweep::tests(),
        between::tests(),
        program::tests(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::{ROWS, tests as all};
    use alloc::collections::BTreeSet;

    #[test]
    fn every_row_has_several_tests_and_every_test_a_row() {
        let tests = all();
        for row in ROWS.into_iter().filter(|row| !row.starts_with('X')) {
            let of_row = tests.iter().filter(|test| test.row == row && !test.hidden).count();
            assert!(of_row >= 2, "{row} has {of_row} tests");
        }
        for test in &tests {
            assert!(ROWS.contains(&test.row), "{}", test.path());
        }
    }

    #[test]
    fn no_two_tests_have_one_name() {
        let tests = all();
        let names: BTreeSet<_> = tests.iter().map(|test| test.name).collect();
        assert_eq!(names.len(), tests.len());
    }
}
