"""A table in a terminal of some width: what is never cut, what loses its middle, what is wrapped,
and when it is a record per row instead."""

import io
import os
from contextlib import redirect_stdout
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.cells import cell_len

from claimlib import terminal
from claimlib.cli.options import Output, View
from claimlib.cli.output import show
from claimlib.report import render
from claimlib.report.render import Column, Kind
from claimlib.report.report_model import Report, cell_text

NUMBERS = st.none() | st.integers(0, 10**12)
EXACT = (
    st.integers(0, 2**63).map("{}-0".format)
    | st.sampled_from(["1d2m", "2026-01-01T00:00:00.000Z", "-"])
    | st.uuids().map("xautoclaim:{}".format)
)
NAMES = st.text("abc:-é漢字", min_size=1, max_size=90) | st.just("orders:eu:partition-00017")
TEXTS = st.lists(st.text("abcé漢", min_size=1, max_size=20), min_size=1, max_size=12).map(" ".join)
# By the names that programs know columns by: the heading, and what the cells are.
COLUMNS = {
    "stream": ("stream", NAMES),
    "consumer_group": ("group", NAMES),
    "id": ("id", EXACT),
    "key": ("key", EXACT),
    "pending_before": ("pending before", NUMBERS),
    "claimed": ("claimed", NUMBERS),
    "now_ms": ("--now", EXACT),
    "from_consumer": ("consumer before", NAMES),
    "highest_delivery_count": ("most deliveries", NUMBERS),
    "reason": ("refused because", TEXTS),
}
ARE_EXACT = {"id", "key", "pending_before", "claimed", "now_ms", "highest_delivery_count"}
WIDTHS = st.integers(30, 220)


@st.composite
def reports(draw):
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True))
    row = st.tuples(*(COLUMNS[name][1] for name in names))
    rows = tuple(draw(st.lists(row, max_size=4)))
    columns = {name: COLUMNS[name][0] for name in names}
    return Report("Of all", columns, rows, (), {}, [])


def shown(report, width, columns=None):
    """The lines on a terminal of this width."""
    out = io.StringIO()
    with (
        mock.patch.object(terminal, "is_terminal", return_value=True),
        mock.patch.dict(os.environ, COLUMNS=str(width), TERM="xterm"),
        redirect_stdout(out),
    ):
        show(report, View(Output.TABLE, columns))
    return out.getvalue().splitlines()


def kept_columns(report, width):
    table = render.table_of(render.columns_of(report), width, cell_len)
    left_out = table.left_out if table is not None else ()
    return [n for n, heading in enumerate(report.columns.values()) if heading not in left_out]


@given(reports(), WIDTHS)
def test_no_number_id_instant_or_run_key_is_ever_cut(report, width):
    lines = shown(report, width)
    kept = kept_columns(report, width)
    for at, name in enumerate(report.columns):
        if at in kept and name in ARE_EXACT:
            for cell in {cell_text(row[at]) for row in report.rows} - {"-"}:
                assert any(cell in line for line in lines), cell


@given(reports(), WIDTHS)
def test_no_line_is_wider_than_the_terminal_if_each_field_fits_in_it(report, width):
    texts = [cell_text(cell) for row in report.rows for cell in row]
    assume(all(cell_len(cell) <= width for cell in texts))
    assert max(map(cell_len, shown(report, width))) <= width


@given(reports(), WIDTHS)
def test_words_of_texts_stay_whole_and_none_is_lost(report, width):
    lines = shown(report, width)
    kept = kept_columns(report, width)
    words = {word for line in lines for word in line.split()}
    for at, name in enumerate(report.columns):
        if at in kept and name == "reason":
            assert {word for row in report.rows for word in row[at].split()} <= words


@given(reports(), WIDTHS)
def test_of_two_names_no_table_makes_one(report, width):
    columns = render.columns_of(report)
    table = render.table_of(columns, width, cell_len)
    if table is None:
        return
    whole = {column.heading: column for column in columns}
    for column in table.columns:
        texts = whole[" ".join(column.heading.split())].texts
        assert len(set(column.texts)) == len(set(texts))


def test_names_that_only_their_middle_tells_apart_are_shown_whole():
    names = [f"{'a' * 30}{middle}{'b' * 30}" for middle in ("first", "second")]
    report = Report("t", {"stream": "stream"}, tuple((name,) for name in names), (), {}, [])
    assert shown(report, 30)[1:-1] == ["stream:", names[0], "", "stream:", names[1]]


@given(reports(), WIDTHS)
def test_records_have_all_that_there_is_to_say(report, width):
    columns = render.columns_of(report)
    lines = list(render.record_lines(columns, width, cell_len))
    said = "".join("".join(lines).split())
    for column in columns:
        for cell in set(column.texts) - {"-", ""}:
            assert f"{column.heading}:{cell}".replace(" ", "") in said
    if report.rows and all(all(cell is not None for cell in row) for row in report.rows):
        assert lines.count("") == len(report.rows) - 1


@given(NAMES, st.integers(3, 90))
def test_a_name_keeps_its_end_and_what_is_missing_can_be_seen(name, width):
    short = render.shortened(name, width, cell_len)
    if cell_len(name) <= width:
        assert short == name
        return
    head, _, tail = short.partition("…")
    assert name.startswith(head)
    assert name.endswith(tail)
    assert width - 2 <= cell_len(short) <= width
    assert cell_len(tail) >= cell_len(head)


