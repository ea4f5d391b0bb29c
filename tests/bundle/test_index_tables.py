"""Tables of page and row indexes whose checksums are good, but whose places no file can have."""

from __future__ import annotations

import pytest

from scripts.fuzzing.sidecar_layout import content_of, pieces_of, put_piece
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.storage.source import BytesSource
from tests.bundle.spec_reader import VECTORS
from tests.iceberg.forging import Forgery

TABLE_KINDS = {b"\x07\0\0\0": "page", b"\x0c\0\0\0": "row"}
"""The kinds of the tables' pieces, as their contexts begin."""


@pytest.mark.parametrize("start", [(1 << 64) - 1, 1 << 63, (1 << 63) - 1, 1 << 40])
@pytest.mark.parametrize(("name", "what"), [("pages", "page"), ("orc", "row")])
def test_a_first_entry_outside_the_group_hides_its_indexes(name: str, what: str, start: int) -> None:
    data = (VECTORS / f"{name}.stats").read_bytes()
    forged = Forgery.of(data)
    for blob, pieces in zip(forged.blobs, pieces_of(data), strict=True):
        for piece in pieces:
            if TABLE_KINDS.get(piece.context[:4]) == what:
                put_piece(blob, piece, start.to_bytes(8, "little") + content_of(blob, piece)[8:])
    stored = BytesSource(forged.stored())
    sidecar = SidecarFile.open(stored)
    (segment,) = sidecar.segments
    indexes = [segment.page_indexes, segment.row_indexes][["page", "row"].index(what)]
    fields = segment.page_index_blobs if what == "page" else segment.row_index_blobs
    assert fields
    assert all(indexes(field_id, range(segment.num_units)) == {} for field_id in fields)
    assert any("points outside its group" in warning for warning in sidecar.warnings)
    assert verify_sidecar(stored)
