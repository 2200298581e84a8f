import re

import pytest
import typer.main

from claimlib.cli.commands import app
from claimlib.config.sections import keys_of, option_of
from claimlib.config.settings import Config, load
from claimlib.errors import ConfigError, RequestError
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import IdleRule, Profile
from tests.edge.processes import ROOT

MINUTE_MS = 60_000


def test_the_shipped_file_is_accepted_and_says_what_the_defaults_are():
    shipped = load(ROOT / "conf" / "local.toml")
    assert shipped.spark == load().spark
    assert shipped.snapshot == load().snapshot
    assert shipped.writeback == load().writeback
    assert shipped.xautoclaim.min_idle_ms == 15 * MINUTE_MS
    unset = {"consumer": None, "min_idle_ms": None}
    assert shipped.xautoclaim.model_copy(update=unset) == load().xautoclaim


@pytest.mark.parametrize("name", Config.model_fields)
def test_the_shipped_file_shows_every_key_of_a_section(name):
    text = (ROOT / "conf" / "local.toml").read_text(encoding="utf-8")
    of_section = re.search(rf"^\[{name}\].*?(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)[0]
    shown = re.findall(r"^(?:# )?(\w+) = ", of_section, re.MULTILINE)
    model = Config.model_fields[name].annotation
    assert sorted(shown) == sorted(key for key in keys_of(model) if key != "conf")


@pytest.mark.parametrize(
    ("section", "command"),
    [
        ("execution", "check"),
        ("lock", "init"),
        ("lock", "abandon"),
        ("snapshot", "snapshot"),
        ("mirror", "snapshot"),
        ("mirror", "import"),
        ("xautoclaim", "xautoclaim"),
        ("writeback", "writeback"),
    ],
)
def test_each_key_of_a_section_is_an_option_of_its_commands(section, command):
    commands = typer.main.get_command(app).commands
    names = {name for parameter in commands[command].params for name in parameter.opts}
    assert {option_of(key) for key in keys_of(Config.model_fields[section].annotation)} <= names


def test_an_option_goes_before_the_environment_and_that_before_the_file(config_file, monkeypatch):
    file = config_file('[xautoclaim]\nconsumer = "f"\nmin_idle = "1m"\nstream = "f*"\n')
    monkeypatch.setenv("CLAIMLIB_XAUTOCLAIM__CONSUMER", "e")
    monkeypatch.setenv("CLAIMLIB_XAUTOCLAIM__MIN_IDLE", "2m")
    resolved = load(file, xautoclaim={"min_idle": "3m", "consumer": None}).xautoclaim
    assert (resolved.min_idle_ms, resolved.consumer, resolved.stream) == (
        3 * MINUTE_MS,
        (b"e",),
        "f*",
    )


def test_what_is_resolved_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        load().spark.master = "local"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[xautoclaim]\nmin_idel = "1m"\n', "xautoclaim.min_idel"),
        ('[xautoclam]\nmin_idle = "1m"\n', "xautoclam"),
        ("unknown = 1\n", "unknown"),
        ("[xautoclaim]\nmin_idle = 15\n", "xautoclaim.min_idle"),
        ('[xautoclaim]\nmin_idle = "soon"\n', "xautoclaim.min_idle"),
        ('[xautoclaim]\nidle_rule = "strict"\n', "xautoclaim.idle_rule"),
        ('[xautoclaim]\nprofile = "redis-2"\n', "xautoclaim.profile"),
        ("[xautoclaim]\nconsumer = 5\n", "xautoclaim.consumer"),
        ("[xautoclaim]\nconsumer = 'a\\b'\n", "xautoclaim.consumer"),
        ("[spark]\nshuffle_partitions = 0\n", "spark.shuffle_partitions"),
        ("[spark]\nshuffle_partitions = true\n", "spark.shuffle_partitions"),
        ("[xautoclaim]\ncount = 0\n", "xautoclaim.count"),
        ("[xautoclaim]\ncount = 5.0\n", "xautoclaim.count"),
        ('[xautoclaim]\ncount = "\u0665"\n', "xautoclaim.count"),
        ('[xautoclaim]\nstart = "x"\n', "xautoclaim.start"),
        ('[xautoclaim]\nstream = "[a"\n', "xautoclaim.stream"),
        ('[snapshot]\ngroup = ""\n', "snapshot.group"),
        ("[snapshot]\nmax_commands_per_second = true\n", "snapshot.max_commands_per_second"),
        ("[snapshot]\nmax_commands_per_second = 0\n", "snapshot.max_commands_per_second"),
        ('[snapshot]\nfields = "perhaps"\n', "snapshot.fields"),
        ("spark = 3\n", "spark"),
    ],
)
def test_a_fault_in_the_file_names_the_key_and_the_file(config_file, text, named):
    file = config_file(text)
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert f"{named} in {file}: " in raised.value.message


