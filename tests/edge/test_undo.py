"""`claimlib undo` as a user types it."""

from __future__ import annotations

import json

from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import update
from tests.delta.pels import NOW_MS, keyspace


def test_an_undo_says_what_it_put_back_and_how_to_do_the_run_again(claimlib, store):
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    where = store.where
    swept = claimlib(
        "xautoclaim", where, "--consumer", "alice", "--min-idle", "1s", "--run-id", "r"
    )
    assert swept.code == 0
    update(store, "pending", "stream = 's' AND id_ms = 3", consumer="'own'")

    shown = claimlib("undo", where, "xautoclaim:r", "--dry-run")
    assert shown.code == 0
    assert shown.out.startswith("Undo of xautoclaim:r, dry run: what it would put back; nothing")

    said = claimlib("undo", where, "r", "--run-id", "u")
    assert said.code == 0
    assert said.out.startswith("Undo of xautoclaim:r, run 2 (undo:u)\n")
    assert "1 entry was left alone\n" in said.out
    assert "another run, writer or client changed these since the run: s / g / 3-0\n" in said.out
    command = f"claimlib undo {where} 2"
    assert f"To do the run again, undo this: {command}\n" in said.out

    listed = json.loads(claimlib("undo", where, "r", "--run-id", "u", "--output", "json").out)
    assert listed["is_repeat"]
    assert [(row["stream"], row["id"]) for row in listed["kept"]] == [("s", "3-0")]
    assert listed["counts"]["restored"] == 9
    again = claimlib(*command.split()[1:])
    assert again.code == 0
    assert "kept" not in again.out.splitlines()[-3:]

    run = claimlib("runs", where, "undo:u").out
    assert "claimed entries given back to their earlier owners" in run


def test_a_run_that_cannot_be_undone_is_refused_with_what_to_do(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    said = claimlib("undo", store.where, "7")
    assert said.code == 2
    assert "has no finished run 7" in said.err
