"""Globs against a real server: `KEYS glob` finds exactly the names that `names.matches` says."""

import random

from claimlib.errors import GlobError
from claimlib.semantics.names import matches

# Bytes that mean something in a glob, in a spelling, or in UTF-8 next to each other.
ASCII = [bytes([byte]) for byte in b"*?[]^!-\\abcAx5\0\n"]
HIGH = [b"\xc3", b"\xa9", b"\xff", b"\x80"]
BYTES = [*ASCII, *HIGH, "é".encode(), "€".encode()]


def some(rng, choices, at_most):
    return b"".join(rng.choices(choices, k=rng.randrange(at_most + 1)))


def some_class(rng):
    # Ranges from ASCII to the bytes above depend on the machine: `char` has a sign, or has none.
    ranges = [b"-".join(rng.choices(half, k=2)) for half in (ASCII, HIGH)]
    return b"[" + rng.choice([b"", b"^"]) + some(rng, [*BYTES, *ranges], 3) + b"]"


def some_glob(rng):
    parts = [rng.choice([rng.choice(BYTES), rng.choice(BYTES), some_class(rng), b"*"])]
    while rng.random() < 0.7:
        parts.append(rng.choice([rng.choice(BYTES), some_class(rng), b"*", b"?"]))
    return b"".join(parts)


def test_keys_finds_the_names_that_match(client):
    rng = random.Random(20250615)
    names = {b"", *BYTES, *(some(rng, BYTES, 6) for _ in range(1500))}
    client.mset(dict.fromkeys(names, b""))
    globs = {b"*", b"**", *(some_glob(rng) for _ in range(1500))}
    compared = found_count = refused = 0
    for glob in sorted(globs):
        try:
            expected = {name for name in names if matches(glob, name)}
        except GlobError:
            refused += 1
            continue
        assert set(client.keys(glob)) == expected, glob
        compared += len(names)
        found_count += len(expected)
    assert compared > 500_000
    assert found_count > 20_000
    assert 0 < refused < len(globs) / 2


def test_scan_and_keys_agree_on_one_star_and_two(client):
    client.mset({b"": b"", b"a": b""})
    for glob, expected in ((b"*", [b"", b"a"]), (b"**", [b"a"])):
        assert sorted(client.keys(glob)) == expected
        assert sorted(client.scan_iter(match=glob)) == expected
        assert [name for name in (b"", b"a") if matches(glob, name)] == expected
