"""What programs and logs read: plain text, CSV, JSON lines, chosen columns, and what is said beside
them on stderr."""

import csv
import io
import itertools
import json
import shlex
import subprocess
import sys
from dataclasses import asdict, replace
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimlib import terminal
from claimlib.cli.options import Output, View
from claimlib.cli.output import show
from claimlib.commands import advise
from claimlib.commands.advise import Advice, GroupAdvice
from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.check import Problem
from claimlib.commands.describe import Description
from claimlib.commands.imports import ImportReply
from claimlib.commands.reply import GROUPS_COLUMNS, Reply
from claimlib.commands.report_period import PeriodReport
from claimlib.commands.runs import RunList
from claimlib.commands.snapshot import SnapshotReply
from claimlib.commands.xpending import MatchingEntries
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import Relation, Rows
from claimlib.errors import RequestError
from claimlib.plans.keys import GROUP
from claimlib.plans.period_report_plan import COUNTS
from claimlib.plans.requests import ASSIGNMENT, REQUEST_COLUMNS
from claimlib.plans.xpending_plan import OVERVIEW
from claimlib.report import (
    bulk_report as bulk,
)
from claimlib.report import (
    describe_report as describe,
)
from claimlib.report import (
    mirror_report as mirror,
)
from claimlib.report import (
    period_report,
    run_report,
    store,
)
from claimlib.report import (
    report_model as model,
)
from claimlib.report import (
    runs_report as runs,
)
from claimlib.report import (
    sweep_report as sweep,
)
from claimlib.report import (
    xpending_report as xpending,
)
from claimlib.report.advise_report import report_of_advice
from claimlib.report.report_model import Report, Stream
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import PendingSummary
from claimlib.store.creation import Creation
from tests.edge.processes import run_claimlib
from tests.edge.test_report import RUN as ONE_RUN
from tests.edge.test_run_report import hand_made

RUN = replace(
    ONE_RUN,
    run_id="nightly",
    request='{"consumer": "c", "count": null}',
    phase_ms={"decide": 61_001, "apply": 2},
    ended_ms=1_750_000_061_003,
)
SMALL = Report(
    title="Of two",
    columns={"stream": "stream", "consumer_group": "group", "idle_ms": "oldest idle"},
    rows=(("s,1", 'g"', "1m1s"), ("two\\u000alines", None, "-"), ("total", "2 groups", "1m1s")),
    cut_off=("1 more group not shown; use --limit to show more",),
    notes=("12 lost",),
    document={"groups": []},
    records=[
        {"stream": "s,1", "consumer_group": 'g"', "idle_ms": 61_001, "ok": True, "at": ["é", 1]},
        {"stream": "two\nlines", "consumer_group": None, "idle_ms": None, "ok": False, "at": {}},
    ],
    names=("stream", "consumer_group", "idle_ms", "ok", "at"),
)


def printed(capsys, report, output, columns=None, *, quiet=False):
    show(report, View(output, columns, quiet=quiet))
    return capsys.readouterr()


# ------------------------------------------------------------------- plain text


def test_a_piped_column_is_padded_for_sixty_characters_at_most_and_nothing_is_lost():
    long, name = "x" * 1000, "n" * 60
    columns = {"stream": "stream", "pending": "pending"}
    report = Report("t", columns, ((name, 1), (long, 22), ("s", 333)), (), {}, [])
    _, head, rule, *rows = model.as_text(report).splitlines()
    assert rows == [f"{name}  {1:7}", f"{long}  {22:7}", f"{'s':60}  {333:7}"]
    assert head == f"{'stream':60}  pending"
    assert rule == f"{'-' * 60}  -------"


def test_a_yes_or_no_is_a_word_and_no_number():
    report = Report("t", {"justid": "justid"}, ((True,), (False,)), (), {}, [])
    assert model.as_text(report).splitlines()[-2:] == ["   yes", "    no"]


# ------------------------------------------------------------------- csv and jsonl


