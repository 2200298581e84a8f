"""The map of an import: what it says, and what is wrong where."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from claimlib.config.import_map import load_import_map
from claimlib.errors import ConfigError
from claimlib.plans.column_readers import Shape
from claimlib.plans.input_tables_plan import PARTS
from tests.edge.processes import ROOT

CASES = 2_500


def test_the_shipped_example_is_a_map_of_every_table():
    shipped = load_import_map(ROOT / "conf" / "import.example.toml")
    assert list(shipped) == list(PARTS)
    assert shipped["entries"].columns["id"] == ("entry_id",)
    assert shipped["pending"].columns["id"] == ("id_time", "id_number")
    assert shipped["pending"].where("pending", "consumer").endswith("line 17, pending.consumer")


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        (
            '[pending]\nconsumer = "c"\nowner = "c"\n',
            3,
            "pending.owner: unknown key; the keys",
        ),
        (
            '[entries]\nid = "i"\n\n[pendng]\n',
            4,
            "unknown section [pendng]; the sections",
        ),
        ('[entries]\nstream = ["a", "b"]\n', 2, "entries.stream: must be the name of one column"),
        (
            '[entries]\nid = ["a"]\n',
            2,
            "entries.id: must be the name of a string column, or a list",
        ),
        ('[entries]\nid = ["a", "b", "c"]\n', 2, "entries.id"),
        ('[entries]\nid = ["a", ""]\n', 2, "entries.id"),
        ("[entries]\nid = 5\n", 2, "entries.id"),
        ('[entries]\nid_bits = "yes"\n', 2, "entries.id_bits"),
        ("entries = 5\n", 1, "entries"),
        ('[[entries]]\nid = "x"\n', 1, "entries"),
        ('[entries]\nid = "i"\n[pending]\nid = ""\n[groups]\nstream = "s"\n', 4, "pending.id"),
        ('[entries]\nid = "i"\nid = "j"\n', 3, "not valid TOML"),
    ],
)
def test_a_fault_of_a_map_is_named_with_its_line_and_key(config_file, text, line, named):
    file = config_file(text)
    with pytest.raises(ConfigError) as raised:
        load_import_map(file)
    assert named in raised.value.message
    assert f"line {line}" in raised.value.message
    assert str(file) in raised.value.message


def test_a_map_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"the map file .*absent\.toml does not exist"):
        load_import_map(tmp_path / "absent.toml")


def _good(chance, table, key):
    """A value that may stand under a key, in TOML, and the columns that it names."""
    names = [chance.choice(["a", "the id", "é", "x.y", "`", "#", "id_ms"]) for _ in range(2)]
    if PARTS[table][key].shape is Shape.ID and chance.random() < 0.5:
        return f"[ '{names[0]}', '{names[1]}' ]", tuple(names)
    return f"'{names[0]}'", (names[0],)


def _bad(chance, table, key):
    """A value that may not stand under a key."""
    values = ["''", "5", "1.5", "true", "[]", "['a']", "['a', '']", "['a', 5]", "{x = 'a'}"]
    values += ["['a', 'b', 'c']", "2026-01-01"]
    if PARTS[table][key].shape is not Shape.ID:
        values.append("['a', 'b']")
    return chance.choice(values)


def _a_map(chance):
    """A map's text, what it says, and the line of its one fault (null: it has none)."""
    lines, said, fault_line = [], {}, None
    tables = chance.sample(list(PARTS), chance.randrange(1, len(PARTS) + 1))
    fault = chance.choice([None, "value", "key", "section", "bits"])
    faulty = chance.choice(tables)
    for table in tables:
        lines += [*chance.choice([[], ["", "# [entries]"]]), f"[{table}]"]
        said[table] = {}
        keys = chance.sample(list(PARTS[table]), chance.randrange(1, len(PARTS[table]) + 1))
        wrong = chance.choice(keys) if table == faulty else None
        for key in keys:
            value, columns = _good(chance, table, key)
            if key == wrong and fault == "value":
                value = _bad(chance, table, key)
            name = (
                chance.choice([f"{key}s_", "id_ms", "nobody"])
                if key == wrong and (fault == "key")
                else key
            )
            lines.append(f"{name} = {value}  # {key}")
            said[table][key] = columns
            if key == wrong and fault in {"value", "key"}:
                fault_line = len(lines)
        if table == faulty and fault == "bits":
            lines.append(f"id_bits = {chance.choice(['1', '0', 'yes'.join(2 * chr(34)), '[]'])}")
            fault_line = len(lines)
    if fault == "section":
        lines.append(f"[{chance.choice(['entry', 'Pending', 'streams_', 'xautoclaim'])}]")
        fault_line = len(lines)
    return "\n".join(lines), said, fault_line


def test_thousands_of_maps_say_what_was_written_or_name_the_line_of_their_fault(
    tmp_path, monkeypatch
):
    chance = random.Random(11)
    outcomes = {"good": 0, "bad": 0}
    file = tmp_path / "map.toml"
    monkeypatch.setattr(Path, "read_bytes", lambda _: text.encode())  # writing it takes longest
    for _ in range(CASES):
        text, said, fault_line = _a_map(chance)
        if fault_line is None:
            maps = {
                table: dict(table_map.columns) for table, table_map in load_import_map(file).items()
            }
            assert maps == said, text
            outcomes["good"] += 1
            continue
        with pytest.raises(ConfigError) as raised:
            load_import_map(file)
        assert f"{file}, line {fault_line}, " in raised.value.message, text
        outcomes["bad"] += 1
    assert min(outcomes.values()) >= 250
