"""`claimlib check --replay` as a user types it."""

from __future__ import annotations

from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import update
from tests.delta.pels import NOW_MS, keyspace


def test_a_difference_is_named_and_is_an_exit_code_for_alerts(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    where = store.where
    assert claimlib("xautoclaim", where, "--consumer", "alice", "--min-idle", "1s").code == 0
    sound = claimlib("check", where, "--replay")
    assert (sound.code, sound.out.splitlines()[-1]) == (0, "no problems found")
    update(store, "pending", "id_ms = 3", consumer="'thief'")
    assert claimlib("check", where).code == 0
    said = claimlib("check", where, "--replay")
    assert said.code == 3
    assert "entries that another writer changed" in said.out
    assert "differences: another writer has changed rows" in said.out