def test_csv_has_a_header_machine_values_and_no_totals_and_notes_go_to_stderr(capsys):
    said = printed(capsys, SMALL, Output.CSV)
    assert list(csv.reader(io.StringIO(said.out), strict=True)) == [
        ["stream", "consumer_group", "idle_ms", "ok", "at"],
        ["s,1", 'g"', "61001", "true", '["é", 1]'],
        ["two\nlines", "", "", "false", "{}"],
    ]
    assert said.err == (
        "claimlib: 1 more group not shown; use --limit to show more\nclaimlib: 12 lost\n"
    )


def test_jsonl_is_an_object_per_row_and_notes_go_to_stderr(capsys):
    said = printed(capsys, SMALL, Output.JSONL)
    assert [json.loads(line) for line in said.out.splitlines()] == SMALL.records
    assert said.err.count("claimlib: ") == 2


def test_without_rows_csv_is_its_header_and_jsonl_is_empty(capsys):
    empty = replace(SMALL, records=[], rows=SMALL.rows[-1:])
    assert printed(capsys, empty, Output.CSV).out == "stream,consumer_group,idle_ms,ok,at\n"
    assert printed(capsys, empty, Output.JSONL).out == ""


def test_csv_writes_out_what_no_text_file_can_hold():
    report = Report("t", {"glob": "glob"}, (), (), {}, [{"glob": "a\udcff*"}])
    assert [*model.csv_lines(report)][1] == r"a\udcff*"


def test_records_are_read_as_they_are_written_and_no_longer_than_somebody_reads(
    capsys, monkeypatch
):
    read = []

    def records():
        for number in itertools.count():
            read.append(number)
            yield {"n": number}

    report = Report("t", {"n": "n"}, (), (), {"a": [1], "rows": Stream(records)}, Stream(records))
    chunks = model.json_chunks(report.document)
    begin = "".join(itertools.islice(chunks, 7))
    assert json.loads(begin + "]}") == {"a": [1], "rows": [{"n": 0}, {"n": 1}, {"n": 2}]}
    assert read == [0, 1, 2]
    for output in (Output.CSV, Output.JSONL, Output.JSON):
        read.clear()
        with terminal.guarded():
            monkeypatch.setattr(sys.stdout, "has_reader", False)
            show(report, View(output, None, quiet=False))
        assert len(read) <= 1
        capsys.readouterr()


def test_a_streamed_document_is_the_json_that_python_writes():
    rows = [{"n": 1, "f": [["a", "b\u202e"]]}, {"n": None, "f": []}]
    for records in (rows, []):
        document = {"command": "x", "rows": Stream(lambda r=records: iter(r)), "left": 0}
        text = "".join(model.json_chunks(document))
        expected = json.dumps({**document, "rows": records}, indent=2)
        assert text == expected.replace("\\u202e", r"\u202e")


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]))] * 2), min_size=1))
def test_whatever_names_hold_a_line_of_jsonl_is_harmless_and_csv_has_them_as_they_are(rows):
    records = [{"stream": stream, "idle_ms": 1, "consumer": owner} for stream, owner in rows]
    columns = {name: name for name in ("stream", "idle_ms", "consumer")}
    report = Report("t", columns, (), (), {}, records)
    lines = [*model.json_lines(report)]
    assert [json.loads(line) for line in lines] == records
    assert all(line.isprintable() for line in lines)
    table = io.StringIO("\n".join(model.csv_lines(report)), newline="")
    assert [(row["stream"], row["consumer"]) for row in csv.DictReader(table)] == rows


def test_csv_is_exact_in_a_file_or_a_pipe_and_harmless_on_a_terminal(capsys, monkeypatch):
    name = "a\x1b]0;owned\x07\nb"
    report = Report("t", {"stream": "stream"}, (), (), {}, [{"stream": name}])
    with terminal.guarded():
        show(report, View(Output.CSV, None, quiet=False))
        assert capsys.readouterr().out == f'stream\n"{name}"\n'
        monkeypatch.setattr(terminal, "is_terminal", lambda: True)
        show(report, View(Output.CSV, None, quiet=False))
        assert capsys.readouterr().out == f'stream\n"{terminal.harmless(name)}"\n'


