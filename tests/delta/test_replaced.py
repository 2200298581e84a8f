"""Tables that were lost or replaced: what runs and `init` refuse, and what `init` accepts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import read_store
from claimlib.errors import RequestError, SchemaError, StoreIncompleteError
from claimlib.report.store import report_of_store
from claimlib.runs import Phase
from claimlib.store.creation import bind_proofs
from claimlib.store.definitions import Definitions
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import Opener, create_again, init
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import count


@pytest.fixture
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Store]:
    """Return a function that creates another store with a number of buckets."""
    start = request.getfixturevalue("spark_if_needed")
    engine = request.config.getoption("--engine")
    return lambda buckets: init(start, str(tmp_path / "another"), engine, buckets=buckets)


@pytest.fixture
def another(new_store: Callable[[int], Store], store: Store) -> Path:
    """Return the folder of another empty store.  Its tables have other ids."""
    return Path(new_store(store.buckets).where)


def replace(store: Store, table: str, source: Path) -> None:
    """Put the table of another store in the place of one."""
    shutil.rmtree(Path(store.where, table))
    shutil.copytree(source / table, Path(store.where, table))


def test_where_the_entries_were_lost_and_are_made_again_no_sweep_takes_them_for_deleted(
    open_store: Opener, store: Store
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    request = SweepRequest(REQUEST)
    assert xautoclaim(store, request, dry_run=True).counts["refused"] == 0
    shutil.rmtree(Path(store.where, "entries"))
    with pytest.raises(StoreIncompleteError, match="sweeps then refuse its groups until the next"):
        open_store(store.where)
    again = create_again(store).store
    counts = xautoclaim(again, request).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)
    write_keyspace(again, keyspace(b"t"), NOW_MS)
    once_more = create_again(store).store  # nothing is missing
    assert xautoclaim(once_more, request, dry_run=True).counts["refused"] == 1, "s, and not t"


def test_entries_made_again_by_hand_are_refused_until_init_takes_the_proofs_back(
    open_store: Opener, store: Store, another: Path
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    replace(store, "entries", another)
    advice = f"claimlib init {store.where} --accept-replaced accepts this one"
    with pytest.raises(SchemaError, match=f"dropped and created again.*{advice}"):
        open_store(store.where)
    with pytest.raises(SchemaError, match=advice):
        create_again(store)
    again, notes = accepted(store)
    assert "entries do not count as complete any more: sweeps refuse" in notes[0]
    counts = xautoclaim(again, SweepRequest(REQUEST)).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)
    write_keyspace(again, keyspace(b"t"), NOW_MS)
    once_more = create_again(store)
    assert report_of_store(once_more, None).notes[0].endswith("already exists: nothing was changed")
    assert xautoclaim(once_more.store, SweepRequest(REQUEST), dry_run=True).counts["refused"] == 1


def use(store: Store) -> Store:
    """Return the store, after a run that has seen entries."""
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    assert xautoclaim(store, SweepRequest(REQUEST, stream_glob="none")).run_seq == 1
    return store


@pytest.fixture
def used(store: Store) -> Store:
    """Return a store whose entries a run has read."""
    return use(store)


@pytest.fixture
def make_again(used: Store, empty_store: Path) -> Callable[[str], None]:
    """Lose a table, and restore its first version: the new one has the id of the old one."""

    def made(table: str) -> None:
        replace(used, table, empty_store)

    return made


ALL_PENDING = SweepRequest(REQUEST)


def accepted(store: Store) -> tuple[Store, list[str]]:
    """A store after an `init` that accepts replaced tables, and what that says."""
    after = create_again(store, accept_replaced=True)
    return after.store, list(report_of_store(after, None).notes)


def test_entries_made_again_with_their_old_id_are_refused_until_init_takes_the_proofs_back(
    open_store: Opener, used: Store, make_again: Callable[[str], None]
) -> None:
    make_again("entries")
    says = (
        rf"\(entries is at version 0, but run 1 has used version 1\).*claimlib init {used.where}"
        " --accept-replaced accepts the present ones; its entries then do not count as complete"
    )
    # Also by a store that has been open all the while.
    for store in (used, open_store(used.where)):
        for is_dry in (True, False):
            with pytest.raises(SchemaError, match=says):
                xautoclaim(store, ALL_PENDING, dry_run=is_dry)
    again, notes = accepted(used)
    assert "entries do not count as complete any more: sweeps refuse" in notes[0]
    assert notes[1] == "accepted at earlier versions than runs have used: entries"
    counts = xautoclaim(used, ALL_PENDING).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)
    with pytest.raises(RequestError, match="gone back after run 1, and were accepted"):
        read_store(again, "1")
    assert read_store(again, "2").run_seq == 2
    write_keyspace(again, keyspace(b"t"), NOW_MS)
    once_more, notes = accepted(used)
    assert notes[0].endswith("already exists: nothing was changed")
    assert xautoclaim(once_more, ALL_PENDING, dry_run=True).counts["refused"] == 1, "s, and not t"


@pytest.mark.parametrize("table", ["entries", "pending"])
def test_init_refuses_replaced_tables_before_it_changes_anything_unless_told_to_accept_them(
    used: Store, make_again: Callable[[str], None], table: str
) -> None:
    make_again(table)
    version, before = used.version("streams"), used.read("streams").collect()
    with pytest.raises(SchemaError, match=rf"\({table} is at version 0.* --accept-replaced"):
        create_again(used)
    assert (used.version("streams"), used.read("streams").collect()) == (version, before)
    accepted(used)
    assert not create_again(used).newly_accepted


def test_init_leaves_the_proofs_alone_where_it_refuses_other_entries(
    open_store: Opener, used: Store, another: Path
) -> None:
    """They have another id, so that `init` would take the proofs back."""
    entries = Path(used.where, "entries")
    kept = Path(shutil.copytree(entries, entries.with_name("kept")))
    replace(used, "entries", another)
    with pytest.raises(SchemaError, match=r"\(entries is at version 0.* --accept-replaced"):
        create_again(used)
    shutil.rmtree(entries)
    kept.rename(entries)
    counts = xautoclaim(open_store(used.where), ALL_PENDING, dry_run=True).counts
    assert counts["refused"] == 0


def test_init_creates_a_lost_table_as_the_others_are_and_accepts_it(
    new_store: Callable[[int], Store],
) -> None:
    store = use(new_store(4))
    shutil.rmtree(Path(store.where, "entries"))
    again = create_again(store)
    assert (again.store.buckets, again.newly_accepted) == (4, ("entries",))
    lost, created, *_ = report_of_store(again, None).notes
    assert lost.startswith("the entries do not count as complete any more")
    assert created == "created again without rows, because they were missing: entries"
    assert xautoclaim(again.store, ALL_PENDING).counts["refused"] == 1
    assert not create_again(store).newly_accepted


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("lost", "refused", "claims"),
    [
        ("entries", 1, False),
        ("streams", 1, False),
        ("pending", 0, False),
        ("runs", 0, True),
        ("journal", 0, True),
    ],
)
def test_an_init_that_is_cut_off_before_it_creates_a_lost_table_or_after_it_is_finished_by_another(
    used: Store,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
    refused: int,
    claims: bool,
) -> None:
    table = Path(used.where, lost)
    shutil.rmtree(table)
    for next_step, is_there in (("schema.properties_of_new", False), ("bind_proofs", True)):
        with monkeypatch.context() as patched:
            patched.setattr(f"claimlib.store.creation.{next_step}", interrupted)
            with pytest.raises(KeyboardInterrupt):
                create_again(used)
        assert table.exists() == is_there
    again = create_again(used).store
    counts = xautoclaim(again, ALL_PENDING).counts
    assert (counts["refused"], counts["claimed"] > 0) == (refused, claims)


def test_where_one_table_was_lost_and_another_one_replaced_init_changes_nothing(
    used: Store, make_again: Callable[[str], None]
) -> None:
    make_again("pending")
    entries = Path(used.where, "entries")
    entries.rename(entries.with_name("kept"))
    version = used.version("streams")
    with pytest.raises(SchemaError, match=r"\(pending is at version 0, but run 1"):
        create_again(used)
    assert used.version("streams") == version
    assert not entries.exists()
    entries.with_name("kept").rename(entries)
    again, notes = accepted(used)
    assert notes[0] == "accepted at earlier versions than runs have used: pending"
    assert xautoclaim(again, ALL_PENDING).counts["refused"] == 0


def test_entries_that_are_replaced_while_a_run_works_are_refused_before_its_row_of_runs_is_written(
    used: Store, make_again: Callable[[str], None]
) -> None:
    def replace(phase: Phase, _detail: str) -> None:
        if phase is Phase.VERIFY:
            make_again("entries")

    with pytest.raises(SchemaError, match=r"\(entries is at version 0, but run 2 has used"):
        xautoclaim(used, ALL_PENDING, progress=replace)
    assert count(used.where, "runs") == 1


def test_a_sweep_that_read_the_proofs_before_init_withdrew_them_is_refused(
    used: Store, make_again: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run has no lock, so that an `init` gets in between its reads of two tables."""
    make_again("entries")
    version, has_accepted = Store.version, list[Store]()

    def accept_first(self: Store, table: str) -> int:
        if table == "entries" and self is used and not has_accepted:
            has_accepted.append(create_again(used, accept_replaced=True).store)
        return version(self, table)

    monkeypatch.setattr(Store, "version", accept_first)
    with pytest.raises(SchemaError, match=r"\(streams is at version"):
        xautoclaim(used, ALL_PENDING, dry_run=True)
    assert len(has_accepted) == 1
    assert xautoclaim(used, ALL_PENDING, dry_run=True).counts["refused"] == 1


