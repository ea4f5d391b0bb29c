"""Reads and digests many ranges of a file: near ones in one read, remote ones at the same time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from sidecar.errors import DamagedFileError
from sidecar.run import in_turn
from sidecar.storage.costs import DIGEST_STEP, LARGE_READ
from sidecar.storage.source import Source, costs_no_request, gap_of, requests_at_once


def digest_ranges(source: Source, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the SHA-256 of all ranges ``(offset, length)`` in order, each after its length (8 bytes, little-endian).

    Raises :class:`DamagedFileError` for a negative length, and if the ranges together are longer than the file, because
    ranges of one file do not overlap.
    """
    for offset, length in ranges:
        if length < 0:
            raise DamagedFileError(
                "a part of the file has a negative length", file=source.name, offset=offset, found=length
            )
    total = sum(length for _, length in ranges)
    if total > source.size:
        raise DamagedFileError(
            "the parts of the file are longer than the file",
            file=source.name,
            expected=f"at most {source.size} bytes",
            found=f"{total} bytes",
        )
    digest = hashlib.sha256()
    for offset, length in ranges:
        digest.update(length.to_bytes(8, "little"))
        for at in range(offset, offset + length, DIGEST_STEP):
            digest.update(source.read(at, min(DIGEST_STEP, offset + length - at)))
    return digest.digest()


def read_ranges(source: Source, ranges: Sequence[tuple[int, int]], gap: int | None = None) -> list[bytes]:
    """Return the bytes of each ``(offset, length)``, in the order of ``ranges``.

    Neighbours with at most ``gap`` bytes between them (default: the source's) share one read. Remote reads run in
    parallel. Ranges may overlap. Raises :class:`DamagedFileError` for a range that cannot be read; damage between
    ranges does not matter.
    """
    answers = try_ranges(source, ranges, gap)
    for answer in answers:
        if isinstance(answer, DamagedFileError):
            raise answer
    return [answer for answer in answers if isinstance(answer, bytes)]


def try_ranges(
    source: Source, ranges: Sequence[tuple[int, int]], gap: int | None = None
) -> list[bytes | DamagedFileError]:
    """Like :func:`read_ranges`, but return the error in place of a damaged range's bytes. Storage errors raise."""
    order = sorted(range(len(ranges)), key=lambda i: ranges[i])
    near = gap_of(source) if gap is None else gap
    most = LARGE_READ if costs_no_request(source) else source.size
    runs: list[tuple[int, int, list[int]]] = []
    at = 0
    while at < len(order):
        start, length = ranges[order[at]]
        end, last = start + length, at + 1
        while last < len(order) and ranges[order[last]][0] <= end + near and end - start <= most:
            end = max(end, sum(ranges[order[last]]))
            last += 1
        runs.append((start, end, order[at:last]))
        at = last
    out: list[bytes | DamagedFileError] = [b""] * len(ranges)
    for (start, _, members), data in zip(runs, _read_all(source, runs), strict=True):
        for i in members:
            offset, length = ranges[i]
            if isinstance(data, bytes):
                out[i] = data[offset - start : offset - start + length]
            else:
                # A joined read failed: read each range alone, so that only the damaged ones fail.
                out[i] = data if len(members) == 1 else _try(source, offset, length)
    return out


def _read_all(source: Source, runs: Sequence[tuple[int, int, list[int]]]) -> Iterable[bytes | DamagedFileError]:
    return in_turn(lambda run: _try(source, run[0], run[1] - run[0]), runs, requests_at_once(source))


def _try(source: Source, offset: int, length: int) -> bytes | DamagedFileError:
    try:
        return source.read(offset, length)
    except DamagedFileError as error:
        return error