def test_quiet_leaves_the_remarks_out_but_says_what_was_cut_off(capsys):
    for output in (Output.CSV, Output.JSONL):
        said = printed(capsys, SMALL, output, quiet=True)
        assert said.out
        assert said.err == "claimlib: 1 more group not shown; use --limit to show more\n"
        assert printed(capsys, replace(SMALL, cut_off=()), output, quiet=True).err == ""


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "absent", "xautoclaim:r", "--as-commands"),
        ("init", "absent", "--print-sql"),
    ],
)
def test_what_prints_lines_refuses_other_outputs_and_columns(claimlib, words):
    for more in (("--output", "json"), ("--output", "csv"), ("--columns", "what")):
        said = claimlib(*words, *more)
        assert (said.code, said.out) == (2, "")
        assert f"{words[-1]} prints lines for another program: leave out" in said.err


# ------------------------------------------------------------------- columns


def test_columns_are_chosen_and_ordered_by_name_or_by_heading(capsys):
    said = printed(capsys, SMALL, Output.CSV, "idle_ms, group")
    assert said.out == 'idle_ms,consumer_group\n61001,"g"""\n,\n'
    said = printed(capsys, SMALL, Output.JSONL, "oldest idle,stream")
    assert said.out.splitlines()[0] == '{"idle_ms": 61001, "stream": "s,1"}'
    table = printed(capsys, SMALL, Output.TABLE, "oldest idle,stream").out.splitlines()
    assert table[1].split() == ["oldest", "idle", "stream"]
    assert table[3].split() == ["1m1s", "s,1"]


def test_a_table_can_show_what_else_a_record_has_but_for_totals(capsys):
    table = printed(capsys, SMALL, Output.TABLE, "stream,ok,at").out.splitlines()
    assert [line.split() for line in table[3:6]] == [
        ["s,1", "yes", '["é",', "1]"],
        [r"two\u000alines", "no", "{}"],
        ["total", "-", "-"],
    ]


@pytest.mark.parametrize("output", [Output.TABLE, Output.CSV, Output.JSONL])
@pytest.mark.parametrize("columns", ["stream,groups", "", "stream,,ok", "Stream"])
def test_a_column_that_does_not_exist_is_refused_with_those_that_do(capsys, output, columns):
    with pytest.raises(RequestError, match=r"stream, consumer_group, idle_ms, ok, at$") as refused:
        printed(capsys, SMALL, output, columns)
    assert refused.value.exit_code == 2
    assert capsys.readouterr() == ("", "")


def test_a_column_that_is_named_twice_is_refused():
    with pytest.raises(RequestError, match="'consumer_group' is named twice"):
        model.with_names(SMALL, ["consumer_group", "group"])


SWEEP = ("xautoclaim", "absent", "--consumer", "c", "--min-idle", "1h")


@pytest.mark.parametrize(
    "words",
    [
        SWEEP,
        ("xclaim", "absent", "s", "g", "c", "1-0", "--min-idle", "1h"),
        ("xack", "absent", "s", "g", "1-0"),
        ("retire", "absent", "s", "g", "c", "--to", "d"),
        ("init", "absent"),
        ("snapshot", "redis://127.0.0.1:1/0", "absent"),
        ("import", "absent", "--entries", "e", "--pending", "p"),
        ("abandon", "absent", "7"),
        ("reset-cursor", "absent", "nightly"),
    ],
)
def test_commands_that_write_refuse_columns_before_they_do_anything(claimlib, words):
    for output in ("table", "csv"):
        said = claimlib(*words, "--columns", "nonsense", "--output", output)
        assert (said.code, said.out) == (2, "")
        (line,) = said.err.splitlines()
        assert "--columns: there is no column 'nonsense'; the columns are " in line


