"""Sidecars taken apart: pieces, tables of contents, directory and properties replaced, with checksums made good."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import xxhash

from scripts.fuzzing.puffin_files import payload_of, with_payload
from sidecar.bundle.envelopes import checksum, seals
from sidecar.bundle.verify import verify_sidecar
from sidecar.storage.source import BytesSource
from tests.iceberg.forging import HEADER, KINDS, Forgery, StoredBlob, encoded, put_sections, sections_of

SEAL = checksum.SEAL_BYTES
TOC = "sidecar-toc-v1"


class SealedPiece(NamedTuple):
    """A piece of a blob: its place in the blob's body, its length without the seal, and the context of the seal."""

    at: int
    length: int
    context: bytes


@contextmanager
def _noting(found: dict[bytes, bytes]) -> Iterator[None]:
    """Note every piece whose seal is checked, by its bytes, with the context."""
    is_sealed, seals_of = checksum.is_sealed, seals._seals

    def note(context: bytes, piece: bytes | memoryview) -> bool:
        found[bytes(piece)] = context
        return is_sealed(context, piece)

    def note_all(pieces: Any, contexts: Any) -> Any:
        every, size = contexts.tobytes(), checksum.CONTEXT.size
        for number, piece in enumerate(pieces):
            found[piece.tobytes()] = every[number * size : (number + 1) * size]
        return seals_of(pieces, contexts)

    with patch.object(checksum, "is_sealed", note), patch.object(seals, "_seals", note_all):
        yield


def pieces_of(data: bytes) -> list[list[SealedPiece]]:
    """The sealed pieces of each blob, in the order of :class:`Forgery`; encrypted blobs have none."""
    found: dict[bytes, bytes] = {}
    with _noting(found):
        assert verify_sidecar(BytesSource(data)) == []
    return [list(_within(blob, found)) for blob in Forgery.of(data).blobs]


def _within(blob: StoredBlob, found: dict[bytes, bytes]) -> Iterator[SealedPiece]:
    for piece, context in found.items():
        at = blob.body.find(piece)
        if at >= 0:
            yield SealedPiece(at, len(piece) - SEAL, context)


def content_of(blob: StoredBlob, piece: SealedPiece) -> bytes:
    """The data of a piece."""
    return blob.body[piece.at : piece.at + piece.length]


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


def put_lengths(units: StoredBlob, content: bytes) -> None:
    """Put other content in the place of the lengths of all pieces, which :func:`put_section` computes anew."""
    for line in units.toc["sections"]:
        if line[0] == "lengths" and line[4] > SEAL:
            context = struct.pack("<Ii16sIIQ", KINDS["lengths"], 0, bytes.fromhex(units.segment), 0, 0, 0)
            piece = SealedPiece(line[2] - HEADER.size, line[4] - SEAL, context)
            put_piece(units, piece, content)
            stored = units.body[piece.at : piece.at + line[4]]
            line[5] = base64.b64encode(hashlib.sha256(stored).digest()).decode()


@dataclass
class StoredSketches:
    """The sketches of a blob and the JSON of their table."""

    sketches: list[bytes]
    table: dict[str, Any]

    @classmethod
    def of(cls, blob: StoredBlob) -> StoredSketches:
        place = blob.toc["groups"][0]
        start = place["offset"] - HEADER.size
        end = start + place["length"]
        table = json.loads(blob.body[end - place["table"] : end - SEAL])
        found, at = [], start
        for described in table["sketches"]:
            found.append(blob.body[at : at + described["length"]])
            at += described["length"] + SEAL
        return cls(found, table)

    def put(self, blob: StoredBlob, table: bytes | None = None) -> None:
        """Lay the blob out anew. ``table`` is written in place of the JSON."""
        segment, field_id = bytes.fromhex(blob.segment), blob.toc["field"]

        def sealed(kind: int, position: int, data: bytes) -> bytes:
            context = struct.pack("<Ii16sIIQ", kind, field_id, segment, 0, 0, position)
            return data + checksum.seal(context, data)

        last = sealed(14, 0, encoded(self.table) if table is None else table)
        blob.body = b"".join(sealed(13, number, data) for number, data in enumerate(self.sketches)) + last
        blob.toc["groups"][0] |= {"length": len(blob.body), "table": len(last)}
        blob.toc["toc_offset"] = HEADER.size + len(blob.body)


def with_directory(data: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """The file with another table of contents in its last blob, the directory, and a footer that leads to it."""
    payload = payload_of(data)
    place = payload["blobs"][-1]
    assert place["type"] == TOC
    blob = StoredBlob.parse(TOC, (), {}, data[place["offset"] : place["offset"] + place["length"]])
    blob.toc = change(blob.toc)
    stored = blob.stored()
    place["length"] = len(stored)
    said = json.loads(payload["properties"]["sidecar.toc"])
    said |= {"length": len(stored), "digest": f"{xxhash.xxh64_intdigest(encoded(blob.toc)):016x}"}
    payload["properties"]["sidecar.toc"] = encoded(said).decode()
    start = place["offset"]
    return _with_footer(data[:start] + stored, payload)


def _with_footer(body: bytes, payload: Any) -> bytes:
    """The file of these bytes and this footer."""
    return with_payload(body + bytes(4) + bytes(8) + bytes(4), payload)


def with_properties(data: bytes, properties: dict[str, Any]) -> bytes:
    """The file with these properties of sidecar's own added, and their digest."""
    payload = payload_of(data)
    stored = {name: text for name, text in payload["properties"].items() if name == "sidecar.toc"} | properties
    own = sorted([name, text] for name, text in properties.items())
    said = json.loads(stored["sidecar.toc"])
    said["properties"] = f"{xxhash.xxh64_intdigest(json.dumps(own).encode()):016x}"
    stored["sidecar.toc"] = encoded(said).decode()
    return with_payload(data, payload | {"properties": stored})
