//! The mutants, each with the tests of the suite that must notice it.

use crate::fault::Fault;

/// What a mutant is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The host as programs use it.
    Plain,
    /// The host made hard: memory of its own, wide pitch, several kinds of memory, completions late and in another order.
    Hard,
    /// The plain host with a driver that runs what no barrier separates backwards.
    Loose,
}

/// A device with a fault.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What it is called.
    pub name: &'static str,
    /// What is wrong with it.
    pub fault: Fault,
    /// What it is made of.
    pub base: Base,
    /// The tests, as `ROW::name`, of which at least one of each row must fail. For a twin there are none: all must pass.
    pub noticed_by: &'static [&'static str],
}

impl Mutant {
    const fn new(name: &'static str, fault: Fault, base: Base, noticed_by: &'static [&'static str]) -> Self {
        Self { name, fault, base, noticed_by }
    }

    /// The mutant or twin of this name.
    pub fn find(name: &str) -> Option<&'static Mutant> {
        TWINS.iter().chain(&MUTANTS).find(|mutant| mutant.name == name)
    }

    /// The rows that must notice it, in the order in which their tests are listed.
    pub fn rows(&self) -> Vec<&'static str> {
        let mut rows: Vec<_> = self.noticed_by.iter().map(|path| row_of(path)).collect();
        rows.dedup();
        rows
    }
}

/// The row of a test's `ROW::name`.
pub fn row_of(path: &str) -> &str {
    path.split_once("::").map_or(path, |(row, _)| row)
}

/// The wrappers with nothing broken, on each base.
pub static TWINS: [Mutant; 3] = [
    Mutant::new("unbroken", Fault::None, Base::Plain, &[]),
    Mutant::new("unbroken_hard", Fault::None, Base::Hard, &[]),
    Mutant::new("unbroken_loose", Fault::None, Base::Loose, &[]),
];

macro_rules! mutants {
    ($($name:ident $fault:ident $base:ident [$($test:literal),* $(,)?];)*) => {
        /// The mutants.
        pub static MUTANTS: [Mutant; [$(stringify!($name)),*].len()] =
            [$(Mutant::new(stringify!($name), Fault::$fault, Base::$base, &[$($test),*])),*];
    };
}

