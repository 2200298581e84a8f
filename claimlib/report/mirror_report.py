"""Report a snapshot or an import, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from claimlib.commands.imports import ImportReply
from claimlib.commands.mirror import CLAIMS_REPLACED, UNEXPLAINED
from claimlib.commands.snapshot import SnapshotReply
from claimlib.report.headings import headings
from claimlib.report.report_model import Report
from claimlib.report.text import repeated
from claimlib.runs.journal import ServerProof
from claimlib.terminal import listed, number_of, one_line

_MIRROR_COUNTS = ("streams", "groups", "pending_read", "entries_read", "pending_written")


def report_of_snapshot(reply: SnapshotReply) -> Report:
    """Return the numbers of rows that were read from the server, and that changed in the store.

    Further counts are shown if they are not 0.
    """
    about_server = _proof_notes(reply) or tuple(_server_notes(reply.counts))
    notes = (*_claim_notes(reply.counts, _TO_THE_SERVER), *about_server)
    report = _report("snapshot", f"Snapshot of {reply.source}", reply, notes)
    more = {"former_source": reply.former_source, "masters_down": list(reply.masters_down)}
    return replace(report, document={**report.document, **more})


def report_of_import(reply: ImportReply) -> Report:
    """Return the numbers of rows that were read from the tables, and that changed in the store.

    The notes name the data that later sweeps will lack.
    """
    notes = (
        *_claim_notes(reply.counts, _TO_THE_TABLES),
        *_notes_on_missing_data(reply.counts),
        *_payload_notes(reply.payload_columns),
    )
    report = _report("import", "Import", reply, notes)
    return replace(
        report, document={**report.document, "payload_columns": list(reply.payload_columns)}
    )


def _report(
    command: str, title: str, reply: SnapshotReply | ImportReply, notes: tuple[str, ...]
) -> Report:
    hidden = {*_MIRROR_COUNTS, *_SERVER_NOTES, *ServerProof}
    others = sorted(name for name, n in reply.counts.items() if n and name not in hidden)
    return Report(
        title=f"{title}, run {reply.run_seq} ({command}:{reply.run_id})",
        columns=COLUMNS,
        rows=tuple(
            (_LABELS.get(name) or name.replace("_", " "), reply.counts.get(name, 0))
            for name in (*_MIRROR_COUNTS, *others)
        ),
        notes=(*repeated(reply.run_seq, is_repeat=reply.is_repeat), *notes, *_removal_notes(reply)),
        document={
            "command": command,
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "is_repeat": reply.is_repeat,
            "source": reply.source,
            "counts": dict(reply.counts),
            "streams_removed": list(reply.streams.removed),
            "streams_removed_not_shown": (
                reply.counts.get("stream_removed", 0) - len(reply.streams.removed)
            ),
            "streams_replaced": list(reply.streams.replaced),
            "streams_replaced_not_shown": (
                reply.streams.replaced_count - len(reply.streams.replaced)
            ),
        },
        records=[{"what": name, "count": number} for name, number in reply.counts.items()],
    )


COLUMNS = headings("what", "count")
_LABELS = {
    "pending_read": "pending entries read",
    "entries_read": "stream entries read",
    "pending_written": "pending entries written (new or changed)",
    "pending_new": "pending entries added",
    "pending_replaced": "pending entries changed",
    "pending_removed": "pending entries removed",
    "entries_new": "stream entries added",
    "entry_filled": "payloads added or changed",
    "entry_removed": "stream entries removed",
    "group_removed": "groups removed",
    "consumer_removed": "consumers removed",
    "stream_removed": "streams removed",
    "master_down": "masters that did not answer",
    "stream_left": "streams of these masters, left as they were",
    "groups_without_instant": "groups without a snapshot time",
    "streams_without_proof": "streams that may be incomplete",
    "commands": "commands sent to the server",
    CLAIMS_REPLACED: "claims overwritten",
    "vanished": "streams or groups deleted while they were read",
    UNEXPLAINED: "rows removed without an explanation",
    "lost": "rows that another writer changed first",
    "gone": "rows removed, by this run or by another writer",
}
"""The labels of counts for people.  The label of another count is its name in words."""


_SERVER_NOTES = {
    "server_restarted": "the server process is not that of the last snapshot (another run_id"
    " in INFO server): it was restarted, or another server now answers at this address",
    "replication_changed": "the server's replication id is not that of the last snapshot: it"
    " was restarted without its data, or a replica took over",
}


_PROOF_NOTES = {
    ServerProof.RUN_ID: "it is the same server process, because its run_id (INFO server) is that of"
    " the last snapshot",
    ServerProof.REPLICATION_ID: "it has the same data, because its replication id (master_replid or"
    " master_replid2 in INFO replication) is that of the last snapshot",
}


def _proof_notes(reply: SnapshotReply) -> tuple[str, ...]:
    """Return a note on the former name of the server, with the proof that it is the same server."""
    return tuple(
        f"{reply.source} fills the store now, and {reply.former_source} did before: {note}"
        for proof, note in _PROOF_NOTES.items()
        if reply.counts.get(proof)
    )


_TO_THE_SERVER = (
    "Write a run back to the server before the next snapshot: claimlib writeback STORE RUN URL"
)
_TO_THE_TABLES = "Write claims back to your tables before you import again"


def _claim_notes(counts: Mapping[str, int], remedy: str) -> Iterable[str]:
    number = counts.get(CLAIMS_REPLACED)
    if number:
        claims = number_of(number, "claim")
        yield (
            f"{claims} made in this store {'was' if number == 1 else 'were'} overwritten, because"
            f" the source shows another owner. {remedy}"
        )


def _removal_notes(reply: SnapshotReply | ImportReply) -> Iterable[str]:
    """Yield notes on removed and replaced streams, and on rows removed without an explanation."""
    streams = reply.streams
    if number := reply.counts.get("stream_removed"):
        gone = number_of(number, "stream is", "streams are")
        yield f"{gone} gone from the source: {_names(streams.removed, number)}"
    if streams.replaced:
        number = streams.replaced_count
        streams_are = number_of(number, "stream was", "streams were")
        yield (
            f"{streams_are} deleted and created again since the last snapshot:"
            f" {_names(streams.replaced, number)}"
        )
    if number := reply.counts.get(UNEXPLAINED):
        rows = number_of(number, "row was", "rows were")
        yield (
            f"{rows} removed without an explanation: the source does not show that they were"
            " acknowledged, deleted or trimmed"
        )


def _names(names: tuple[str, ...], number: int) -> str:
    return listed([one_line(name) for name in names], number)


def _server_notes(counts: Mapping[str, int]) -> Iterable[str]:
    return (note for name, note in _SERVER_NOTES.items() if counts.get(name))


def _payload_notes(columns: tuple[str, ...]) -> Iterable[str]:
    if columns:
        of_columns = number_of(
            len(columns), "column that may hold them is", "columns that may hold them are"
        )
        yield (
            f"no payloads were imported, and {of_columns} not mapped: {', '.join(columns)}. To"
            f' import one, write fields = "{columns[0]}" below [entries] in the file for --map;'
            " it must be a MAP or an ARRAY<STRUCT<name, value>>"
        )


def _notes_on_missing_data(counts: Mapping[str, int]) -> Iterable[str]:
    if counts.get("groups_without_instant"):
        number = number_of(counts["groups_without_instant"], "group has", "groups have")
        yield (
            f"{number} no snapshot time: use claimlib xautoclaim --now, or give snapshot_ms in the"
            " table for --groups"
        )
    if counts.get("streams_without_proof"):
        number = number_of(counts["streams_without_proof"], "stream", "streams")
        yield (
            f"{number} may be incomplete, so xautoclaim refuses groups with pending entries there."
            " Import again with --streams or --entries-complete"
        )
