"""What is sent to a server to write to it, without a server."""

from claimlib.live.writing import (
    Deletions,
    ExpectedEntry,
    FencedAcknowledgements,
    FencedClaims,
)


def test_claims_state_what_the_server_is_expected_to_have():
    entries = [ExpectedEntry(7, "1-0", b"bob", 3), ExpectedEntry(8, "2-0")]
    words = FencedClaims(b"s", b"g", b"alice", 4, 99, entries).words()
    assert (words[0], words[2:]) == (
        "EVAL",
        [1, b"s", b"g", 99, b"alice", 4, "1-0", b"bob", 3, "2-0", b"", -1],
    )


def test_acknowledgements_state_it_too():
    entries = [ExpectedEntry(7, "1-0", b"bob", 3)]
    words = FencedAcknowledgements(b"s", b"g", 99, entries).words()
    assert words[2:] == [1, b"s", b"g", 99, b"", 0, "1-0", b"bob", 3]


def test_deletions_state_ids():
    words = Deletions(b"s", b"g", [ExpectedEntry(0, "1-0"), ExpectedEntry(1, "2-0")]).words()
    assert (words[0], words[2:]) == ("EVAL", [1, b"s", b"g", "1-0", "2-0"])
