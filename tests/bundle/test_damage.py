"""Damage costs pruning, never a row: no exception, no false negative, a warning; and verify finds every byte."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.puffin.inspect import verify_puffin
from sidecar.puffin.types import SBBF, TOC, UNITS
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    SEGMENT,
    ask_hash,
    known_probes,
    open_bytes,
    probe_for,
    segment_header,
    units_table,
)
from tests.bundle.damage import assemble, blob_bytes, edit_footer, raw_blobs
from tests.bundle.damage_cases import ABSENT, VALUES, sound
from tests.case_counts import one_in


def ask_everything(data: bytes, members: int, footer: int | None = None) -> tuple[int, list[str]]:
    """Ask for every value that is there and some that are not; returns how often a unit was dropped."""
    try:
        sidecar = open_bytes(data, footer)
    except SidecarError as error:
        return 0, [str(error)]
    table = units_table(members)
    dropped = 0
    for segment in sidecar.segments:
        assert segment.num_units == members
        for value in VALUES:
            keep = segment.might_match(probe_for(1, value))
            assert keep[value % members], "a unit that holds the value was dropped"
            dropped += int((~keep).sum())
        for unit in range(members):
            assert segment.might_match(probe_for(4, 14 + unit))[unit]
        for value in ABSENT:
            dropped += int((~segment.might_match(probe_for(1, value))).sum())
        for ordinal, file in enumerate(table.files):
            found = segment.file_ordinal(file.identity)
            assert found in (ordinal, None)
            if found is not None:
                assert segment.unit_ranges[ordinal] == ordinal
        for file, expected in zip(segment.files(range(members)), table.files, strict=True):
            assert file is None or file == replace(expected, partition=(), bounds={})
        assert [m in table.manifests for m in segment.listed_manifests] == [True] * len(segment.listed_manifests)
        for coverage in segment.coverages:
            assert len(coverage.codes) == members
        for field_id in (1, 4):
            bounds = segment.bounds(field_id)
            assert bounds is None or bounds.num_rows == members
        assert segment.partitions() is None or segment.partitions().num_rows == members
    return dropped, sidecar.warnings


@pytest.mark.parametrize("members", [3, 64])
def test_sound_files_drop_and_warn_of_nothing(members):
    data, footer = sound(members)
    dropped, warnings = ask_everything(data, members, footer)
    assert dropped > 40 * (members - 2)
    assert warnings == []
    assert verify_sidecar(BytesSource(data)) == []


def test_no_byte_of_any_blob_may_change_unseen():
    """Flips in every byte of headers, in many of filters and tables of contents, in some of the Arrow pieces."""
    data, footer = sound(3)
    (segment,) = open_bytes(data, footer).segments
    pieces = max(segment.units.toc.sections, key=lambda section: section.offset).offset
    for offset, length in blob_bytes(data):
        arrow = range(offset + 32, offset + pieces) if offset == segment.entry.offset else range(0)
        for at in range(offset, offset + length):
            if at >= offset + 64 and at % one_in(39 if at in arrow else 3):
                continue
            bad = bytearray(data)
            bad[at] ^= 1 << (at % 8)
            if at % 48 == 0:
                ask_everything(bytes(bad), 3, footer)
            problems = verify_sidecar(BytesSource(bytes(bad), "bad.stats"))
            assert problems, f"byte {at} may change unseen"
            assert {problem.file for problem in problems} == {"bad.stats"}


def test_flips_in_the_sliced_layout_keep_the_right_units():
    data, footer = sound(64)
    rng = np.random.default_rng(0)
    doubted = 0
    for at in rng.integers(4, len(data) - footer, 120):
        bad = bytearray(data)
        bad[at] ^= 1 << int(rng.integers(8))
        _, warnings = ask_everything(bytes(bad), 64, footer)
        doubted += bool(warnings)
    assert doubted > 60


@pytest.mark.parametrize("members", [3, 64])
def test_flips_in_the_puffin_footer_never_lose_a_unit(members):
    data, footer = sound(members)
    for at in range(len(data) - footer, len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << (at * 3 + members) % 8
        ask_everything(bytes(bad), members)


def test_truncations_never_lose_a_unit():
    data, footer = sound(3)
    for length in [*range(0, len(data), 97), *range(len(data) - 300, len(data))]:
        dropped, warnings = ask_everything(data[:length], 3, footer)
        assert warnings
        assert not dropped
        assert verify_sidecar(BytesSource(data[:length]))


def blob_of(payload, blob_type: str, fields: list[int]):
    return next(blob for blob in payload["blobs"] if (blob["type"], blob["fields"]) == (blob_type, fields))


def swap(first, second, *keys: str) -> None:
    for key in keys:
        first[key], second[key] = second[key], first[key]


EDITS = {
    "field 3 for 1": lambda p: blob_of(p, SBBF, [1]).update(fields=[3]),
    "fields of two bundles swapped": lambda p: swap(blob_of(p, SBBF, [1]), blob_of(p, SBBF, [4]), "fields"),
    "places of two bundles swapped": lambda p: swap(blob_of(p, SBBF, [1]), blob_of(p, SBBF, [4]), "offset", "length"),
    "no field": lambda p: blob_of(p, SBBF, [1]).update(fields=[]),
    "two fields": lambda p: blob_of(p, SBBF, [1]).update(fields=[1, 4]),
    "offset off by one": lambda p: blob_of(p, SBBF, [1]).update(offset=blob_of(p, SBBF, [1])["offset"] + 1),
    "length short by one": lambda p: blob_of(p, SBBF, [1]).update(length=blob_of(p, SBBF, [1])["length"] - 1),
    "bundle called units": lambda p: blob_of(p, SBBF, [1]).update(type=UNITS, fields=[]),
    "compressed": lambda p: blob_of(p, SBBF, [1]).update({"compression-codec": "zstd"}),
    "bundle twice": lambda p: p["blobs"].append(blob_of(p, SBBF, [1])),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("members", [3, 64])
def test_a_footer_that_means_something_else_is_noticed(name, members):
    data = edit_footer(sound(members)[0], EDITS[name])
    _, warnings = ask_everything(data, members)
    assert warnings
    assert verify_sidecar(BytesSource(data))


def test_a_bundle_under_another_field_is_unknown_under_both():
    data = edit_footer(sound(3)[0], EDITS["field 3 for 1"])
    (segment,) = open_bytes(data).segments
    assert set(segment.fields) == {4}
    for field_id in (1, 3):
        assert segment.might_match(probe_for(field_id, 1000)).all()


def test_compressed_bundles_keep_everything():
    data = edit_footer(sound(3)[0], EDITS["compressed"])
    sidecar = open_bytes(data)
    assert sidecar.segments[0].might_match(probe_for(1, 1000)).all()
    assert any("compressed" in warning for warning in sidecar.warnings)


def test_without_the_directory_each_blob_has_its_own_table_of_contents():
    data, _ = sound(64)

    def forget(payload):
        payload["blobs"] = [blob for blob in payload["blobs"] if blob["type"] != TOC]
        del payload["properties"]["sidecar.toc"]

    lost = edit_footer(data, forget)
    dropped, warnings = ask_everything(lost, 64)
    assert dropped == ask_everything(data, 64)[0]
    assert warnings
    moved = edit_footer(data, lambda p: p["properties"].update({"sidecar.toc": '{"length":99,"offset":9}'}))
    assert ask_everything(moved, 64)[0] == dropped
    assert verify_sidecar(BytesSource(moved))


def test_storage_that_fails_keeps_everything():
    data, footer = sound(2048 + 9, 2)

    class Failing(BytesSource):
        broken = False

        def read(self, offset: int, length: int) -> bytes:
            if self.broken:
                raise StorageError("the network is gone", file=self.name, offset=offset)
            return super().read(offset, length)

    source = Failing(data, "far")
    sidecar = SidecarFile.open(source, footer_length=footer)
    source.broken = True
    (segment,) = sidecar.segments
    assert segment.might_match(probe_for(1, 5)).all()
    assert segment.file_ordinal(DataFileIdentity("x", 1, 1, 1)) is None
    assert segment.files([0]) == [None]
    assert any("network" in warning for warning in sidecar.warnings)


def test_doubtful_probes_keep_everything():
    from sidecar.filters.probes import FieldQuestion
    from sidecar.filters.values import Probe

    data, footer = sound(3)
    (segment,) = open_bytes(data, footer).segments
    assert segment.might_match(FieldQuestion(1, known_probes(Probe("unknown")))).all()
    assert segment.might_match(ask_hash(1)).all()
    assert segment.might_match(probe_for(99, 1)).all()
    assert segment.might_match(replace(probe_for(1, 1000), resolutions=defaultdict(bool))).all()
    assert not segment.might_match(FieldQuestion(1, known_probes(Probe("cannot-exist")))).any()


def test_strict_raises_with_file_and_offset():
    data, footer = sound(3)
    bad = bytearray(data)
    bad[40] ^= 1
    sidecar = open_bytes(bytes(bad), footer, strict=True)
    with pytest.raises(DamagedFileError) as caught:
        sidecar.segments[0].might_match(probe_for(1, 1))
    assert caught.value.file == "test.stats"
    assert caught.value.offset is not None
    with pytest.raises((DamagedFileError, UnsupportedFeatureError)):
        open_bytes(edit_footer(data, EDITS["compressed"]), strict=True)


def test_verify_finds_what_the_container_cannot():
    data, _footer = sound(3)
    bad = bytearray(data)
    bad[40] ^= 1
    assert verify_puffin(BytesSource(bytes(bad))) == []
    (problem,) = verify_sidecar(BytesSource(bytes(bad), "x.stats"))
    assert problem.file == "x.stats"
    assert problem.column == "field 1"
    assert segment_header().segment_id.hex() in problem.problem


def test_padding_bits_are_verified():
    members = 65
    data, footer = sound(members)
    (segment,) = open_bytes(data, footer).segments
    (group,) = segment.fields[1]
    blob = raw_blobs(data)
    from sidecar.bundle.envelopes.checksum import BlobContext, PieceKind, seal

    at, size = group.offset, group.layout.region_stride
    region = blob[0][at : at + size - 8]
    region[group.layout.row_bytes - 1] |= 0x80
    blob[0][at : at + size] = region + seal(BlobContext(SEGMENT, 1).context(PieceKind.REGION, 0, 0), bytes(region))
    problems = verify_sidecar(BytesSource(assemble(data, blob)))
    assert any("padding" in problem.problem for problem in problems)
