"""Checksums (:mod:`sidecar.bundle.checksum`) of many pieces of one length at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import CONTEXT, CONTEXT_TYPE, SEAL_BYTES, Kind, Place

BYTES_AT_ONCE = 256 << 10
"""Pieces are copied behind their contexts and hashed while they are in the cache."""

Pieces = npt.NDArray[np.uint8]
"""uint8[n, width + 8]: each piece with its checksum behind it."""


def contexts_of(kind: Kind, count: int, place: Place, group: int) -> npt.NDArray[np.void]:
    """``count`` contexts of checksums, rows and positions still 0."""
    contexts = np.empty(count, CONTEXT_TYPE)
    contexts[:] = np.frombuffer(place.context(kind, group=group), CONTEXT_TYPE)
    return contexts


def put_seals(pieces: Pieces, contexts: npt.NDArray[np.void]) -> None:
    """Put behind each piece its checksum in its context."""
    pieces[:, -SEAL_BYTES:] = _seals(pieces, contexts)


def wrong_seals(pieces: Pieces, contexts: npt.NDArray[np.void]) -> list[int]:
    """The numbers of the pieces whose checksum is not that of their context."""
    wrong = (pieces[:, -SEAL_BYTES:] != _seals(pieces, contexts)).any(axis=1)
    return [int(number) for number in np.flatnonzero(wrong)]


def _seals(pieces: Pieces, contexts: npt.NDArray[np.void]) -> Pieces:
    from sidecar.kernels.xxh64 import hash_fixed  # whoever asks a sidecar for files compiles nothing

    width = CONTEXT.size + pieces.shape[1] - SEAL_BYTES
    step = max(BYTES_AT_ONCE // width, 1)
    hashed = np.empty((min(step, len(pieces)), width), np.uint8)
    digests = np.empty(len(pieces), np.uint64)
    for at in range(0, len(pieces), step):
        some = pieces[at : at + step]
        filled = hashed[: len(some)]
        filled[:, : CONTEXT.size] = contexts[at : at + step].view(np.uint8).reshape(len(some), -1)
        filled[:, CONTEXT.size :] = some[:, :-SEAL_BYTES]
        hash_fixed(filled.reshape(-1), width, digests[at : at + step])
    return digests.astype("<u8").view(np.uint8).reshape(-1, SEAL_BYTES)
