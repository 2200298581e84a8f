"""`claimlib report` as a user types it, and its renderers over hand-made reports."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from dataclasses import fields, replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client import parser

from claimlib.commands.report_run import RunReport, dry_run_report, run_report
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import RequestError
from claimlib.plans.run_report_plan import COLUMNS, PENDING, TIMES
from claimlib.report.report_file import write_file
from claimlib.report.run_report import document, full_report_of_run, sections, verdict
from claimlib.report.run_report_html import as_html
from claimlib.report.run_report_openlineage import event_of
from claimlib.report.run_report_prometheus import write_metrics
from claimlib.report.text import visible
from claimlib.semantics.model import AutoclaimRequest
from claimlib.semantics.names import spell
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.edge.documents import rows, text_of
from tests.edge.processes import run_claimlib
from tests.edge.test_report import RUN

HOSTILE = [
    b"<script>alert(1)</script>",
    b"\"><img src=x onerror='alert(1)'>",
    b"{{ 7 * 7 }} &amp; &lt;",
    b"\x1b]0;title\x07\r\n\x00",
    "turned \u202e around \u2066\ufeff".encode(),
    b"not utf-8 \xff\xfe \\ back",
    b"",
    b"x" * 5000,
]
NIGHTLY = replace(RUN, run_id="nightly", counts={"claimed": 9335, "deleted": 2159, "lost": 0})
TOTALS = {
    **dict.fromkeys(COLUMNS[3:], 0),
    **{f"pending_{time}": number for time, number in zip(TIMES, (14_000, 11_841), strict=True)},
    "stalled_groups_before": 3,
    "stalled_groups_after": 1,
    "groups": 27,
    "refused": 0,
    "claimed": 9335,
    "deleted": 2159,
    "changed": 11_494,
    "oldest_idle_ms_after": 3_600_000,
}


SUMS = ("before", "added", "removed", "by_others", "after")


def interval(at_least, below, before, after):
    return {"at_least": at_least, "below": below, "before": before, "after": after}


def hand_made(names=(b"orders",), **changes):
    """A report with a group for each name."""
    groups = [
        {
            **dict.fromkeys(COLUMNS, 1),
            "stream": spell(name),
            "consumer_group": spell(name),
            "reason": spell(name),
        }
        for name in names
    ]
    transfers = [
        {**dict.fromkeys(("stream", "consumer_group", "from_consumer", "consumer"), spell(name))}
        | {"entries": 7}
        for name in names
    ]
    report = RunReport(
        where="./store",
        run=NIGHTLY,
        undone_by=None,
        can_be_undone=True,
        written_back_by=None,
        can_be_written_back=False,
        only_in_store=None,
        unfinished=(),
        has_history=True,
        stalled_after_ms=900_000,
        totals=TOTALS,
        balance=dict(zip(SUMS, (14_000, 0, 2159, 0, 11_841), strict=True)),
        groups=groups,
        transfers=transfers,
        transfers_total={"pairs": len(names), "entries": 7 * len(names)},
        idle_ms=(interval(None, 0, 0, 0), interval(0, 1000, 5, 0), interval(1000, None, 6, 8)),
        delivery_counts=(interval(0, 1, 1, 2), interval(1, None, 3, 4)),
    )
    return replace(report, **changes)


def test_the_verdict_is_one_sentence_for_each_kind_of_run():
    assert verdict(hand_made()) == (
        "Run 7 (xautoclaim:nightly): 3 of 27 groups were stalled before the run, 1 after it."
        " 9,335 entries claimed, 2,159 deleted, 0 lost to other writers"
    )
    unknown = {**TOTALS, **{f"{name}_{time}": None for name in PENDING for time in TIMES}}
    assert verdict(hand_made(totals=unknown)).startswith(
        "Run 7 (xautoclaim:nightly): 9,335 entries claimed"
    )
    none = {**TOTALS, "claimed": 0, "deleted": 0}
    snapshot = replace(NIGHTLY, command="snapshot", counts={"pending_new": 1})
    assert verdict(hand_made(run=snapshot, totals=none)).endswith("after it. 1 entry new")
    check = replace(NIGHTLY, command="maintain", counts={})
    assert verdict(hand_made(run=check, totals=none)).endswith("No pending entry was changed")
    abandoned = replace(NIGHTLY, counts={"abandoned": 1})
    assert "The run was abandoned" in verdict(hand_made(run=abandoned))


def test_what_does_not_apply_is_left_out():
    none = {**TOTALS, "claimed": 0, "groups": 0}
    empty = hand_made((), totals=none, transfers=(), idle_ms=(interval(0, None, 0, 0),))
    titles = [section.table.title for section in sections(empty)]
    assert "Worst groups" not in titles
    assert "Changes of owner" not in titles
    assert "The store has no consumer group." in full_report_of_run(empty).notes
    notes = "\n".join(full_report_of_run(hand_made(undone_by="undo:u", can_be_undone=False)).notes)
    assert "undo:u has undone the run" in notes
    not_sent = {
        "can_be_written_back": True,
        "only_in_store": {"claimed": 4, "restored": 0, "deleted": 1},
    }
    notes = "\n".join(full_report_of_run(hand_made(**not_sent)).notes)
    assert "4 claims and 1 deletion exist only in this store" in notes
    assert "on the server: claimlib writeback ./store 7 URL" in notes
    notes = "\n".join(
        full_report_of_run(hand_made(written_back_by="writeback:w", can_be_undone=False)).notes
    )
    assert "writeback:w has written the run back to the server" in notes
    assert "only in this store" not in notes
    assert "claimlib undo" not in notes


# ------------------------------------------------------------------- HTML

_VOID = {"meta", "rect", "line"}


class Page(HTMLParser):
    """Reads a page; fails if its elements are not nested."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def of(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]


