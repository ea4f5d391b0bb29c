"""The indexes of one field that a segment gets: filters, page or row indexes, sketches, or another kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.encryption import ENCRYPTED_VERSION, FieldKey
from sidecar.bundle.envelopes.envelope import FIELD_VERSION, header_for
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.toc import TocEntry
from sidecar.errors import UsageError
from sidecar.puffin.writer import PuffinWriter


class SegmentUnits(NamedTuple):
    """The facts that blobs of fields state about the units blob of their segment, which may be in another file."""

    num_files: int
    num_units: int
    toc: bytes
    """The table of contents of the units blob."""


class NewBlob(NamedTuple):
    """A blob to be written. The last of its ``pieces`` is its table of contents, ``toc``."""

    blob_type: str
    toc: bytes
    pieces: Iterator[bytes]


class FieldPart(Protocol):
    """The indexes of one kind of one field. ``properties`` are those of its blobs in the Puffin footer."""

    @property
    def field_id(self) -> int:
        """The field."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the blobs."""

    @property
    def key(self) -> FieldKey | None:
        """The key that encrypts the blobs; ``None`` for plaintext."""

    @property
    def size(self) -> int:
        """About the bytes of the blobs: segments are merged or stay apart by these."""

    def blobs(self, header: SegmentHeader, units: SegmentUnits) -> Iterator[NewBlob]:
        """Yield the blobs; each is written before the next one is asked for.

        Raises :class:`UsageError` if the part contradicts the segment or the format.
        """


def write_part(
    puffin: PuffinWriter,
    header: SegmentHeader,
    part: FieldPart,
    units: SegmentUnits,
    *,
    snapshot_id: int,
    sequence_number: int,
) -> Iterator[TocEntry]:
    """Write the blobs of a part. Yields an entry for :func:`sidecar.bundle.toc.write_toc` for each that is written."""
    fields = (part.field_id,)
    for blob_type, toc, pieces in part.blobs(header, units):
        written = puffin.add_blob(blob_type, fields, snapshot_id, sequence_number, pieces, properties=part.properties)
        yield TocEntry(blob_type, fields, header.segment_id, written.offset, written.length, toc)


def blob_pieces(
    magic: bytes, pieces: Iterable[bytes], toc: bytes, toc_offset: int, key: FieldKey | None = None
) -> Iterator[bytes]:
    """Yield the bytes of a blob: header, ``pieces`` and table of contents; of an encrypted one with ``key``."""
    yield header_for(magic, toc, toc_offset, FIELD_VERSION if key is None else ENCRYPTED_VERSION).encode()
    yield from pieces
    yield toc


def check_units(groups: Iterable[npt.NDArray[np.int64]], units: SegmentUnits) -> None:
    """Raise :class:`UsageError` if groups, given by their rising units, have units that the segment does not have."""
    for group in groups:
        if len(group) and not 0 <= group[-1] < units.num_units:
            raise UsageError("a group has units that are not in the segment", expected=units.num_units)
