"""`python -m tests.mutations [WORDS]`: old behavior is put back, and the tests must notice.

Each mutation changes one place of the source in a copy of the project and runs the tests that are
to notice it: they must fail.  A mutation whose text is not found, or is found twice, is an error:
the source has moved on, and the mutation must follow.  With WORDS, only mutations whose names have
one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("claimlib", "conf", "jobs", "notebooks", "tests", "pyproject.toml", "README.md", "docs")
FAILED = 1  # pytest's exit code where tests failed; others say that it could not run them


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change, and who must notice it.

    Attributes:
        name: what is wrong with the changed source.
        file: of the source, or of a test that breaks it on purpose.
        old, new: the text that is replaced; it stands in the file once.
        tests: pytest's names of the tests that must fail, all in one run: one of them is enough.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_IMPORT = "tests/delta/test_import.py"
_AS_THEY_ARE = "tests/delta/test_given_as_they_are.py"
_REFUSED = "tests/delta/test_refused.py"
_REMOVALS = "tests/delta/test_removals.py"
_AGAIN = "tests/delta/test_again.py"
_UNSOUND = "tests/delta/test_unsound_rows.py"
_OLD = "tests/delta/test_old_commits.py"
_LOCAL_DELTA = "tests/delta/test_local_delta.py"
_READERS = "tests/delta/test_readers.py"
_PLACES = "tests/delta/test_places.py"
_RUN_ID = "tests/delta/test_run_id.py"
_SERVER = "tests/live/test_server.py"
_ENTRIES = "tests/live/test_entries.py"
_READER = "tests/live/test_reader.py"
_TERMINAL = "tests/edge/test_terminal.py"
_SESSION = "tests/edge/test_session.py"
_NO_SPARK = "tests/edge/test_runs_without_spark.py"
_CLI_RUN_ID = "tests/edge/test_run_id.py"
_POLICY = "tests/edge/test_policy.py"
_CLI = "tests/edge/test_cli.py"
_UNUSABLE = f"{_CLI}::test_a_request_that_cannot_be_used_ends_with_2_and_names_what_is_wrong"
_SECRETS = "tests/edge/test_secrets.py"
_LOCAL_COMMITS = "tests/delta/test_local_commits.py"
_MODEL = "tests/unit/test_model.py"
_UNIT_PLACES = "tests/unit/test_places.py"
_XPENDING = "tests/spark/test_xpending.py"
_PROPERTY = "tests/spark/test_property.py"
_BROKEN = "tests/spark/test_broken_kernel.py"
_CLI_STORE = "tests/edge/test_cli_store.py"
_CLAIMS = "tests/spark/test_claims.py"
_STAYS = "test_what_others_change_while_a_snapshot_writes_a_small_table_again_stays_as_they_left_it"
_RACES = "tests/delta/test_races.py"
_KERNEL = "tests/unit/test_kernel.py"
_INTERPRETED = "tests/delta/test_interpreted.py"
_COMPILED = "test_a_run_on_small_tables_interprets_its_queries_and_one_on_large_ones_compiles_them"
_MANY_ROWS = "test_many_rows_of_this_process_are_the_same_rows_and_few_for_the_optimizer"
_ONE_COLLECTOR = "test_java_is_given_one_garbage_collector_for_with_two_it_does_not_start"
_BECOMES_LARGE = "test_a_small_store_that_becomes_a_large_one_is_written_by_compiled_queries"
_GIVEN_BACK = "test_the_settings_are_as_they_were_after_a_run_that_is_refused"
_INCREMENTAL = "tests/delta/test_incremental.py"
_LOST_ENTRIES = (
    "test_where_the_entries_were_lost_and_are_made_again_no_sweep_takes_them_for_deleted"
)
_ENTRIES_BY_HAND = "test_entries_made_again_by_hand_are_refused_until_init_takes_the_proofs_back"
_MANY_LOOKED_AT = "test_many_rows_are_looked_at_in_a_file_which_goes_with_the_decision"
_DRY_RUN = "test_such_a_file_stays_for_the_frames_of_a_dry_run_until_the_process_ends"
_ELSEWHERE = "test_where_spark_cannot_read_a_file_or_it_would_be_large_the_table_is_read"
_WHILE_INIT = (
    "test_entries_that_are_made_again_while_init_looks_at_them_have_their_proofs_taken_back"
)
_AT_ONCE = "test_what_spark_says_of_a_version_that_is_not_there_comes_at_once"
_UNFINISHED_ALIKE = (
    "test_before_an_unfinished_snapshot_writes_into_an_older_copy_of_entries_that_is_refused"
)
_BEFORE_INIT = "test_a_sweep_that_has_looked_at_proofs_before_init_takes_them_back_is_refused"
_NOT_THE_OTHER = "test_a_table_that_was_not_accepted_is_refused_though_another_one_was"
_OLD_STREAMS = "test_an_old_copy_of_streams_does_not_bring_back_proofs_that_were_taken_back"
_TOLD_TO_ACCEPT = (
    "test_init_refuses_replaced_tables_before_it_changes_anything_unless_told_to_accept_them"
)
_CUT_OFF_INIT = (
    "test_an_init_that_is_cut_off_before_it_creates_a_lost_table_or_after_it_is_finished_by_another"
)
_LOST_TABLE = "test_init_creates_a_lost_table_as_the_others_are_and_accepts_it"
_ENTRIES_ALIKE = (
    "test_entries_made_again_with_their_old_id_are_refused_until_init_takes_the_proofs_back"
)
_UNFINISHED = (
    "test_an_unfinished_snapshot_proves_nothing_of_entries_that_were_lost_and_made_again_since"
)
_SUMMED_UP = "tests/delta/test_summed_up.py"
_SOME_IDS = "test_so_are_the_entries_with_some_ids_whichever_half_of_an_id_differs"
_SEVERAL_FILES = (
    "test_the_rows_of_a_large_bucket_are_written_to_several_files_in_the_order_of_their_key"
)
_KEPT_APART = "test_a_group_whose_page_has_no_rows_is_kept_apart_from_one_whose_hash_it_shares"
_NAMED_KEYS = "tests/spark/test_named_keys.py"
_WITHIN_BOUNDS = "test_of_a_large_table_the_rows_within_bounds_are_those_that_spark_reads"
_PAGE_OF_LARGE = (
    "test_a_page_of_a_large_store_is_decided_by_interpreted_queries_and_merged_by_a_compiled_one"
)
_APPENDED = "test_a_run_that_has_appended_to_a_table_goes_on_so_though_the_table_is_small_by_then"
_BETWEEN_LOOKS = "test_who_commits_between_two_looks_at_a_history_does_not_hide"
_NO_NUMBERS = (
    "test_a_run_whose_commit_has_no_numbers_is_finished_by_what_the_table_held_before_and_after"
)
_SAYS_NOTHING = (
    "test_a_run_whose_commit_does_not_say_who_made_it_is_not_said_to_have_lost_what_it_deleted"
)
_RESTORED = "tests/delta/test_restored.py"
_MUST = "runs_go_on_and_change_what_they_must"
_LARGER_STEPS = (
    "test_where_a_history_does_not_tell_the_used_numbers_they_are_passed_over_in_larger_steps"
)
_WRITTEN_AGAIN = (
    "test_a_run_whose_row_of_runs_is_gone_is_written_there_again_and_changes_nothing_else"
)
_COPIED = "test_a_copy_of_a_row_does_not_make_up_for_one_that_another_writer_took"
_COPY_OF_DELETED = (
    "test_where_a_run_is_finished_later_a_copy_of_what_it_deleted_makes_up_for_nothing_either"
)
_COPY_OF_CLAIMED = "test_a_copy_of_a_row_does_not_make_up_for_one_either_where_nothing_is_deleted"
_COPY_OF_LOST = "test_an_entry_of_which_there_are_two_rows_is_lost_once"
_SHRUNK = "test_a_group_whose_proof_of_absence_has_shrunk_is_refused_as_a_full_sweep_does"
_KNOWN = (
    "tests/unit/test_known_present.py"
    "::test_whatever_a_base_tells_to_be_there_is_there_in_thousands_of_histories"
)

_OWN_ROWS = f"{_REMOVALS}::test_a_store_with_rows_of_its_own_is_never_taken_over_by_a_snapshot"
_EMPTIED = (
    f"{_REMOVALS}::test_a_server_that_has_nothing_empties_its_mirror_only_where_that_is_allowed"
)
_SHARE = f"{_REMOVALS}::test_a_share_that_nothing_explains_is_judged_for_each_stream_and_for_all"
_EXPLAINED = (
    f"{_REMOVALS}"
    "::test_what_was_acknowledged_deleted_or_trimmed_is_explained_and_a_group_made_again_is_not"
)
_MADE_AGAIN = f"{_REMOVALS}::test_a_stream_that_was_made_again_with_larger_ids_explains_nothing"
_GIVEN_UP = "tests/delta/test_given_up.py"
_TAKEN = (
    f"{_RACES}::test_what_another_writer_takes_between_decision_and_apply_is_lost_and_stays_away"
)
_HALF_APPLIED = (
    "test_what_a_run_that_is_given_up_had_applied_is_not_taken_for_entries_that_are_gone"
)
_HELD_TWICE = (
    "tests/delta/test_repeated_rows.py"
    "::test_an_import_over_a_key_that_the_store_holds_twice_each_time_otherwise_comes_to_its_end"
)
_NO_SETTING = (
    "tests/edge/test_config.py"
    "::test_a_variable_that_names_no_key_is_refused_by_the_name_that_it_should_have"
)
_PIPED = (
    "tests/live/test_connection.py"
    "::test_a_password_that_comes_through_a_pipe_opens_every_connection_and_is_never_shown"
)
_SPAN = (
    f"{_READER}::test_the_span_that_other_groups_need_is_read_where_the_group_has_nothing_pending"
)
_RECOVERED = (
    f"{_REMOVALS}"
    "::test_an_import_that_is_recovered_leaves_alone_what_was_appended_and_changed_since_its_decision"
)
_CAME_AGAIN = (
    f"{_AGAIN}::test_a_driver_that_applies_a_snapshot_late_leaves_what_was_removed_and_came_again"
)
_NOT_DECIDED = (
    f"{_REMOVALS}::test_a_landing_that_is_not_what_was_decided_is_not_applied_and_can_be_given_up"
)
_NOT_HELD = (
    f"{_REMOVALS}"
    "::test_a_store_that_does_not_hold_what_was_decided_though_nobody_else_wrote_is_an_error"
)
_FOREIGN = (
    f"{_UNSOUND}"
    "::test_rows_with_run_numbers_of_another_store_refuse_their_group_and_check_says_how_to_mend_them"
)
_FOREIGN_MIRROR = (
    f"{_UNSOUND}"
    "::test_a_snapshot_of_a_store_with_run_numbers_of_another_store_is_refused_with_the_remedy"
)
_REPEATED = (
    f"{_UNSOUND}"
    "::test_a_repeated_row_of_streams_groups_or_cursors_refuses_its_groups_and_the_others_go_on"
)
_ANSWERED = f"{_OLD}::test_what_a_run_did_is_answered_for_ever_and_its_run_id_again_changes_nothing"
_OLD_TABLE = (
    f"{_OLD}::test_a_writer_in_the_middle_of_a_run_on_a_table_that_was_old_makes_it_begin_again"
)
_UNNAMED = (
    f"{_RUN_ID}::test_a_run_that_is_named_by_nothing_is_refused_and_leaves_the_store_as_it_is"
)
_SWEPT = (
    f"{_AGAIN}::test_a_landing_that_somebody_writes_to_while_it_is_swept_is_left_for_the_next_run"
)
_EMPTY_TABLE = (
    f"{_AGAIN}::test_an_append_to_an_empty_table_sees_who_appends_the_same_rows_at_that_moment"
)
_OTHER_MASTER = (
    f"{_SERVER}::test_a_replica_that_follows_another_master_while_it_is_read_voids_the_reading"
)
_FEWER = (
    f"{_ENTRIES}::test_with_scripts_the_server_asks_for_fewer_entries_the_larger_those_before_were"
)
_LARGE_REPLY = (
    f"{_ENTRIES}"
    "::test_without_scripts_pages_are_bounded_where_large_entries_behind_small_ones_make_a_reply_large"
)
_UNICODE = (
    f"{_TERMINAL}"
    "::test_of_all_of_unicode_only_what_a_terminal_would_act_on_or_not_show_is_written_out"
)
_SECRET_PLACES = (
    f"{_SECRETS}::test_places_with_a_secret_are_refused_before_anything_is_read_or_written"
)
_BOUNDED = (
    f"{_XPENDING}::test_what_is_printed_of_a_group_is_bounded_and_goes_on_behind_its_last_entry"
)
_TOO_MUCH = (
    f"{_CLI_STORE}::test_a_page_of_a_group_says_how_many_entries_are_left_and_where_the_next_begins"
)

MUTATIONS: tuple[Mutation, ...] = (
    # --- what a source may take away
    Mutation(
        "a snapshot takes over a store with rows of its own",
        "claimlib/commands/snapshot.py",
        "        refuse_own_rows(begun, kept)\n",
        "",
        (f"{_OWN_ROWS}[batches0]",),
    ),
    Mutation(
        "a source that has nothing empties the store",
        "claimlib/commands/mirror.py",
        "    _refuse_empty(begun, landing, survey, changes, limits)\n",
        "",
        (_EMPTIED,),
    ),
    Mutation(
        "any share is removed",
        "claimlib/commands/mirror.py",
        "        _refuse_share(begun, landing, changes, limits)\n",
        "        pass\n",
        (_SHARE,),
    ),
    Mutation(
        "the share that is removed is judged of all streams together alone",
        "claimlib/commands/mirror.py",
        'if share["above"]:',
        'if share["unexplained"] > limit * share["stored"]:',
        (_SHARE,),
    ),
    Mutation(
        "what the source explains counts for the share that is removed",
        "claimlib/plans/differences.py",
        'left = F.when(is_explained, 0).otherwise(F.col("removed"))',
        'left = F.col("removed")',
        (_EXPLAINED,),
    ),
    Mutation(
        "a group that begins again explains what is removed",
        "claimlib/plans/differences.py",
        'F.coalesce(F.col("last") <= F.col("upto"), F.lit(False))',
        'F.col("upto").isNotNull()',
        (_EXPLAINED,),
    ),
    Mutation(
        "a stream that got fewer entries than before explains what is gone",
        "claimlib/plans/differences.py",
        '(F.col("added") < F.col("added_before")) | has_all',
        "has_all",
        (_MADE_AGAIN,),
    ),
    Mutation(
        "a stream that lacks entries and deleted none explains what is gone",
        "claimlib/plans/differences.py",
        '(F.col("added") < F.col("added_before")) | has_all',
        'F.col("added") < F.col("added_before")',
        (_MADE_AGAIN,),
    ),
    Mutation(
        "an old server explains what is gone though it is another one",
        "claimlib/plans/differences.py",
        ".otherwise(F.lit(is_other_server))",
        ".otherwise(F.lit(False))",
        (
            (
                f"{_REMOVALS}"
                "::test_a_server_that_says_of_no_stream_how_much_it_got_explains_nothing_once_it_is_another_one"
            ),
        ),
    ),
    Mutation(
        "a snapshot takes over what was imported",
        "claimlib/commands/snapshot.py",
        ", foreign_command=IMPORT",
        "",
        (
            (
                f"{_REMOVALS}"
                "::test_a_snapshot_does_not_take_over_what_was_imported_under_its_servers_name"
            ),
        ),
    ),
    Mutation(
        "another server process is not told",
        "claimlib/commands/snapshot.py",
        "{last.run_id, server.run_id}",
        "{server.run_id}",
        (f"{_REMOVALS}::test_another_server_process_at_the_same_address_is_told",),
    ),
    # --- a run that is given up
    Mutation(
        "a run that is given up leaves its proofs",
        "claimlib/runs/rollforward.py",
        "    mirror.withdraw(store, row)\n",
        "",
        (f"{_GIVEN_UP}::{_HALF_APPLIED}",),
    ),
    Mutation(
        "a run that is given up lets a late driver append",
        "claimlib/runs/mirror.py",
        "        append_once(store, table, store.rows(table, [], columns), row)\n",
        "",
        (
            (
                f"{_GIVEN_UP}"
                "::test_a_driver_that_comes_back_late_appends_nothing_of_a_run_that_was_given_up"
            ),
        ),
    ),
    Mutation(
        "a run that was given up is taken for done",
        "claimlib/runs/protocol.py",
        "            _check_not_abandoned(finished)\n            if finished.run_seq in",
        "            if finished.run_seq in",
        (f"{_GIVEN_UP}::test_the_run_id_of_a_run_that_was_given_up_is_not_taken_for_done",),
    ),
    Mutation(
        "a store mirrors the server of a snapshot that was given up",
        "claimlib/commands/mirror.py",
        '.where(F.col("counts")[ABANDONED].isNull())',
        "",
        (f"{_GIVEN_UP}::test_a_store_does_not_mirror_the_server_of_a_snapshot_that_was_given_up",),
    ),
    # --- between a decision and its end
    Mutation(
        "a key that the store holds twice, each time otherwise, wedges an import",
        "claimlib/runs/claims.py",
        'exact += f" AND {_IS_UNCHANGED_SQL}" if row.staged is not None else ""',
        'exact += ""',
        (_HELD_TWICE,),
    ),
    Mutation(
        "a token that another driver has used stands for all that a run writes",
        "claimlib/store/tables.py",
        "            if after is not None and local.version != after:\n                break\n"
        "            if how.token",
        "            if how.token",
        (
            (
                "tests/delta/test_xclaim.py"
                "::test_where_another_driver_has_appended_the_forced_rows_the_claims_are_still_made"
            ),
        ),
    ),
    Mutation(
        "of a key that a small store holds twice each row is taken for both",
        "claimlib/runs/claims.py",
        "        same.append(is_unchanged)\n",
        "        pass\n",
        (_HELD_TWICE,),
    ),
    Mutation(
        "of an entry that a small store holds twice each row is taken for both",
        "claimlib/runs/mirror.py",
        'AND t.run_seq < {row.run_seq:d} AND {_HAS_PAYLOAD}"\n    changed',
        'AND t.run_seq < {row.run_seq:d}"\n    changed',
        (_HELD_TWICE,),
    ),
    Mutation(
        "an entry is removed whatever payload it has by now",
        "claimlib/runs/mirror.py",
        'AND {_join_sql(TABLES["entries"].key, row.key_mode)} AND {_HAS_PAYLOAD}',
        'AND {_join_sql(TABLES["entries"].key, row.key_mode)}',
        (
            (
                f"{_REMOVALS}"
                "::test_an_entry_that_its_owner_rewrote_since_the_decision_stays_as_its_pending_row_does"
            ),
        ),
    ),
    Mutation(
        "new rows make up for rows that were lost",
        "claimlib/runs/claims.py",
        "    if row.staged is None and _all_stand(row, decided, pending):\n",
        "    if _all_stand(row, decided, pending):\n",
        (f"{_REMOVALS}::test_what_is_lost_is_counted_also_where_new_rows_make_up_the_number",),
    ),
    Mutation(
        "the slower of two drivers of a snapshot fails",
        "claimlib/runs/rollforward.py",
        "        if finished is None:\n            raise\n        return finished\n",
        "        raise\n",
        (
            (
                f"{_REMOVALS}"
                "::test_two_drivers_of_one_snapshot_both_end_well_though_the_first_sweeps_its_landing"
            ),
        ),
    ),
    Mutation(
        "entries are pinned first and pending last",
        "claimlib/store/tables.py",
        'for name in ("pending", "entries"))',
        'for name in ("entries", "pending"))',
        (
            (
                "tests/delta/test_races.py"
                "::test_an_entry_that_a_pipeline_appends_while_a_run_begins_is_not_taken_for_one_that_is_gone"
            ),
        ),
    ),
    Mutation(
        "what was read before the reading broke off is kept",
        "claimlib/commands/snapshot.py",
        "with discarded_on_error(self.store, pages.uuid):",
        "if pages:",
        (f"{_REMOVALS}::test_what_was_read_before_the_reading_broke_off_is_not_kept",),
    ),
    # --- a snapshot of some groups
    Mutation(
        "a snapshot of some groups does not ask for what the others need",
        "claimlib/commands/snapshot.py",
        'if scope.group_glob == "*":',
        "if scope:",
        (f"{_REMOVALS}::test_a_snapshot_of_some_groups_reads_over_the_span_that_the_others_need",),
    ),
    Mutation(
        "what other groups need is not read",
        "claimlib/live/reader.py",
        "Wanted(held, self.also_spans.get(stream) if held else None)",
        "Wanted(held)",
        (_SPAN,),
    ),
    Mutation(
        "the password is read for each connection",
        "claimlib/live/reading.py",
        "if self._read is None:",
        "if True:",
        (_PIPED,),
    ),
    Mutation(
        "what other groups need is not handed on",
        "claimlib/live/reading.py",
        "                also_spans=also_spans,\n",
        "",
        (f"{_READER}::test_a_server_reading_hands_on_the_spans_that_others_need",),
    ),
    # --- what changes only while it is as it was found
    Mutation(
        "a pending row that somebody changed since the decision is removed",
        "claimlib/runs/claims.py",
        "WHEN MATCHED AND {_IS_UNCHANGED_SQL} THEN DELETE",
        "WHEN MATCHED AND s.kind NOT IN ({_UPDATING_SQL}) THEN DELETE",
        (_RECOVERED,),
    ),
    Mutation(
        "a group that somebody changed since the decision is removed",
        "claimlib/runs/writes.py",
        "AND t.run_seq < {row.run_seq:d} AND {self.as_seen}",
        "AND t.run_seq < {row.run_seq:d}",
        (_RECOVERED,),
    ),
    Mutation(
        "a late driver removes an entry that came again since",
        "claimlib/runs/mirror.py",
        'ON {decided.entries.sql("t.")} AND t.run_seq < {row.run_seq:d}',
        'ON {decided.entries.sql("t.")}',
        (_CAME_AGAIN,),
    ),
    Mutation(
        "a late driver removes a pending row that came again since",
        "claimlib/runs/claims.py",
        'ON {decided.pending.sql("t.")} AND t.run_seq < {row.run_seq:d}',
        'ON {decided.pending.sql("t.")}',
        (_CAME_AGAIN,),
    ),
    Mutation(
        "what others removed comes back where a small table is written again",
        "claimlib/runs/writes.py",
        "if few is None or few[1] != row.pins.versions[table]:",
        "if few is None:",
        (f"{_LOCAL_COMMITS}::{_STAYS}",),
    ),
    Mutation(
        "a small table that is written again has new rows twice",
        "claimlib/runs/writes.py",
        "rows = rows.union(_numbered(_not_there(there, table, new), row).select(columns))",
        "rows = rows.union(_numbered(new, row).select(columns))",
        (f"{_LOCAL_COMMITS}::test_a_snapshot_writes_each_small_table_by_one_commit",),
    ),
    Mutation(
        "what its owner removed since the decision comes back",
        "claimlib/runs/writes.py",
        "if since_pin and ",
        "if not since_pin and ",
        (f"{_REMOVALS}::test_a_row_that_its_owner_removed_since_the_decision_does_not_come_back",),
    ),
    # --- the landing and the store are compared with the decision
    Mutation(
        "a landing that lacks rows is applied",
        "claimlib/runs/rollforward.py",
        "        mirror.check_landing(store, row, row.staged, decided)\n",
        "",
        (_NOT_DECIDED,),
    ),
    Mutation(
        "a landing that lacks entries is applied",
        "claimlib/runs/mirror.py",
        '{"pel_snapshots": staged.pending, "entry_landing": staged.entries}',
        '{"pel_snapshots": staged.pending}',
        (_NOT_DECIDED,),
    ),
    Mutation(
        "a decision that lacks rows of groups, consumers or streams is applied",
        "claimlib/runs/mirror.py",
        "{**digests, **staged.small}",
        "{**digests}",
        (_NOT_DECIDED,),
    ),
    Mutation(
        "a store that is not what was decided passes for it",
        "claimlib/runs/mirror.py",
        "if after == (staged.pending_after, staged.entries_after):",
        "if after:",
        (f"{_NOT_HELD}[pending]",),
    ),
    Mutation(
        "entries that are not what was decided pass for it",
        "claimlib/runs/mirror.py",
        "if remaining and not _others_wrote(store, row, table):",
        "if False:",
        (f"{_NOT_HELD}[entries]",),
    ),
    Mutation(
        "pages that were not all written are decided about",
        "claimlib/commands/mirror.py",
        "if landing.rows is not None and landing.rows != (pending.rows, entries.rows):",
        "if False:",
        (f"{_REMOVALS}::test_pages_that_were_not_all_written_down_decide_nothing",),
    ),
    # --- rows of another store, and two rows of one key
    Mutation(
        "pending rows of another store are judged",
        "claimlib/plans/survey.py",
        '"ahead": f"run_seq >= {run_seq:d}",',
        '"ahead": "false",',
        (_FOREIGN,),
    ),
    Mutation(
        "groups, streams and cursors of another store are used",
        "claimlib/plans/requests.py",
        'f"max(run_seq) >= {run_seq:d}")',
        '"false")',
        (_FOREIGN,),
    ),
    Mutation(
        "check does not see rows of another store",
        "claimlib/plans/checks.py",
        'is_ahead = F.col("run_seq") >= run_seq',
        "is_ahead = F.lit(False)",
        (_FOREIGN,),
    ),
    Mutation(
        "a snapshot is taken over rows of another store",
        "claimlib/commands/mirror.py",
        "    _refuse_foreign_run_seq(begun, survey, changes)\n",
        "",
        (_FOREIGN_MIRROR,),
    ),
    Mutation(
        "a repeated row of streams, groups or cursors is taken",
        "claimlib/plans/requests.py",
        '("count(*) > 1", ',
        '("false", ',
        (_REPEATED,),
    ),
    # --- places, old commits, run ids, readers
    Mutation(
        "a brace in the place of a store is Spark's",
        "claimlib/store/tables.py",
        'target = target.replace("{", "{{").replace("}", "}}")',
        "pass",
        (f"{_PLACES}::test_own_rows_in_such_a_folder_are_swept",),
    ),
    Mutation(
        "a version that is not the newest is read as if it were",
        "claimlib/store/tables.py",
        "newest = local if local is not None and local.version == version else None",
        "newest = local",
        (f"{_LOCAL_DELTA}::test_only_the_newest_version_is_read_so",),
    ),
    Mutation(
        "another table in the place of one that was opened is read",
        "claimlib/store/tables.py",
        "return local if table_id == self.table_ids[table] else None",
        "return local",
        (
            f"{_LOCAL_DELTA}::test_another_table_in_the_place_of_one_that_was_opened_is_left_to_spark",
        ),
    ),
    Mutation(
        "a table that was looked at is thought to be the newest for good",
        "claimlib/store/local.py",
        'if max(numbers, default="") == number else None',
        "",
        (f"{_LOCAL_DELTA}::test_who_has_looked_at_a_table_sees_each_commit_of_others_at_once",),
    ),
    Mutation(
        "a table that was made again is taken for the one before by its version alone",
        "claimlib/store/local.py",
        "return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns",
        "return (state.st_dev,)",
        (
            f"{_LOCAL_DELTA}::test_a_table_that_was_made_again_is_not_taken_for_the_one_that_was_looked_at",
        ),
    ),
    Mutation(
        "a table that is made again while it is opened is taken for the one before",
        "claimlib/store/local.py",
        "and mark is not None and before == _state(log):",
        "and mark is not None:",
        (
            f"{_LOCAL_DELTA}::test_a_table_that_is_made_again_while_it_is_opened_is_opened_once_more",
        ),
    ),
    Mutation(
        "as many parts of a table are kept as are looked at",
        "claimlib/store/tables.py",
        " and len(known[1]) < _KEPT_PARTS",
        "",
        (f"{_LOCAL_DELTA}::test_neither_many_parts_of_a_table_are_kept_in_memory_nor_large_ones",),
    ),
    Mutation(
        "a table is opened again each time it is looked at",
        "claimlib/store/local.py",
        "self._known[table] = table_now, mark",
        "pass",
        (
            f"{_LOCAL_DELTA}::test_a_table_is_opened_and_its_rows_are_read_again_only_after_a_commit",
        ),
    ),
    Mutation(
        "rows that meet some condition are taken for those that meet another",
        "claimlib/store/tables.py",
        "read = (conditions, None if columns is None else tuple(columns))",
        "read = ((), None if columns is None else tuple(columns))",
        (
            f"{_LOCAL_DELTA}::test_a_table_is_opened_and_its_rows_are_read_again_only_after_a_commit",
        ),
    ),
    Mutation(
        "few rows are divided",
        "claimlib/plans/keys.py",
        "return rows.coalesce(1) if in_one_task else rows.repartition(*key)",
        "return rows.repartition(*key)",
        ("tests/spark/test_pages.py::test_few_rows_are_decided_without_dividing_them",),
    ),
    Mutation(
        "of entries among very many new ones nothing is looked for",
        "claimlib/commands/sweep_base.py",
        "return entries.where(where_ids_lie(unknown))",
        "return entries.limit(0)",
        (f"{_INCREMENTAL}::test_so_is_one_of_which_very_much_is_pending",),
    ),
    Mutation(
        "a run that others came before is thought to have lost nothing",
        "claimlib/runs/claims.py",
        'return version == row.pins.versions["pending"] + 1 and note == row.note',
        "return note == row.note",
        (
            f"{_RACES}::test_what_somebody_changes_while_buckets_are_rewritten_is_kept_and_lost_to_the_run",
        ),
    ),
    Mutation(
        "a commit on another table of the same version proves that nothing was lost",
        "claimlib/store/tables.py",
        "return self.table_ids[table] == pins.table_ids[table]",
        "return table in pins.table_ids",
        (f"{_AGAIN}::test_a_commit_on_another_table_does_not_prove_that_nothing_was_lost",),
    ),
    Mutation(
        "a path is read though delta-rs takes it for another",
        "claimlib/store/opening.py",
        ' or is_remote() or "%" in location.where',
        " or is_remote()",
        (
            f"{_LOCAL_DELTA}::test_a_path_that_one_of_the_readers_takes_for_another_is_left_to_spark",
        ),
    ),
    Mutation(
        "payloads are read at the version that a run found",
        "claimlib/commands/reply.py",
        "near=partial(_near, store),",
        'near=lambda _: store.read_at("entries", finished.input_versions["entries"]),',
        (f"{_ANSWERED}[31]", f"{_OLD}::test_claims_by_id_are_answered_for_ever[31]"),
    ),
    Mutation(
        "a version that is not kept any more ends a run",
        "claimlib/runs/protocol.py",
        'lost_to = f"a writer of {error.table}"\n            continue',
        "raise",
        (_OLD_TABLE,),
    ),
    Mutation(
        "a version that is not kept any more keeps a snapshot from its end",
        "claimlib/store/tables.py",
        "        except VersionExpiredError:\n            return None",
        "        except VersionExpiredError:\n            raise",
        (f"{_OLD}::test_a_decided_snapshot_comes_to_its_end_however_late[31]",),
    ),
    Mutation(
        "an empty run id is one",
        "claimlib/semantics/model.py",
        "if not text.strip():",
        "if False:",
        (f"{_MODEL}::test_a_run_id_says_something",),
    ),
    Mutation(
        "a run id in Python may be empty",
        "claimlib/runs/protocol.py",
        "else parse_run_id(run_id)",
        "else run_id",
        (_UNNAMED,),
    ),
    Mutation(
        "an empty run id starts Spark",
        "claimlib/cli/options.py",
        "        parser=parse_run_id,\n",
        "",
        (f"{_CLI_RUN_ID}::test_an_empty_run_id_ends_with_2_before_spark_starts",),
    ),
    Mutation(
        "what a run got in between is pinned half applied",
        "claimlib/runs/protocol.py",
        "if after == before:",
        "if before:",
        (f"{_READERS}::test_an_overview_that_a_run_got_in_between_is_pinned_again",),
    ),
    Mutation(
        "the sweep of a landing that somebody writes to ends the run",
        "claimlib/runs/mirror.py",
        "        return  # the run itself is finished",
        "        raise",
        (_SWEPT,),
    ),
    Mutation(
        "an append to an empty table does not look at it",
        "claimlib/runs/writes.py",
        "there = [now]",
        "there = [] if now.isEmpty() else [now]",
        (_EMPTY_TABLE,),
    ),
    Mutation(
        "a commit may come after a version that was not looked at",
        "claimlib/store/local.py",
        "                max_commit_retries=0,\n",
        "",
        (
            f"{_LOCAL_COMMITS}::test_a_commit_comes_right_after_its_version_or_leaves_nothing_behind",
        ),
    ),
    Mutation(
        "an append of few rows does not look at its token",
        "claimlib/store/tables.py",
        "            if how.token is not None and local.has_used(how.token):\n",
        "            if False:\n",
        (f"{_LOCAL_COMMITS}::test_a_token_lets_one_append_through_whoever_writes_first",),
    ),
    Mutation(
        "rows in memory are written after whatever version",
        "claimlib/store/tables.py",
        "            if after is not None and local.version != after:\n",
        "            if False:\n",
        (f"{_LOCAL_COMMITS}::test_rows_made_from_a_version_are_not_written_after_another_one",),
    ),
    Mutation(
        "a constraint of a small table is not looked at",
        "claimlib/store/local.py",
        "return is_plain and features <= _FEATURES and not has_constraints",
        "return True",
        (f"{_LOCAL_COMMITS}::test_a_table_with_more_than_a_store_gives_it_is_written_by_spark",),
    ),
    # --- servers
    Mutation(
        "a node of a cluster is read",
        "claimlib/live/server.py",
        "    _check_mode(source.label, state.mode)\n",
        "",
        (f"{_SERVER}::test_a_node_of_a_cluster_is_refused_though_it_answers_every_command[0]",),
    ),
    Mutation(
        "a server is read while it loads its data",
        "claimlib/live/server.py",
        'if "1" in (info.get("loading"), info.get("async_loading")):',
        "if False:",
        (f"{_SERVER}::test_a_server_that_is_loading_its_data_is_refused_until_it_has_them",),
    ),
    Mutation(
        "a server that refuses the login while it loads passes for one that is away",
        "claimlib/live/faults.py",
        "if isinstance(error, BusyLoadingError):",
        "if False:",
        (f"{_SERVER}::test_a_server_that_is_loading_its_data_is_refused_until_it_has_them",),
    ),
    Mutation(
        "a replica without a master is read",
        "claimlib/live/server.py",
        "        _check_in_step(source, info)\n",
        "        pass\n",
        (f"{_SERVER}::test_a_replica_whose_master_is_gone_is_refused_and_worth_another_try",),
    ),
    Mutation(
        "a replica that is being synchronized is read",
        "claimlib/live/server.py",
        'if info.get("master_sync_in_progress") == "1":',
        "if False:",
        (f"{_SERVER}::test_a_replica_that_is_being_synchronized_is_refused",),
    ),
    Mutation(
        "a replica that hears nothing is read",
        "claimlib/live/server.py",
        "if not 0 <= silent_s <= MAX_SILENCE_S:",
        "if False:",
        (f"{_SERVER}::test_a_replica_that_hears_nothing_from_its_master_is_refused",),
    ),
    Mutation(
        "a replica that has not applied what reached it is read",
        "claimlib/live/server.py",
        "if missing <= 0:",
        "if info:",
        (f"{_SERVER}::test_a_replica_that_has_not_applied_what_reached_it_is_refused",),
    ),
    Mutation(
        "a server that changed its role meanwhile passes for the same",
        "claimlib/live/reader.py",
        "        check_unchanged(self.source, server)\n",
        "",
        (f"{_SERVER}::test_a_master_that_becomes_a_replica_while_it_is_read_voids_the_reading",),
    ),
    Mutation(
        "a replica that follows another history meanwhile passes for the same",
        "claimlib/live/server.py",
        "elif now.is_replica and now.replication_id != before.replication_id:",
        "elif False:",
        (_OTHER_MASTER,),
    ),
    # --- large entries
    Mutation(
        "a script has no budget of bytes",
        "claimlib/live/entries.py",
        "if left == 0 or budget <= 0 then",
        "if left == 0 then",
        (f"{_ENTRIES}::test_no_reply_is_larger_than_the_budget_and_one_entry[scripted]",),
    ),
    Mutation(
        "a script asks for many large entries at a time",
        "claimlib/live/entries.py",
        "math.min(2 * count, 8, left, math.floor(budget / largest))",
        "math.min(2 * count, 8, left)",
        (_FEWER,),
    ),
    Mutation(
        "without scripts COUNT does not follow the size of entries",
        "claimlib/live/entries.py",
        "self.now = max(1, min(2 * self.now, self.most, room))",
        "self.now = max(1, min(2 * self.now, self.most))",
        (f"{_ENTRIES}::test_no_reply_is_larger_than_the_budget_and_one_entry[plain]",),
    ),
    Mutation(
        "a page of entries has as many bytes as its reply",
        "claimlib/live/entries.py",
        "if size >= self._reply_bytes or end == len(rows):",
        "if end == len(rows):",
        (_LARGE_REPLY,),
    ),
    # --- what is printed, and secrets in places
    Mutation(
        "texts reach a terminal as they are",
        "claimlib/terminal.py",
        'return "".join(char if char.isprintable() else _written_out(char) for char in text)',
        "return text",
        (_UNICODE,),
    ),
    Mutation(
        "JSON reaches a terminal as it is",
        "claimlib/terminal.py",
        'if text.replace("\\n", "").isprintable():',
        "if text:",
        (f"{_TERMINAL}::test_json_is_harmless_and_has_the_same_value",),
    ),
    Mutation(
        "a console passes escape sequences on",
        "claimlib/terminal.py",
        "yield segment if is_ours else segment._replace(text=harmless(segment.text))",
        "yield segment if is_ours else segment",
        (f"{_TERMINAL}::test_a_console_moves_the_cursor_itself_and_lets_no_text_do_so",),
    ),
    Mutation(
        "what others print passes as it is",
        "claimlib/terminal.py",
        "self.write_exact(harmless(text))",
        "self.write_exact(text)",
        (f"{_TERMINAL}::test_what_others_print_while_a_process_works_is_harmless_too",),
    ),
    Mutation(
        "what is said to people may have many lines",
        "claimlib/terminal.py",
        'err(f"claimlib: {one_line(text)}")',
        'err(f"claimlib: {text}")',
        (f"{_TERMINAL}::test_what_is_said_to_people_is_one_line_for_each_text",),
    ),
    Mutation(
        "an error is as long as what it repeats",
        "claimlib/process.py",
        'return " ".join(line.strip() for line in error.message.split("\\n"))',
        "return error.message",
        (f"{_TERMINAL}::test_an_error_is_one_line_whatever_it_repeats",),
    ),
    Mutation(
        "what a JVM prints stands among results",
        "claimlib/session/__init__.py",
        "kept = {number: _copied(number) for number in (1, 2)}",
        "kept = {number: _copied(number) for number in (2,)}",
        (f"{_SESSION}::test_what_a_jvm_says_is_not_shown_and_never_among_results",),
    ),
    Mutation(
        "Spark is started though a store can be looked at without it",
        "claimlib/cli/opening.py",
        "if takes_paths_for_folders(settings.spark.master, settings.spark.conf):",
        "if False:",
        (f"{_NO_SPARK}::test_a_process_that_has_no_java_lists_runs_and_shows_one",),
    ),
    Mutation(
        "a path is a folder here whatever Hadoop is told",
        "claimlib/session/__init__.py",
        "return is_provided() or by_java or by_files or any(map(_MOVES_PATHS.match, conf))",
        "return is_provided() or by_java or by_files",
        (
            f"{_NO_SPARK}::test_settings_that_could_give_spark_another_file_system_are_left_to_spark",
        ),
    ),
    Mutation(
        "a variable of one underscore is no section's, and passed over",
        "claimlib/config/settings.py",
        "if is_ours and section not in Config.model_fields:",
        "if is_ours and _DELIMITER in words and section not in Config.model_fields:",
        (_NO_SETTING,),
    ),
    Mutation(
        "a guard of the environment is left out where there is a policy",
        "claimlib/config/settings.py",
        "    _refuse_guards_beside_a_policy(settings.xautoclaim)\n",
        "",
        (f"{_POLICY}::test_a_guard_of_the_environment_is_never_left_out_by_a_policy",),
    ),
    Mutation(
        "an empty glob is every name",
        "claimlib/cli/options.py",
        'if text is None:\n        return "*"',
        'if not text:\n        return "*"',
        (_UNUSABLE,),
    ),
    Mutation(
        "a command prints by itself",
        "claimlib/cli/reading.py",
        "terminal.say(*alarms)",
        "print(*alarms)",
        (f"{_TERMINAL}::test_no_other_module_and_no_job_prints",),
    ),
    Mutation(
        "a store's place may have a secret in it",
        "claimlib/store/location.py",
        '        check_no_secret(where, "the store\'s location")\n',
        "",
        (_SECRET_PLACES,),
    ),
    Mutation(
        "a table's place may have a secret in it",
        "claimlib/commands/input_tables.py",
        '    check_no_secret(text, "a table\'s location")\n',
        "",
        (_SECRET_PLACES,),
    ),
    Mutation(
        "a key before an @ is no secret",
        "claimlib/places.py",
        'if at and (":" in user or (has_host and scheme not in _AZURE)):',
        "if False:",
        (f"{_UNIT_PLACES}::test_a_place_with_a_secret_is_refused_and_not_repeated",),
    ),
    Mutation(
        "a path of Parquet is a glob",
        "claimlib/commands/parquet_folder.py",
        "path = _literal(place)",
        "path = place",
        (
            f"{_IMPORT}::test_a_folder_is_read_whose_path_was_given_and_none_that_a_glob_would_match",
        ),
    ),
    Mutation(
        "a store may be append-only",
        "claimlib/runs/protocol.py",
        "    store.check_changeable(CHANGED)\n    tell",
        "    tell",
        (
            f"{_REFUSED}::test_a_table_that_no_run_could_change_is_refused_before_anything_is_decided",
        ),
    ),
    Mutation(
        "a store is append-only where the session has that default",
        "claimlib/schema.py",
        "        **_CHANGEABLE,\n",
        "",
        (
            f"{_REFUSED}::test_a_session_that_makes_tables_append_only_makes_a_store_whose_rows_can_change",
        ),
    ),
    Mutation(
        "files that Spark would pass over are passed over",
        "claimlib/commands/parquet_folder.py",
        "    _refuse_mixed_folders(place, every.inputFiles())\n",
        "",
        (f"{_AS_THEY_ARE}::test_a_folder_of_which_spark_would_pass_over_some_files_is_refused",),
    ),
    Mutation(
        "the columns of a folder are those of one file",
        "claimlib/commands/parquet_folder.py",
        '.option("mergeSchema", "true")',
        '.option("mergeSchema", "false")',
        (f"{_AS_THEY_ARE}::test_a_column_that_only_some_files_have_is_read",),
    ),
    Mutation(
        "a folder's name is a time of the session's zone",
        "claimlib/commands/parquet_folder.py",
        '.option("timeZone", "UTC")',
        "",
        (f"{_AS_THEY_ARE}::test_a_time_that_is_the_name_of_a_folder_is_utc",),
    ),
    Mutation(
        "given tables are looked at in any order",
        "claimlib/store/tables.py",
        "return first, [name for name in tables if name not in {*first, *last}], last",
        "return [], [*tables], []",
        (
            f"{_AS_THEY_ARE}::test_an_entry_that_is_appended_before_its_pending_row_is_never_taken_for_one_that_is_gone",
            f"{_AS_THEY_ARE}::test_a_view_of_pending_entries_is_looked_at_before_the_entries_are",
            f"{_AS_THEY_ARE}::test_tables_that_are_written_meanwhile_are_read_in_their_order",
        ),
    ),
    Mutation(
        "a view that changes while it is read is imported",
        "claimlib/commands/imports.py",
        "if sound.digests:",
        "if False:",
        (
            f"{_AS_THEY_ARE}::test_a_view_that_changes_after_it_was_checked_is_refused_and_nothing_is_imported",
        ),
    ),
    Mutation(
        "times in another unit are taken for milliseconds",
        "claimlib/commands/input_tables.py",
        "    _refuse_units(summaries, places)\n",
        "",
        (
            f"{_AS_THEY_ARE}::test_times_that_are_all_in_another_unit_are_refused_and_nothing_is_imported",
        ),
    ),
    Mutation(
        "names of a given table are compared by its collation",
        "claimlib/plans/column_readers.py",
        '    text = column.cast("STRING")\n',
        "    text = column\n",
        (f"{_AS_THEY_ARE}::test_names_of_a_column_with_a_collation_are_compared_as_they_stand",),
    ),
    Mutation(
        "a cursor with two rows is reset to four",
        "claimlib/commands/reset_cursor.py",
        "named.select(*GROUP).distinct()",
        "named.select(*GROUP)",
        (
            "tests/delta/test_repeated_rows.py::test_a_cursor_that_stands_there_twice_is_set_in_both_rows_and_no_row_is_added",
        ),
    ),
    Mutation(
        "an entry of a group with two rows is shown twice",
        "claimlib/plans/xpending.py",
        'return groups.groupBy(*GROUP).agg(*each("min", "snapshot_ms"), now)',
        'return groups.selectExpr(*GROUP, "snapshot_ms", f"{instant(now_ms)} AS now_ms")',
        (
            "tests/delta/test_repeated_rows.py::test_a_group_that_stands_there_twice_has_each_entry_once",
        ),
    ),
    Mutation(
        "all rows that are asked for come to the driver",
        "claimlib/commands/xpending.py",
        "count=min(query.count, most)",
        "count=query.count",
        (_BOUNDED,),
    ),
    Mutation(
        "xpending prints without bound",
        "claimlib/cli/reading.py",
        "most=MOST_ROWS",
        "most=query.count",
        (_TOO_MUCH,),
    ),
    # --- the kernel on Spark
    Mutation(
        "the kernel of a sweep on Spark raises every count",
        "claimlib/plans/kernel.py",
        'rules.raised_count(delivery_count, request["raise_by"], exhausted)',
        "delivery_count + 1",
        (f"{_PROPERTY}::test_with_names_for_keys_it_decides_the_same",),
    ),
    Mutation(
        "the kernel of claims on Spark deletes what is not pending",
        "claimlib/plans/kernel.py",
        "deleted = rules.is_deleted(present) & pending",
        "deleted = rules.is_deleted(present)",
        (f"{_CLAIMS}::test_all_claims_of_a_run_do_what_the_reference_does_one_after_the_other",),
    ),
    Mutation(
        "a broken kernel does not reach Spark's workers",
        "tests/spark/test_broken_kernel.py",
        "    cloudpickle.register_pickle_by_value(kernel)\n",
        "",
        (f"{_BROKEN}::test_the_comparison_fails_for_each_broken_rule_and_for_no_other_reason",),
    ),
    Mutation(
        "buckets are rewritten whatever others have changed in them",
        "claimlib/runs/claims.py",
        'is_older & F.expr(_IS_UNCHANGED.format(now="", before=""))',
        "is_older",
        (f"{_TAKEN}[rewritten]",),
    ),
    Mutation(
        "an entry is in the stream where any is: a name is looked up inside EXISTS",
        "claimlib/plans/sweep.py",
        'F.col(f"row.{name}").outer()',
        "F.col(name).outer()",
        (f"{_PROPERTY}::test_a_sweep_decides_about_hundreds_of_groups_as_the_reference_does",),
    ),
    Mutation(
        "the kernel takes another group's request where one has none",
        "claimlib/plans/kernel.py",
        "if at.min() < 0:",
        "if at.max() < 0:",
        (f"{_KERNEL}::test_rows_of_a_group_without_a_request_raise",),
    ),
    Mutation(
        "a small table is only rewritten though the run that died had appended to it",
        "claimlib/runs/writes.py",
        "_rewritten(store, by_key)) and is_untouched:",
        "_rewritten(store, by_key)):",
        (f"{_AGAIN}::{_APPENDED}",),
    ),
    Mutation(
        "a history is read twice only, whoever commits between the two looks",
        "claimlib/runs/claims.py",
        "        limit = _newer(commits, pinned) + _RECENT\n"
        "        commits = store.history(table, limit=limit)\n",
        "        limit = _newer(commits, pinned)\n"
        "        commits = store.history(table, limit=limit)\n"
        "        break\n",
        (f"{_AGAIN}::{_BETWEEN_LOOKS}_what_a_run_has_deleted",),
    ),
    Mutation(
        "a MERGE that does not say how many rows it has deleted wedges the store",
        "claimlib/runs/claims.py",
        "        if deleted is not None:\n            return int(deleted)\n",
        "        return int(deleted)\n",
        (f"{_AGAIN}::{_NO_NUMBERS}",),
    ),
    Mutation(
        "a commit that does not say what it is ends an incremental sweep",
        "claimlib/runs/claims.py",
        'return (commit["operation"] or "").startswith(_HOUSEKEEPING)',
        'return bool(commit["operation"].startswith(_HOUSEKEEPING))',
        (f"{_INCREMENTAL}::test_where_there_is_no_base_all_is_looked_at_and_it_says_why",),
    ),
    Mutation(
        "a commit that does not say how it was made ends a run",
        "claimlib/runs/claims.py",
        'return (commit["operationParameters"] or {}).get(name) or ""',
        'return str(commit["operationParameters"].get(name, ""))',
        (f"{_AGAIN}::test_a_snapshot_behind_a_commit_that_says_nothing_comes_to_its_end",),
    ),
    Mutation(
        "a commit that does not say who made it is taken for another writer's",
        "claimlib/runs/claims.py",
        '    all_known = all_known and all(commit["operation"] for commit in since)\n',
        "",
        (f"{_AGAIN}::{_SAYS_NOTHING}",),
    ),
    Mutation(
        "a run whose number was used by one that is undone wedges the store",
        "claimlib/runs/protocol.py",
        "    return find_decided(store, row.run_seq)\n",
        "    from claimlib.runs.journal import decided_by\n\n"
        "    return decided_by(store, row.run_seq)\n",
        (f"{_RESTORED}::test_after_a_restore_of_all_tables_{_MUST}",),
    ),
    Mutation(
        "the numbers of runs that were undone are tried one by one",
        "claimlib/runs/protocol.py",
        "return highest + 1 if highest >= run_seq else run_seq + 1000**attempt",
        "return run_seq + 1",
        (f"{_RESTORED}::{_LARGER_STEPS}",),
    ),
    Mutation(
        "a row of runs that is gone does not come again",
        "claimlib/runs/rollforward.py",
        "        token = Token(app_id, row.run_seq)\n",
        "        token = Token(APP_ID, row.run_seq)\n",
        (f"{_RESTORED}::{_WRITTEN_AGAIN}",),
    ),
    Mutation(
        "a MERGE is taken for complete whatever it says",
        "claimlib/runs/claims.py",
        "        if alone_at is not None or _is_complete(",
        "        if changed is not None or _is_complete(",
        (f"{_RACES}::{_COPIED}",),
    ),
    Mutation(
        "a copy that a MERGE has changed makes up for a row that it has not",
        "claimlib/runs/claims.py",
        'return expected if store.version("pending") == expected else None',
        "return expected",
        (f"{_RACES}::{_COPIED}",),
    ),
    Mutation(
        "a copy that a recovered run has deleted makes up for a row that it has not",
        "claimlib/runs/claims.py",
        "    if row.staged is None and is_alone:\n",
        "    if row.staged is None:\n",
        (f"{_RACES}::{_COPY_OF_DELETED}",),
    ),
    Mutation(
        "rows that bear a run's number are counted, not entries",
        "claimlib/runs/claims.py",
        '    standing = decided.rows(*_OWNED).join(owned, on=list(_KEY), how="left_semi")\n',
        "    standing = owned\n",
        (f"{_RACES}::{_COPY_OF_CLAIMED}",),
    ),
    Mutation(
        "an entry of which there are two rows is lost twice",
        "claimlib/runs/claims.py",
        "    return joined.dropDuplicates([*_KEY, *_FROM])\n",
        "    return joined\n",
        (f"{_RACES}::{_COPY_OF_LOST}",),
    ),
    Mutation(
        "a table of more than few rows is cut to them",
        "claimlib/store/tables.py",
        "        if fetched.num_rows > limit:\n            return None\n",
        "",
        (f"{_PROPERTY}::test_with_names_for_keys_it_decides_the_same",),
    ),
    Mutation(
        "a table's version is not asked for where no error says it",
        "claimlib/store/tables.py",
        '        return int(self.history(table, limit=1)[0]["version"])\n',
        "        return 0\n",
        ("tests/delta/test_store.py::test_a_table_tells_its_version_also_where_no_error_says_it",),
    ),
    Mutation(
        "rows that were written since the base are taken for known",
        "claimlib/semantics/rules.py",
        "    return (is_new == _NO) & (is_changed == _NO)\n",
        "    return is_changed == _NO\n",
        (_KNOWN,),
    ),
    Mutation(
        "entries that were deleted since the base are taken for known",
        "claimlib/semantics/rules.py",
        "    return (is_new == _NO) & (is_changed == _NO)\n",
        "    return is_new == _NO\n",
        (_KNOWN,),
    ),
    Mutation(
        "an incremental sweep does not look at rows whose entry was deleted",
        "claimlib/plans/incremental.py",
        "{self._is_new} OR {_IS_CHANGED} OR delivery",
        "{self._is_new} OR delivery",
        (f"{_INCREMENTAL}::test_an_entry_deleted_since_is_deleted_though_its_row_is_not_due",),
    ),
    Mutation(
        "a base stands though something else has written to pending",
        "claimlib/commands/sweep_base.py",
        "    if foreign:\n",
        "    if foreign and not commits:\n",
        (f"{_INCREMENTAL}::test_where_there_is_no_base_all_is_looked_at_and_it_says_why",),
    ),
    Mutation(
        "millions of staged rows are brought into an empty store by interpreted queries",
        "claimlib/runs/protocol.py",
        "are_few = decision.are_few and _has_few_staged(decision)",
        "are_few = decision.are_few",
        (f"{_INTERPRETED}::{_BECOMES_LARGE}",),
    ),
    Mutation(
        "a session interprets its queries for good once a run has",
        "claimlib/store/interpreted.py",
        "                for name, value in self._before.pop(spark).items():\n",
        "                for name, value in {}.items():\n",
        (f"{_INTERPRETED}::{_GIVEN_BACK}",),
    ),
    Mutation(
        "queries of tables that are at hand, but not small, are interpreted",
        "claimlib/runs/protocol.py",
        "self.store.is_small(table, MOST_ROWS) for table in tables",
        "self.store.is_small(table) for table in tables",
        (f"{_INTERPRETED}::{_COMPILED}",),
    ),
    Mutation(
        "of many rows of the driver those after the last full list are lost",
        "claimlib/local_rows.py",
        "*range(0, rows.num_rows, _ROWS_PER_LIST), rows.num_rows]",
        "*range(0, rows.num_rows + 1, _ROWS_PER_LIST)]",
        (f"tests/delta/test_store.py::{_MANY_ROWS}",),
    ),
    Mutation(
        "a session that passes over missing files may run",
        "claimlib/runs/protocol.py",
        """    store.check_reads_all()
    store.check_changeable(CHANGED)""",
        "    store.check_changeable(CHANGED)",
        (
            "tests/delta/test_refused.py::test_a_session_that_may_read_less_than_there_is_is_refused",
        ),
    ),
    Mutation(
        "settings are arguments of Java's process",
        "claimlib/session/__init__.py",
        "settings_in_file(in_file):",
        "settings_in_file({}):",
        (
            f"{_SESSION}::test_a_secret_is_no_argument_and_a_jvm_without_memory_ends_with_what_to_do",
        ),
    ),
    Mutation(
        "a JVM whose threads lack memory goes on without them",
        "claimlib/session/__init__.py",
        "jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)",
        "del handler",
        (
            f"{_SESSION}::test_a_secret_is_no_argument_and_a_jvm_without_memory_ends_with_what_to_do",
        ),
    ),
    Mutation(
        "of rows of the driver those behind an empty batch are lost",
        "claimlib/local_rows.py",
        "rows = rows.combine_chunks()",
        "rows = rows",
        (
            "tests/delta/test_store.py::test_rows_behind_a_batch_without_rows_are_not_lost",
            f"{_LOCAL_DELTA}::test_rows_behind_a_stretch_that_a_deletion_vector_hides_are_read_and_kept",
        ),
    ),
    Mutation(
        "Spark is sent as many rows as delta-rs may hold",
        "claimlib/store/tables.py",
        "min(FEW_ROWS, FEW_OF_SPARK) if most is None",
        "FEW_ROWS if most is None",
        ("tests/delta/test_store.py::test_of_what_spark_reads_fewer_rows_are_held",),
    ),
    Mutation(
        "a page among few rows reads the entries of all later ids",
        "claimlib/commands/paging.py",
        "_bounds(cut), near)",
        "_bounds(pages), near)",
        ("tests/spark/test_pages.py::test_what_is_read_of_entries_ends_with_the_page",),
    ),
    Mutation(
        "Java is given a collector besides the one that the environment names",
        "claimlib/session/__init__.py",
        'lambda match: match[0] if match[0] in chosen else ""',
        "lambda match: match[0]",
        (f"tests/edge/test_session.py::{_ONE_COLLECTOR}",),
    ),
    Mutation(
        "a base stands for a stream whose proof of absence has shrunk",
        "claimlib/plans/incremental.py",
        'f"NOT coalesce({begins} AND {ends}, false)"',
        '"false"',
        (f"{_INCREMENTAL}::{_SHRUNK}",),
    ),
    Mutation(
        "a sweep of some groups is the base of a sweep of all",
        "claimlib/commands/sweep_base.py",
        "its is not None and (scope is None or its == scope or EVERYTHING in its)",
        "its is not None",
        (f"{_INCREMENTAL}::test_a_sweep_of_other_groups_is_no_base_and_one_of_all_is",),
    ),
    Mutation(
        "delta-rs reads a part of a large table from wherever its rows lie",
        "claimlib/store/tables.py",
        "self._held(table, local, bounds, columns=columns)",
        "self._held(table, local, Condition('run_seq', 0), columns=columns)",
        (f"{_LOCAL_DELTA}::{_WITHIN_BOUNDS}",),
    ),
    Mutation(
        "what few rows of a large store are decided from does not count as few",
        "claimlib/runs/protocol.py",
        "self._are_held(parts) if parts else self._has_small_tables",
        "self._has_small_tables",
        (f"tests/delta/test_interpreted.py::{_PAGE_OF_LARGE}",),
    ),
    Mutation(
        "owners of pending entries are not looked at for names that share a hash",
        "claimlib/plans/keys.py",
        'consumers.select("consumer").distinct()',
        'consumers.select("consumer").distinct().limit(1)',
        (f"{_NAMED_KEYS}::test_names_that_share_a_hash_are_found_wherever_they_stand",),
    ),
    Mutation(
        "streams that exist only in entries are not looked at for names that share a hash",
        "claimlib/plans/keys.py",
        'keyed_names(known, entries.select("stream").distinct()),',
        'keyed_names(known, entries.select("stream").limit(0)),',
        (f"{_NAMED_KEYS}::test_names_that_share_a_hash_are_found_wherever_they_stand",),
    ),
    Mutation(
        "a requested group that is not known is not looked at for a hash that it shares",
        "claimlib/commands/preconditions.py",
        "named_keys(groups, consumers, targets, streams,",
        'named_keys(groups, consumers, targets.where("in_groups"), streams,',
        (f"tests/spark/test_pages.py::{_KEPT_APART}",),
    ),
    Mutation(
        "entries that were lost and made again are all taken for deleted",
        "claimlib/schema.py",
        "return entries_id is not None and entries_id == expected",
        "return entries_id is None or entries_id == expected",
        (f"tests/delta/test_store.py::{_LOST_ENTRIES}",),
    ),
    Mutation(
        "entries that were made again by hand are all taken for deleted",
        "claimlib/store/opening.py",
        "    if not schema.has_entries_of_its_proofs(present):\n        raise",
        "    if False:\n        raise",
        (f"tests/delta/test_store.py::{_ENTRIES_BY_HAND}",),
    ),
    Mutation(
        "proofs are taken back at each init, as streams never learns of its new entries",
        "claimlib/store/tables.py",
        "became_void = bind_proofs(spark, location)",
        "became_void = False",
        (f"tests/delta/test_store.py::{_ENTRIES_BY_HAND}",),
    ),
    Mutation(
        "entries made again while init looks at them keep the proofs of those before",
        "claimlib/store/opening.py",
        "are_of_others = not schema.has_entries_of_its_proofs(present)",
        "are_of_others = False",
        (f"tests/delta/test_store.py::{_WHILE_INIT}",),
    ),
    Mutation(
        "init changes a store of another version before it refuses it",
        "claimlib/store/tables.py",
        "        check_versions(where, present)\n",
        "",
        ("tests/delta/test_store.py::test_init_refuses_a_store_before_it_changes_it",),
    ),
    Mutation(
        "init fails in Delta's words where streams cannot be changed",
        "claimlib/store/opening.py",
        "if schema.is_append_only(of_streams):",
        "if not present:",
        ("tests/delta/test_store.py::test_init_refuses_a_store_before_it_changes_it",),
    ),
    Mutation(
        "a snapshot that is finished later proves what it read of entries that are gone",
        "claimlib/runs/mirror.py",
        "    if not _is_pinned_entries(store, row):\n",
        "    if False:\n",
        (f"{_REMOVALS}::{_UNFINISHED}",),
    ),
    Mutation(
        "init does not say that it has taken proofs back",
        "claimlib/report/store.py",
        "[lost] if store.has_lost_proofs else ",
        "",
        (f"tests/delta/test_store.py::{_ENTRIES_BY_HAND}",),
    ),
    Mutation(
        "a snapshot that is finished later proves what it read of entries that were accepted since",
        "claimlib/runs/mirror.py",
        " and row.run_seq > store.accepted_now().after",
        "",
        (f"{_REMOVALS}::{_UNFINISHED_ALIKE}",),
    ),
    Mutation(
        "a run is finished on tables that have gone back, and so hides it",
        "claimlib/runs/rollforward.py",
        "[row.seen])",
        "[])",
        (f"{_REMOVALS}::{_UNFINISHED_ALIKE}",),
    ),
    Mutation(
        "a run is given up on tables that have gone back, and so hides it",
        "claimlib/runs/rollforward.py",
        "row.pins.versions)\n    mirror.withdraw(store, row)\n",
        "())\n    mirror.withdraw(store, row)\n",
        (f"{_REMOVALS}::{_UNFINISHED_ALIKE}",),
    ),
    Mutation(
        "what an unfinished run has seen is forgotten by init",
        "claimlib/store/tables.py",
        'json.loads(row["inputs"])["versions"]) for row in unfinished]',
        'json.loads(row["inputs"])["versions"]) for row in unfinished[:0]]',
        (f"{_REMOVALS}::{_UNFINISHED_ALIKE}",),
    ),
    Mutation(
        "a table that has gone back is used without a word",
        "claimlib/runs/protocol.py",
        "    store.check_not_gone_back(pins.versions, known.seen)\n",
        "",
        (f"tests/delta/test_store.py::{_ENTRIES_ALIKE}",),
    ),
    Mutation(
        "init accepts tables that were replaced without being told to",
        "claimlib/store/tables.py",
        "if not accept_replaced:",
        "if False:",
        (f"tests/delta/test_store.py::{_TOLD_TO_ACCEPT}",),
    ),
    Mutation(
        "init looks only at versions, and takes other entries for those of the proofs",
        "claimlib/store/tables.py",
        "if is_other and not self.read",
        "if False and not self.read",
        (f"tests/delta/test_store.py::{_ENTRIES_BY_HAND}",),
    ),
    Mutation(
        "a lost table is accepted once it was created, and not before",
        "claimlib/store/tables.py",
        '                set_property(self.spark, self.location, "streams", name, text)\n',
        "                pass\n",
        (f"tests/delta/test_store.py::{_CUT_OFF_INIT}",),
    ),
    Mutation(
        "init does not accept what it is about to create",
        "claimlib/store/tables.py",
        "**dict.fromkeys(TABLES, 0), **self.pin(present).versions",
        "**self.pin(present).versions",
        (f"tests/delta/test_store.py::{_CUT_OFF_INIT}",),
    ),
    Mutation(
        "init of a store with other buckets than eight creates what it lacks with eight",
        "claimlib/store/tables.py",
        "buckets = buckets_of(where, present) or schema",
        "buckets = schema",
        (f"tests/delta/test_store.py::{_LOST_TABLE}",),
    ),
    Mutation(
        "init leaves the proofs of entries that were made again alike",
        "claimlib/store/tables.py",
        "are_of_others or not PROVING.isdisjoint(older)",
        "are_of_others",
        (f"tests/delta/test_store.py::{_ENTRIES_ALIKE}",),
    ),
    Mutation(
        "init leaves the proofs of an older copy of streams",
        "claimlib/store/gone_back.py",
        'PROVING = frozenset({"entries", "streams"})',
        'PROVING = frozenset({"entries"})',
        (f"tests/delta/test_store.py::{_OLD_STREAMS}",),
    ),
    Mutation(
        "an open store does not notice what init has accepted since",
        "claimlib/store/tables.py",
        "older = gone_back(versions, runs, self.accepted_now())",
        "older = gone_back(versions, runs, self.accepted)",
        (f"tests/delta/test_store.py::{_ENTRIES_ALIKE}",),
    ),
    Mutation(
        "init accepts only what had gone back, and no version of streams",
        "claimlib/store/tables.py",
        "Accepted(max(run.run_seq for run in runs), self._versions(present))",
        "Accepted(max(run.run_seq for run in runs), self.pin(older).versions)",
        (f"tests/delta/test_store.py::{_BEFORE_INIT}",),
    ),
    Mutation(
        "with one table all tables are accepted",
        "claimlib/store/gone_back.py",
        "return self.versions if run.run_seq <= self.after else run.versions",
        "return {} if run.run_seq <= self.after else run.versions",
        (f"tests/unit/test_gone_back.py::{_NOT_THE_OTHER}",),
    ),
    Mutation(
        "a run before tables had gone back is the base of a sweep",
        "claimlib/commands/sweep_base.py",
        "if base.run_seq <= after:",
        "if False:",
        (f"{_INCREMENTAL}::test_where_there_is_no_base_all_is_looked_at_and_it_says_why",),
    ),
    Mutation(
        "a store is read as a run left it that had seen other tables",
        "claimlib/commands/xpending.py",
        "    if run.run_seq <= after:\n",
        "    if False:\n",
        (f"tests/delta/test_store.py::{_ENTRIES_ALIKE}",),
    ),
    Mutation(
        "each error of Spark's has a stack for whose text PySpark waits",
        "claimlib/session/__init__.py",
        'short = SHORT_STACKS if muted else ""',
        'short = ""',
        (f"tests/spark/test_session.py::{_AT_ONCE}",),
    ),
    # --- what delta-rs sums up of large tables
    Mutation(
        "delta-rs surveys no group that is not requested",
        "claimlib/plans/survey.py",
        ") AS t LEFT JOIN surveyed ON",
        ") AS t JOIN surveyed ON",
        (f"{_SUMMED_UP}::test_the_survey_of_delta_rs_says_of_each_group_what_that_of_spark_says",),
    ),
    Mutation(
        "delta-rs counts what all runs decided as one run's",
        "claimlib/runs/journal.py",
        'FROM t WHERE run_seq = {run_seq:d}"',
        'FROM t WHERE run_seq <= {run_seq:d}"',
        (f"{_SUMMED_UP}::test_what_a_run_decided_is_counted_alike",),
    ),
    Mutation(
        "an incremental sweep does not look at the rows of a group without a base",
        "claimlib/plans/incremental.py",
        " OR coalesce(is_without_base, false))",
        ")",
        (f"{_INCREMENTAL}::test_so_is_one_of_which_very_much_is_pending",),
    ),
    Mutation(
        "a whole table is taken for a part of it that is known by its frame",
        "claimlib/store/tables.py",
        "return self._of_local[rows][1] if rows in self._of_local else None",
        'return self._local("pending")',
        (f"{_SUMMED_UP}::test_of_a_part_of_a_table_or_an_old_version_delta_rs_says_nothing",),
    ),
    Mutation(
        "the file of what an incremental sweep looks at stays",
        "claimlib/store/tables.py",
        "weakref.finalize(rows, remove)",
        "weakref.finalize(self.spark, remove)",
        (f"{_INCREMENTAL}::{_MANY_LOOKED_AT}",),
    ),
    Mutation(
        "a file that is being written stays when the run is interrupted",
        "claimlib/store/tables.py",
        "            without_rows.callback(remove)\n",
        "",
        (f"{_INCREMENTAL}::test_such_a_file_goes_where_its_writing_is_interrupted",),
    ),
    Mutation(
        "the file that a dry run's frames read goes with its reply",
        "claimlib/commands/reply.py",
        "            begun.store.keep(*decision.made_of)\n",
        "            pass\n",
        (f"{_INCREMENTAL}::{_DRY_RUN}",),
    ),
    Mutation(
        "Spark's executors on other machines are to read a file of this one",
        "claimlib/store/tables.py",
        "if local is None or not is_one_process(self.spark):",
        "if local is None:",
        (f"{_INCREMENTAL}::{_ELSEWHERE}",),
    ),
    Mutation(
        "however many rows an incremental sweep looks at, they go into a temporary file",
        "claimlib/store/local.py",
        "                    if number > most:\n                        return None\n",
        "",
        (f"{_INCREMENTAL}::{_ELSEWHERE}",),
    ),
    Mutation(
        "of the entries with some ids delta-rs looks at one half of the id",
        "claimlib/plans/incremental.py",
        'same = " AND ".join(f"t.{name} = ids.{name}" for name in ENTRY)',
        'same = " AND ".join(f"t.{name} = ids.{name}" for name in ENTRY[:2])',
        (f"{_SUMMED_UP}::{_SOME_IDS}",),
    ),
    Mutation(
        "all rows of a bucket are one file",
        "claimlib/store/tables.py",
        'writer.option("maxRecordsPerFile", _ROWS_PER_FILE)',
        "writer",
        (f"{_SUMMED_UP}::{_SEVERAL_FILES}",),
    ),
)


def main(words: list[str]) -> int:
    """Try the mutations; the number of those that nobody noticed."""
    chosen = [
        mutation
        for mutation in MUTATIONS
        if not words or any(word in mutation.name for word in words)
    ]
    unnoticed = 0
    for mutation in chosen:
        since = time.monotonic()
        verdict = tried(mutation)
        unnoticed += verdict != "noticed"
        print(f"{verdict:12} {time.monotonic() - since:5.0f} s  {mutation.name}", flush=True)
    print(f"{len(chosen)} mutations, {len(chosen) - unnoticed} noticed")
    return unnoticed


def tried(mutation: Mutation) -> str:
    """`noticed`, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                skipped = shutil.ignore_patterns("__pycache__")
                shutil.copytree(place, copy / name, ignore=skipped)
            else:
                shutil.copy(place, copy / name)
        file = copy / mutation.file
        text = file.read_text(encoding="utf-8")
        if text.count(mutation.old) != 1:
            return f"{text.count(mutation.old)} places"
        file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *mutation.tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
        )
    # A test that could not be set up has noticed nothing.
    if done.returncode == FAILED and " failed" in done.stdout.splitlines()[-1]:
        return "noticed"
    print(done.stdout[-2000:], file=sys.stderr)
    return "UNNOTICED" if done.returncode == 0 else f"exit {done.returncode}"


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
