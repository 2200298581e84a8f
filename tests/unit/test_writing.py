"""What is sent to a server to write to it, without a server."""

from claimlib.live.writing import Deletions, FencedBatch, PendingState


def test_claims_state_what_the_server_is_expected_to_have_and_has_then():
    bob, alice = PendingState(b"bob", 3), PendingState(b"alice", 4)
    words = FencedBatch(b"s", b"g", ["1-0", "2-0"], bob, 99, alice).words()
    assert words[2:] == [1, b"s", b"g", 99, b"alice", 4, b"bob", 3, "1-0", "2-0"]
    assert (words[0], "XCLAIM" in words[1]) == ("EVAL", True)


def test_acknowledgements_have_no_consumer_then():
    words = FencedBatch(b"s", b"g", ["1-0"], PendingState(b"bob", 3), 99, None).words()
    assert words[2:] == [1, b"s", b"g", 99, b"", -1, b"bob", 3, "1-0"]
    assert "XACK" in words[1]


def test_deletions_state_ids():
    words = Deletions(b"s", b"g", ["1-0", "2-0"]).words()
    assert (words[0], words[2:]) == ("EVAL", [1, b"s", b"g", "1-0", "2-0"])