def test_what_is_accepted_is_one_table_as_it_is_now_and_no_other_one(
    used: Store, make_again: Callable[[str], None]
) -> None:
    make_again("pending")
    with pytest.raises(SchemaError, match=r"\(pending is at .* accepts the present ones$"):
        xautoclaim(used, ALL_PENDING)
    for as_of in (None, "1"):
        with pytest.raises(SchemaError, match=r"\(pending is at version 0"):
            read_store(used, as_of)
    again, notes = accepted(used)
    assert notes[0] == "accepted at earlier versions than runs have used: pending"
    assert xautoclaim(again, ALL_PENDING, dry_run=True).counts["refused"] == 0
    make_again("entries")  # before any run has seen the new state
    with pytest.raises(SchemaError, match=r"\(entries is at version 0"):
        xautoclaim(again, ALL_PENDING)
    again, notes = accepted(used)
    assert "entries do not count as complete any more" in notes[0]
    assert again.accepted.versions["entries"] == again.version("entries")
    assert xautoclaim(again, ALL_PENDING, dry_run=True).counts["refused"] == 0, "nothing is pending"


def test_an_old_copy_of_streams_does_not_bring_back_proofs_that_were_taken_back(
    open_store: Opener, used: Store, make_again: Callable[[str], None]
) -> None:
    streams = Path(used.where, "streams")
    shutil.copytree(streams, Path(used.where, "copy"))
    make_again("entries")
    again, _ = accepted(used)
    assert xautoclaim(again, ALL_PENDING).counts["refused"] == 1
    shutil.rmtree(streams)
    Path(used.where, "copy").rename(streams)
    with pytest.raises(SchemaError, match=r"streams is at version .* do not count as complete"):
        xautoclaim(open_store(used.where), ALL_PENDING)
    again, notes = accepted(used)
    assert "entries do not count as complete any more" in notes[0]
    counts = xautoclaim(again, ALL_PENDING).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)


def test_entries_that_are_made_again_while_init_looks_at_them_have_their_proofs_taken_back(
    another: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)

    def bind_later(definitions: Definitions) -> bool:
        replace(store, "entries", another)
        return bind_proofs(definitions)

    with monkeypatch.context() as patched:
        patched.setattr("claimlib.store.creation.bind_proofs", bind_later)
        again = create_again(store)
    assert (
        "entries do not count as complete any more: sweeps refuse"
        in report_of_store(again, None).notes[0]
    )
    counts = xautoclaim(again.store, SweepRequest(REQUEST)).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)


def test_where_streams_was_lost_and_is_made_again_its_proofs_are_about_the_entries_that_are_there(
    store: Store,
) -> None:
    shutil.rmtree(Path(store.where, "streams"))
    again = create_again(store).store
    write_keyspace(again, keyspace(b"s"), NOW_MS)
    assert xautoclaim(again, SweepRequest(REQUEST)).counts["refused"] == 0
