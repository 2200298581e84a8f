"""Examples in docstrings run, and every public name has an example somewhere."""

from __future__ import annotations

import doctest
import inspect
import re
import shutil
from pathlib import Path

import pytest

import claimlib
from claimlib.commands import stores
from claimlib.notebook import sample_keyspace
from claimlib.testing import write_keyspace
from tests.edge.documents import PLAYED, ROOT, examples_of
from tests.unit.public_api import FILE

NOW_MS = claimlib.parse_instant_ms("2026-01-01T12:00:00Z")
PUBLIC = {name: getattr(claimlib, name) for name in sorted(claimlib.__all__)}
EXAMPLES = {
    name: example
    for name, value in PUBLIC.items()
    if inspect.isclass(value) or inspect.isfunction(value)
    if (example := doctest.DocTestFinder(recurse=False).find(value, name, globs=PUBLIC))
    if example[0].examples
}
# What is caught, what functions return, and what is only named in annotations.
WITHOUT = {
    *(name for name in PUBLIC if name.endswith("Error")),
    *re.findall(r"-> (?:tuple\[)?(\w+)", FILE.read_text(encoding="utf-8")),
    *("GroupAdvice", "NamedStreams", "Policy", "Progress", "__version__"),
    *("rescue", "writeback"),  # they write to a server: docs/python.md shows them
    "register_redis_sources",  # it needs a Spark session: docs/spark.md shows it
}


@pytest.fixture(scope="module")
def sample(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of the sample data, and the map of an import."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(empty_store, folder / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "reads_paths_as_local_folders", lambda *_: True)
        store = stores.open_store(str(folder / "store"))
    write_keyspace(store, sample_keyspace(NOW_MS), NOW_MS)
    (folder / "map.toml").write_text("[pending]\nconsumer = 'owner'\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_in_a_docstring_says_what_is_so(
    name: str, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sample)
    # Whether or not another test has left a Spark session.
    monkeypatch.setattr(stores, "reads_paths_as_local_folders", lambda *_: True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    (example,) = EXAMPLES[name]
    example.globs = dict(PUBLIC)
    said: list[str] = []
    assert runner.run(example, out=said.append).failed == 0, "".join(said)


def test_every_public_name_has_an_example_in_its_docstring_or_in_a_document() -> None:
    shown = [
        example.text
        for document in PLAYED
        for example in examples_of(document)
        if example.language == "python"
    ]
    shown += [path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.py")]
    shown += [line.source for (example,) in EXAMPLES.values() for line in example.examples]
    words = set(re.findall(r"\w+", "\n".join(shown)))
    assert PUBLIC.keys() - WITHOUT - words == set()
