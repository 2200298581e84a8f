"""Which master has which slot, by the views of several masters."""

from contextlib import ExitStack

import pytest

from claimlib.errors import RequestError, SourceUnreachableError
from claimlib.live.cluster import Cluster


class View:
    """A master that describes the nodes; each line is id, flags, epoch, slots."""

    def __init__(self, label, *lines):
        self.label = label
        self.text = "\n".join(lines).encode()

    def call(self, *words):
        assert words == ("CLUSTER", "NODES")
        return self.text


def line(id_, epoch, *slots, flags="master", place="10.0.0.1:1@2,host,shard-id=x"):
    return " ".join([id_, place, flags, "-", "0", "0", str(epoch), "connected", *slots])


def opened(**views):
    sources = {id_: View(id_, *lines) for id_, lines in views.items()}
    return Cluster("entry", sources, ExitStack())


def counts(cluster):
    cluster.slot_map()
    return {source.label: number for source, number in cluster.slots.items()}


A, B = line("a", 1, "0-9999"), line("b", 2, "10000-16383")


def test_each_slot_has_one_master():
    cluster = opened(a=[A, B], b=[A, B])
    assert counts(cluster) == {"a": 10_000, "b": 6384}
    assert cluster.slot_map() == cluster.slot_map()
    assert not cluster.slot_map().is_moving
    # The slots of these keys are 5061 and 12182.
    labels = [cluster.source_of(key).label for key in (b"bar", b"foo", b"{bar}:foo")]
    assert labels == ["a", "b", "a"]


@pytest.mark.parametrize("views", [["a", "b"], ["b", "a"]])
def test_where_views_differ_the_greater_epoch_has_the_slot(views):
    newer = line("b", 3, "9999-16383")
    of = {"a": [A, B], "b": [A, newer]}
    assert counts(opened(**{name: of[name] for name in views})) == {"a": 9999, "b": 6385}


def test_a_slot_in_brackets_is_being_moved_and_belongs_to_its_master():
    moving = line("a", 1, "0-9999", "[7->-b]", flags="myself,master")
    cluster = opened(a=[moving, B], b=[A, B])
    assert counts(cluster)["a"] == 10_000
    assert cluster.slot_map().is_moving
    assert cluster.slot_map() != opened(a=[A, B], b=[A, B]).slot_map()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([A, line("b", 2, "10001-16383")], "slot 10000 of the cluster of entry has no master"),
        (
            [A, B, line("c", 3, "5", place="[::1]:7@8")],
            r"slot 5 .* is now served by \[::1\]:7, which",
        ),
        (
            [A, B, line("c", 3, "5-6", flags="master,fail", place="10.0.0.3:7@8")],
            r"slot 5 .* is now served by 10.0.0.3:7, which",
        ),
    ],
)
def test_a_slot_that_no_opened_master_has(lines, message):
    with pytest.raises(SourceUnreachableError, match=message):
        opened(a=lines, b=lines).slot_map()


C = line("c", 3, "12000-16383")
DOWN = {"c": SourceUnreachableError("c is down", source="c:1/0")}


def without_c(*lines):
    views = {name: View(name, *lines) for name in "ab"}
    return Cluster("entry", views, ExitStack(), DOWN), views


def test_the_slots_of_a_master_that_is_down():
    cluster, _ = without_c(A, B, C)
    cluster.slot_map()
    (down,) = cluster.down
    assert (down.label, down.reason) == ("c:1/0", "c is down")
    assert down.slots == frozenset(range(12_000, 16_384))
    assert cluster.source_of(b"bar").label == "a"
    with pytest.raises(SourceUnreachableError, match="c is down"):
        cluster.source_of(b"foo")


@pytest.mark.parametrize(
    "lines",
    [
        [line("a", 1, "0-9999", "[7->-c]"), B, C],  # the key may be on c already
        [line("a", 1, "0-11999"), C],  # a may not know all slots of b
    ],
)
def test_what_a_master_that_is_down_makes_uncertain(lines):
    cluster, _ = without_c(*lines)
    with pytest.raises(SourceUnreachableError, match="c is down"):
        cluster.slot_map()


@pytest.mark.parametrize("later", [line("b", 4, "10000-12000"), line("c", 4, "11999-16383")])
def test_slots_that_move_to_or_from_a_master_that_is_down(later):
    cluster, views = without_c(A, B, C)
    cluster.slot_map()
    views["b"].text += b"\n" + later.encode()
    with pytest.raises(SourceUnreachableError, match="c is down"):
        cluster.slot_map()


def test_a_reply_of_another_form():
    with pytest.raises(RequestError, match="CLUSTER NODES cannot be understood"):
        opened(a=["what is this"]).slot_map()
