"""The mutations follow the source that they change, and the tests that are to notice them."""

import pytest

from tests.mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_mutation_changes_stands_in_the_source_once_and_its_tests_are_there(mutation):
    source = (ROOT / mutation.file).read_text(encoding="utf-8")
    assert source.count(mutation.old) == 1
    assert mutation.old != mutation.new
    for name in mutation.tests:
        file, _, test = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"\ndef {test.partition('[')[0]}(" in text