mutants! {
    // ---- order
    wait_dropped WaitDropped Plain [
        "C8::work_of_another_stream_is_waited_for_however_long_it_takes",
        "L4::counts_may_be_written_by_another_stream_just_before",
        "K1::a_transfer_comes_after_the_work_on_its_source",
        "C15::long_work_that_others_have_queued_before_takes_effect_before",
    ];
    barrier_ignored BarrierIgnored Loose [
        "C8::operations_of_one_stream_take_effect_in_order",
        "M6::a_write_takes_effect_in_the_order_of_its_stream",
    ];
    stream_split StreamSplit Plain ["C19::a_point_is_done_when_its_work_is", "C8::a_stream_that_is_held_up_holds_up_no_other"];
    streams_merged StreamsMerged Plain ["C8::a_stream_that_is_held_up_holds_up_no_other"];
    foreign_point_ignored ForeignPointIgnored Plain ["C19::a_stream_stays_behind_a_point_of_another_device"];
    completed_early CompletedEarly Plain [
        "C12::a_sync_takes_as_long_as_the_work",
        "C19::a_point_is_not_done_before_its_work_can_be",
    ];
    read_early ReadEarly Plain [
        "M7::a_read_sees_what_a_long_launch_before_it_writes",
        "C8::operations_of_one_stream_take_effect_in_order",
    ];
    write_early WriteEarly Plain [
        "M6::a_write_comes_after_a_long_launch_that_reads_its_bytes",
    ];
    access_ended_early AccessEndedEarly Plain ["M12::work_stays_undone_as_long_as_its_bytes_are_in_foreign_use"];

    // ---- memory
    reused_early ReusedEarly Plain [
        "M1::memory_of_long_work_is_not_given_to_another_stream_before_its_end",
    ];
    freed_before_launch FreedBeforeLaunch Plain [
        "M1::a_kernel_whose_last_handle_was_dropped_sees_the_old_bytes",
    ];
    budget_ignored BudgetIgnored Plain ["M1::over_the_budget_is_out_of_memory_before_the_driver_is_asked"];
    oom_marks_neighbour OomMarksNeighbour Plain ["M1::a_reservation_that_fails_marks_its_buffer_and_no_other"];
    mode_ignored ModeIgnored Plain ["M14::allocations_go_to_the_pool_of_the_mode"];
    cleanup_ignored CleanupIgnored Plain ["M17::a_clean_up_gives_back_what_is_free_and_keeps_what_is_not"];
    page_leaked PageLeaked Plain ["M17::what_was_given_back_the_driver_can_give_again"];
    layout_ignored LayoutIgnored Plain ["M16::a_layout_governs_what_is_allocated_from_then_on"];
    retired_hidden RetiredHidden Plain ["M16::pages_of_the_layout_before_retire_as_they_empty"];
    payload_kept PayloadKept Plain ["M21::shared_memory_is_kept_until_the_last_view_is_gone"];
    report_off ReportOff Plain ["M15::the_sums_agree_whatever_was_allocated"];
    hooks_unasked HooksUnasked Plain ["M18::a_hook_gives_memory_back_and_the_request_is_served"];
    refusal_forgotten RefusalForgotten Plain ["M18::a_hook_with_nothing_to_give_back_ends_in_the_error_that_names_it"];
    budget_off BudgetOff Plain ["M18::what_is_used_is_told_and_adds_up"];
    lock_given_up LockGivenUp Plain ["M11::a_refused_lock_is_plain_memory_and_counted_and_later_ones_are_tried"];
    dry_run_runs DryRunRuns Plain ["M20::nothing_runs_in_a_dry_run_and_reads_give_zeros"];
    frees_unrecorded FreesUnrecorded Plain ["M19::every_request_and_free_is_recorded_in_order"];
    snapshot_lost SnapshotLost Plain ["M19::a_snapshot_has_the_usage_of_its_place"];
    recording_fault_hidden RecordingFaultHidden Plain ["M19::a_sink_that_fails_ends_the_recording_and_disturbs_nobody"];

    // ---- bytes
    offset_ignored OffsetIgnored Plain ["L5::a_slice_is_what_the_kernel_sees"];
    pattern_halved PatternHalved Plain ["M10::a_fill_repeats_patterns_of_one_to_sixteen_bytes"];
    pitch_ignored PitchIgnored Plain ["M8::a_padded_tensor_is_read_without_its_padding", "K1::a_strided_tensor_arrives_without_gaps"];
    axes_swapped AxesSwapped Plain ["L3::workgroups_know_the_axes_of_their_grid"];
    grid_unread GridUnread Plain ["L4::counts_are_read_from_a_buffer"];
    parameters_cut ParametersCut Plain ["L1::a_kernel_gets_its_parameters", "L5::as_many_parameters_as_the_limit_says_work_and_more_are_refused"];
    parameters_kept ParametersKept Plain ["L10::its_parameters_can_be_replaced", "L1::a_kernel_gets_its_parameters"];
    pieces_swapped PiecesSwapped Plain ["M7::a_read_of_several_handles_answers_each_in_order"];
    fill_spills FillSpills Plain ["M4::a_slice_is_a_range_of_the_same_bytes"];
    copy_cut CopyCut Plain ["M10::a_copy_of_twenty_five_bytes_is_exact"];
    import_copied ImportCopied Plain ["M13::imported_memory_is_used_where_it_is"];
    import_kept ImportKept Plain ["M13::the_same_memory_can_be_imported_again"];
    grant_cut GrantCut Plain ["M2::what_is_created_is_read_back_whatever_its_size"];
    zeros_skipped ZerosSkipped Plain ["M1::zeros_are_zero_also_in_memory_used_before"];
    nothing_refused NothingRefused Plain ["M5::an_empty_buffer_among_others_is_harmless"];

    // ---- failure
    mark_cleared MarkCleared Plain ["M6::a_write_clears_the_failure_on_exactly_the_bytes_written"];
    taint_lost TaintLost Plain ["M10::a_copy_hands_a_failure_on_and_clears_what_it_replaces", "F2::distinct_failures_are_each_named_once_in_order"];
    failure_kept FailureKept Plain [
        "C14::a_check_names_a_failure_known_at_enqueue",
        "M6::a_write_clears_the_failure_on_exactly_the_bytes_written",
        "M9::a_look_that_fails_can_be_repeated",
        "F4::a_kernel_that_merely_stores_clears_nothing",
        "F5::of_several_tensors_in_one_reservation_one_fails_and_the_others_stay_readable",
    ];
    named_twice NamedTwice Plain ["F2::one_failure_on_several_buffers_is_named_once"];
    never_named NeverNamed Plain [
        "L1::a_kernel_that_fails_names_itself_its_workgroup_and_why",
        "L2::under_the_validating_policy_an_access_outside_is_named",
        "L4::counts_over_the_limit_mark_the_outputs",
        "F2::distinct_failures_are_each_named_once_in_order",
    ];
    check_silent CheckSilent Plain [
        "C13::sync_buffers_waits_and_names_what_failed",
        "C14::a_check_names_a_failure_known_at_enqueue",
        "M9::the_async_form_checks_for_failures_at_the_call",
    ];
    chain_reversed ChainReversed Plain [
        "L7::kernels_over_its_outputs_are_skipped_and_those_beside_them_run",
        "F3::a_launch_over_a_failure_is_skipped_and_hands_it_on_with_the_way_it_came",
    ];
    flush_tells FlushTells Plain ["C11::a_flush_reports_no_failure_of_a_launch"];
    transfer_unmarked TransferUnmarked Plain [
        "K1::a_failed_source_marks_the_copy_and_nothing_else",
        "F6::a_panic_of_the_server_marks_the_outputs_and_the_device_goes_on",
        "F9::every_operation_fails_in_every_way_and_harms_nothing_else",
    ];
    panic_fatal PanicFatal Plain ["L1::a_kernel_that_panics_marks_its_outputs_and_the_device_goes_on"];
    fault_hidden FaultHidden Plain ["F7::a_fault_that_the_driver_meets_is_told_by_sync"];
    cause_forgotten CauseForgotten Plain ["C17::what_was_pending_is_answered_with_the_cause"];
    foreign_accepted ForeignAccepted Plain ["F1::a_foreign_handle_is_refused_by_every_call_and_nothing_is_submitted"];

    // ---- kernels
    failure_recompiled FailureRecompiled Plain ["L7::a_failed_compilation_is_kept_and_not_repeated"];
    recompiled Recompiled Plain [
        "L8::a_kernel_is_compiled_once_by_its_id",
        "L12::its_record_adds_up_with_the_devices_statistics",
    ];
    compile_silent CompileSilent Plain [
        "L8::compile_queued_names_what_does_not_compile_and_compiles_the_rest",
        "L9::a_kernel_that_does_not_compile_marks_nothing_and_is_named_later",
    ];
    line_lost LineLost Plain ["L7::a_compile_error_carries_message_line_and_the_kernels_name"];
    interface_misread InterfaceMisread Plain ["L11::a_written_range_that_overlaps_another_is_refused"];

    // ---- time
    waker_lost WakerLost Plain ["C12::a_sync_can_be_awaited"];
    notice_lost NoticeLost Plain ["M7::an_awaited_read_completes_with_nobody_polling"];
    shutdown_late ShutdownLate Plain ["C16::work_that_cannot_end_is_abandoned_and_counted_in_bounded_time"];
    shutdown_uncounted ShutdownUncounted Plain ["C16::work_that_cannot_end_is_abandoned_and_counted_in_bounded_time"];
    progress_unseen ProgressUnseen Plain ["C18::progress_starts_the_timeout_again"];

    // ---- servers of one process
    thread_bound ThreadBound Plain ["C3::clones_are_used_from_many_threads_at_once"];
    context_shared ContextShared Plain ["C2::a_second_server_on_a_device_is_refused_and_the_first_goes_on"];

    // ---- what the device says of itself
    description_empty DescriptionEmpty Plain ["C10::the_description_prints_what_it_holds"];
    index_ignored IndexIgnored Plain ["C1::a_bad_index_names_the_device_and_how_many_there_are"];
    listing_off ListingOff Plain ["C9::devices_are_listed_by_backend_and_kind"];
    limits_assumed LimitsAssumed Plain [
        "C5::tiny_limits_are_reported_as_they_are",
        "M3::optimized_rows_begin_at_multiples_of_the_devices_pitch",
        "L6::every_resource_over_its_limit_is_refused_with_both_numbers",
    ];
    identity_changing IdentityChanging Plain ["C6::the_identity_is_the_same_in_another_run"];
}

