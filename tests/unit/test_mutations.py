"""The list of equivalent mutants: what it covers, and what it does not."""

import pytest

from tests.mutations import Equivalent, Mutant, faults, listed_in

DIFF = """\
--- claimlib/times.py
+++ claimlib/times.py
@@ -1,4 +1,4 @@
 def f(text):
-    return text.encode("utf-8") + text.encode("utf-8")
+    return text.encode("utf-8") + text.encode("UTF-8")
"""
MUTANT = Mutant.from_diff("claimlib.times.x_f__mutmut_3", DIFF)
LISTED = Equivalent("times.f", '"utf-8"', '"UTF-8"')


def test_a_mutant_is_a_function_and_a_change():
    assert MUTANT.function == "times.f"
    assert MUTANT.before == 'return text.encode("utf-8") + text.encode("utf-8")'
    assert MUTANT.after == 'return text.encode("utf-8") + text.encode("UTF-8")'
    method = Mutant.from_diff("claimlib.semantics.model.xǁGroupǁ__post_init____mutmut_1", DIFF)
    assert method.function == "semantics.model.Group.__post_init__"


def test_a_listed_change_may_survive_at_any_place_of_its_function():
    assert faults([MUTANT], [], [LISTED]) == []
    assert faults([MUTANT], [], [Equivalent(None, '"utf-8"', '"UTF-8"')]) == []


def test_a_listed_change_may_run_out_of_time():
    assert faults([], [MUTANT], [LISTED]) == []
    assert len(faults([], [], [LISTED])) == 1


@pytest.mark.parametrize(
    "other",
    [
        Equivalent("times.g", '"utf-8"', '"UTF-8"'),
        Equivalent("times.f", '"utf-8"', '"XXutf-8XX"'),
        Equivalent("times.f", "text", '"UTF-8"'),
    ],
)
def test_another_change_may_not_survive_and_a_listed_one_must(other):
    survivor, unused = faults([MUTANT], [], [other])
    assert survivor.startswith("times.f\n  - return text.encode")
    assert unused.startswith("listed as equivalent, but no such mutant survived")


def test_an_entry_lists_several_changes_of_one_text():
    entries = [{"old": "a", "new": ["b", ""]}, {"function": "f", "old": "a", "new": ["c"]}]
    assert listed_in({"tool": {"mutmut": {"equivalent": entries}}}) == [
        Equivalent(None, "a", "b"),
        Equivalent(None, "a", ""),
        Equivalent("f", "a", "c"),
    ]