def test_the_columns_of_json_cannot_be_chosen(claimlib):
    for words in (SWEEP, ("runs", "absent"), ("xpending", "absent"), ("check", "absent")):
        said = claimlib(*words, "--columns", "stream", "--output", "json")
        assert (said.code, said.out) == (2, "")
        assert "--columns goes with --output table, csv or jsonl" in said.err


# ------------------------------------------------------------------- every report has records


def relation(rows, columns=()):
    """Rows as a relation has them."""
    names = [*columns] or [*rows[0]]
    return Relation(EmbeddedEngine(), Rows(pa.table({n: [row[n] for row in rows] for n in names})))


def row_of(names, **values):
    return dict.fromkeys(names) | values


GROUP_ROW = {"stream": "s", "consumer_group": "g"}
SWEPT = row_of(GROUPS_COLUMNS, **GROUP_ROW, status="swept", pending_before=3, oldest_idle_ms=61_001)
ID = row_of(bulk.NAMES, **GROUP_ROW, request=1, id="1-0", id_ms=1, id_seq=0, status="left")


def of_reply():
    reply = reply_of(Reply, {"swept": 1})
    reply.groups = relation([SWEPT])
    return sweep.report_of_reply(reply), "groups"


def of_bulk():
    return bulk.report_of_bulk("xclaim", bulk_reply([ID])), "ids"


def bulk_reply(ids):
    reply = reply_of(BulkReply, {"left": len(ids)})
    reply.requests, reply.ids = relation([ID]), relation(ids)
    reply.losses = relation([], [*GROUP, "from_consumer", "claimed", "deleted"])
    return reply


def reply_of(kind, counts):
    """A reply whose relations are given: what it makes them from is not there."""
    reply = mock.create_autospec(kind, instance=True, counts=counts)
    reply.run_id, reply.run_seq, reply.dry_run, reply.is_repeat = "r", 1, False, False
    return reply


def of_bulk_of_several():
    return bulk.report_of_bulk("xclaim", bulk_reply([ID, ID | {"request": 2}])), "ids"


def test_refused_requests_beyond_the_limit_are_counted():
    reply = bulk_reply([ID])
    reply.counts["refused"] = 3
    reply.requests = relation([ID | {"status": "refused", "request": n} for n in (1, 2, 3)])
    for limit, left_out in ((2, 1), (3, 0), (50, 0)):
        document = bulk.report_of_bulk("xack", reply, limit).document
        assert len(document["refused"]) + left_out == 3
        assert document["refused_not_shown"] == left_out


@pytest.mark.parametrize(("dry_run", "was"), [(False, "was"), (True, "would be")])
def test_of_a_consumer_that_a_dry_run_would_retire_it_is_not_said_that_it_was(dry_run, was):
    reply = bulk_reply([ID])
    reply.counts["retired"], reply.dry_run = 1, dry_run
    reply.retired = relation([{"consumer": "bob"}])
    assert bulk.report_of_bulk("retire", reply).notes[-1] == (
        f"1 consumer {was} removed from the store: bob; only a writeback removes it on a server"
    )


def of_entries():
    before = ("from_consumer", "from_delivery_time_ms", "from_idle_ms", "from_delivery_count")
    others = ("delivery_time_ms", "delivery_count", "at_ms", "payload", "fields")
    row = row_of((*before, "consumer", *others), **GROUP_ROW, id="1-0", id_ms=1, id_seq=0)
    return runs.report_of_entries(RUN, "claimed", relation([row]), 10), "claimed"


def of_overview():
    row = row_of((*GROUP, *OVERVIEW), **GROUP_ROW, pending=3, oldest_idle_ms=61_001)
    return xpending.report_of_overview("s", relation([row]), 900_000, 10), "groups"


TIMES = (
    *("oldest_idle_ms", "oldest_delivery_time_ms", "highest_delivery_count"),
    *("active_time_ms", "seen_time_ms"),
)
DESCRIPTION = Description(
    relation([row_of((*GROUP, "consumer", *TIMES, "is_known", "now_ms"), **GROUP_ROW, pending=3)]),
    relation([], ["name", *GROUP, "next_id"]),
)


