"""Changes of bytes, numbers and texts that no format explains."""

from __future__ import annotations

import random
from collections.abc import Sequence

EDGES = sorted(
    {sign * ((1 << bits) + by) for bits in (0, 4, 7, 8, 15, 16, 31, 32, 40, 62, 63) for by in (-1, 0, 1)
     for sign in (1, -1)}
)  # fmt: skip
"""Numbers around which widths and signs change."""

LARGEST_VARINT = b"\xfe\xff\xff\xff\x0f"
LONG = 1 << 16
"""Bytes of a long text or value."""


def number_like(rng: random.Random, value: int) -> int:
    """Return another number: an edge, a neighbour, a multiple, or anything."""
    way = rng.randrange(5)
    if way == 0:
        return rng.choice(EDGES)
    if way == 1:
        return value + rng.choice((-2, -1, 1, 2))
    if way == 2:
        return value * rng.choice((-1, 2, 3, 8, 1000)) + rng.randrange(2)
    if way == 3:
        return rng.randrange(-300, 300)
    return rng.getrandbits(rng.randrange(1, 64)) * rng.choice((1, 1, -1))


def damaged(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return ``data`` with one to four blind changes; ``others`` are files to take bytes from."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change(rng, out, others)
    return bytes(out)


def _change(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    if not out:
        out += rng.randbytes(rng.randrange(1, 20))
        return
    at, way = rng.randrange(len(out)), rng.randrange(12)
    end = min(at + rng.choice((1, 2, 4, 8, 30, 300)), len(out))
    if way < 4:
        out[at] ^= 1 << rng.randrange(8)
    elif way == 4:
        out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif way == 5:
        width = rng.choice((2, 4, 8))
        out[at : at + width] = (rng.choice(EDGES) % (1 << 8 * width)).to_bytes(width, "little")
    elif way == 6:
        out[at : at + 5] = LARGEST_VARINT
    elif way == 7:
        del out[at:end]
    elif way == 8:
        out[at:at] = out[at:end] * rng.choice((1, 2, 50))
    elif way == 9:
        out[at:end] = bytes(end - at)
    elif way == 10:
        del out[at:]
    else:
        other = rng.choice(others) if others else bytes(out)
        start = rng.randrange(len(other)) if other else 0
        out[at:end] = other[start : start + end - at]


def bytes_like(rng: random.Random, value: bytes) -> bytes:
    """Return other bytes: damaged, empty, long, or of another length."""
    way = rng.randrange(8)
    if way == 0:
        return b""
    if way == 1:
        return value * rng.choice((2, 3, 200)) if len(value) < LONG else value[1:]
    if way == 2:
        return rng.randbytes(rng.choice((1, 4, 8, 12, 16, 40)))
    if way == 3:
        return rng.choice((b"\xff\xfe\x80", b"\xed\xa0\x80", b"\0" * 9, b"\x1b[2J", LONG * b"x"))
    return damaged(rng, value)


def text_like(rng: random.Random, value: str) -> str:
    """Return another text."""
    way = rng.randrange(6)
    if way == 0:
        return rng.choice(
            ("", "\ud800", "\0", "é" * 40, "x" * LONG, "-1", "1e999", "name:", "int64", "flba:9" + 90 * "9")
        )
    if way == 1:
        return value + rng.choice((":", "/", " ", "9", ":99999999999", value))
    if way == 2 and value:
        at = rng.randrange(len(value))
        return value[:at] + value[at + 1 :]
    return damaged(rng, value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogateescape")
