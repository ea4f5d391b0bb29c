"""Sidecars taken apart: the pieces of their blobs with the contexts of their seals, to be changed and sealed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from sidecar.bundle import checksum, seals
from sidecar.bundle.verify import verify_sidecar
from sidecar.source import BytesSource
from tests.iceberg.forging import Forgery, StoredBlob, put_sections, sections_of

UNITS = "sidecar-units-v1"
SEAL = checksum.SEAL_BYTES


class SealedPiece(NamedTuple):
    """A piece of a blob: its place in the blob's body, and the context of its seal; the length is without the seal."""

    at: int
    length: int
    context: bytes

    @property
    def kind(self) -> int:
        return int.from_bytes(self.context[:4], "little")


@contextmanager
def noting(found: dict[bytes, bytes]) -> Iterator[None]:
    """Note every piece whose seal is checked, by its bytes, with the context."""
    is_sealed, seals_of = checksum.is_sealed, seals._seals

    def note(context: bytes, piece: bytes | memoryview) -> bool:
        found[bytes(piece)] = context
        return is_sealed(context, piece)

    def note_all(pieces: Any, contexts: Any) -> Any:
        every = contexts.tobytes()
        for number, piece in enumerate(pieces):
            size = checksum.CONTEXT.size
            found[piece.tobytes()] = every[number * size : (number + 1) * size]
        return seals_of(pieces, contexts)

    with patch.object(checksum, "is_sealed", note), patch.object(seals, "_seals", note_all):
        yield


def pieces_of(data: bytes) -> list[list[SealedPiece]]:
    """The sealed pieces of each blob, by verifying the whole sidecar; none of encrypted blobs."""
    found: dict[bytes, bytes] = {}
    with noting(found):
        verify_sidecar(BytesSource(data))
    return [list(_within(blob, found)) for blob in Forgery.of(data).blobs]


def _within(blob: StoredBlob, found: dict[bytes, bytes]) -> Iterator[SealedPiece]:
    for piece, context in found.items():
        at = blob.body.find(piece)
        if at >= 0:
            yield SealedPiece(at, len(piece) - SEAL, context)


def put_piece(blob: StoredBlob, piece: SealedPiece, content: bytes) -> None:
    """Put other content in the place of a piece, cut or filled with blanks to its length, and seal it."""
    content = content[: piece.length].ljust(piece.length, b" ")
    sealed = content + checksum.seal(piece.context, content)
    blob.body = blob.body[: piece.at] + sealed + blob.body[piece.at + len(sealed) :]


def put_section(units: StoredBlob, name: tuple[str, int], number: int, content: bytes) -> None:
    """Put other content, of any length, in the place of a piece of the units table, with good seals and digests."""
    sections = sections_of(units)
    sections[name][number] = content
    put_sections(units, sections)
