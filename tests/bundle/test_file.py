"""A sidecar file as a whole: few reads, several segments, copies, what inspect shows."""

from __future__ import annotations

import cProfile
import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.filters.slicing import slice_blocks
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.model import UNLISTED, UnitsTable
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.bundle.writer import copy_segments, write_segment, write_toc
from sidecar.errors import DamagedFileError
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF, TOC, UNITS
from sidecar.puffin.writer import COPY_LENGTH, PuffinWriter
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    SEGMENT,
    SEQUENCE,
    SNAPSHOT,
    copy_file,
    extract_filter,
    field_bundle,
    filter_of,
    open_bytes,
    probe_for,
    random_filters,
    segment_header,
    units_table,
    write_file,
)
from tests.cpu_cost import cost_of

OTHER = b"another segment."


def test_an_absent_key_in_658_files_costs_little():
    """At most 64 KiB in at most 4 reads, the search for every live file included."""
    members, table = 658, units_table(658)
    filters = random_filters(np.random.default_rng(0), [64] * members, 0.3)
    bundles = [field_bundle(field_id, filters) for field_id in (1, 2, 3)]
    data, footer = write_file(bundles, table)
    sidecar = open_bytes(data, footer)
    (segment,) = sidecar.segments
    keep = segment.might_match(probe_for(1, 10**15))
    assert not keep.all()
    for ordinal, file in enumerate(table.files):
        assert segment.file_ordinal(file.identity) == ordinal
    assert len(segment.listed_manifests) == 14
    assert segment.coverage(1, "bloom") is not None
    assert segment.unit_ranges[-1] == members
    assert sidecar.index_reads <= 2
    assert sidecar.index_bytes <= 32 * 1024 + 256 * 83 + 8
    assert sidecar.warnings == []


def test_the_work_of_opening_grows_with_the_columns_and_not_with_their_square():
    def calls(columns: int) -> int:
        filters = random_filters(np.random.default_rng(0), [64] * 4, 0.3)
        data, footer = write_file([field_bundle(number, filters) for number in range(columns)], units_table(4))
        profile = cProfile.Profile()
        profile.runcall(open_bytes, data, footer)
        return sum(entry.callcount for entry in profile.getstats())

    few, many = calls(30), calls(120)
    assert many < 4.2 * few


def test_groups_of_one_lookup_are_fetched_together():
    filters = random_filters(np.random.default_rng(0), [3] * 20 + [5] * 20)
    data, footer = write_file([field_bundle(1, filters)], units_table(40))
    padded = PuffinReader(BytesSource(data), footer_length=footer, tail_length=footer)
    sidecar = open_bytes(data, footer)
    assert len(sidecar.segments[0].fields[1]) == 2
    assert padded.metadata.blobs[0].length < 16 * 1024
    sidecar.segments[0].might_match(probe_for(1, 1))
    assert sidecar.index_reads <= 2


def two_segments() -> tuple[bytes, int]:
    """A file with a segment of 3 units and one of 70, whose blobs were copied and written in one go."""
    old, footer = write_file([field_bundle(1, [filter_of([unit], 1) for unit in range(3)])], units_table(3))
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    entries = copy_segments(open_bytes(old, footer), puffin, snapshot_id=99, sequence_number=9)
    filters = [filter_of([unit + 100], 1) for unit in range(70)]
    bundle = field_bundle(1, filters, OTHER)
    entries += write_segment(
        puffin, segment_header(OTHER), units_table(70), [bundle], snapshot_id=99, sequence_number=9
    )
    write_toc(puffin, entries, snapshot_id=99, sequence_number=9)
    return _finish(puffin, sink)


def _finish(puffin: PuffinWriter, sink: io.BytesIO) -> tuple[bytes, int]:
    written = puffin.finish()
    return sink.getvalue(), written.footer_size


def test_segments_are_copied_as_bytes():
    old, _ = write_file([field_bundle(1, [filter_of([unit], 1) for unit in range(3)])], units_table(3))
    new, new_footer = two_segments()
    before, after = (
        {
            (blob.type, blob.fields, blob.length): data[blob.offset : blob.offset + blob.length]
            for blob in PuffinReader(BytesSource(data)).metadata.blobs
            if blob.type != TOC
        }
        for data in (old, new)
    )
    assert before.items() <= after.items()
    sidecar = open_bytes(new, new_footer, strict=True)
    first, second = sidecar.segments
    assert (first.id, second.id) == (SEGMENT.hex(), OTHER.hex())
    assert (first.num_units, second.num_units) == (3, 70)
    assert first.snapshot_id == SNAPSHOT
    assert [blob.snapshot_id for blob in sidecar.puffin.metadata.blobs] == [99] * 5
    assert first.might_match(probe_for(1, 2)).tolist() == [False, False, True]
    assert second.might_match(probe_for(1, 2)).sum() <= 3
    assert second.might_match(probe_for(1, 142))[42]
    assert verify_sidecar(BytesSource(new)) == []
    sidecar.close()


