"""``sidecar-toc-v1``: the last blob of a file, with copies of the tables of contents of all its sidecar blobs.

It has the same envelope as other blobs: header, the copies one after the other, then its own TOC, the directory:

    kind "toc", version 1, blobs: list of {type, fields (as in the footer), segment, offset and length in the file,
    toc: [offset in this blob, length], digest: XXH64 of that TOC, 16 hexadecimal digits}

The file's property ``sidecar.toc`` has its place: ``{"offset", "length", "digest"}``, with the digest of
the directory. If the file has other properties whose names begin with ``sidecar.``, ``properties`` is a digest of
these: the Puffin footer has no checksum of its own. The blob is next to the footer, so one read of the file's tail gets
every table of contents. If the copy is damaged, or contradicts the footer or the property, a reader uses each blob's
own TOC instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sidecar.bundle.envelopes.envelope import (
    DIRECTORY_MAGIC,
    HEADER_BYTES,
    VERSION,
    Header,
    decode_header,
    decode_toc,
    encode_toc,
    header_for,
    integer,
    member,
    segment_bytes,
    toc_digest,
)
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.types import TOC
from sidecar.puffin.writer import PuffinWriter

TOC_PROPERTY = "sidecar.toc"
"""Property of the Puffin file that marks it as a sidecar and has the place of its directory."""

OWN = "sidecar."
"""The prefix of sidecar's properties of a file."""
_PLACE = {"offset", "length", "digest", "properties"}

ReadAt = Callable[[int, int], bytes]


class DirectoryPlace(NamedTuple):
    """The place of the directory's blob in a file. ``digest`` is that of its TOC, ``None`` if not recorded.

    ``properties`` is the digest of sidecar's other properties of the file, ``None`` if it has none.
    """

    offset: int
    length: int
    digest: str | None = None
    properties: str | None = None


BlobIdentity = tuple[str, tuple[int, ...], int, int]
"""Type, field ids, offset and length of a blob."""


@dataclass(frozen=True)
class TocEntry:
    """Identity of a sidecar blob in a file, and the bytes of its TOC."""

    blob_type: str
    fields: tuple[int, ...]
    segment_id: bytes
    offset: int
    length: int
    toc: bytes

    @property
    def identity(self) -> BlobIdentity:
        """The identity of the blob, equal to :func:`identity_of` of its entry in the footer."""
        return self.blob_type, self.fields, self.offset, self.length


def identity_of(blob: BlobMetadata) -> BlobIdentity:
    """Return the identity of a blob on which footer and directory must agree."""
    return blob.type, blob.fields, blob.offset, blob.length


def write_toc(
    puffin: PuffinWriter, entries: Sequence[TocEntry], *, snapshot_id: int, sequence_number: int
) -> BlobMetadata:
    """Add the blob and set the file's property. Returns the blob's metadata.

    No sidecar blob may follow, and no property of the file whose name begins with ``sidecar.``.
    """
    at, blobs = HEADER_BYTES, []
    for entry in entries:
        blobs.append(
            {
                "type": entry.blob_type,
                "fields": list(entry.fields),
                "segment": entry.segment_id.hex(),
                "offset": entry.offset,
                "length": entry.length,
                "toc": [at, len(entry.toc)],
                "digest": f"{toc_digest(entry.toc):016x}",
            }
        )
        at += len(entry.toc)
    directory = encode_toc({"kind": "toc", "version": VERSION, "blobs": blobs})
    header = header_for(DIRECTORY_MAGIC, directory, at)
    pieces = [header.encode(), *(entry.toc for entry in entries), directory]
    blob = puffin.add_blob(TOC, [], snapshot_id, sequence_number, pieces)
    place = {"offset": blob.offset, "length": blob.length, "digest": f"{header.toc_digest:016x}"}
    digest = _digest_of_properties(puffin.properties)
    place |= {} if digest is None else {"properties": digest}
    puffin.properties[TOC_PROPERTY] = encode_toc(place).decode()
    return blob


def parse_place(text: str) -> DirectoryPlace:
    """Parse the place in the file's property. Raises :class:`DamagedFileError`."""
    content = decode_toc(text.encode("utf-8"))
    if unknown := content.keys() - _PLACE:
        raise DamagedFileError(f"the property {TOC_PROPERTY} has unknown members", found=repr(sorted(unknown))[:60])
    length, digest = integer(content, "length", HEADER_BYTES), member(content, "digest", str)
    properties = member(content, "properties", str) if "properties" in content else None
    return DirectoryPlace(integer(content, "offset"), length, digest, properties)


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise :class:`DamagedFileError` unless sidecar's properties of a file are those that it was written with."""
    text = properties.get(TOC_PROPERTY)
    if text is None:
        raise DamagedFileError(f"the footer does not have the property {TOC_PROPERTY}")
    expected, found = parse_place(text).properties, _digest_of_properties(properties)
    if expected != found:
        raise DamagedFileError("properties of the file are damaged", expected=expected, found=found)


def _digest_of_properties(properties: Mapping[str, str]) -> str | None:
    own = sorted((name, text) for name, text in properties.items() if name.startswith(OWN) and name != TOC_PROPERTY)
    return f"{toc_digest(json.dumps(own).encode()):016x}" if own else None


def read_toc(read_at: ReadAt, place: DirectoryPlace) -> list[TocEntry]:
    """Return the directory at this place of the file, with every copy checked against its digest.

    Raises :class:`DamagedFileError`, :class:`UnsupportedFeatureError`.
    """
    offset, length, expected, _ = place
    data = read_at(offset, length)
    header: Header = decode_header(data[:HEADER_BYTES], DIRECTORY_MAGIC, length)
    directory = data[header.toc_offset :]
    if toc_digest(directory) != header.toc_digest:
        raise DamagedFileError("the directory has a wrong checksum", offset=offset + header.toc_offset)
    found = f"{header.toc_digest:016x}"
    if expected not in (None, found):
        what = f"the property {TOC_PROPERTY} does not match the directory"
        raise DamagedFileError(what, expected=expected, found=found)
    content = decode_toc(directory)
    if (content.get("kind"), content.get("version")) != ("toc", VERSION):
        raise UnsupportedFeatureError("the directory has an unknown version", found=repr(content.get("version"))[:40])
    return [_directory_entry(blob, data) for blob in member(content, "blobs", list)]


def _directory_entry(blob: Any, data: bytes) -> TocEntry:
    if not isinstance(blob, dict):
        raise DamagedFileError("a directory entry is not a JSON object", found=repr(blob)[:60])
    place = member(blob, "toc", list)
    if len(place) != 2 or not all(type(part) is int and 0 <= part <= len(data) for part in place):
        raise DamagedFileError("a directory entry has an impossible place", found=repr(place)[:60])
    toc = data[place[0] : place[0] + place[1]]
    if f"{toc_digest(toc):016x}" != blob.get("digest"):
        raise DamagedFileError("a copy of a table of contents has a wrong checksum", offset=place[0])
    return TocEntry(
        blob_type=member(blob, "type", str),
        fields=tuple(field_id for field_id in member(blob, "fields", list) if type(field_id) is int),
        segment_id=segment_bytes(blob),
        offset=integer(blob, "offset"),
        length=integer(blob, "length"),
        toc=toc,
    )