/// The rows that no mutant is for, each with why nothing a server or a driver does wrong can show there.
pub static WITHOUT: [(&str, &str); 6] = [
    ("C4", "names and ids are made by the client's side, of what the properties say, which C10 and C6 look at"),
    ("C7", "the client computes the sizes from the width that the properties say, whatever that is"),
    ("F8", "what an error is and says is the type's own, whoever made it"),
    ("X2", "the facade chooses among backends before it opens one"),
    ("X4", "the facade reads and checks the configuration before it opens a device"),
    (
        "X5",
        "the suite's own devices with a fault are in its tests of replaying: they leave the difference that it has to name",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use trunnion_conformance::rows;

    #[test]
    fn every_test_that_is_listed_is_one_of_the_suite() {
        let suite: BTreeSet<String> = rows::tests().iter().map(trunnion_conformance::Test::path).collect();
        for mutant in &MUTANTS {
            assert!(!mutant.noticed_by.is_empty(), "{} is noticed by nothing", mutant.name);
            for path in mutant.noticed_by {
                assert!(suite.contains(*path), "{}: {path}", mutant.name);
            }
        }
    }

    #[test]
    fn no_two_mutants_have_one_name_or_one_fault() {
        let names: BTreeSet<_> = TWINS.iter().chain(&MUTANTS).map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), TWINS.len() + MUTANTS.len());
        for (i, mutant) in MUTANTS.iter().enumerate() {
            assert!(mutant.fault != Fault::None, "{}", mutant.name);
            assert!(MUTANTS[..i].iter().all(|other| other.fault != mutant.fault), "{}", mutant.name);
        }
    }

    #[test]
    fn there_is_a_twin_on_every_base_that_a_mutant_has() {
        for mutant in &MUTANTS {
            assert!(TWINS.iter().any(|twin| twin.base == mutant.base), "{}", mutant.name);
        }
    }

    #[test]
    fn every_row_has_a_mutant_or_a_reason_why_none_can_show_there() {
        let with: BTreeSet<_> = MUTANTS.iter().flat_map(Mutant::rows).collect();
        let without: BTreeSet<_> = WITHOUT.iter().map(|(row, _)| *row).collect();
        assert_eq!(with.intersection(&without).count(), 0, "a row with a mutant needs no reason");
        let missing: Vec<_> = rows::ROWS.iter().filter(|row| !with.contains(*row) && !without.contains(*row)).collect();
        assert!(missing.is_empty(), "no mutant shows there, and nobody says why: {missing:?}");
    }

    #[test]
    fn there_are_at_least_twenty_five_over_at_least_fifteen_rows() {
        let rows: BTreeSet<_> = MUTANTS.iter().flat_map(Mutant::rows).collect();
        assert!(MUTANTS.len() >= 25 && rows.len() >= 15, "{} over {}", MUTANTS.len(), rows.len());
    }
}
