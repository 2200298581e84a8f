"""The workload and the oracle on a real server: what the proof of `make demo` leans on."""

from __future__ import annotations

import redis

from claimlib.demo import workload
from claimlib.demo.oracle import autoclaim_all
from claimlib.semantics.ids import parse_id
from claimlib.semantics.model import AutoclaimReply, AutoclaimRequest, IdleRule
from claimlib.semantics.scan import xautoclaim
from claimlib.testing.server_process import Server

_ENTRIES = 1_500


def test_the_servers_loops_are_one_sweep_of_the_reference_at_the_scripts_instant(
    server: Server, client: redis.Redis
):
    stalled = workload.drive(server, entries=_ENTRIES)
    present = {
        plan.name: {parse_id(entry_id) for entry_id, _ in client.xrange(plan.name)}
        for plan in workload.PLANS
    }

    answer = autoclaim_all(client, consumer=b"heir", idle_since_ms=stalled.sweep_ms, count=7)

    request = AutoclaimRequest(b"heir", answer.min_idle_ms, idle_rule=IdleRule.SERVER)
    assert len(answer.groups) == stalled.groups
    for (stream, _), group in answer.groups.items():
        expected = xautoclaim(group.before, request, answer.now_ms, present[stream])
        assert expected == (group.after, group.reply)
        assert set(group.payloads) == set(group.reply.claimed)


def test_the_workload_leaves_every_outcome_and_the_exact_boundary_in_three_groups_or_more(
    server: Server, client: redis.Redis
):
    stalled = workload.drive(server, entries=_ENTRIES)

    answer = autoclaim_all(client, consumer=b"heir", idle_since_ms=stalled.sweep_ms)

    groups = answer.groups.values()
    on_boundary = [
        group
        for group in groups
        if any(e.delivery_time_ms == stalled.sweep_ms for e in group.before.pending)
    ]
    assert len(on_boundary) >= 3
    assert answer.at_boundary > 0
    for count in (
        lambda group: len(group.reply.claimed),
        lambda group: len(group.reply.deleted),
        lambda group: group.left,
    ):
        assert sum(count(group) > 0 for group in groups) >= 3


def test_a_healthy_group_has_nothing_pending_and_a_trimmed_out_stream_only_dangling_entries(
    server: Server, client: redis.Redis
):
    stalled = workload.drive(server, entries=_ENTRIES)

    answer = autoclaim_all(client, consumer=b"heir", idle_since_ms=stalled.sweep_ms)

    assert answer.groups[b"page views", b"sessions"].reply == AutoclaimReply(parse_id("0"), (), ())
    expired = answer.groups[b"sessions:expired", b"cleanup"]
    assert len(expired.reply.deleted) == len(expired.before.pending) > 0


def test_when_the_workload_is_done_all_of_its_clients_are_gone(server: Server, client: redis.Redis):
    before = client.info("clients")["connected_clients"]

    stalled = workload.drive(server, entries=120)

    assert stalled.died > 0
    client.ping()  # the server has seen the others go before it answers the next command
    assert client.info("clients")["connected_clients"] == before


def test_the_same_seed_makes_the_same_deaths_and_deliveries(server: Server, client: redis.Redis):
    runs = []
    for _ in range(2):
        client.flushall()
        stalled = workload.drive(server, entries=300, seed=7)
        runs.append((stalled.delivered, stalled.acknowledged, stalled.deleted, stalled.died))

    assert runs[0] == runs[1]
