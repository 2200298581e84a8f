import logging

import pytest

from claimlib import exits
from claimlib.errors import (
    ClaimlibError,
    LostRaceError,
    RequestError,
    SourceUnreachableError,
    StoreNotFoundError,
    VerificationError,
)


def _raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("no"), 2),
        (StoreNotFoundError("no"), 4),
        (LostRaceError("no"), 5),
        (SourceUnreachableError("no"), 75),
        (VerificationError("no"), 1),
        (ClaimlibError("no"), 1),
    ],
)
def test_an_error_of_ours_is_one_line_on_stderr_and_its_exit_code(capsys, error, code):
    assert exits.ending(_raising(error)) == code
    assert capsys.readouterr() == ("", "claimlib: error: no\n")


def test_an_unexpected_error_is_our_fault_and_says_how_to_see_more(capsys):
    assert exits.ending(_raising(KeyError("k\nmore")), debug=lambda: False) == 1
    err = capsys.readouterr().err
    assert err.startswith("claimlib: error: KeyError: ")
    assert err.count("\n") == 1
    assert "--debug" in err


def test_a_process_without_the_option_does_not_speak_of_debug(capsys):
    assert exits.ending(_raising(KeyError("k"))) == 1
    assert capsys.readouterr().err == "claimlib: error: KeyError: 'k' (this is not expected)\n"


def test_storage_that_does_not_answer_can_be_tried_again(capsys):
    for error in (ConnectionRefusedError("no"), RuntimeError("x: java.net.ConnectException: no")):
        assert exits.ending(_raising(error)) == 75
    assert exits.ending(_raising(FileNotFoundError("no"))) == 1
    said = capsys.readouterr().err.splitlines()
    assert ["storage did not answer, try again: " in line for line in said] == [True, True, False]


def test_debug_shows_the_traceback_too(capsys):
    assert exits.ending(_raising(RequestError("no")), debug=lambda: True) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("claimlib: error: no\n")


@pytest.mark.parametrize(
    ("package", "extra"),
    [("pyspark", "spark"), ("delta.tables", "spark"), ("redis", "redis"), ("typer", "cli")],
)
def test_a_missing_package_is_the_extra_that_brings_it(capsys, package, extra):
    missing = ModuleNotFoundError(f"No module named {package!r}", name=package)
    assert exits.ending(_raising(missing)) == 2
    assert f"pip install 'claimlib[{extra}]'" in capsys.readouterr().err


def test_another_missing_module_is_our_fault(capsys):
    missing = ModuleNotFoundError("No module named 'claimlib.nowhere'", name="claimlib.nowhere")
    assert exits.ending(_raising(missing)) == 1
    assert "pip install" not in capsys.readouterr().err


def _while_interrupted(error):
    """`error`, as it comes out where an interrupt is on its way up."""

    def work():
        try:
            _raising(KeyboardInterrupt())()
        except KeyboardInterrupt:
            try:
                _raising(error)()
            except type(error) as first:
                raise LostRaceError("no") from first

    return work


@pytest.mark.parametrize(
    "work", [_raising(KeyboardInterrupt()), _while_interrupted(RuntimeError("broken"))]
)
def test_an_interrupt_has_the_shells_exit_code_whatever_becomes_of_it_on_its_way(capsys, work):
    assert exits.ending(work, debug=lambda: False) == 130
    said = capsys.readouterr().err
    assert said == "claimlib: interrupted; what was decided is finished by the next run\n"


def test_what_py4j_logs_of_a_broken_connection_is_not_said_besides(capsys):
    def work():
        named = {"pathname": "site-packages/py4j/java_gateway.py", "levelno": logging.ERROR}
        logging.getLogger().handle(logging.makeLogRecord({"msg": "noise", **named}))
        raise KeyboardInterrupt

    assert exits.ending(work) == 130
    assert "noise" not in capsys.readouterr().err
