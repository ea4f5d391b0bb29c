"""Segments whose files have all left the table."""

from __future__ import annotations

import io

from sidecar.bundle.merging.checking import check_segment
from sidecar.bundle.merging.merge import merge_segments
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import write_toc
from sidecar.bundle.verify import verify_sidecar
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.bundle.spec_reader import VECTORS

PLACE = {"snapshot_id": 77, "sequence_number": 99}


def test_sketches_of_files_that_are_gone_are_left_out() -> None:
    sidecar = SidecarFile.open(BytesSource((VECTORS / "sketches.stats").read_bytes()))
    (segment,) = sidecar.segments
    assert segment.sketch_blobs
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    write_toc(
        puffin, merge_segments(puffin, [check_segment(SourceSegment(sidecar, segment))], [], [], [], **PLACE), **PLACE
    )
    puffin.finish()
    merged = BytesSource(sink.getvalue())
    assert verify_sidecar(merged) == []
    assert [(one.num_files, dict(one.sketch_blobs)) for one in SidecarFile.open(merged).segments] == [(0, {})]
