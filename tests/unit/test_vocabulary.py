"""Names say what they hold: words that fit anything are not names of this project."""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("claimlib", "jobs", "notebooks", "tests")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
# Each has had several meanings here, none of them a term of Redis, Spark or Delta.
REFUSED = {
    *("asked", "asking", "asks", "cells", "deciding", "exits", "findings", "forms", "found"),
    *("given", "layout", "mirroring", "one"),
}


def names_in(source):
    """Every name that a module gives: to modules, functions, classes, arguments and values."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def refused(names):
    return {name for name in names if name.strip("_").lower() in REFUSED}


def test_no_two_modules_have_the_same_name():
    modules = (path.stem for path in FILES if path.is_relative_to(ROOT / "claimlib"))
    numbers = Counter(name for name in modules if not name.startswith("__"))
    assert [name for name, number in numbers.items() if number > 1] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_name_is_a_word_that_fits_anything(path):
    assert refused([path.stem, *names_in(path.read_text(encoding="utf-8"))]) == set()


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "a, (found, *b) = c",
        "def _found(): ...",
        "class Given: ...",
        "def f(x, *, asked=None): ...",
        "lambda one: one",
        "[one for one in x]",
        "import json as layout",
        "with open(x) as cells: ...",
        "for exits in x: ...",
        "if (found := x): ...",
        "match x:\n    case [one, *_]: ...",
        "try: ...\nexcept E as given: ...",
    ],
)
def test_such_a_word_is_noticed_wherever_a_name_is_given(source):
    assert len(refused(names_in(source))) == 1


def test_a_word_within_a_name_and_an_attribute_of_others_may_be_so():
    assert refused(names_in("one_line = match.found; in_one_task = f(given=1)")) == set()
