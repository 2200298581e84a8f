"""Commands on an S3 API, as people start them (`make test-s3`).

No test_ in this file's name: `make test` leaves it out, for it needs an environment with moto, and
the jar of the file system.
"""

import json
import os
import time
from dataclasses import dataclass

import pytest

from claimlib.testing.server_process import free_port, valkey_server
from tests.delta.reading import query
from tests.edge.documents import examples_of, rows, section
from tests.edge.processes import run_claimlib
from tests.s3.api import s3_api, way_to

STORE = "s3a://bucket/store"
KEY, SECRET = "anybody", "geheim77"
HOUR_MS = 3_600_000
ENDPOINT = "spark.hadoop.fs.s3a.endpoint"
# As the document bounds S3A's own retries.
BOUNDS = {
    f"spark.hadoop.{name.strip('`')}": bounded
    for name, _, bounded in rows(section("docs/spark.md", "## On S3"))
}
SWEEP = (
    *("xautoclaim", STORE, "--consumer", "reclaimer", "--min-idle", "50m"),
    *("--output", "json", "--run-id"),
)
NOISE = ("Exception", "software.amazon", "Py4J", "\tat ", "unexpected error", SECRET)


@pytest.fixture(scope="module", autouse=True)
def _only_our_credentials():
    """Nothing of the user's AWS reaches the commands, nor does a machine's role."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with s3_api(tmp_path_factory.mktemp("moto") / "log") as api:
        api.make_bucket("bucket")
        yield api


@pytest.fixture(scope="module")
def way(api):
    with way_to(api) as way:
        yield way


@pytest.fixture(autouse=True)
def _way_is_free(way):
    yield
    way.fails = lambda _method, _path: False


class Commands:
    """Commands with the settings that the document names, word by word, but for the endpoint."""

    def __init__(self, folder, url):
        (file,) = (
            example.text for example in examples_of("docs/spark.md") if example.language == "toml"
        )
        self._folder = folder
        # What is commented out is for a server that is not Amazon's, as this one is none.
        self._lines = file.replace('\n# "spark.', '\n"spark.').splitlines(keepends=True)
        self._conf = {**BOUNDS, ENDPOINT: url}

    def run(self, *words, url=None, without=None, **variables):
        """`claimlib WORDS…`, with another endpoint, or without a line of the file."""
        lines = [line for line in self._lines if without is None or without not in line]
        assert (len(lines) < len(self._lines)) == (without is not None)
        file = self._folder / "s3.toml"
        file.write_text("".join(lines), encoding="utf-8")
        conf = self._conf | ({ENDPOINT: url} if url else {})
        settings = [f"--spark-conf={key}={value}" for key, value in conf.items()]
        return run_claimlib(*words, "--config", file, *settings, **variables)

    def done(self, *words, **how):
        """What a command that must succeed has printed."""
        done = self.run(*words, **how)
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def commands(tmp_path_factory, way):
    return Commands(tmp_path_factory.mktemp("config"), way.url)


def error_of(done):
    """The one line in which a command says why it has failed."""
    *progress, error = done.stderr.splitlines()
    assert [line for line in progress if "error" in line or "claimlib: " not in line] == []
    assert [noise for noise in NOISE if noise in error] == []
    assert done.stdout == ""
    return error.removeprefix("claimlib: error: ")


# ------------------------------------------------------------------- stalled work on a server


@dataclass(frozen=True)
class Story:
    """What came of each command, and the owners of pending entries that delta-rs has read."""

    failed: object
    refused: int
    before: dict
    after: dict
    again: object
    repeated: object
    runs: list
    claimed: list
    stalled: dict
    check: dict


@pytest.fixture(scope="module")
def story(api, way, commands):
    commands.done("init", STORE)
    with valkey_server() as server, server.client() as client:
        _stall(client)
        commands.done("snapshot", server.url, STORE)
    way.fails = lambda method, path: method == "PUT" and path.startswith("/bucket/store/pending/")
    failed, refused = commands.run(*SWEEP, "nightly"), way.failed
    way.fails = lambda _method, _path: False
    before = owners(api)
    again = commands.run(*SWEEP, "nightly")
    after = owners(api)
    repeated = commands.run(*SWEEP, "nightly")
    shown = {
        name: json.loads(commands.done(*words, "--output", "json"))
        for name, words in {
            "runs": ("runs", STORE),
            "claimed": ("runs", STORE, "xautoclaim:nightly", "--claimed"),
            "stalled": ("xpending", STORE),
            "check": ("check", STORE),
        }.items()
    }
    return Story(
        failed,
        refused,
        before,
        after,
        again,
        repeated,
        shown["runs"]["runs"],
        shown["claimed"]["claimed"],
        shown["stalled"],
        shown["check"],
    )


def _stall(client):
    """A group in which dead has had all of three entries for an hour, one of them deleted since;
    alive has got another just now."""
    for n in (1, 2, 3):
        client.xadd("orders", {"n": n}, id=f"{n}-0")
    client.xgroup_create("orders", "g", id="0")
    client.xreadgroup("g", "dead", {"orders": ">"})
    client.xclaim("orders", "g", "dead", 0, ["1-0", "2-0", "3-0"], idle=HOUR_MS, retrycount=1)
    client.xadd("orders", {"n": 4}, id="4-0")
    client.xreadgroup("g", "alive", {"orders": ">"})
    client.xdel("orders", "2-0")


def owners(api):
    """Of each pending entry its consumer and how often it was delivered, as delta-rs reads them."""
    storage = {
        "AWS_ENDPOINT_URL": api.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    columns = "id_ms, consumer, delivery_count"
    rows = query("s3://bucket/store", "pending", f"SELECT {columns} FROM t", storage)
    return {row["id_ms"]: (row["consumer"], row["delivery_count"]) for row in rows}


DEAD, ALIVE, CLAIMED = ("dead", 1), ("alive", 1), ("reclaimer", 2)


def test_a_sweep_that_storage_fails_once_it_is_decided_can_be_tried_again(story):
    assert story.failed.returncode == 75
    assert error_of(story.failed) == "S3 could not serve a request (status 503), try again"
    assert "claimlib: apply · run 2" in story.failed.stderr
    assert story.refused > 0
    assert story.before == {1: DEAD, 2: DEAD, 3: DEAD, 4: ALIVE}


def test_the_same_command_finishes_it_and_another_reader_sees_who_owns_what(story):
    assert story.again.returncode == 0, story.again.stderr
    assert "claimlib: apply · run 2" in story.again.stderr
    assert "claimlib: begin" not in story.again.stderr
    assert story.after == {1: CLAIMED, 3: CLAIMED, 4: ALIVE}


def test_a_third_time_nothing_is_done_again(story):
    assert story.repeated.returncode == 0, story.repeated.stderr
    assert "finish · run 2 was already done: nothing is changed" in story.repeated.stderr
    assert "claimlib: apply" not in story.repeated.stderr
    again, repeated = (json.loads(done.stdout) for done in (story.again, story.repeated))
    assert repeated == again | {"is_repeat": True}
    assert [row["run_seq"] for row in story.runs] == [2, 1]
    assert [row["id"] for row in story.claimed] == ["1-0", "3-0"]


def test_nothing_is_stalled_any_more_and_the_tables_are_sound(story):
    assert story.stalled["totals"]["stalled"] == 0
    assert story.check["problems"] == []


def test_doctor_opens_the_store_with_the_same_file(story, commands):
    del story
    assert f"{STORE}: 2 runs, 8 buckets, source 127.0.0.1:" in commands.done("doctor", STORE)


# ------------------------------------------------------------------- storage that fails


def test_a_server_that_cannot_serve_for_a_while_is_waited_for(way, story, commands):
    del story
    last = way.failed + 5
    way.fails = lambda _method, _path: way.failed < last
    shown = json.loads(
        commands.done("xpending", STORE, "orders", "g", "--count", "9", "--output", "json")
    )
    assert way.failed == last
    assert {row["id"]: row["consumer"] for row in shown["rows"]} == {
        "1-0": "reclaimer",
        "3-0": "reclaimer",
        "4-0": "alive",
    }


def test_a_server_that_cannot_serve_at_all_is_to_be_tried_again(way, commands):
    way.fails = lambda _method, _path: True
    done = commands.run("init", "s3a://bucket/other")
    assert error_of(done) == "S3 could not serve a request (status 503), try again"
    assert done.returncode == 75


def test_an_endpoint_at_which_nothing_listens_ends_in_minutes_and_is_named(commands):
    port = free_port()
    begun = time.monotonic()
    done = commands.run("check", STORE, url=f"http://127.0.0.1:{port}")
    assert time.monotonic() - begun < 300
    said = f"storage did not answer, try again: Connect to 127.0.0.1:{port} [/127.0.0.1] failed:"
    assert error_of(done) == f"{said} Connection refused"
    assert done.returncode == 75


def test_a_bucket_that_is_not_there_is_named(commands):
    done = commands.run("init", "s3a://absent/store")
    assert error_of(done).startswith(
        "the bucket s3a://absent does not exist: create it, or give another"
    )
    assert done.returncode == 4


def test_a_store_that_is_not_there_is_told_from_storage_that_fails(commands):
    done = commands.run("check", "s3a://bucket/nothing")
    assert error_of(done).startswith("no store at s3a://bucket/nothing: create it with: claimlib")
    assert done.returncode == 4


def test_without_the_jar_of_the_file_system_the_error_says_how_to_give_it(commands):
    done = commands.run("check", STORE, without="spark.jars.packages")
    assert error_of(done) == (
        "Spark lacks the jar for this storage (S3AFileSystem): add its jar"
        " (--spark-conf spark.jars.packages=…), or give another location"
    )
    assert done.returncode == 4


@pytest.mark.parametrize("command", ["init", "check"])
def test_without_a_declared_log_store_the_place_is_refused_as_unsafe(commands, command):
    done = commands.run(command, STORE, without="logStore")
    said = error_of(done)
    assert said.startswith(f"{STORE} is on S3, where two drivers can overwrite each other's")
    assert "spark.delta.logStore.s3a.impl" in said
    assert done.returncode == 4


def test_without_credentials_the_error_says_where_they_are_looked_for(commands, tmp_path):
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}
    done = commands.run("check", STORE, **nobody)
    assert error_of(done).startswith("no credentials for S3 were found: set AWS_ACCESS_KEY_ID and")
    assert done.returncode == 4


def test_a_wrong_key_is_refused(api, story, commands):
    del story
    with api.checking_who_asks():
        done = commands.run("check", STORE, url=api.url)
    assert error_of(done).startswith(f"S3 denies access to {STORE}/")
    assert "(status 403): the credentials are wrong, or do not allow it" in error_of(done)
    assert done.returncode == 4


def test_who_may_only_read_sees_the_store_and_writes_nothing(api, story, commands):
    del story
    key, secret = api.reader()
    own = {"url": api.url, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    before = owners(api)
    with api.checking_who_asks():
        commands.done("check", STORE, **own)
        sweep = commands.run(*SWEEP, "other", **own)
        init = commands.run("init", "s3a://bucket/own", **own)
    assert error_of(sweep).startswith("S3 denies access to store/journal/")
    assert error_of(init).startswith("s3a://bucket/own cannot be created: ")
    assert (sweep.returncode, init.returncode) == (4, 4)
    assert owners(api) == before
