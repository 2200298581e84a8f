"""What is sent to a server to write to it, without a server."""

from claimlib.live.writing import Acknowledgements, ExpectedEntry, FencedClaims, interleaved


def test_groups_take_turns():
    assert list(interleaved([[1, 2, 3], [], [4], [5, 6]])) == [1, 4, 5, 2, 6, 3]
    assert list(interleaved([])) == []


def test_claims_state_what_the_server_is_expected_to_have():
    entries = [ExpectedEntry(7, "1-0", b"bob", 3), ExpectedEntry(8, "2-0")]
    words = FencedClaims(b"s", b"g", b"alice", 4, 99, entries).words()
    assert (words[0], words[2:]) == (
        "EVAL",
        [1, b"s", b"g", b"alice", 4, 99, "1-0", b"bob", 3, "2-0", b"", -1],
    )


def test_acknowledgements_state_ids():
    words = Acknowledgements(b"s", b"g", [ExpectedEntry(0, "1-0"), ExpectedEntry(1, "2-0")]).words()
    assert (words[0], words[2:]) == ("EVAL", [1, b"s", b"g", "1-0", "2-0"])