def test_an_unknown_key_is_answered_by_the_known_ones(config_file):
    known = "the keys are consumer, assign, min_idle, stream, group, start, count, cursor, justid"
    with pytest.raises(ConfigError, match=known):
        load(config_file('[xautoclaim]\nmin_idel = "1m"\n'))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CLAIMLIB_SPARK__MASTR", "local"),
        ("CLAIMLIB_SPRK__MASTER", "local"),
        ("CLAIMLIB_XAUTOCLAIM__MIN_IDLE", "15"),
        ("CLAIMLIB_SNAPSHOT__MAX_COMMANDS_PER_SECOND", "1e999"),
        ("CLAIMLIB_XAUTOCLAIM__COUNT", "1_000"),
        ("CLAIMLIB_SPARK", "no JSON"),
    ],
)
def test_a_fault_in_the_environment_names_the_variable(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match="environment variable CLAIMLIB_"):
        load()


SECTIONS = [*Config.model_fields, "spark.conf"]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("value", ["5", '"x"', "true", "[]", "[{}]"])
def test_a_section_of_the_file_that_is_no_table_is_never_passed_over(config_file, section, value):
    file = config_file(f"{section} = {value}\n")
    named = f"{section} in {file}: must be a section: write [{section}] above its keys"
    for options in ({}, {section.partition(".")[0]: {}}, {"spark": {"conf": {"a": "b"}}}):
        with pytest.raises(ConfigError) as raised:
            load(file, **options)
        assert raised.value.message == named


@pytest.mark.parametrize("value", ["5", "x", "", "[]", "[" * 100_000])
@pytest.mark.parametrize(
    ("variable", "how"),
    [
        ("CLAIMLIB_MIRROR", "; set one key by CLAIMLIB_MIRROR__<KEY>"),
        ("CLAIMLIB_SPARK__CONF", ', as in {"spark.sql.shuffle.partitions": "8"}'),
        ("claimlib_Spark__Conf", ', as in {"spark.sql.shuffle.partitions": "8"}'),
    ],
)
def test_a_variable_of_a_whole_section_must_be_a_json_object(monkeypatch, variable, how, value):
    monkeypatch.setenv(variable, value)
    for options in ({}, {"mirror": {"allow_empty": True}}, {"spark": {"conf": {"a": "b"}}}):
        with pytest.raises(ConfigError) as raised:
            load(**options)
        assert (
            raised.value.message == f"environment variable {variable}: must be a JSON object{how}"
        )


@pytest.mark.parametrize("variable", ["CLAIMLIB_SPARK", "CLAIMLIB_SPARK__CONF"])
def test_a_fault_in_the_json_of_a_variable_names_the_variable(monkeypatch, config_file, variable):
    is_conf = variable.endswith("CONF")
    monkeypatch.setenv(variable, '{"a": 5}' if is_conf else '{"conf": {"a": 5}}')
    with pytest.raises(ConfigError) as raised:
        load(config_file(""))
    assert raised.value.message == f"environment variable {variable}: {IN_QUOTES}"


def test_a_json_object_of_a_variable_is_a_section(monkeypatch):
    monkeypatch.setenv("CLAIMLIB_MIRROR", '{"allow_empty": true}')
    monkeypatch.setenv("CLAIMLIB_SPARK__CONF", '{"spark.sql.shuffle.partitions": "8"}')
    assert load().mirror.allow_empty is True
    assert load().spark.conf == {"spark.sql.shuffle.partitions": "8"}


IN_QUOTES = 'must be text in quotes, as in "4g"'
WHOLE_NAME = 'put the whole name in quotes: "spark.sql.shuffle.partitions" = "…"'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[spark]\ndriver_memory = 4\n", f"spark.driver_memory in {{}}: {IN_QUOTES}"),
        ("[snapshot]\nstream = 4\n", f"snapshot.stream in {{}}: {IN_QUOTES}"),
        ('[spark.conf]\n"a.b" = 4\n', f"spark.conf.a.b in {{}}: {IN_QUOTES}"),
        (
            '[spark.conf]\nspark.sql.shuffle.partitions = "4"\n',
            f"spark.conf.spark in {{}}: {WHOLE_NAME}",
        ),
        (
            "[spark.conf.spark.sql.shuffle]\npartitions = 4\n",
            f"spark.conf.spark in {{}}: {WHOLE_NAME}",
        ),
    ],
)
def test_what_is_not_in_quotes_is_said_to_belong_there(config_file, text, said):
    file = config_file(text)
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert raised.value.message == said.format(file)


