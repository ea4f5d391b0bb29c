"""Seals and opens many pieces of one length at once: checksums in bulk, AES-GCM one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import CONTEXT, CONTEXT_TYPE, SEAL_BYTES, BlobContext, PieceKind

BYTES_AT_ONCE = 256 << 10
"""Pieces are hashed in batches of this many bytes, which stay in the CPU cache between copy and hash."""

Pieces = npt.NDArray[np.uint8]
"""uint8[n, width + overhead]: each piece with its checksum, or with its nonce and tag."""
Contexts = npt.NDArray[np.void]


def contexts_of(kind: PieceKind, count: int, place: BlobContext, group: int) -> Contexts:
    """Return ``count`` contexts of pieces, with rows and positions 0."""
    contexts = np.empty(count, CONTEXT_TYPE)
    contexts[:] = np.frombuffer(place.context(kind, group=group), CONTEXT_TYPE)
    return contexts


def seal_pieces(pieces: Pieces, contexts: Contexts, place: BlobContext) -> None:
    """Seal pieces in place: the data is there, checksums or nonces and tags are added around it."""
    if place.cipher is None:
        pieces[:, -SEAL_BYTES:] = _seals(pieces, contexts)
        return
    before, after = place.sealing
    count, length = pieces.shape
    data = pieces.reshape(-1).data  # the pieces are contiguous
    starts = range(0, count * length, length)
    views = [data[start + before : start + length - after] for start in starts]
    sealed = place.cipher.encrypt_all(_each_context(contexts), views)
    pieces[:] = np.frombuffer(sealed, np.uint8).reshape(count, length)


def open_pieces(pieces: Pieces, contexts: Contexts, place: BlobContext) -> tuple[Pieces, list[int]]:
    """Return the data uint8[n, width] of pieces and the numbers of damaged ones (zeros if they were encrypted)."""
    if place.cipher is None:
        wrong = (pieces[:, -SEAL_BYTES:] != _seals(pieces, contexts)).any(axis=1)
        return pieces[:, :-SEAL_BYTES], np.flatnonzero(wrong).tolist()
    data = np.zeros((len(pieces), pieces.shape[1] - place.sealing.overhead), np.uint8)
    bad = []
    for number, context in enumerate(_each_context(contexts)):
        opened = place.cipher.decrypt(context, pieces[number].data)
        if opened is None:
            bad.append(number)
        else:
            data[number] = np.frombuffer(opened, np.uint8)
    return data, bad


def _each_context(contexts: Contexts) -> list[bytes]:
    data = contexts.tobytes()
    return [data[at : at + CONTEXT.size] for at in range(0, len(data), CONTEXT.size)]


def _seals(pieces: Pieces, contexts: Contexts) -> Pieces:
    from sidecar.kernels.xxh64 import hash_fixed  # imported late: planning must not load numba

    width = CONTEXT.size + pieces.shape[1] - SEAL_BYTES
    step = max(BYTES_AT_ONCE // width, 1)
    hashed = np.empty((min(step, len(pieces)), width), np.uint8)
    digests = np.empty(len(pieces), np.uint64)
    for at in range(0, len(pieces), step):
        batch = pieces[at : at + step]
        filled = hashed[: len(batch)]
        filled[:, : CONTEXT.size] = contexts[at : at + step].view(np.uint8).reshape(len(batch), -1)
        filled[:, CONTEXT.size :] = batch[:, :-SEAL_BYTES]
        hash_fixed(filled.reshape(-1), width, digests[at : at + step])
    return digests.astype("<u8").view(np.uint8).reshape(-1, SEAL_BYTES)
