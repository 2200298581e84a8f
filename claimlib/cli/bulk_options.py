"""Turn the options of xclaim and xack into requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from claimlib.cli.options import ClaimOptions
from claimlib.commands.id_lists import IdList, read_ids
from claimlib.commands.input_tables import place_of, read_input
from claimlib.commands.sharing import Sharing
from claimlib.commands.xack import NamedAck
from claimlib.commands.xclaim import NamedClaim
from claimlib.config.sections import live_ms
from claimlib.engine.relation import Executor, Relation
from claimlib.errors import RequestError
from claimlib.plans.keys import GROUP, is_group
from claimlib.plans.request_table import RequestTable
from claimlib.semantics.ids import StreamId, parse_id
from claimlib.semantics.model import ClaimRequest, IdleRule, Profile
from claimlib.semantics.names import spell, unspell_shown
from claimlib.store.tables import Store
from claimlib.times import parse_duration_ms, parse_instant_ms

Choice = TypeVar("Choice", IdleRule, Profile)
Request = TypeVar("Request", NamedClaim, NamedAck)


_ARGUMENTS = ("STREAM", "GROUP", "CONSUMER")


@dataclass(frozen=True, slots=True)
class Named:
    """Hold the arguments and options that name a group and ids, or a table of requests.

    Attributes:
        names: the stream, the group and, for xclaim, the consumer, as the user spelled them.  A
            name that is not given is None.
        ids: the ids of the command line, as texts.
        ids_from: the location of a file or table of ids, which replaces `ids`.
        requests: the location of a table of requests, which replaces all of these.

    Raises:
        RequestError: an argument is missing, or the same thing is given in two ways.  Or the
            location of a file or table is empty.
    """

    names: tuple[str | None, ...]
    ids: Sequence[str]
    ids_from: str | None
    requests: str | None

    def __post_init__(self) -> None:
        """Refuse options that are empty, incomplete, or exclude each other."""
        names = [name for name in self.names if name is not None]
        _refuse_empty("requests", self.requests, "give a table")
        _refuse_empty("ids_from", self.ids_from, "give a file or a table")
        if self.requests is not None:
            if names or self.ids or self.ids_from is not None:
                raise RequestError(
                    "--requests cannot be combined with STREAM, GROUP, ids or --ids-from",
                    option="requests",
                )
        elif len(names) < len(self.names):
            missing = _ARGUMENTS[len(names) : len(self.names)]
            raise RequestError(
                f"missing {'argument' if len(missing) == 1 else 'arguments'} {' '.join(missing)};"
                " a table of requests is given by --requests TABLE"
            )
        elif self.ids and self.ids_from is not None:
            raise RequestError(
                "ids and --ids-from cannot be combined: give one of them", option="ids_from"
            )
        elif not self.ids and self.ids_from is None:
            raise RequestError(
                "no ids: give them as arguments, or a file or table by --ids-from",
                option="ids_from",
            )

    def stream_ids(self) -> tuple[StreamId, ...]:
        """Return the ids of the command line."""
        return tuple(map(parse_id, self.ids))

    def bytes_of(self, number: int) -> bytes:
        """Return the name at a position of `names`, as bytes."""
        return unspell_shown(self.names[number] or "")


def _refuse_empty(option: str, place: str | None, remedy: str) -> None:
    """Raise RequestError if a place is an empty text.

    As a path, an empty text would mean the working directory.
    """
    if place is not None and not place.strip():
        raise RequestError.of_empty(f"--{option.replace('_', '-')}", remedy, option=option)


def named_claim(
    names: tuple[str | None, str | None, str | None],
    ids: Sequence[str] | None,
    ids_from: str | None,
    requests: str | None,
    options: ClaimOptions,
) -> Named:
    """Return the names and ids of an xclaim.

    With --consumer or --assign, the argument CONSUMER contains the first id.
    """
    stream, group, consumer = names
    if requests is not None or not options.has_chosen_consumers:
        return Named(names, ids or (), ids_from, requests)
    all_ids = ids or () if consumer is None else (consumer, *(ids or ()))
    return Named((stream, group), all_ids, ids_from, requests)


def sharing_of(min_idle: str | None, options: ClaimOptions) -> Sharing | None:
    """Return the consumers that share the claimed entries, or None if one consumer gets them all.

    Raises:
        RequestError: the value of --assign is not valid, or --consumer and --assign exclude each
            other, or a consumer is named twice.
    """
    consumers = tuple(map(unspell_shown, options.consumers or ()))
    if options.assign is None:
        return Sharing(consumers) if len(consumers) > 1 else None
    try:
        within_ms = live_ms(options.assign)
    except ValueError as error:
        raise RequestError(f"--assign {error}", option="assign") from error
    return Sharing(consumers, within_ms or parse_duration_ms(min_idle or "0ms"))


def claim_of(named: Named, min_idle: str | None, options: ClaimOptions) -> NamedClaim | None:
    """Return the XCLAIM that the options state, with the ids of the command line.

    The result is None if a table states all requests.

    Raises:
        RequestError: a value is not valid, or --min-idle is missing.  Or a table states all
            requests, and an option of a request is given, too.
    """
    if named.requests is not None:
        if min_idle is not None or options != ClaimOptions():
            raise RequestError(
                "--requests cannot be combined with options of a request: the table has a"
                " column for each",
                option="requests",
            )
        return None
    if min_idle is None:
        raise RequestError(
            "--min-idle is required: how long an entry must have been idle, as in 15m",
            option="min_idle",
        )
    consumers = _consumers(named, options)
    if b"" in consumers:
        raise RequestError("CONSUMER is empty: name who gets the entries", option="consumer")
    claim = ClaimRequest(
        consumer=consumers[0] if len(consumers) == 1 else b"",
        min_idle_ms=parse_duration_ms(min_idle),
        ids=named.stream_ids(),
        idle_ms=None if options.idle is None else parse_duration_ms(options.idle),
        time_ms=None if options.time is None else parse_instant_ms(options.time),
        retrycount=options.retrycount,
        force=options.force,
        justid=options.justid,
        last_id=None if options.lastid is None else parse_id(options.lastid),
        idle_rule=_choice_of(IdleRule, options.idle_rule, IdleRule.DOCUMENTED),
        profile=_choice_of(Profile, options.profile, Profile.REDIS_7_2),
    )
    return NamedClaim(named.bytes_of(0), named.bytes_of(1), claim)


def _consumers(named: Named, options: ClaimOptions) -> tuple[bytes, ...]:
    """Return the named consumers.  The result is empty if --assign chooses live consumers."""
    if not options.has_chosen_consumers:
        return (named.bytes_of(2),)
    return tuple(map(unspell_shown, options.consumers or ()))


def ack_of(named: Named) -> NamedAck | None:
    """Return the XACK that the options state, with the ids of the command line.

    The result is None if a table states all requests.
    """
    if named.requests is not None:
        return None
    return NamedAck(named.bytes_of(0), named.bytes_of(1), named.stream_ids())


def id_list(named: Named) -> IdList | None:
    """Read the list of ids that the options name, or return None if they name none.

    Raises:
        InputError: see `read_ids`.
    """
    return None if named.ids_from is None else read_ids(named.ids_from)


def tables_of(named: Named, ids: IdList | None) -> list[str]:
    """Return the places of the tables that the options name.

    Args:
        ids: the result of `id_list`.
    """
    tables = [named.requests, ids.place if ids is not None and ids.ids is None else None]
    return [place_of(table) for table in tables if table is not None]


def requests_of(
    store: Store,
    named: Named,
    ids: IdList | None,
    single: Request | None,
    table: Callable[[Executor, Sequence[Request]], Relation],
) -> Sequence[Request] | Relation:
    """Return the requests for `xclaim` or `xack`, as a list or as a table.

    A single request with a long list of ids becomes several.

    Args:
        ids: the result of `id_list`.
        single: the result of `claim_of` or `ack_of`.  None if a table states all requests.
        table: `claim_table` or `ack_table`.

    Raises:
        InputError: a table or a file cannot be used.
    """
    if single is None:
        return read_input(store, place_of(named.requests or ""))
    if ids is None:
        return [single]
    template = table(store.engine, [single])
    others: list[str] = [name for name in template.columns if name not in {"request", "ids"}]
    return ids.requests(store).sql(
        f"SELECT {', '.join(('this.request', 'this.ids', *others))}"
        " FROM {this} AS this CROSS JOIN {template} AS template",
        template=template,
    )


def chosen_groups(
    named: Named, requests: Sequence[object] | Relation, table: RequestTable, groups: Relation
) -> Relation:
    """Return the rows of the table `groups` for the groups that the requests name.

    Args:
        requests: the result of `requests_of`.
        table: checks the requests if they are a table of the user.

    Raises:
        RequestError: see `RequestTable.checked`.
    """
    if named.requests is None or not isinstance(requests, Relation):
        return group_row(named.bytes_of(0), named.bytes_of(1), groups)
    return groups.sql(
        "SELECT this.* FROM {this} AS this LEFT SEMI JOIN {wanted} AS wanted"
        f" USING ({', '.join(GROUP)})",
        wanted=table.checked(requests).select(*GROUP),
    )


def group_row(stream: bytes, group: bytes, groups: Relation) -> Relation:
    """Return the row of one group of the table `groups`."""
    return groups.where(is_group(spell(stream), spell(group)))


def _choice_of(choices: type[Choice], text: str | None, default: Choice) -> Choice:
    if text is None:
        return default
    try:
        return choices(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is not one of {', '.join(choices)}", value=text) from error
