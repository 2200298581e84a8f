"""Decision records have one form, one page at most, and are listed."""

import re
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
MOST_LINES = 60
HEADINGS = ["Context", "Decision", "Measurement", "Consequence"]


def title_of(record):
    return record.read_text(encoding="utf-8").partition("\n")[0]


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_a_number_a_date_and_four_parts(record):
    lines = record.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert title_of(record).startswith(f"# {record.stem[:3]}. ")
    assert date.fromisoformat(lines[2].removeprefix("Date: "))
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS


def test_records_have_numbers_of_their_own_and_are_listed_in_order():
    text = (FOLDER / "README.md").read_text(encoding="utf-8").replace("\n  ", " ")
    listed = re.findall(r"^- (\d{3})\. \[(.+)\]\((.+)\)$", text, re.MULTILINE)
    assert listed == [(path.stem[:3], title_of(path)[7:], path.name) for path in RECORDS]
    assert len({number for number, _, _ in listed}) == len(listed)


def test_each_record_that_the_code_names_is_there():
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "claimlib").rglob("*.py"))
    named = {number for text in texts for number in re.findall(r"docs/decisions/(\w+)", text)}
    assert named
    assert named <= {path.stem[:3] for path in RECORDS}