def test_hostile_names_are_texts_that_can_be_read_and_nothing_else():
    text = as_html(hand_made(HOSTILE, run=RUN))
    page, plain = Page(text), Page(as_html(hand_made([b"plain"] * len(HOSTILE), run=RUN)))
    shape = [(tag, sorted(attributes)) for tag, attributes, _ in page.elements]
    assert shape == [(tag, sorted(attributes)) for tag, attributes, _ in plain.elements]
    said = {data.strip() for data in page.texts}
    for name in HOSTILE[:-1]:
        assert visible(spell(name)) in said
    assert "x" * 199 + "…" in said
    assert text.replace("\n", "").isprintable()
    assert len(text.encode()) < 64_000


def test_a_page_needs_no_network_and_no_script():
    text = as_html(hand_made())
    page = Page(text)
    names = {name for _, attributes, _ in page.elements for name in attributes}
    assert not names & {"src", "href", "srcset", "style"}
    assert not [name for name in names if name.startswith("on")]
    assert not page.of("script") + page.of("link") + page.of("iframe")
    assert re.findall(r"https?:[^\"]*", text) == [
        *["http://www.w3.org/2000/svg"] * len(page.of("svg"))
    ]
    assert not re.search(r"@import|url\(", text)


def test_a_page_is_accessible():
    page = Page(as_html(hand_made()))
    assert page.of("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert set(levels[1:]) == {2}
    plots = [attributes for tag, attributes, _ in page.elements if tag == "svg"]
    titles = {
        attributes["id"]
        for tag, attributes, within in page.elements
        if tag == "title" and within[-1] == "svg"
    }
    assert len(plots) == 5
    assert {plot["aria-labelledby"] for plot in plots} == titles
    assert {plot["role"] for plot in plots} == {"img"}
    tables = page.of("table")
    assert len(tables) == len(page.of("caption")) == len(page.of("h2")) >= len(plots)
    assert {head["scope"] for head in page.of("th")} == {"col", "row"}


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_colors_have_contrast_in_light_dark_and_print():
    themes = re.findall(r":root \{ (--page.*?) \}", as_html(hand_made()))
    assert len(themes) == 3
    for theme in themes:
        colors = dict(re.findall(r"--(\w+): (#\w+)", theme))
        colors = {
            name: "#" + "".join(c * 2 for c in color[1:]) if len(color) == 4 else color
            for name, color in colors.items()
        }
        assert contrast(colors["text"], colors["page"]) >= 7
        for name in ("soft", "first", "second"):
            assert contrast(colors[name], colors["page"]) >= 4.5, (theme, name)


def test_bars_are_as_long_as_their_numbers():
    page = Page(as_html(hand_made()))
    bars = [
        (rect["class"], int(rect["width"])) for rect in page.of("rect") if rect["height"] == "11"
    ]
    # The group (1 and 1 pending), and two intervals of idle times (5 and 0, 6 and 8).
    assert bars[:2] == [("bar0", 420), ("bar1", 420)]
    assert bars[2:6] == [("bar0", 262), ("bar1", 0), ("bar0", 315), ("bar1", 420)]


def test_a_reader_never_sees_a_part_of_a_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_file(as_html(hand_made()), path)
    before = path.read_text(encoding="utf-8")

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        write_file(as_html(hand_made(HOSTILE)), path)
    assert path.read_text(encoding="utf-8") == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_names_in_the_report_on_a_period_are_harmless(claimlib, swept_again, tmp_path):
    path = tmp_path / "report.html"
    said = claimlib("report", swept_again, "--since", "1d", "--html", path)
    assert said.code == 0
    assert said.out.startswith("4 runs since ")
    page = Page(path.read_text(encoding="utf-8"))
    assert visible(spell(HOSTILE[1])) in {data.strip() for data in page.texts}
    assert not page.of("img")
    assert "Consumers that lost entries in several runs" in said.out


# ------------------------------------------------------------------- metrics


def metrics_of(report, path):
    write_metrics(report, path)
    families = parser.text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_have_no_labels_that_grow_with_the_store(tmp_path):
    path = tmp_path / "claimlib.prom"
    metrics = metrics_of(hand_made(HOSTILE), path)
    assert metrics.keys() == metrics_of(hand_made(), path).keys()
    assert {name for _, *labels in metrics for name, _ in labels} == {"command", "phase", "change"}
    command = ("command", "xautoclaim")
    assert metrics["claimlib_run_entries", ("change", "claimed"), command] == 9335
    assert metrics["claimlib_run_last_success_timestamp_seconds", command] == RUN.ended_ms / 1000
    assert metrics["claimlib_pending_entries",] == 11_841
    assert metrics["claimlib_oldest_idle_seconds",] == 3600
    assert [file.name for file in tmp_path.iterdir()] == ["claimlib.prom"]


def test_a_run_that_was_abandoned_is_no_success_and_what_is_unknown_is_no_metric(tmp_path):
    abandoned = replace(NIGHTLY, counts={"abandoned": 1})
    unknown = {**TOTALS, "pending_after": None, "oldest_idle_ms_after": None}
    metrics = metrics_of(hand_made(run=abandoned, totals=unknown), tmp_path / "claimlib.prom")
    names = {name for name, *_ in metrics}
    missing = {"last_success_timestamp_seconds", "pending_entries", "oldest_idle_seconds"}
    assert not {name.removeprefix("claimlib_").removeprefix("run_") for name in names} & missing
    assert "claimlib_groups" in names


def test_the_metrics_are_those_of_the_page(tmp_path):
    metrics = {name for name, *_ in metrics_of(hand_made(), tmp_path / "claimlib.prom")}
    assert set(re.findall(r"`(claimlib_\w+)`", text_of("docs/reports.md"))) == metrics


# ------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def swept(empty_store, open_store, tmp_path_factory):
    """The folder of a store with a sweep of groups with hostile names.  No test changes it."""
    store = open_store(shutil.copytree(empty_store, tmp_path_factory.mktemp("swept") / "store"))
    write_keyspace(store, keyspace(b"s", HOSTILE[1], HOSTILE[5]), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST), run_id="r")
    return store.where