def of_description():
    return describe.report_of_description("s", DESCRIPTION, 1), "consumers"


def of_policy():
    row = row_of(
        ("request", *REQUEST_COLUMNS, *ASSIGNMENT), **GROUP_ROW, request=1, min_idle_ms=61_001
    )
    return sweep.report_of_policy(relation([row | {"justid": True, "consumer": "c"}])), "groups"


def of_range():
    times = {"idle_ms": 61_001, "delivery_time_ms": 1, "delivery_count": 1}
    row = {**GROUP_ROW, "id_ms": 1, "id_seq": 0, "consumer": "c", **times}
    return xpending.report_of_range(b"s", b"g", MatchingEntries(relation([row]), 1), 1), "rows"


def of_check():
    return store.report_of_check("s", [Problem("streams", "what", True, 1, "s")]), "problems"


def of_run_report():
    return run_report.full_report_of_run(hand_made()), "groups"


def of_period_report():
    row = dict.fromkeys(period_report.COLUMNS, 1) | {"key": "xautoclaim:r"}
    totals = dict.fromkeys(("runs", *COUNTS, "claimed_again"), 1)
    hidden = dict.fromkeys(("runs", "worse_groups", "losing_consumers", "acknowledged"), 0)
    report = PeriodReport("s", 0, 1, totals, [row], [], [], [], hidden, 1)
    return period_report.report_of_period(report), "runs"


def of_advice():
    choice = dict.fromkeys(("min_idle_ms", *advise.COUNTS, "wait_ms"), 1)
    groups = [GroupAdvice(*names, [choice], None) for names in ((None, None), ("s", "g"))]
    advice = Advice("s", 2, 0, 1, 0.5, groups[0], groups[1:], 1)
    return report_of_advice(advice), "groups"


WITH_ROWS = (
    of_reply,
    of_bulk,
    of_bulk_of_several,
    of_entries,
    of_overview,
    of_description,
    of_policy,
    of_range,
    of_check,
    of_run_report,
    of_period_report,
    of_advice,
)


@pytest.mark.parametrize("made", WITH_ROWS)
def test_the_records_are_the_rows_of_the_document(made):
    report, name = made()
    names = report.names or tuple(report.columns)
    assert report.records
    assert list(map(dict, report.records)) == report.document[name]
    assert all(set(names) == set(record) for record in report.records)


A_STORE = Creation(mock.Mock(spec_set=("where", "buckets"), where="s", buckets=8), was_there=False)
OTHERS = {
    "run": runs.report_of_run(RUN),
    "runs": runs.report_of_runs("s", RunList((RUN,), 1, ())),
    "store": store.report_of_store(A_STORE, None),
    "snapshot": mirror.report_of_snapshot(
        SnapshotReply("r", 1, False, "h:1/0", {"streams": 3, "gone": 0})
    ),
    "import": mirror.report_of_import(ImportReply("r", 1, False, "given", {"streams": 3})),
    "summary": xpending.report_of_summary(
        b"s", b"g", PendingSummary(2, StreamId(1, 0), StreamId(2, 0), ((b"a", 1), (b"b", 1)))
    ),
}


def test_a_name_has_one_heading_in_all_reports():
    headings = {}
    for report in (*(made()[0] for made in WITH_ROWS), *OTHERS.values()):
        for name, heading in report.columns.items():
            headings.setdefault(name, set()).add(heading)
    assert {name: said for name, said in headings.items() if len(said) > 1} == {}
    assert headings["consumer_group"] == {"consumer group"}
    assert headings["delivery_count"] == {"deliveries now"}


@pytest.mark.parametrize(
    "report", [pytest.param(report, id=name) for name, report in OTHERS.items()]
)
def test_every_other_report_has_records_too(report):
    names = report.names or tuple(report.columns)
    assert report.records
    assert all(set(names) <= set(record) for record in report.records)
    assert set(report.columns) <= set(names)
    assert next(model.csv_lines(report)) == ",".join(names)
    assert [*model.json_lines(report)]


