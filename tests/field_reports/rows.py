"""The register of what users of comparable systems reported, in our words: LangGraph's checkpointers (L), DBOS (D),
Temporal's SDKs (T) and agentd (A) here; task tables, task graphs, other stores and the eventsourcing library (K, Z, X,
E) in ``rows_k_z_x_e.py``. A row is a kind of fault. It must never list a row without either a test that cites its id or
the reason why there is none."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["IDS", "ROWS", "Row"]

Verdict: TypeAlias = Literal["tested", "comes with", "does not apply"]


class Row(NamedTuple):
    """Where it was reported, what it was, and what became of it: the ``test`` that holds it, or the reason why none
    does."""

    thread: str
    fault: str
    verdict: Verdict
    where: str


IDS = {
    "L": (
        1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41, 43,
        44, 46, 47, 49, 50,
    ),
    "D": (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35),
    "T": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21, 23, 24, 26, 27, 29, 30),
    "A": (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23),
    "K": (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26),
    "Z": (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32),
    "X": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21, 23, 24, 26, 27),
    "E": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21, 23, 24, 26, 27, 29, 30),
}  # fmt: skip
"""Every row of the eight tables, by table."""

_SAVER = (
    "The adapter that lets LangGraph keep its checkpoints here. The suite that this row is about tests a saver, and "
    "there is none yet."
)
_ERASURE = (
    "Erasure: content keys for each subject, so that what was deleted cannot be read from the file or any copy. Until "
    "then a deleted run leaves no row behind in any table, which test_a_deleted_run_leaves_no_row_behind holds."
)
_RETENTION = (
    "Retention: a policy that says which runs go when, and purges them bit by bit. Until then a run is kept until "
    "somebody deletes it, which the rows L37 and D4 have tests for; opening a store loads no run."
)

_LANGGRAPH = "tests/field_reports/test_langgraph.py::"
_DBOS = "tests/field_reports/test_dbos.py::"
_TEMPORAL = "tests/field_reports/test_temporal.py::"
_AGENTD = "tests/field_reports/test_contexts.py::"
_VALUES = "tests/field_reports/test_awkward_values.py::"
_REPORTS = "tests/projections/graph/test_graph_reports.py::"
_RULES = "tests/projections/tasks/test_tasks_rules.py::"
_FLAWS = "tests/projections/contexts/test_contexts_flaws.py::"


def _tested(thread: str, fault: str, test: str) -> Row:
    return Row(thread, fault, "tested", test)


ROWS = {
    # -- LangGraph ----------------------------------------------------------------------------------------------------
    "L1": _tested(
        "langgraph #8796",
        "a store that two processes could corrupt passed every test, for none had two writers",
        f"{_LANGGRAPH}test_of_many_writers_at_one_version_one_wins",
    ),
    "L2": _tested(
        "langgraph #8115",
        "writes at one moment were lost between looking and inserting",
        f"{_LANGGRAPH}test_writers_of_different_things_lose_none",
    ),
    "L4": _tested(
        "langgraph #4168",
        "one object used from many tasks wrote corrupt checkpoints",
        f"{_LANGGRAPH}test_one_run_object_shared_by_threads_equals_a_serial_model",
    ),
    "L5": _tested(
        "langgraph #8136",
        "two connections met 'database is locked'",
        f"{_LANGGRAPH}test_no_lock_error_reaches_anybody",
    ),
    "L7": _tested(
        "langgraph #8764",
        "a run that was accepted was gone after a crash before its first checkpoint",
        f"{_LANGGRAPH}test_a_task_accepted_right_before_a_kill_is_there",
    ),
    "L8": _tested(
        "langgraph #8298",
        "what was acknowledged was only in memory when the process was killed",
        f"{_LANGGRAPH}test_what_any_public_write_returned_from_is_in_the_files",
    ),
    "L10": _tested(
        "langgraph #9002",
        "an error handler that had run was run again on resume",
        f"{_LANGGRAPH}test_a_handler_that_ran_does_not_run_again_on_resume",
    ),
    "L11": _tested(
        "langgraph #8834",
        "a node was done before its edge was chosen, and a crash between them skipped the edge",
        "tests/projections/graph/test_graph_laws.py::test_a_run_cut_inside_a_commit_comes_to_rest_again",
    ),
    "L13": _tested(
        "langgraph #8458",
        "going back into a nested graph ran it from its start",
        f"{_LANGGRAPH}test_a_fork_at_any_event_can_go_on_where_the_original_could",
    ),
    "L14": _tested(
        "langgraph #7032, #7038, #7115, #7561",
        "values that had resumed a run were consumed again on replay",
        f"{_LANGGRAPH}test_a_signal_is_consumed_once_on_every_branch",
    ),
    "L16": _tested(
        "langgraph #4987",
        "after going back, writes went to the old checkpoint and its id stood still",
        f"{_LANGGRAPH}test_after_a_fork_every_append_is_a_new_larger_position",
    ),
    "L17": _tested(
        "langgraph #6821",
        "the latest version was the last one in the alphabet",
        f"{_LANGGRAPH}test_the_latest_of_a_thousand_is_the_thousandth",
    ),
    "L19": _tested(
        "langgraphjs #2854",
        "ids made of time were out of order when the clock went back",
        f"{_LANGGRAPH}test_a_clock_that_jumps_changes_no_order",
    ),
    "L20": _tested(
        "langgraph #7913",
        "every read made up other ids",
        f"{_LANGGRAPH}test_two_reads_are_byte_identical",
    ),
    "L22": _tested(
        "langgraphjs #590",
        "a list left out what the single answer held",
        f"{_LANGGRAPH}test_what_a_list_shows_is_what_get_gives",
    ),
    "L23": _tested(
        "langgraph #6718",
        "an enum came back as None, or as a number",
        f"{_VALUES}test_what_cannot_be_kept_exactly_is_refused_with_its_path",
    ),
    "L25": _tested(
        "langgraph #8184",
        "kinds of dict came back as plain dicts",
        f"{_VALUES}test_what_cannot_be_kept_exactly_is_refused_with_its_path",
    ),
    "L26": _tested(
        "langgraph #8157",
        "a bounded queue came back without its bound",
        f"{_VALUES}test_what_cannot_be_kept_exactly_is_refused_with_its_path",
    ),
    "L28": _tested(
        "langgraph #9021",
        "a dataclass came back as None, or as a dict",
        f"{_VALUES}test_what_cannot_be_kept_exactly_is_refused_with_its_path",
    ),
    "L29": _tested(
        "langgraph #8185, #8326, #8350",
        "fractions, ranges and paths failed late, without saying where they were",
        f"{_VALUES}test_what_cannot_be_kept_exactly_is_refused_with_its_path",
    ),
    "L31": _tested(
        "langgraph #4956, #1866",
        "secrets could not be kept, or were kept and shown",
        f"{_LANGGRAPH}test_no_payload_is_ever_logged",
    ),
    "L32": _tested(
        "langgraph #8686",
        "None stood for what is not there",
        f"{_VALUES}test_what_can_be_kept_comes_back_type_for_type",
    ),
    "L34": _tested(
        "langgraph #8470, #8653",
        "a snapshot and the changes after it were not the whole",
        f"{_LANGGRAPH}test_snapshot_and_tail_equal_the_full_fold",
    ),
    "L35": _tested(
        "langgraph #8531",
        "pruning took away what others rested on",
        f"{_LANGGRAPH}test_pruning_at_random_changes_no_state",
    ),
    "L37": Row("langgraph #8054", "a delete left the payloads in another table", "comes with", _ERASURE),
    "L38": _tested(
        "langgraphjs #1138, bytedance/deer-flow #4138",
        "every step stored everything again",
        f"{_LANGGRAPH}test_a_conversation_of_ten_thousand_turns_costs_its_own_bytes",
    ),
    "L40": _tested(
        "langgraphjs #536, #780, langchain-ai/docs #445, #3843",
        "nothing said what becomes of old state under new code",
        f"{_LANGGRAPH}test_journals_of_every_release_restore_under_the_newest",
    ),
    "L41": _tested(
        "langgraph #8938, #9004",
        "a cell was accepted in another row than its own, and in a weaker format",
        f"{_LANGGRAPH}test_a_stored_cell_is_good_in_its_own_place_only",
    ),
    "L43": _tested(
        "CVE-2025-67644, CVE-2025-64104, CVE-2025-8709",
        "names of filters became SQL",
        f"{_LANGGRAPH}test_a_name_is_only_a_name",
    ),
    "L44": _tested(
        "a downstream project of langgraph",
        "several savers on one file got into each other's way",
        f"{_LANGGRAPH}test_stores_on_one_file_do_not_collide",
    ),
    "L46": _tested(
        "langgraph #8701",
        "nested metadata was not filtered by",
        "tests/engine/readmodel/test_readmodel_asking.py::test_nested_metadata_is_found_by_key_path_and_value",
    ),
    "L47": Row("langgraph #6883, #6661", "the wider abilities of a saver were not there", "comes with", _SAVER),
    "L49": _tested(
        "langgraph #7714",
        "the stored form was many times as large as what it held",
        f"{_LANGGRAPH}test_every_type_of_event_keeps_to_its_budget_of_bytes",
    ),
    "L50": _tested(
        "langgraph #3762",
        "a write returned and was not committed",
        f"{_LANGGRAPH}test_what_any_public_write_returned_from_is_in_the_files",
    ),
    # -- DBOS ---------------------------------------------------------------------------------------------------------
    "D1": _tested(
        "dbos-transact-py #260",
        "an attempt in the midst of its retries was taken for a result",
        f"{_REPORTS}test_d1_a_crash_between_attempt_and_outcome_is_in_flight",
    ),
    "D2": _tested(
        "dbos-transact-py #805",
        "a recovered workflow waited between two steps for ever, and others behind it",
        f"{_REPORTS}test_d2_whatever_is_not_terminal_can_go_on",
    ),
    "D4": _tested(
        "dbos-transact-py #769",
        "an interrupted purge left outputs that the next run of that id replayed",
        f"{_DBOS}test_a_purge_killed_at_any_statement_leaves_nothing_for_the_next_of_that_name",
    ),
    "D5": _tested(
        "dbos-transact-py #770",
        "what a step emitted was there once for every retry",
        f"{_DBOS}test_what_an_attempt_says_is_said_once_however_often_it_is_retried",
    ),
    "D7": _tested(
        "dbos-transact-py #714",
        "two that checked one marker at one moment polled for ever",
        f"{_DBOS}test_what_is_decided_once_is_decided_once_among_many",
    ),
    "D8": _tested(
        "dbos-transact-py #762",
        "a finished workflow ran again",
        "tests/field_reports/test_terminal.py::test_an_ended_task_absorbs_whatever_comes_after",
    ),
    "D10": _tested(
        "dbos-transact-py #779",
        "what introspection showed was recorded, in rows of 180 MB",
        f"{_DBOS}test_nothing_that_reads_appends",
    ),
    "D11": _tested(
        "dbos-transact-py #111",
        "what could not be serialised was logged and dropped",
        f"{_DBOS}test_a_failed_encoding_is_never_silent",
    ),
    "D13": _tested(
        "dbos-transact-py #435",
        "a bad input gave an error that did not say which",
        f"{_RULES}test_a_bad_argument_is_refused_with_its_path",
    ),
    "D14": _tested(
        "dbos-transact-py #485, #806",
        "the log could be read by one language and its classes only",
        f"{_DBOS}test_a_log_is_read_by_anybody_without_our_classes",
    ),
    "D16": _tested(
        "dbos-transact-py #395",
        "one bad row hid the list of all",
        f"{_DBOS}test_one_bad_row_never_hides_the_others",
    ),
    "D17": Row("dbos-transact-py #138, #751", "tables grew without bound", "comes with", _RETENTION),
    "D19": _tested(
        "dbos-transact-py #716",
        "the database restarted in the midst of a recovery, and the rest was stranded",
        f"{_DBOS}test_statements_of_a_restore_that_fail_once_strand_nothing",
    ),
    "D20": _tested(
        "dbos-transact-py #812",
        "forks of runs without a step failed",
        f"{_DBOS}test_forks_of_nothing_and_of_everything",
    ),
    "D22": _tested(
        "dbos-transact-py #147, #139",
        "timers did not survive a crash",
        f"{_AGENTD}test_a_schedule_fires_once_across_a_crash",
    ),
    "D23": _tested(
        "dbos-transact-py #702",
        "a new hash of the code stranded what ran under the old",
        f"{_DBOS}test_newer_code_strands_no_work_and_older_code_says_what_it_lacks",
    ),
    "D25": _tested(
        "dbos-transact-py #181",
        "some errors of a step were not recorded, so it was not once only",
        f"{_DBOS}test_every_cause_of_a_failure_is_on_the_record",
    ),
    "D26": _tested(
        "dbos-transact-py #704",
        "a recorded error of a child was retried as if it happened now",
        f"{_DBOS}test_only_errors_of_the_moment_ask_for_another_try",
    ),
    "D28": _tested(
        "dbos-transact-py #180",
        "filters compared seconds with milliseconds",
        f"{_DBOS}test_bounds_of_time_and_position_mean_what_they_say",
    ),
    "D29": _tested(
        "dbos-transact-py #682",
        "the clocks of program and database were mixed",
        f"{_LANGGRAPH}test_a_clock_that_jumps_changes_no_order",
    ),
    "D31": _tested(
        "dbos-transact-ts #1205",
        "of two recoverers one consumed a message and the other marked the run as failed",
        f"{_DBOS}test_two_recoverers_of_one_task_make_one_history",
    ),
    "D32": _tested(
        "dbos-transact-ts #725",
        "an id used for another function broke the first",
        f"{_DBOS}test_an_id_is_bound_to_what_it_was_first_used_for",
    ),
    "D34": _tested(
        "dbos-transact-golang #375",
        "an export left out a column",
        f"{_DBOS}test_no_column_is_left_out_of_an_export",
    ),
    "D35": _tested(
        "a downstream coding agent of dbos",
        "processes that began at one moment raced to set up the database; some ran on without durability",
        f"{_DBOS}test_processes_that_open_one_old_store_at_once_all_get_a_durable_one",
    ),
    # -- Temporal -----------------------------------------------------------------------------------------------------
    "T2": _tested(
        "temporal sdk-python #1578",
        "things that ran side by side were replayed in another order",
        f"{_TEMPORAL}test_completions_are_replayed_in_the_order_in_which_they_came",
    ),
    "T3": _tested(
        "temporal sdk-python #1109",
        "one more random number before an id changed every id after it",
        f"{_TEMPORAL}test_no_identity_is_drawn_from_a_stream_of_chance",
    ),
    "T5": _tested(
        "temporal sdk-python #1018",
        "what checked a history ran otherwise than what made it",
        f"{_TEMPORAL}test_whoever_folds_calls_the_same_function",
    ),
    "T6": _tested(
        "temporal sdk-python #325, #494, #341, #499, #1849",
        "the collector ended a coroutine in another thread, and its commands went into another history",
        f"{_TEMPORAL}test_a_runtime_that_is_dropped_half_way_appends_nothing",
    ),
    "T8": Row(
        "temporal sdk-python #441",
        "a span was ended in another context than it was begun in",
        "does not apply",
        "Nothing here opens a span or keeps anything in context variables, so no context can be the wrong one.",
    ),
    "T9": _tested(
        "temporal sdk-python #784, #466",
        "an error while something was evicted lost its place for good",
        f"{_TEMPORAL}test_a_restore_that_fails_gives_back_what_it_took",
    ),
    "T11": _tested(
        "temporal sdk-python #436, features #467",
        "what was still to come was dropped when a history was rolled over",
        f"{_TEMPORAL}test_what_is_pending_survives_rolling_and_compacting",
    ),
    "T12": _tested(
        "temporal sdk-python #89",
        "a condition and its timeout raced",
        f"{_TEMPORAL}test_of_a_signal_and_a_timeout_in_one_instant_the_recorded_one_counts",
    ),
    "T14": _tested(
        "temporal sdk-python #852, #1032",
        "values of some annotations failed: literals, dicts with keys of a subclass",
        f"{_VALUES}test_every_argument_of_every_command_is_refused_or_kept",
    ),
    "T15": _tested(
        "temporal sdk-python #496, #207, #254",
        "what came back was of a twin of its class",
        f"{_TEMPORAL}test_what_a_restored_run_hands_out_is_of_the_very_classes_of_a_live_one",
    ),
    "T17": _tested(
        "temporal sdk-python #1239",
        "the size of a page was ignored",
        f"{_TEMPORAL}test_pages_of_any_size_are_one_sequence",
    ),
    "T18": _tested(
        "temporal sdk-python #154, sdk-java #1497",
        "one replayer could check one history",
        f"{_TEMPORAL}test_many_histories_are_checked_at_once",
    ),
    "T20": _tested(
        "temporal sdk-python #192",
        "a marker was asked for twice, and answered twice",
        f"{_DBOS}test_what_is_decided_once_is_decided_once_among_many",
    ),
    "T21": _tested(
        "temporal sdk-go #781",
        "a history of more than one page failed to replay",
        f"{_TEMPORAL}test_logs_of_any_number_of_pages_are_read_whole",
    ),
    "T23": _tested(
        "temporal sdk-go #876, #978, #983, #988",
        "a replayer did not see that a history was another",
        f"{_TEMPORAL}test_no_edit_of_any_kind_of_event_goes_unseen",
    ),
    "T24": _tested(
        "temporal sdk-go #1670",
        "a history that ended in the midst of a task raised an alarm",
        f"{_TEMPORAL}test_every_prefix_of_a_log_restores_without_alarm",
    ),
    "T26": _tested(
        "temporal sdk-typescript #1966",
        "an update was accepted twice",
        f"{_DBOS}test_what_is_decided_once_is_decided_once_among_many",
    ),
    "T27": _tested(
        "temporal features #506",
        "what came after the last finished task could not be replayed",
        f"{_TEMPORAL}test_every_prefix_of_a_log_restores_without_alarm",
    ),
    "T29": _tested(
        "temporal, documented limits",
        "a history may hold 51,200 events, for it is replayed whole",
        f"{_TEMPORAL}test_a_long_run_restores_in_time",
    ),
    "T30": _tested(
        "temporal sdk-dotnet #330",
        "users asked for a way to fuzz their replays",
        f"{_TEMPORAL}test_the_machine_that_fuzzes_restores_is_for_everybody",
    ),
    # -- agentd -------------------------------------------------------------------------------------------------------
    "A1": _tested(
        "agentd",
        "a turn that ended between calls and results broke every later turn",
        f"{_FLAWS}test_a1_a_turn_cut_between_calls_and_results_can_be_closed",
    ),
    "A2": _tested(
        "agentd",
        "a compaction left an answer without its question",
        f"{_FLAWS}test_a2_a_fold_never_leaves_an_assistant_message_first",
    ),
    "A4": _tested(
        "agentd",
        "a timer was deleted before what it did was kept",
        f"{_AGENTD}test_a_timer_is_there_until_its_effect_is",
    ),
    "A5": _tested(
        "agentd",
        "the step of a dead worker ran for ever, its place with it",
        f"{_AGENTD}test_what_a_dead_worker_left_running_is_named_and_freed",
    ),
    "A7": _tested(
        "agentd",
        "clients that were ahead of a restarted server waited in silence",
        f"{_AGENTD}test_who_is_ahead_of_the_run_is_told_where_it_ends",
    ),
    "A8": _tested(
        "agentd",
        "what was to happen once happened again and again after its time",
        f"{_AGENTD}test_a_timer_that_has_fired_is_never_due_again",
    ),
    "A10": _tested(
        "agentd",
        "a step called checkpoint kept nothing, and a setting was wired to nothing",
        f"{_FLAWS}test_a10_nothing_is_recorded_that_a_restart_does_not_give_back",
    ),
    "A11": Row("agentd", "every run was kept for ever, and all of them loaded at start", "comes with", _RETENTION),
    "A13": _tested(
        "agentd",
        "a finished worker was marked as failed when its exit overtook its last word",
        f"{_AGENTD}test_a_finished_worker_stays_finished_whatever_comes_late",
    ),
    "A14": _tested(
        "agentd",
        "the end was told before the result, which was then not waited for",
        f"{_AGENTD}test_an_end_and_its_result_are_seen_together",
    ),
    "A16": _tested(
        "agentd",
        "what had been thrown away was taken up again at the next start",
        f"{_AGENTD}test_what_was_thrown_away_does_not_come_back",
    ),
    "A17": _tested(
        "agentd",
        "correcting a word of the configuration orphaned the state",
        f"{_AGENTD}test_a_run_is_known_by_its_name_and_nothing_else",
    ),
    "A19": _tested(
        "agentd",
        "a schedule fired twice across a crash",
        f"{_AGENTD}test_a_schedule_fires_once_across_a_crash",
    ),
    "A20": _tested(
        "agentd",
        "after one compaction something waited for ever",
        f"{_FLAWS}test_a20_a_compaction_leaves_nothing_waiting",
    ),
    "A22": _tested(
        "agentd",
        "a loop of five wrote the whole record 32 times",
        f"{_AGENTD}test_a_loop_costs_what_it_does_and_not_what_it_has_done",
    ),
    "A23": _tested(
        "agentd",
        "a question to a person was lost at a restart, and its answer became a new request",
        f"{_FLAWS}test_a23_a_question_to_a_human_outlives_a_restart",
    ),
}