@pytest.fixture(scope="module")
def swept_again(swept, open_store, tmp_path_factory):
    """The same store after three more sweeps, by two consumers in turn.  No test changes it."""
    where = tmp_path_factory.mktemp("again") / "store"
    store = open_store(shutil.copytree(swept, where))
    for number, consumer in enumerate((b"bob", b"alice", b"bob"), 1):
        sweep = SweepRequest(AutoclaimRequest(consumer, 1000))
        xautoclaim(store, sweep, now_ms=NOW_MS + 60_000 * number)
    return store.where


def test_a_report_is_printed_and_written(claimlib, swept, tmp_path):
    files = (tmp_path / "report.html", tmp_path / "claimlib.prom")
    said = claimlib("report", swept, "--html", files[0], "--prometheus", files[1])
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Run 1 (xautoclaim:r): 0 of 3 groups were stalled before the run")
    assert "15 entries claimed, 3 deleted, 0 lost to other writers\n" in said.out
    assert "\n30 before + 0 added - 3 removed = 27 after\n" in said.out
    assert f"\nundo this run: claimlib undo {swept} 1\n" in said.out
    assert "not utf-8 \\xff\\xfe \\\\ back" in said.out
    assert Page(files[0].read_text(encoding="utf-8")).of("svg")
    assert 'change="claimed",command="xautoclaim"} 15.0' in files[1].read_text(encoding="utf-8")
    named = claimlib("report", swept, "r", "--columns", "stream,claimed")
    assert named.code == 0
    assert "Idle times" not in named.out
    lines = claimlib("report", swept, "1", "--output", "csv").out.splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 4


