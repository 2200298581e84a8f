"""Lists of entries for programs: complete, and of what is chosen."""

import csv
import io
import json

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace

NOW_MS = 1_750_000_000_000
STREAMS = 60
ENTRIES = 3


@pytest.fixture(scope="module")
def shared_store(empty_store, tmp_path_factory, open_store):
    """Create a store with 60 streams of three pending entries, all of which a sweep and an XCLAIM
    took, and one whose two pending entries a sweep deleted."""
    import shutil

    from claimlib import AutoclaimRequest, SweepRequest, xautoclaim
    from claimlib.commands.xclaim import NamedClaim, xclaim
    from claimlib.semantics.model import ClaimRequest

    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("exports") / "store")
    store = open_store(where)
    ids = [StreamId(n, 0) for n in range(1, ENTRIES + 1)]
    pending = tuple(PendingEntry(id_, b"dead", NOW_MS - 90_000, 3) for id_ in ids)
    group = Group(StreamId(9, 0), pending, (Consumer(b"dead", NOW_MS, None),))
    stream = Stream(dict.fromkeys(ids, (b"f", b"v")), {b"g": group})
    gone = Stream({}, {b"g": Group(StreamId(9, 0), pending[:2], ())})
    keyspace = {b"s%02d" % n: stream for n in range(STREAMS)} | {b"gone": gone}
    write_keyspace(store, keyspace, NOW_MS)
    request = AutoclaimRequest(b"c", 60_000)
    xautoclaim(store, SweepRequest(request, stream_glob="s*"), run_id="all")
    xautoclaim(store, SweepRequest(request, stream_glob="gone"), run_id="gone")
    claims = [
        NamedClaim(b"s%02d" % n, b"g", ClaimRequest(b"d", 0, tuple(ids))) for n in range(STREAMS)
    ]
    xclaim(store, claims, run_id="all")
    return str(where)


def rows(said, output):
    assert said.code == 0
    if output == "csv":
        return list(csv.DictReader(io.StringIO(said.out)))
    if output == "jsonl":
        return [json.loads(line) for line in said.out.splitlines()]
    return next(value for value in json.loads(said.out).values() if isinstance(value, list))


LISTS = {
    "claimed": ("runs", "{}", "xautoclaim:all", "--claimed"),
    "ids": ("runs", "{}", "xclaim:all", "--ids"),
    "overview": ("xpending", "{}"),
    "consumers": ("describe", "{}"),
    "dry run": ("xautoclaim", "{}", "--consumer", "e", "--min-idle", "0ms", "--dry-run"),
    "range": ("xpending", "{}", "s00", "g", "--count", "1000000"),
}
EXPECTED = {
    "claimed": STREAMS * ENTRIES,
    "ids": STREAMS * ENTRIES,
    "overview": STREAMS + 1,
    "consumers": STREAMS * 3 + 1,
    "dry run": STREAMS + 1,
    "range": ENTRIES,
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("output", ["csv", "jsonl", "json"])
def test_what_programs_read_is_complete_unless_a_limit_is_given(
    claimlib, shared_store, name, output
):
    words = [word.format(shared_store) for word in LISTS[name]]
    said = claimlib(*words, "--output", output, "--quiet")
    assert (len(rows(said, output)), said.err) == (EXPECTED[name], "")
    if name != "range":
        said = claimlib(*words, "--output", output, "--limit", "7", "--quiet")
        assert len(rows(said, output)) == 7
        assert output == "json" or "more" in said.err


def test_a_list_of_entries_is_of_the_streams_groups_and_ids_that_are_chosen(claimlib, shared_store):
    def chosen(run, kind, *filters):
        words = ("runs", shared_store, run, kind, *filters, "--output", "jsonl")
        return [(row["stream"], row["id"]) for row in rows(claimlib(*words), "jsonl")]

    for run, kind in (("xautoclaim:all", "--claimed"), ("xclaim:all", "--ids")):
        assert chosen(run, kind, "--stream", "s0[12]", "--start", "(1-0", "--end", "2") == [
            ("s01", "2-0"),
            ("s02", "2-0"),
        ]
        assert chosen(run, kind, "--group", "h") == []
    assert chosen("xautoclaim:gone", "--deleted", "--stream", "gone", "--start", "2") == [
        ("gone", "2-0")
    ]
    for kind in ("--deleted", "--lost"):
        assert chosen("xautoclaim:gone", kind, "--stream", "s*") == []
    commands = claimlib(
        *("runs", shared_store, "xautoclaim:all", "--as-commands", "--stream", "s07", "--end", "2")
    )
    assert commands.out == "XCLAIM s07 g c 60000 1-0 2-0\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stream", "s*"), "--stream chooses entries of one run"),
        (("1", "--start", "5"), "--start chooses entries of one run"),
        (("1", "--refused", "--end", "5"), "--end cannot be combined with --refused"),
    ],
)
def test_filters_without_a_list_of_entries_are_refused(claimlib, shared_store, words, said):
    refused = claimlib("runs", shared_store, *words)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