def test_a_run_is_shown_to_programs_in_milliseconds():
    by_name = {record["what"]: record["value"] for record in OTHERS["run"].records}
    assert by_name == {
        "began_ms": 1_750_000_000_000,
        "ended_ms": 1_750_000_061_003,
        "engine": "spark",
        "request.consumer": "c",
        "counts.claimed": 12_345,
        "counts.deleted": 0,
        "phase_ms.decide": 61_001,
        "phase_ms.apply": 2,
    }
    (listed,) = OTHERS["runs"].records
    assert (listed["key"], listed["claimed"], listed["took_ms"]) == (
        "xautoclaim:nightly",
        12_345,
        61_003,
    )
    assert listed["counts"] == asdict(RUN)["counts"]


@pytest.mark.parametrize(
    ("number", "notes"),
    [(2, ()), (3, ("1 entry has no owner",)), (1002, ("1,000 entries have no owner",))],
)
def test_entries_without_an_owner_are_counted_beside_the_consumers(number, notes):
    ids = (StreamId(1, 0), StreamId(2, 0))
    summary = PendingSummary(number, *ids, ((b"a", 1), (b"b", 1)))
    report = xpending.report_of_summary(b"s", b"g", summary)
    assert report.notes == notes
    document = report.document
    assert document["pending"] - sum(document["consumers"].values()) == number - 2
    assert document["pending_without_owner"] == number - 2
    described = replace(DESCRIPTION, without_owner=number - 2)
    report = describe.report_of_description("s", described, 1)
    assert report.document["pending_without_owner"] == number - 2
    assert set(notes) <= set(report.notes)
    assert sum("no owner" in note for note in report.notes) == len(notes)


def test_what_a_report_leaves_out_of_its_table_can_be_chosen():
    report, _ = of_bulk()
    assert "stream" not in report.columns
    assert model.with_columns(report, ["stream", "id"]).rows == (("s", "1-0"),)


def test_headings_say_by_themselves_what_they_count():
    for columns in (sweep.COLUMNS, bulk.COLUMNS, of_overview()[0].columns):
        assert not {"after", "deliveries", "10+"} & set(columns.values())


# ------------------------------------------------------------------- shell completion


def test_a_shell_can_be_told_how_to_complete():
    # Which shell asks is seen from the processes above: the test's own would be any.
    command = shlex.join([sys.executable, "-m", "claimlib", "--show-completion"])
    said = subprocess.run(
        ["bash", "-c", f"{command}; exit $?"], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert "complete -o default -F" in said.stdout
    said = run_claimlib(_CLAIMLIB_COMPLETE="source_bash")
    assert (said.returncode, said.stderr) == (0, "")
    assert "complete -o default -F _claimlib_completion claimlib" in said.stdout


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("claimlib x", {"xautoclaim", "xclaim", "xack", "xpending"}),
        ("claimlib runs --output ", {"table", "json", "csv", "jsonl"}),
        ("claimlib xpending --q", {"--quiet"}),
    ],
)
def test_commands_options_and_their_values_are_completed(typed, words):
    said = run_claimlib(
        _CLAIMLIB_COMPLETE="complete_bash",
        COMP_WORDS=typed,
        COMP_CWORD=str(typed.count(" ")),
    )
    assert (set(said.stdout.split()), said.stderr) == (words, "")


def test_fish_reads_tabs():
    said = run_claimlib(
        _CLAIMLIB_COMPLETE="complete_fish",
        _TYPER_COMPLETE_ARGS="claimlib xp",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert said.stdout == "xpending\tShow pending entries, the longest idle first.\n"


def test_the_help_stays_readable():
    said = run_claimlib("--help", COLUMNS="80")
    head, _, commands = said.stdout.partition("Commands:")
    assert "--install-completion  Install completion" in head
    assert max(map(len, said.stdout.splitlines())) <= 80
    assert len(head.splitlines()) < 16
    one_line = " ".join(commands.split())
    assert " xautoclaim Claim entries that were idle for too long, in all groups. " in one_line