def test_a_value_of_a_name_without_quotes_is_not_repeated_as_it_may_be_a_secret(config_file):
    with pytest.raises(ConfigError) as raised:
        load(config_file('[spark.conf]\nspark.hadoop.fs.s3a.secret.key = "hunter2"\n'))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("CLAIMLIB_XAUTOCLAIM_MAX_CLAIMS", "CLAIMLIB_XAUTOCLAIM__MAX_CLAIMS?"),
        ("CLAIMLIB_MAX_CLAIMS", "CLAIMLIB_XAUTOCLAIM__MAX_CLAIMS?"),
        ("claimlib_max_clams", "CLAIMLIB_XAUTOCLAIM__MAX_CLAIMS?"),
        ("Claimlib_Xautoclam__Max_Claims", "CLAIMLIB_XAUTOCLAIM__MAX_CLAIMS?"),
        ("CLAIMLIB_STREAM", "CLAIMLIB_SNAPSHOT__STREAM or CLAIMLIB_XAUTOCLAIM__STREAM?"),
        ("CLAIMLIB_STORE", "must be CLAIMLIB_<SECTION>__<KEY>, with a section out of execution, "),
    ],
)
def test_a_variable_that_names_no_key_is_refused_by_the_name_that_it_should_have(
    monkeypatch, variable, meant
):
    monkeypatch.setenv(variable, "10")
    with pytest.raises(ConfigError) as raised:
        load()
    assert raised.value.message.startswith(f"environment variable {variable} is no setting: ")
    assert meant in raised.value.message


def test_what_kubernetes_says_of_a_service_is_no_setting_and_is_left_alone(monkeypatch):
    before = load().model_dump()
    for said in ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_6379_TCP_ADDR"):
        monkeypatch.setenv(f"CLAIMLIB_REDIS_{said}", "10")
    assert load().model_dump() == before


def test_a_fault_in_an_option_names_the_option():
    with pytest.raises(ConfigError, match=r"^option --min-idle: '15' has no unit"):
        load(xautoclaim={"min_idle": "15"})


def test_a_file_that_is_not_there_or_no_toml_is_refused(config_file, tmp_path):
    with pytest.raises(ConfigError, match=r"the config file .*absent\.toml does not exist"):
        load(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match=r"some\.toml is not valid TOML: .*line 1"):
        load(config_file("[spark\nx = 1"))
    with pytest.raises(ConfigError, match=f"config file {tmp_path} cannot be read: it is a folder"):
        load(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be read: Not a directory"):
        load(config_file("") / "x.toml")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"justid": "maybe"}, "option --justid: must be true or false"),
        ({"idle_rule": "strict"}, "option --idle-rule: must be 'documented' or 'server'"),
        ({"max_claims": -1}, "option --max-claims: must be greater than or equal to 0"),
    ],
)
def test_what_the_settings_library_says_is_put_into_our_words(options, said):
    with pytest.raises(ConfigError) as raised:
        load(xautoclaim=options)
    assert raised.value.message == said


def test_a_request_has_what_was_resolved():
    options = {"consumer": r"c\xff", "min_idle": "1h", "stream": "s?", "idle_rule": "server"}
    options |= {"profile": "redis-7.0", "start": "5-1"}
    request = load(xautoclaim=options).xautoclaim.request()
    claim = request.autoclaim
    assert (claim.consumer, claim.min_idle_ms, claim.start) == (b"c\xff", 3_600_000, StreamId(5, 1))
    assert (claim.idle_rule, claim.profile) == (IdleRule.SERVER, Profile.REDIS_7_0)
    assert (request.stream_glob, request.group_glob) == ("s?", "*")


@pytest.mark.parametrize("name", ["5", "null", '["a"]', "a,b"])
def test_a_variable_names_one_consumer_whatever_its_name_looks_like(monkeypatch, name):
    monkeypatch.setenv("CLAIMLIB_XAUTOCLAIM__CONSUMER", name)
    assert load().xautoclaim.consumer == (name.encode(),)


def test_several_consumers_of_a_file_share_and_live_stands_for_those_that_were_active(config_file):
    file = config_file('[xautoclaim]\nconsumer = ["a", "b\\\\xff"]\nmin_idle = "1m"\n')
    request = load(file).xautoclaim.request()
    assert (request.autoclaim.consumer, request.others) == (b"a", (b"b\xff",))
    for assign, within_ms in (("live", MINUTE_MS), ("live:5m", 5 * MINUTE_MS)):
        request = load(xautoclaim={"assign": assign, "min_idle": "1m"}).xautoclaim.request()
        assert (request.autoclaim.consumer, request.active_within_ms) == (b"", within_ms)
    with pytest.raises(RequestError, match="--consumer and --assign both choose"):
        load(file, xautoclaim={"assign": "live"}).xautoclaim.request()


@pytest.mark.parametrize("assign", ["", "dead", "live:", "live:5", "live:0ms", "live=5m"])
def test_another_assignment_is_refused(assign):
    with pytest.raises(ConfigError, match="option --assign: "):
        load(xautoclaim={"assign": assign})


@pytest.mark.parametrize("missing", ["consumer", "min_idle"])
def test_a_request_without_consumer_or_min_idle_is_refused(missing):
    options = {"consumer": "c", "min_idle": "1h"} | {missing: None}
    with pytest.raises(RequestError, match=f"--{missing.replace('_', '-')}"):
        load(xautoclaim=options).xautoclaim.request()