@pytest.mark.parametrize("words", [(), ("--since", "1d")])
def test_a_file_that_cannot_be_written_is_named(claimlib, swept, tmp_path, monkeypatch, words):
    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fails)
    said = claimlib("report", swept, *words, "--html", tmp_path / "r.html")
    assert said.code == 2
    assert "15 entries claimed" in said.out
    assert "r.html cannot be written: No space left on device. Name another file" in said.err


def paths_in(value, path=""):
    """The names of a document's fields; names of counts, phases and tables are values."""
    if re.fullmatch(r"run\.(counts|phase_ms|input_versions|output_versions)", path):
        return {path}
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        return {at for name, of in value.items() for at in paths_in(of, f"{prefix}{name}")}
    if isinstance(value, list):
        return {at for of in value for at in paths_in(of, path)}
    return {path}


def test_the_page_explains_each_field_of_the_document(claimlib, swept):
    shown = json.loads(claimlib("report", swept, "--output", "json").out)
    assert shown["schema_version"] == 1
    assert shown["verdict"] == claimlib("report", swept).out.partition("\n")[0]
    explained = fields_in("## JSON", 0)
    # The store mirrors no server, so nothing can be written back.
    assert explained == paths_in(shown) | {"unfinished", "next_steps.writeback"}
    assert json.loads(json.dumps(document(hand_made()))).keys() == shown.keys()


def fields_in(after, number):
    """The fields of a document that a table of the page explains, by its place after a heading."""
    tables = text_of("docs/reports.md").partition(after)[2].split("| part | field | value |")[1:]
    explained, of = set(), [""]
    for parts, names, _ in rows(f"| part | field | value |{tables[number]}"):
        of = re.findall(r"`(\w+)`", parts) or of
        for name in re.findall(r"`(\w+)`", names):
            explained |= {f"{part}.{name}".lstrip(".") for part in of}
    return explained