def test_a_segment_of_several_pieces_is_copied_whole():
    """9 MB of one field's filters are copied into the file unchanged, and found again."""
    filters = random_filters(np.random.default_rng(5), [4096] * 70)
    filters[69] |= filter_of([31], 4096)
    old, footer = write_file([field_bundle(1, filters)], units_table(70))
    assert max(blob.length for blob in PuffinReader(BytesSource(old)).metadata.blobs) > 2 * COPY_LENGTH
    new, new_footer = copy_file(open_bytes(old, footer))
    before, after = (
        [
            data[blob.offset : blob.offset + blob.length]
            for blob in PuffinReader(BytesSource(data)).metadata.blobs
            if blob.type != TOC
        ]
        for data in (old, new)
    )
    assert after == before
    assert verify_sidecar(BytesSource(new)) == []
    (segment,) = open_bytes(new, new_footer, strict=True).segments
    assert segment.might_match(probe_for(1, 31))[69]
    assert [extract_filter(segment, 1, unit) for unit in (0, 35, 69)] == [
        filters[unit].tobytes() for unit in (0, 35, 69)
    ]


def test_single_segments_can_be_left_behind():
    data, footer = two_segments()
    sidecar = open_bytes(data, footer)
    (segment,) = open_bytes(*copy_file(sidecar, segments=sidecar.segments[1:]), strict=True).segments
    assert segment.id == OTHER.hex()


def test_our_blobs_stand_in_the_footer_of_their_snapshot():
    data, footer = write_file([field_bundle(1, [filter_of([1], 1)])], units_table(1))
    metadata = PuffinReader(BytesSource(data), footer_length=footer).metadata
    assert [(blob.type, blob.fields) for blob in metadata.blobs] == [(SBBF, (1,)), (UNITS, ()), (TOC, ())]
    assert {(blob.snapshot_id, blob.sequence_number) for blob in metadata.blobs} == {(SNAPSHOT, SEQUENCE)}
    assert {blob.compression_codec for blob in metadata.blobs} == {None}
    assert "sidecar.toc" in metadata.properties


def test_a_puffin_file_without_our_blobs_is_an_empty_sidecar():
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    puffin.add_blob("some-other-type", [1], 1, 1, b"x")
    data, footer = _finish(puffin, sink)
    sidecar = open_bytes(data, footer)
    assert (sidecar.segments, sidecar.warnings) == ([], [])
    assert verify_sidecar(BytesSource(data)) == []


def test_a_registered_size_that_is_not_the_files_is_damage():
    data, footer = write_file([field_bundle(1, [filter_of([1], 1)])], units_table(1))
    with pytest.raises(DamagedFileError):
        SidecarFile.open(BytesSource(data), file_size=len(data) + 1)
    with pytest.raises(DamagedFileError, match="registered length"):
        SidecarFile.open(BytesSource(data), file_size=len(data) + 1, footer_length=footer)


def test_inspect_shows_segments_groups_and_coverage():
    data, _footer = two_segments()
    found = inspect_sidecar(BytesSource(data))
    first, second = found.segments
    assert found.warnings == []
    assert [first[name] for name in ("id", "files", "units", "manifests")] == [SEGMENT.hex(), 3, 3, 1]
    assert first["bundles"][0]["groups"][0]["layout"] == "transposed"
    group = second["bundles"][0]["groups"][0]
    assert (group["layout"], group["units"], group["lookup_bytes"]) == ("sliced", 70, 256 * 9 + 8)
    assert second["coverage"][0] == {"field": 1, "kind": "bloom", "units": {"indexed": 70}}


def large_file(members: int) -> tuple[bytes, int]:
    """A bundle over many units, every third of which has a filter of another encoding; a units table of one file."""
    groups = plan_groups(GroupMember(unit, "int64" if unit % 3 else "int32", "id", 32) for unit in range(members))
    place = BlobContext(SEGMENT, 1)
    pages = (slice_blocks(group, 0, np.zeros((len(group.units), 1, 8), np.uint32), place) for group in groups)
    (file,) = units_table(1).files
    table = UnitsTable([replace(file, manifest=UNLISTED, units=file.units * members)])
    return write_file([FieldBundle(1, groups, pages)], table)


def bytes_of_a_lookup(data: bytes, footer: int) -> int:
    """Open a file without the value and ask for it."""
    sidecar = open_bytes(data, footer)
    assert not sidecar.segments[0].might_match(probe_for(1, 1)).any()
    return sidecar.index_bytes


def test_opening_and_asking_100_000_units_is_fast():
    large = large_file(100_000)
    assert min(cost_of(lambda: bytes_of_a_lookup(*large)) for _ in range(5)) < 2
    assert bytes_of_a_lookup(*large) < 32 * 1024 + 16 * (12_500 + 8) + 100_000


def test_a_million_units_are_asked_in_2_mb():
    large = large_file(1_000_000)
    assert cost_of(lambda: bytes_of_a_lookup(*large)) < 30
    assert bytes_of_a_lookup(*large) < 2_000_000


def test_planning_compiles_nothing():
    modules = "sidecar.bundle.sidecar_file, sidecar.bundle.verify, sidecar.bundle.inspect"
    code = f"import sys, {modules}; print('numba' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
