"""`claimlib doctor`: a line for each thing that is needed, and what to do where it is missing."""

import pytest

from claimlib.testing.server import valkey_server


@pytest.fixture(scope="module")
def server():
    with valkey_server() as one:
        yield one


def checks(said):
    """State and text of each line by its name; a name that comes twice has both."""
    found = {}
    for line in said.out.splitlines():
        state, name, text = line[:6].strip(), line[7:21].strip(), line[22:]
        found.setdefault(name, []).append((state, text))
    return found


def test_where_all_is_there_every_line_is_ok(claimlib, spark, store, server):
    assert spark is not None
    said = claimlib("doctor", store.where, server.url)
    found = checks(said)
    assert said.code == 0, said.out
    assert {state for lines in found.values() for state, _ in lines} == {"ok"}
    assert {"claimlib", "pyspark", "redis", "Java", "disk", "server", "clock"} <= found.keys()
    assert {"+info", "+eval_ro", "Spark", "workers", "store"} <= found.keys()
    ((_, text),) = found["store"]
    assert text == f"{store.where}: 0 runs, 8 buckets, source none declared"


def test_what_is_missing_says_what_to_do_and_the_other_checks_go_on(
    claimlib, spark, server, tmp_path
):
    assert spark is not None
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "poor", "on", "nopass", "~*", "+time", "+select")
    url = server.url.replace("redis://", "redis://poor@")
    said = claimlib("doctor", tmp_path / "absent", url)
    found = checks(said)
    assert said.code == 4
    ((state, text),) = found["+info"]
    assert (state, text) == (
        "TO DO",
        "not granted: which server this is cannot be told: grant +info",
    )
    ((state, text),) = found["store"]
    assert state == "TO DO"
    assert "create it with: claimlib init" in text
    assert found["+eval_ro"][0][0] == "ok"  # slower, and enough
    assert said.err == "claimlib: 2 checks say TO DO\n"


def test_a_server_that_does_not_answer_is_named(claimlib, spark):
    assert spark is not None
    said = claimlib("doctor", "redis://127.0.0.1:1/0")
    ((state, text),) = checks(said)["server"]
    assert (said.code, state) == (4, "TO DO")
    assert "127.0.0.1:1/0 cannot be reached" in text
