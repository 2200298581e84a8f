"""`python -m claimlib.testing vectors`: what others check us by."""

import json
import sys

from claimlib import process
from claimlib.testing.__main__ import main
from tests.edge.processes import ROOT, run_python


def test_a_wrong_answer_fails_both_ways_and_other_commands_are_counted(
    tmp_path, monkeypatch, capsys
):
    recorded = json.loads((ROOT / "tests/vectors/named.json").read_text(encoding="utf-8"))
    by_command = {
        command: next(v for v in recorded["vectors"] if v["steps"][0]["command"][0] == command)
        for command in ("XAUTOCLAIM", "XACK")
    }
    wrong = _first_step(by_command["XAUTOCLAIM"], name="spoilt", reply=["7-7", [], []])
    other = _first_step(by_command["XACK"], name="other", command=["XDEL", "s", "1-0"])
    file = tmp_path / "some.json"
    file.write_text(json.dumps({**recorded, "vectors": [*by_command.values(), wrong, other]}))
    words = ["claimlib.testing", "vectors", str(file), "--keep", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    assert process.ending(main) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("spoilt")] == [
        "spoilt / 1, reference",
        "spoilt / 1, tables",
    ]
    assert lines[-1].split(", ")[1:] == ["2 failed", "2 not covered"]
    assert (tmp_path / "store" / "runs").is_dir()


def _first_step(vector, name, **changed):
    """The vector of that name with its first step alone, changed."""
    return {**vector, "name": name, "steps": [{**vector["steps"][0], **changed}]}


def test_a_file_that_cannot_be_read_is_named_with_the_reason_and_the_help_says_what_a_file_is(
    tmp_path,
):
    absent, folder = tmp_path / "nofile.json", tmp_path
    for file, reason in ((absent, "No such file or directory"), (folder, "Is a directory")):
        said = run_python("-m", "claimlib.testing", "vectors", file)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.splitlines() == [
            f"claimlib: error: the file {file} cannot be read: {reason}"
        ]
    said = run_python("-m", "claimlib.testing", "vectors", "--help")
    assert "a file of recorded commands (JSON; tests/vectors/README.md)" in " ".join(
        said.stdout.split()
    )


def test_a_file_that_is_no_vector_file_is_named(tmp_path):
    file = tmp_path / "none.json"
    file.write_text("[]")
    said = run_python("-m", "claimlib.testing", "vectors", file)
    assert (said.returncode, said.stdout) == (2, "")
    assert f"{file} is not a vector file" in said.stderr
