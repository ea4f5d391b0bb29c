"""Taking sidecar files apart and putting them together wrongly."""

from __future__ import annotations

import io
import json

import numpy as np

from sidecar.bundle.envelopes.envelope import decode_toc, encode_toc, header_for
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource


def blob_bytes(data: bytes) -> list[tuple[int, int]]:
    return [(blob.offset, blob.length) for blob in PuffinReader(BytesSource(data)).metadata.blobs]


def edit_footer(data: bytes, change) -> bytes:
    """The file with another footer around the same blobs."""
    reader = PuffinReader(BytesSource(data))
    payload = json.loads(data[reader.footer_offset + 4 : -12])
    change(payload)
    text = json.dumps(payload).encode()
    return data[: reader.footer_offset] + b"PFA1" + text + len(text).to_bytes(4, "little") + bytes(4) + b"PFA1"


def raw_blobs(data: bytes) -> list[bytearray]:
    return [bytearray(data[offset : offset + length]) for offset, length in blob_bytes(data)]


def assemble(data: bytes, blobs: list[bytearray]) -> bytes:
    """The file with other bytes in its blobs, of the same lengths."""
    out = bytearray(data)
    for (offset, length), blob in zip(blob_bytes(data), blobs, strict=True):
        assert len(blob) == length
        out[offset : offset + length] = blob
    return bytes(out)


def combine(parts: list[tuple[str, tuple[int, ...], bytes, bytes]]) -> bytes:
    """A sidecar of blobs taken from anywhere: type, fields, segment id, bytes."""
    sink = io.BytesIO()
    puffin, entries = PuffinWriter(sink), []
    for blob_type, fields, segment, data in parts:
        blob = puffin.add_blob(blob_type, fields, 1, 1, data)
        toc_length = int.from_bytes(data[8:12], "little")
        entries.append(TocEntry(blob_type, fields, segment, blob.offset, blob.length, data[len(data) - toc_length :]))
    write_toc(puffin, entries, snapshot_id=1, sequence_number=1)
    puffin.finish()
    return sink.getvalue()


def reword(data: bytearray, change) -> bytes:
    """A blob with another, properly sealed, table of contents: what a later version may write."""
    offset = int.from_bytes(data[16:24], "little")
    content = decode_toc(bytes(data[offset:]))
    change(content)
    toc = encode_toc(content)
    return header_for(bytes(data[:4]), toc, offset).encode() + bytes(data[32:offset]) + toc


def with_swapped_pieces(data: bytes, footer: int, what: str) -> bytes:
    """A file in which the ``rows`` of a filter, or its pages or regions, change places in pairs."""
    (segment,) = SidecarFile.open(BytesSource(data), footer_length=footer).segments
    (group,) = segment.fields[1]
    layout = group.layout
    size = layout.row_stride if what == "rows" else layout.page_length(0)
    count = layout.body_length // size
    assert count % 2 == 0
    swapped, *others = raw_blobs(data)
    body = np.frombuffer(bytes(swapped), np.uint8, count * size, group.offset).reshape(count // 2, 2, size)
    swapped[group.offset : group.offset + layout.body_length] = body[:, ::-1].tobytes()
    return assemble(data, [swapped, *others])
