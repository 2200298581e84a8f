"""Bad input: what small faults make of valid input, and a tally of what a parser says of it.

Everything follows from `SEED`, so a count or a failure is the same in every run.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, AnyStr

from claimlib.errors import ClaimlibError

SEED = 20250621
INPUTS = 10_000
LEAST_OF_EACH = 1_000


class Told(Enum):
    """What an input means that means nothing: it must be refused."""

    BAD = "bad"


BAD = Told.BAD

_EDGES = (0, 1, 7, 100, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64, 10**25)
_SPELLINGS = (
    "{}",
    "{}",
    "{}",
    "{}",
    "0{}",
    "000{}",
    "-{}",
    "+{}",
    " {}",
    "{} ",
    "{}.0",
    "{}e3",
    "{:_}",
)
_NUMBER = {str: re.compile(r"[0-9]+"), bytes: re.compile(rb"[0-9]+")}
TEXT_PIECES = (
    *(
        "\0",
        "\n",
        "\r\n",
        "\t",
        " ",
        "\u00a0",
        "\u2028",
        "\u0085",
        "\x1f",
        "\\",
        "'",
        '"',
        "%",
        "_",
    ),
    *("-", "+", "(", ")", "[", "]", ".", ",", ":", "/", "@", "#", "?", "*", "=", "0", "5", "9"),
    *("\u0665", "\uff15", "\u00b2", "\u217b", "é", "€", "\U0001f600", "\ud800", "\udcff", "\ufeff"),
)
"""What is put into texts: digits of other scripts, blanks, signs, controls, surrogates."""
BYTE_PIECES = tuple(piece.encode("utf-8", "surrogatepass") for piece in TEXT_PIECES)
BYTE_PIECES += (b"\xff", b"\x80", b"\xc3", b"\xed\xa0", b"\0x", b"\0\0")


def mutants(
    name: str, valid: Sequence[AnyStr], pieces: Sequence[AnyStr], *, inputs: int = INPUTS
) -> list[AnyStr]:
    """So many different inputs: the valid ones, and what up to four faults make of them.

    Args:
        name: of the parser; each has inputs of its own.
    """
    rng = random.Random(f"{SEED} {name}")
    made = dict.fromkeys(valid)
    while len(made) < inputs:
        changed = rng.choice(valid)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            changed = mutant(rng, changed, pieces)
        made[changed] = None
    return list(made)


def mutant(rng: random.Random, text: AnyStr, pieces: Sequence[AnyStr]) -> AnyStr:
    """The text with one fault: something dropped, doubled, swapped, put in or put for another, or a
    number at an edge."""
    if rng.random() < 0.3 and (numbers := list(_NUMBER[type(text)].finditer(text))):
        at = rng.choice(numbers)
        return text[: at.start()] + _number(rng, at[0]) + text[at.end() :]
    start = rng.randint(0, len(text))
    end = min(len(text), start + rng.choice((1, 1, 1, 2, 5)))
    before, here, after = text[:start], text[start:end], text[end:]
    return rng.choice(
        (
            before + after,
            before + here + here + after,
            before + here[::-1] + after,
            before + after[:1] + here + after[1:],
            before + rng.choice(pieces) + here + after,
            before + rng.choice(pieces) + after,
            text + rng.choice(pieces),
            rng.choice(pieces) + text,
            before + here.swapcase() + after,
        )
    )


def _number(rng: random.Random, digits: AnyStr) -> AnyStr:
    """A number at an edge, in some form; or another one of as many digits."""
    if rng.random() < 0.5:
        text = "".join(rng.choices("0123456789", k=len(digits)))
    else:
        text = rng.choice(_SPELLINGS).format(rng.choice(_EDGES))
    return text if isinstance(digits, str) else text.encode("ascii")


class HeldFile(type(Path())):
    """A path at which `data` can be read: ten thousand real files would take longer to open."""

    data = b""

    def absolute(self) -> HeldFile:
        return self  # another path would not have the data

    def read_bytes(self) -> bytes:
        return self.data

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        return self.data.decode(encoding or "utf-8", errors or "strict")


def check(
    parser: str,
    inputs: Iterable[Any],
    meaning: Callable[[Any], Any],
    parse: Callable[[Any], Any],
    refusal: type[ClaimlibError] = ClaimlibError,
) -> None:
    """`parse` gives what each input means, and refuses with `refusal` what is BAD."""
    begun = time.perf_counter()
    pairs = [(input_, meaning(input_)) for input_ in inputs]
    answers = ((input_, expected, _answer(parse, input_, refusal)) for input_, expected in pairs)
    wrong = [
        f"{input_!r}: {expected!r} expected, {answer!r} found"
        for input_, expected, answer in answers
        if answer != expected
    ]
    tally(parser, [expected is not BAD for _, expected in pairs], begun, wrong)


def tally(parser: str, good: Sequence[bool], begun: float, wrong: Sequence[str]) -> None:
    """Say how many inputs were good and bad; all were answered rightly, and there were enough."""
    count, seconds = sum(good), time.perf_counter() - begun
    said = f"{parser}, seed {SEED}: {count:,} good, {len(good) - count:,} bad, {seconds:.1f} s"
    print(said)
    shown = [line[:400] for line in wrong[:20]]
    assert not wrong, "\n".join([f"{said}; {len(wrong):,} wrong:", *shown])
    assert len(good) >= INPUTS, said
    assert LEAST_OF_EACH <= count <= len(good) - LEAST_OF_EACH, said


def _answer(parse: Callable[[Any], Any], input_: Any, refusal: type[ClaimlibError]) -> Any:
    """What comes of an input: a value, BAD, or an exception that should not be."""
    try:
        return parse(input_)
    except Exception as error:  # noqa: BLE001 - another error is a fault of the parser
        return BAD if isinstance(error, refusal) else error