def test_the_page_explains_each_field_of_the_document_of_a_period(claimlib, swept_again):
    shown = json.loads(claimlib("report", swept_again, "--since", "1d", "--output", "json").out)
    assert fields_in("## JSON", 1) == paths_in(shown) | {
        f"worse_groups.{name}"
        for name in ("stream", "consumer_group", "pending_first", "pending_last", "sweeps")
    } | {
        f"acknowledged.{name}"
        for name in ("stream", "consumer_group", "acknowledged", "median_ms", "slowest_tenth_ms")
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--html", "absent/report.html"), "--html: absent/report.html is a folder or a device"),
        (("--prometheus", "."), "--prometheus: . is a folder or a device"),
        (("--html", "/dev/null"), "--html: /dev/null is a folder or a device"),
        (("nosuch",), "has no finished run nosuch"),
        (("1", "--since", "1d"), "--since reports on all runs of a period: leave out RUN"),
        (("--since", "1"), "has no unit"),
        (("--html", "r.html", "--columns", "nosuch"), "there is no column 'nosuch'"),
        (("--html", "r.html", "--since", "1d", "--columns", "x"), "there is no column 'x'"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    claimlib, swept, tmp_path, monkeypatch, words, why
):
    monkeypatch.chdir(tmp_path)
    said = claimlib("report", swept, *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("option", "package", "extra"),
    [
        ("html", "jinja2", "report"),
        ("prometheus", "prometheus_client", "report"),
        ("openlineage", "openlineage", "lineage"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    claimlib, swept, tmp_path, monkeypatch, option, package, extra
):
    for name in {package, *(of for of in sys.modules if of.startswith(f"{package}."))}:
        monkeypatch.setitem(sys.modules, name, None)
    for module in ("page", f"run_report_{option}"):
        monkeypatch.delitem(sys.modules, f"claimlib.report.{module}", raising=False)
    said = claimlib("report", swept, f"--{option}", tmp_path / "file")
    assert (said.code, said.out) == (2, "")
    assert f"{package} is not installed" in said.err
    assert f"PATH[{extra}]" in said.err
    assert claimlib("report", swept).code == 0


def test_a_report_needs_no_java(swept):
    done = run_claimlib("report", swept, "--output", "json", JAVA_HOME="/nowhere")
    assert done.returncode == 0
    assert json.loads(done.stdout)["totals"]["claimed"] == 15


# ------------------------------------------------------------------- OpenLineage


def events_of(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_an_event_names_the_tables_that_the_run_read_and_wrote_and_no_group(
    claimlib, swept, tmp_path
):
    path = tmp_path / "event.json"
    said = claimlib("report", swept, "--openlineage", path)
    assert (said.code, said.err) == (0, "")
    event = events_of(path)
    assert event["eventType"] == "COMPLETE"
    assert event["job"]["namespace"] == "claimlib"
    assert event["job"]["name"] == f"{swept}/xautoclaim"
    written = {of["name"].rpartition("/")[2] for of in event["outputs"]}
    assert {"pending", "tombstones", "consumers"} <= written
    assert "entries" not in written
    (pending,) = (of for of in event["outputs"] if of["name"] == f"{swept}/pending")
    assert pending["namespace"] == "file"
    assert pending["facets"]["storage"]["storageLayer"] == "delta"
    columns = {of["name"]: of["type"] for of in pending["facets"]["schema"]["fields"]}
    assert columns["delivery_count"] == "BIGINT"
    before = {of["name"]: of["facets"]["version"]["datasetVersion"] for of in event["inputs"]}
    after = pending["facets"]["version"]["datasetVersion"]
    assert int(before[pending["name"]]) < int(after)
    tags = {tag["key"]: tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]}
    assert (tags["claimlib.run"], tags["claimlib.claimed"]) == ("xautoclaim:r", "15")
    assert "script" not in path.read_text(encoding="utf-8")  # a hostile name has it


def test_the_same_run_has_the_same_event(claimlib, swept, tmp_path, monkeypatch):
    paths = (tmp_path / "1.json", tmp_path / "2.json")
    for path in paths:
        claimlib("report", swept, "--openlineage", path)
    assert events_of(paths[0]) == events_of(paths[1])
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "fleet")
    claimlib("report", swept, "--openlineage", paths[1])
    assert events_of(paths[1])["job"]["namespace"] == "fleet"


def test_an_abandoned_run_is_aborted_and_a_snapshot_reads_its_server():
    counts = {"abandoned": 1}
    abandoned = event_of(hand_made(run=replace(NIGHTLY, counts=counts)))
    assert abandoned.eventType.value == "ABORT"
    snapshot = replace(NIGHTLY, command="snapshot", source="redis.example:6379/3")
    assert [(of.namespace, of.name) for of in event_of(hand_made(run=snapshot)).inputs] == [
        ("redis://redis.example:6379", "3"),
        *((of.namespace, of.name) for of in event_of(hand_made(run=NIGHTLY)).inputs),
    ]


@pytest.mark.parametrize(
    ("where", "namespace", "name"),
    [
        ("s3a://bucket/a.b/store", "s3://bucket", "a.b/store/pending"),
        ("abfss://c@account.dfs.core.windows.net/p", None, "p/pending"),
        ("lake.redis", "catalog", "lake.redis.pending"),
        ("/srv/a.b", "file", "/srv/a.b/pending"),
    ],
)
def test_tables_are_named_as_the_specification_says(where, namespace, name):
    run = replace(NIGHTLY, input_versions={}, output_versions={"pending": 7})
    (table,) = event_of(hand_made(where=where, run=run)).outputs
    assert (table.namespace, table.name) == (namespace or where.removesuffix("/p"), name)


class _Api(BaseHTTPRequestHandler):
    """An OpenLineage server that keeps what it gets."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(self.server.answer)
        if self.server.answer == 302:
            self.send_header("Location", "/login")
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def api():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    server.received, server.answer = [], 201
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_event_is_sent_with_the_key_of_the_environment(claimlib, swept, api, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "s3cret")
    url = f"http://127.0.0.1:{api.server_port}"
    said = claimlib("report", swept, "--openlineage", url)
    assert (said.code, said.err) == (0, "")
    ((path, key, event),) = api.received
    assert (path, key) == ("/api/v1/lineage", "Bearer s3cret")
    assert event["job"]["name"].endswith("/xautoclaim")

    for answer in (401, 503, 302):
        api.answer = answer
        said = claimlib("report", swept, "--openlineage", url)
        assert said.code == 75
        assert f"{url} answered {answer}" in said.err
        assert "s3cret" not in said.err


def test_a_lineage_server_that_does_not_answer_is_an_error(claimlib, swept):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        said = claimlib("report", swept, "--openlineage", url)
    assert said.code == 75
    assert f"{url} cannot be reached" in said.err


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("https://me:pw@lineage.example", "OPENLINEAGE_API_KEY"),
        ("ftp://lineage.example", "as https://lineage.example:5000, or a file"),
        ("nowhere/event.json", "name a file in an existing folder"),
        ("http://[::1", "give the URL of the server"),
        ("http://lineage.example:port", "give the URL of the server"),
    ],
)
def test_a_target_of_events_that_cannot_be_used_is_refused(claimlib, swept, target, why):
    said = claimlib("report", swept, "--openlineage", target)
    assert (said.code, said.out) == (2, "")
    assert why in said.err
    assert "pw" not in said.err


# ------------------------------------------------------------------- dry runs


def test_the_report_on_a_dry_run_has_the_numbers_of_the_run_that_follows(
    empty_store, open_store, tmp_path
):
    store = open_store(shutil.copytree(empty_store, tmp_path / "store"))
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    request, now_ms = SweepRequest(REQUEST), NOW_MS + 60_000
    reply = xautoclaim(store, request, now_ms=now_ms, dry_run=True)
    would = dry_run_report(store, reply, now_ms=now_ms)
    xautoclaim(store, request, now_ms=now_ms)
    did = run_report(store)
    names = {field.name for field in fields(RunReport)}
    names -= {"run", "is_dry_run", "can_be_undone"}
    assert {name: getattr(would, name) for name in names} == {
        name: getattr(did, name) for name in names
    }
    assert would.totals["claimed"] > 0 < would.totals["deleted"]
    assert would.run.counts == {name: did.run.counts[name] for name in would.run.counts}
    assert verdict(would).startswith("Dry run of xautoclaim, which changed nothing: ")
    assert document(would)["next_steps"] == {}
    assert document(would)["run"]["run_seq"] is None
    with pytest.raises(RequestError, match="use run_report"):
        dry_run_report(store, xautoclaim(store, request, run_id="done"))


def test_a_dry_run_writes_a_page_and_changes_nothing(claimlib, swept, tmp_path):
    words = ("xautoclaim", swept, "--consumer", "c", "--min-idle", "0s")
    page = tmp_path / "plan.html"
    said = claimlib(*words, "--dry-run", "--html", page)
    assert said.code == 0
    text = page.read_text(encoding="utf-8")
    assert "Dry run of xautoclaim, which changed nothing" in text
    assert Page(text).of("svg")
    assert not Page(text).of("script")
    assert len(json.loads(claimlib("runs", swept, "--output", "json").out)["runs"]) == 1

    said = claimlib(*words, "--html", page)
    assert (said.code, said.out) == (2, "")
    assert "add --dry-run" in said.err
