"""A secret that a user gives, in the right place or a wrong one, is never repeated."""

import pytest

from claimlib.commands.id_lists import read_ids
from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.config.settings import load
from claimlib.errors import RequestError
from claimlib.store.creation import init_sql
from claimlib.store.tables import Store
from claimlib.testing.server_process import valkey_server

PLACES = ["s3a://KEY:sesame@bucket/table", "https://host/table?sig=sesame"]
IDLE = ("--min-idle", "1h")


@pytest.mark.parametrize("place", PLACES)
def test_places_with_a_secret_are_refused_before_anything_is_read_or_written(spark, store, place):
    before = store.pin().versions
    for use in (
        lambda: import_tables(store, ImportRequest(entries=place, pending="./no")),
        lambda: import_tables(store, ImportRequest("./no", "./no", streams=place)),
        lambda: read_ids(place).requests(store),
        lambda: Store.open(spark, place),
        lambda: Store.init(spark, place),
        lambda: init_sql(place, buckets=8),
    ):
        with pytest.raises(RequestError, match="contains a secret") as raised:
            use()
        assert "sesame" not in str(raised.value)
    assert store.pin().versions == before


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("claimlib", ("runs", PLACES[0])),
        ("claimlib", ("init", PLACES[1], "--print-sql")),
        ("job", ("runs", PLACES[0])),
    ],
)
def test_a_command_does_not_repeat_it(request, spark, kind, words):
    assert spark.version
    said = request.getfixturevalue(kind)(*words)
    assert (said.code, said.out) == (2, "")
    assert "contains a secret" in said.err
    assert "sesame" not in said.err


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ('[snapshot]\npassword = "sesame"\n', "--config"),
        ('[spark]\nmaster = "sc://host/;token=sesame"\n', "--config"),
        ('[spark]\npassword = ["sesame"]\n', "--config"),
        ('snapshot = "sesame"\n', "--config"),
        ("[snapshot]\npassword = sesame\n", "--config"),
        ("REDIS_PASSWORD=sesame\n", "--config"),
        ('[[request]]\npassword = "sesame"\n', "--policy"),
        ('[[request]]\nconsumer = "c"\nmin_idle = "1h"\npassword = "sesame"\n', "--policy"),
    ],
)
def test_a_file_that_has_it_where_no_secret_belongs_is_refused_without_it(
    claimlib, config_file, text, option
):
    request = () if option == "--policy" else ("--consumer", "c", *IDLE)
    said = claimlib("xautoclaim", "store", *request, option, config_file(text), "--debug")
    assert (said.code, said.out) == (2, "")
    assert "Traceback" in said.err
    assert "sesame" not in said.err


def test_nor_does_a_map_repeat_it(claimlib, config_file):
    words = ("import", "store", "--entries", "e", "--pending", "p", "--debug")
    said = claimlib(*words, "--map", config_file('[pending]\npassword = ["sesame"]\n'))
    assert said.code == 2
    assert "Traceback" in said.err
    assert "sesame" not in said.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLAIMLIB_SNAPSHOT__PASSWORD", "sesame"),
        ("CLAIMLIB_SNAPSHOT", '{"password": "sesame"}'),
        ("CLAIMLIB_SNAPSHOT", "sesame"),
        ("CLAIMLIB_SPARK__MASTER", "sc://host/;token=sesame"),
        ("CLAIMLIB_PASSWORD__X", "sesame"),
    ],
)
def test_nor_does_the_environment(claimlib, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    said = claimlib("xautoclaim", "store", "--consumer", "c", *IDLE, "--debug")
    assert (said.code, said.out) == (2, "")
    assert "Traceback" in said.err
    assert "sesame" not in said.err


def test_a_server_that_repeats_the_login_in_its_error_is_not_quoted(
    claimlib, monkeypatch, tmp_path
):
    (tmp_path / "streams" / "_delta_log").mkdir(parents=True)
    monkeypatch.setenv("REDIS_PASSWORD", "sesame")
    with valkey_server(config={"rename-command": 'AUTH ""'}) as server:
        said = claimlib("snapshot", server.url, tmp_path, "--debug")
    assert said.code == 2
    assert "Traceback" in said.err
    assert "sesame" not in said.err


@pytest.mark.parametrize(
    "words",
    [("--password", "sesame"), ("--password=sesame",), ("--pass", "sesame"), ("--secret=sesame",)],
)
def test_a_job_names_an_option_that_there_is_not_without_its_value(job, words):
    said = job("snapshot", "redis://127.0.0.1:1", "store", *words)
    assert (said.code, said.out) == (2, "")
    assert f"No such option: {words[0].partition('=')[0]}" in said.err
    assert "sesame" not in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("store",), "Missing argument 'STORE'"),
        (("redis://h", "store", "third"), "too many arguments"),
        (("redis://h", "store", "--config"), "Option '--config' requires an argument"),
    ],
)
def test_a_job_says_in_one_line_what_is_wrong_with_its_arguments(job, words, said):
    ended = job("snapshot", *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.endswith("; see --help\n")
    assert ended.err.count("\n") == 1


def test_settings_that_are_sound_are_taken(config_file):
    master = load(config_file('[spark]\nmaster = "k8s://https://host:6443"\n')).spark.master
    assert master == "k8s://https://host:6443"
