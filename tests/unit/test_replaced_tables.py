"""Which tables have gone back behind what runs have seen, once some of them were accepted."""

from claimlib.store.replaced_tables import Accepted, Seen, error_of, find_replaced

NOW = {"pending": 3, "entries": 5, "streams": 2}
NEWEST = Seen(7, NOW)


def test_what_stands_where_runs_have_seen_it_or_later_has_not_gone_back():
    assert not find_replaced(NOW, [], Accepted())
    assert not find_replaced(NOW, [NEWEST, Seen(6, {"pending": 1, "tombstones": 9})], Accepted())


def test_of_all_runs_that_are_known_the_one_that_has_seen_a_later_version_counts():
    later = Seen(8, {**NOW, "entries": 6})
    tables = find_replaced(NOW, [NEWEST, later], Accepted())
    assert tables == {"entries": "at version 5, but run 8 has used version 6"}


def test_what_was_accepted_is_refused_again_only_once_it_goes_back_further():
    before = Seen(7, {**NOW, "entries": 40})
    accepted = Accepted(7, NOW)
    assert not find_replaced(NOW, [before], accepted)
    assert "entries" in find_replaced({**NOW, "entries": 4}, [before], accepted)


def test_a_table_that_was_not_accepted_is_refused_though_another_one_was():
    accepted = Accepted(7, NOW)
    assert [*find_replaced({**NOW, "entries": 0}, [NEWEST], accepted)] == ["entries"]


def test_what_later_runs_have_seen_was_not_accepted():
    assert "entries" in find_replaced(NOW, [Seen(8, {"entries": 6})], Accepted(7, {"entries": 5}))


def test_a_property_says_what_was_accepted():
    accepted = Accepted(7, {"pending": 3})
    assert Accepted.of(accepted.properties()) == accepted
    assert Accepted().properties() == {}
    assert Accepted.of({}) == Accepted()


def test_only_of_tables_by_which_entries_are_proven_are_proofs_taken_back():
    for table, is_proving in (("pending", False), ("entries", True), ("streams", True)):
        error = error_of("./a store", {table: "at version 0, but run 7 has used version 5"})
        assert ("do not count as complete" in str(error)) == is_proving
        assert f"({table} is at version 0" in str(error)
        assert "claimlib init './a store' --accept-replaced accepts" in str(error)
