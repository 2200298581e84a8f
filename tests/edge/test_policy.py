"""Policy files: which request is whose, and what is wrong where."""

from dataclasses import fields

import pytest

from claimlib.config.settings import load, load_policy, requests_of
from claimlib.errors import ConfigError, RequestError
from claimlib.semantics.ids import MAX_ID
from claimlib.semantics.model import Guards
from tests.edge.processes import ROOT

GOOD = '[[request]]\nconsumer = "c"\nmin_idle = "1m"\n'


def test_the_shipped_example_is_a_policy():
    first, audit, others = load_policy(ROOT / "conf" / "policy.example.toml")
    assert (first.stream_glob, first.autoclaim.count, first.cursor, first.resume) == (
        *("payments:*", 1000, "payments", True),
    )
    assert (audit.group_glob, audit.autoclaim.justid) == ("audit", True)
    assert (others.stream_glob, others.autoclaim.min_idle_ms) == ("*", 900_000)
    assert others.autoclaim.guards == Guards(
        only_consumers_idle_ms=600_000, max_deliveries=5, parking_consumer=b"dead-letters"
    )


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        (GOOD + '\n[[request]]\nconsumer = "c"\n', 5, "min_idle is required"),
        (GOOD + '[[request]]\nmin_idle = "1m"\n', 4, "consumer"),
        (GOOD + '[[request]]\nconsumer = "c"\nmin_idle = "15"\n', 6, "'15' has no unit"),
        (GOOD + "nonsense = 1\n", 4, "nonsense"),
        (GOOD + '"co(unt" = 5\n', 4, "unknown key"),
        (GOOD + "count = 0\n", 4, "count must be between 1"),
        (GOOD + "count = true\n", 4, "whole number"),
        (GOOD + 'stream = "[a"\n', 4, r"'\[a'"),
        (GOOD + 'start = "x"\n', 4, "'x' is not a valid stream id"),
        (GOOD + f'start = "({MAX_ID}"\n', 4, "invalid start ID for the interval"),
        (GOOD + '"count" = 0\n', 4, "count must be between 1"),
        (GOOD + "count.of = 1\n", 4, "whole number"),
        (GOOD + "group = '\u2028'\ncount = 0\n", 5, "count must be between 1"),
        (GOOD + "group = '''\n[[request]]\n'''\ncount = 0\n", 7, "count must be between 1"),
        (GOOD + "# '''\ncount = 0\n", 5, "count must be between 1"),
        ("\nrequest = [{consumer = 'c'}]\n", 2, "min_idle is required"),
        (GOOD + 'only_from = "[a"\n', 4, r"'\[a'"),
        (GOOD + "max_deliveries = 3\n", 4, "parking_consumer"),
        (GOOD + "max_claims = true\n", 4, "whole number"),
        (GOOD + 'idle_rule = "strict"\n', 4, "documented"),
        (GOOD + 'consumer = "d"\n', 4, "not valid TOML"),
    ],
)
def test_a_fault_is_named_with_its_line(config_file, text, line, named):
    with pytest.raises(ConfigError, match=named) as raised:
        load_policy(config_file(text))
    assert f"line {line}" in raised.value.message


def test_a_file_that_no_toml_reader_takes_is_named(tmp_path):
    file = tmp_path / "some.toml"
    for raw in (b"\xff", b"a = 1\rb = 2", b"n = " + b"9" * 5000, b"a = " + b"[" * 100_000):
        file.write_bytes(raw)
        for read in (load, load_policy):
            with pytest.raises(ConfigError, match=r"some\.toml is not valid TOML"):
                read(file)


@pytest.mark.parametrize("text", ["", "request = []", "x = 1", "request = 1", GOOD + "[other]"])
def test_a_file_with_anything_but_requests_is_refused(config_file, text):
    with pytest.raises(ConfigError, match=r"\[\[request\]\]"):
        load_policy(config_file(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"the policy file .*absent\.toml does not exist"):
        load_policy(tmp_path / "absent.toml")


def test_a_policy_and_the_options_of_one_request_exclude_each_other(claimlib, config_file):
    said = claimlib("xautoclaim", "s", "--policy", config_file(GOOD), "--min-idle", "1m")
    assert (said.code, said.out) == (2, "")
    assert "remove --min-idle" in said.err


GUARDS = {
    "max_claims": "10",
    "max_deleted_share": "0.5",
    "only_from": "dead*",
    "only_consumers_idle": "10m",
    "max_deliveries": "5",
    "parking_consumer": "dead-letters",
}


def test_these_are_all_guards():
    settings = load(xautoclaim=GUARDS).xautoclaim
    assert None not in [getattr(settings, guard.name) for guard in fields(Guards)]


@pytest.mark.parametrize("key", GUARDS)
def test_a_guard_of_the_environment_is_never_left_out_by_a_policy(
    claimlib, config_file, monkeypatch, key
):
    variable = f"CLAIMLIB_XAUTOCLAIM__{key.upper()}"
    monkeypatch.setenv(variable, GUARDS[key])
    said = claimlib("xautoclaim", "s", "--policy", config_file(GOOD))
    assert (said.code, said.out) == (2, "")
    assert f"environment variable {variable}: --policy would leave this guard out" in said.err
    assert f"put {key} into the [[request]] tables of the policy" in said.err


def test_a_guard_of_the_configuration_file_is_never_left_out_by_a_policy(config_file, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(GOOD, encoding="utf-8")
    settings = load(config_file("[xautoclaim]\nmax_claims = 0\n"))
    with pytest.raises(RequestError, match=r"^xautoclaim\.max_claims in the configuration: "):
        requests_of(settings, policy, {})


def test_a_policy_goes_with_a_configuration_that_has_the_defaults_of_one_request(config_file):
    settings = load(ROOT / "conf" / "local.toml", xautoclaim={"consumer": "other"})
    assert requests_of(settings, config_file(GOOD), {}) == load_policy(config_file(GOOD))
