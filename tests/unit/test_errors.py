import inspect
import pickle
import re

import pytest

from claimlib import errors

CLASSES = {
    name: item
    for name, item in vars(errors).items()
    if inspect.isclass(item) and issubclass(item, errors.ClaimlibError)
}
CODES = {
    "ClaimlibError": 1,
    "RequestError": 2,
    "IdError": 2,
    "IntervalError": 2,
    "DurationError": 2,
    "InstantError": 2,
    "GlobError": 2,
    "NameSpellingError": 2,
    "ConfigError": 2,
    "MissingExtraError": 2,
    "GuardError": 4,
    "EmptySourceError": 4,
    "StateError": 4,
    "StoreError": 4,
    "StoreNotFoundError": 4,
    "StoreIncompleteError": 4,
    "StoreExistsError": 4,
    "SchemaVersionError": 4,
    "UnsafeLocationError": 4,
    "StorageError": 4,
    "DamagedTableError": 4,
    "UnsupportedTableError": 4,
    "StoreUnreachableError": 75,
    "SchemaError": 4,
    "SourceMismatchError": 4,
    "NotAMirrorError": 4,
    "ForeignRunSeqError": 4,
    "MissingRowsError": 4,
    "VersionExpiredError": 4,
    "DuplicateRowsError": 4,
    "HashCollisionError": 4,
    "InputError": 4,
    "RunError": 5,
    "LostRaceError": 5,
    "StoreBusyError": 5,
    "UnfinishedRunError": 5,
    "CommitConflictError": 5,
    "RunKeyConflictError": 2,
    "RunAbandonedError": 2,
    "SparkUnreachableError": 75,
    "SparkEndedError": 75,
    "SparkMemoryError": 2,
    "WorkerError": 1,
    "VerificationError": 1,
    "SourceError": 75,
    "SourceUnreachableError": 75,
    "AuthenticationFailedError": 2,
    "PermissionDeniedError": 2,
    "WrongTypeError": 4,
    "ReplyError": 2,
    "LineageError": 75,
}


def drawn_tree():
    """(name, parent, exit code shown or None) of each line of the tree in the docstring."""
    branch = re.compile(r"^([ │├└─]*)(\w+Error) +(?:exit code )?(\d+)?")
    above: list[str] = []
    for line in inspect.getdoc(errors).splitlines():
        if match := branch.match(line):
            depth = (len(match[1]) - 4) // 4
            del above[depth:]
            yield match[2], above[-1] if above else None, int(match[3]) if match[3] else None
            above.append(match[2])


def test_each_error_has_its_exit_code():
    assert {name: error.exit_code for name, error in CLASSES.items()} == CODES


def test_the_docstring_draws_the_tree_as_it_is():
    drawn = {name: (parent, code) for name, parent, code in drawn_tree()}
    assert drawn.keys() == CLASSES.keys()
    for name, (parent, code) in drawn.items():
        base = CLASSES[name].__bases__[0]
        assert base.__name__ == (parent or "Exception")
        inherited = getattr(base, "exit_code", None)
        assert CLASSES[name].exit_code == (inherited if code is None else code)


@pytest.mark.parametrize("error", CLASSES.values(), ids=CLASSES)
def test_an_error_keeps_its_message_and_its_fields(error):
    raised = error("the table is not there", table="pending", version=3)
    assert str(raised) == raised.message == "the table is not there"
    assert raised.fields == {"table": "pending", "version": 3}
    assert raised.table == "pending"


def test_a_field_that_an_error_does_not_have_is_no_attribute():
    with pytest.raises(AttributeError, match="StoreError has no field 'column'"):
        _ = errors.StoreError("no", table="pending").column


def test_an_error_survives_the_way_from_one_process_to_another():
    raised = pickle.loads(pickle.dumps(errors.SchemaError("no", table="pending")))
    assert type(raised) is errors.SchemaError
    assert (raised.message, raised.fields) == ("no", {"table": "pending"})


def test_a_missing_extra_is_named_with_the_command_that_installs_it():
    raised = errors.MissingExtraError.for_package("spark", "pyspark")
    assert raised.message.startswith("pyspark is not installed")
    assert "pip install 'PATH[spark]'" in raised.message
    assert raised.fields == {"extra": "spark", "package": "pyspark"}


def test_the_error_for_an_expired_version_names_the_retention_property():
    raised = errors.VersionExpiredError.of("pending", 3)
    assert raised.message.startswith("version 3 of pending can no longer be read")
    assert "delta.deletedFileRetentionDuration" in raised.message
    assert raised.fields == {"table": "pending", "version": 3}