@given(TEXTS, st.integers(1, 60))
def test_a_wrapped_text_is_the_text_and_only_a_word_may_be_wider(text, width):
    lines = list(render.wrapped(text, width, cell_len))
    assert " ".join(lines) == text
    assert all(cell_len(line) <= width or " " not in line for line in lines)


def column(kind, *texts, heading="name"):
    return Column(heading, texts, kind, right=False)


def test_no_name_is_shortened_to_less_than_twelve_characters():
    columns = [column(Kind.NAME, "x" * 40)]
    twelve = 12 + render.border(1, is_open=True)
    (narrowest,) = render.table_of(columns, twelve, cell_len).columns
    assert narrowest.texts == ("xxx…xxxxxxxx",)
    assert render.table_of(columns, twelve - 1, cell_len) is None


WIDE = Report(
    title="XAUTOCLAIM, run 7 (xautoclaim:3f0c9a52-31be-4c0e-8f57-6f6f0b7a9f11)",
    columns={
        "stream": "stream",
        "consumer_group": "group",
        "pending_before": "pending before",
        "claimed": "claimed",
        "spared": "spared",
        "highest_delivery_count": "most deliveries",
        "now_ms": "--now",
    },
    rows=(
        ("orders:eu:partition-00017", "billing", 9_421, 312, None, 17, "2026-01-01T00:00:00.000Z"),
        ("orders:eu:partition-00018", "billing", 1_204_311, 0, None, 4, None),
        ("total", "2 groups", 1_213_732, 312, None, 17, None),
    ),
    notes=("12 lost: another writer changed the row first",),
    document={},
    records=[],
)


def test_a_table_that_fits_has_all_in_one_line_each():
    title, top, head, rule, *rows, bottom, note = shown(WIDE, 140)
    assert title == WIDE.title
    assert (top[0], rule[0], bottom[0]) == ("┏", "┡", "└")
    assert [cell.strip() for cell in head.strip("┃").split("┃")] == list(WIDE.headings)
    assert len(rows) == 3
    assert "orders:eu:partition-00018" in rows[1]
    assert note == WIDE.notes[0]


def test_where_it_is_narrower_headings_are_wrapped_and_names_lose_their_middle():
    lines = shown(WIDE, 100)
    assert "pending before" not in "\n".join(lines)
    (row,) = [line for line in lines if "9,421" in line]
    assert row.startswith("│ orde")
    assert "…" in row
    assert "-00017 " in row
    assert "2026-01-01T00:00:00.000Z" in row


def test_a_column_that_says_nothing_is_the_first_to_go():
    assert any("spared" in line for line in shown(WIDE, 140))
    lines = shown(WIDE, 100)
    assert not any("spared" in line or "no room" in line for line in lines)


def test_then_the_borders_go_and_then_minor_columns_which_are_named():
    _, wrapped, head, rule, row, *_, note = shown(WIDE, 84)
    assert (wrapped.split(), rule) == (["pending", "most"], "─" * 84)
    assert head.split() == ["stream", "group", "before", "claimed", "deliveries", "--now"]
    fields = ["order…tion-00017", "billing", "9,421", "312", "17", "2026-01-01T00:00:00.000Z"]
    assert row.split() == fields
    assert note == WIDE.notes[0]
    narrow = shown(WIDE, 64)
    (row,) = [line for line in narrow if "9,421" in line]
    assert "2026" not in row
    assert narrow[-1] == "columns that do not fit: --now; choose with --columns"


def test_what_was_chosen_is_never_left_out_but_a_record_per_row():
    title, *lines = shown(WIDE, 64, "stream,now_ms,claimed,spared,pending before")
    assert title.startswith("XAUTOCLAIM")
    assert lines == [
        f"({WIDE.title.partition(' (')[2]}",
        "stream: orders:eu:partition-00017",
        "--now: 2026-01-01T00:00:00.000Z",
        "claimed: 312",
        "pending before: 9,421",
        "",
        "stream: orders:eu:partition-00018",
        "claimed: 0",
        "pending before: 1,204,311",
        "",
        "stream: total",
        "claimed: 312",
        "pending before: 1,213,732",
        "",
        "12 lost: another writer changed the row first",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_run_id_can_be_copied_in_one_piece(width):
    assert any(
        "xautoclaim:3f0c9a52-31be-4c0e-8f57-6f6f0b7a9f11" in line for line in shown(WIDE, width)
    )


def test_a_value_that_does_not_fit_beside_its_heading_stands_below_it():
    columns = [
        column(Kind.EXACT, "1767225600000-18446744073709551615", heading="id"),
        column(Kind.TEXT, "its stream has no proof of absence", heading="refused because"),
    ]
    assert list(render.record_lines(columns, 36, cell_len)) == [
        "id:",
        "  1767225600000-18446744073709551615",
        "refused because:",
        "  its stream has no proof of absence",
    ]
    assert list(render.record_lines(columns, 20, cell_len)) == [
        "id:",
        "1767225600000-18446744073709551615",
        "refused because:",
        "  its stream has no",
        "  proof of absence",
    ]
    assert list(render.record_lines(columns[1:], 7, cell_len))[-1] == "absence"


def test_a_table_without_rows_has_its_headings():
    empty = Report("Of none", {"stream": "stream", "now_ms": "--now"}, (), ("none",), {}, [])
    assert any("stream" in line for line in shown(empty, 30))
    assert any("stream" in line for line in shown(empty, 14))
