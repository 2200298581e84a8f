"""The times that sequences are made of: where the server's clock stands still, and where it goes
on.

A time is a word: a number, or `@now-5` for the server's instant less 5 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from claimlib.semantics.model import MAX_I64

Words = tuple[bytes, ...]

_HIGHEST, _LOWEST = b"%d" % MAX_I64, b"%d" % (-MAX_I64 - 1)
_NEVER = b"-1"


@dataclass(frozen=True)
class Times:
    """What is listed twice is drawn twice as often.

    Attributes:
        past: when entries were delivered, as XCLAIM can write it.
        future: likewise, and no command can write it.
        fresh: of `past` and `future` what is less than the usual min-idle ago.
        min_idles: the first one is the usual one.
        read_idles: what an XPENDING gives as IDLE.
        idles, times: what an XCLAIM gives as IDLE and as TIME.
        back: options by which an entry is idle enough again at once.
        known: when a consumer was seen, and was active; null: nobody made it before it owned
            something.  No command can write these.
    """

    past: Words
    future: Words
    fresh: Words
    min_idles: Words
    read_idles: Words
    idles: Words
    times: Words
    back: tuple[Words, ...]
    known: tuple[tuple[bytes, bytes] | None, ...]

    @property
    def delivered(self) -> Words:
        """When an entry was delivered."""
        return (*self.past, *self.past, *self.future)

    @property
    def dated(self) -> tuple[Words, ...]:
        """IDLE and TIME, one of them or both."""
        idle = [(b"IDLE", word) for word in self.idles]
        time = [(b"TIME", word) for word in self.times]
        both = [(*first, *second) for first, second in product(idle[:4], time[:4])]
        turned = [(*second, *first) for first, second in product(idle[:4], time[:4])]
        return (*[*idle, *time] * 2, *both[::3], *turned[::3])


STANDING = Times(
    past=(
        *(b"@now-60001", b"@now-60001", b"@now-60000", b"@now-60000", b"@now-59999"),
        *(b"@now-2", b"@now-1", b"@now-0", b"0", b"1"),
    ),
    future=(b"@now+1", b"@now+60000", _HIGHEST),
    fresh=(b"@now-59999", b"@now-0", b"@now-0", b"@now-1", b"@now+1"),
    min_idles=(*[b"60000"] * 4, b"1", b"0", b"0", b"-1", b"@now+0", _HIGHEST),
    read_idles=(*[b"60000"] * 3, b"60001", b"1", b"0", b"-1", b"-1", _HIGHEST),
    idles=(
        *(b"60000", b"-1", b"0", b"59999", b"60001", b"-60000"),
        *(b"@now-1", b"@now+0", b"@now+0", b"@now+1", b"@now+1", _HIGHEST, _LOWEST),
    ),
    times=(
        *(b"@now-60000", b"-1", b"0", b"@now+1", b"@now-60001", b"@now-59999"),
        *(b"1", b"1", b"-5", b"@now+0", b"@now+0", _HIGHEST, _LOWEST),
    ),
    back=((b"IDLE", b"60000"), (b"IDLE", b"60001"), (b"TIME", b"@now-60000"), (b"TIME", b"0")),
    known=(
        *(None, None),
        *((b"@now-1000", _NEVER), (b"@now-1000", b"@now-2000"), (b"@now+5", b"@now-9")),
    ),
)
"""Many of them a millisecond around min-idle."""

GOING = Times(
    past=(b"@now-600000", b"@now-300000", b"@now-300000", b"@now-0", b"@now-0", b"0", b"1"),
    future=(),
    fresh=(b"@now-0",),
    min_idles=(*[b"120000"] * 4, b"450000", b"0", b"0", b"-1", _HIGHEST),
    read_idles=(*[b"120000"] * 3, b"450000", b"0", b"-1", _HIGHEST),
    idles=(b"300000", b"-1", b"0", b"600000", b"-60000", _HIGHEST, _LOWEST),
    times=(
        *(b"@now-300000", b"-1", b"0", b"@now+86400000", b"@now-600000"),
        *(b"1", b"1", b"-5", b"@now-0", _HIGHEST, _LOWEST),
    ),
    back=((b"IDLE", b"300000"), (b"IDLE", b"600000"), (b"TIME", b"@now-300000"), (b"TIME", b"0")),
    known=(None,),
)
"""All of them minutes away from every min-idle: what a call does hangs on no millisecond of it."""
