"""Sidecars taken apart and put together again by somebody without keys, who makes every checksum good.

A blob is its table of contents, as JSON, and its pieces, as bytes; nothing of sidecar's own reading is used on them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import xxhash

from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource

HEADER = struct.Struct("<4sHHIIQQ")
KINDS = {
    "files": 16,
    "bounds": 17,
    "partitions": 18,
    "fingerprints": 19,
    "unit_counts": 20,
    "schemas": 21,
    "manifests": 22,
    "coverage": 23,
    "lengths": 24,
}


def encoded(toc: dict[str, Any]) -> bytes:
    return json.dumps(toc, sort_keys=True, separators=(",", ":")).encode()


@dataclass
class StoredBlob:
    """A blob of ours; ``version`` is that of its header."""

    type: str
    fields: tuple[int, ...]
    magic: bytes
    version: int
    toc: dict[str, Any]
    body: bytes
    properties: dict[str, str]

    @classmethod
    def parse(cls, kind: str, fields: tuple[int, ...], properties: Any, data: bytes) -> StoredBlob:
        magic, version, _, _, _, offset, _ = HEADER.unpack_from(data)
        body = data[HEADER.size : offset]
        return cls(kind, fields, magic, version, json.loads(data[offset:]), body, dict(properties))

    @property
    def segment(self) -> str:
        return self.toc["segment"]

    def stored(self) -> bytes:
        """The blob's bytes, header and all."""
        toc = encoded(self.toc)
        offset = HEADER.size + len(self.body)
        digest = xxhash.xxh64_intdigest(toc)
        return HEADER.pack(self.magic, self.version, 0, len(toc), 0, offset, digest) + self.body + toc


@dataclass
class Forgery:
    """All blobs of a sidecar, to be changed, and then :meth:`stored` again."""

    blobs: list[StoredBlob]
    others: list[tuple[Any, bytes]] = field(default_factory=list)
    """Blobs of other types, which stay as they are."""

    @classmethod
    def of(cls, data: bytes) -> Forgery:
        reader = PuffinReader(BytesSource(data))
        found = cls([])
        for blob in reader.metadata.blobs:
            raw = reader.read_raw(blob)
            if blob.type.startswith("sidecar-"):
                if blob.type != "sidecar-toc-v1":
                    found.blobs.append(StoredBlob.parse(blob.type, blob.fields, blob.properties, raw))
            else:
                found.others.append((blob, raw))
        return found

    def units(self, number: int = 0) -> StoredBlob:
        return [blob for blob in self.blobs if blob.type == "sidecar-units-v1"][number]

    def of_field(self, field_id: int = 1, kind: str = "sbbf", number: int = 0) -> StoredBlob:
        return [b for b in self.blobs if b.fields == (field_id,) and b.toc["kind"] == kind][number]

    def replace(self, old: StoredBlob, new: StoredBlob) -> None:
        self.blobs[self.blobs.index(old)] = new

    def link(self) -> None:
        """Have every blob name the units of its segment as they are now."""
        for units in [blob for blob in self.blobs if blob.type == "sidecar-units-v1"]:
            toc = encoded(units.toc)
            named = {"count": units.toc["units"], "digest": f"{xxhash.xxh64_intdigest(toc):016x}"}
            for blob in self.blobs:
                if blob is not units and blob.segment == units.segment:
                    blob.toc["units"] = named

    def stored(self, change_copy: Callable[[dict[str, Any]], None] | None = None) -> bytes:
        """The whole file; ``change_copy`` is shown the copy of each table of contents before it is written."""
        sink = io.BytesIO()
        puffin = PuffinWriter(sink)
        for blob, raw in self.others:
            puffin.add_blob(
                blob.type,
                blob.fields,
                blob.snapshot_id,
                blob.sequence_number,
                [raw],
                properties=blob.properties,
            )
        entries, copies, at = [], [], HEADER.size
        for blob in self.blobs:
            written = puffin.add_blob(blob.type, blob.fields, 1, 1, [blob.stored()], properties=blob.properties)
            toc = json.loads(encoded(blob.toc))
            if change_copy is not None:
                change_copy(toc)
            copy = encoded(toc)
            entry = {"type": blob.type, "fields": list(blob.fields), "segment": blob.segment}
            place = {"offset": written.offset, "length": written.length, "toc": [at, len(copy)]}
            entries.append({**entry, **place, "digest": f"{xxhash.xxh64_intdigest(copy):016x}"})
            copies.append(copy)
            at += len(copy)
        directory = StoredBlob(
            "sidecar-toc-v1",
            (),
            b"SCTC",
            1,
            {"kind": "toc", "version": 1, "blobs": entries},
            b"".join(copies),
            {},
        )
        data = directory.stored()
        written = puffin.add_blob("sidecar-toc-v1", [], 1, 1, [data])
        digest = f"{xxhash.xxh64_intdigest(encoded(directory.toc)):016x}"
        place = {"offset": written.offset, "length": written.length, "digest": digest}
        puffin.properties["sidecar.toc"] = encoded(place).decode()
        puffin.finish()
        return sink.getvalue()


def sections_of(units: StoredBlob) -> dict[tuple[str, int], list[bytes]]:
    """The data of all pieces, without seals."""
    lines = units.toc["sections"]
    start = {line[0]: line for line in lines}["lengths"]
    lengths = [n for (n,) in struct.iter_unpack("<I", units.body[start[2] - 32 :][: start[4] - 8])]
    found = {}
    for name, field_id, offset, count, length, *_ in lines:
        sizes = [length] if count == 1 else [lengths.pop(0) for _ in range(count)]
        pieces, at = [], offset - HEADER.size
        for size in sizes:
            pieces.append(units.body[at : at + size - 8])
            at += size
        found[name, field_id] = pieces
    return found


def put_sections(units: StoredBlob, sections: dict[tuple[str, int], list[bytes]], *, digests: bool = True) -> None:
    """Lay the pieces out anew, with good seals and, unless told otherwise, good SHA-256."""
    before = {(line[0], line[1]): line[5:] for line in units.toc["sections"]}
    segment = bytes.fromhex(units.segment)
    body, lines, lengths = b"", [], []
    for (name, field_id), pieces in sections.items():
        if name == "lengths":
            pieces = [struct.pack(f"<{len(lengths)}I", *lengths)]
        sealed = []
        for ordinal, piece in enumerate(pieces):
            context = struct.pack("<Ii16sIIQ", KINDS[name], field_id, segment, 0, 0, ordinal)
            sealed.append(piece + xxhash.xxh64_intdigest(context + piece).to_bytes(8, "little"))
        if len(sealed) != 1:
            lengths += map(len, sealed)
        offset = HEADER.size + len(body)
        body += b"".join(sealed)
        sums = base64.b64encode(b"".join(hashlib.sha256(piece).digest() for piece in sealed)).decode()
        line = [name, field_id, offset, len(sealed), sum(map(len, sealed))]
        lines.append(line + ([sums] if digests and before[name, field_id] else before[name, field_id]))
    units.body, units.toc["sections"] = body, lines
    units.toc["toc_offset"] = HEADER.size + len(body)
