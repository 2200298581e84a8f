"""Which ids prove that a server, or each master of a cluster, was read before."""

import pytest

from claimlib.runs.journal import ServerIdentity, ServerProof

READ = ServerIdentity("a b c", "A B C", "- - -")
RUN_ID, REPLICATION_ID = ServerProof.RUN_ID, ServerProof.REPLICATION_ID


@pytest.mark.parametrize(
    ("now", "proof"),
    [
        (READ, RUN_ID),
        (ServerIdentity("a c", "A X", "- -"), RUN_ID),  # a master was removed
        (ServerIdentity("b", "X"), RUN_ID),  # one of them
        (ServerIdentity("b c d", "B C D", "- - A"), REPLICATION_ID),  # a replica was promoted
        (ServerIdentity("d e f", "A B C", "- - -"), REPLICATION_ID),
        (ServerIdentity("a b c d", "A B C D", "- - - -"), None),  # a master was added
        (ServerIdentity("a b d", "A B D", "- - -"), None),
        (ServerIdentity("a b d", "A B D", "- - X"), None),
        (ServerIdentity("d", "X"), None),
        (ServerIdentity(), None),
    ],
)
def test_each_master_must_be_one_of_those_that_were_read(now, proof):
    assert now.proof_of(READ) == proof


@pytest.mark.parametrize(
    ("now", "before", "proof"),
    [
        (ServerIdentity("a", "A"), ServerIdentity("a", None), RUN_ID),
        (ServerIdentity("b", "B", "A"), ServerIdentity("a", "A"), REPLICATION_ID),
        (ServerIdentity(None, "A"), ServerIdentity(None, "A"), REPLICATION_ID),
        (ServerIdentity("b", "B"), ServerIdentity("a", "A", "B"), None),
        (ServerIdentity("a", "A"), ServerIdentity(), None),
        (ServerIdentity(), ServerIdentity(), None),
    ],
)
def test_of_a_single_server_one_id_is_enough(now, before, proof):
    assert now.proof_of(before) == proof


@pytest.mark.parametrize(
    ("now", "number", "both"),
    [
        (ServerIdentity("b c", "B C", "- -"), 1, READ),
        (ServerIdentity("b", "B", "-"), 2, READ),
        (ServerIdentity("c d", "C D", "- B"), 1, ServerIdentity("a c d", "A C D", "- - B")),
        (READ, 0, READ),
        (ServerIdentity("c d", "C D", "- -"), 1, ServerIdentity("c d", "C D", "- -")),
        (ServerIdentity(), 1, ServerIdentity()),
    ],
)
def test_the_ids_of_masters_that_are_down_are_kept_if_they_are_known(now, number, both):
    kept = now.with_missing(READ, number)
    assert (kept, kept.former_replication_id) == (both, both.former_replication_id)
