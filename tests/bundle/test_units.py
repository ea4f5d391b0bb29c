"""The units table: what goes in comes out, in few reads; contradictions are refused."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from sidecar.bundle.file_identity import DataFileIdentity, is_same_file
from sidecar.bundle.model import (
    UNLISTED,
    Coverage,
    CoverageState,
    FieldBounds,
    FileEntry,
    ListedManifest,
    UnitsTable,
    UnitState,
)
from sidecar.bundle.sections import MANIFESTS, SCHEMAS
from sidecar.bundle.unit_set import count_units, decode_units, encode_units
from sidecar.bundle.units import arrow_tables
from sidecar.bundle.units.arrow_tables import decode_file_table, encode_files, files_of
from sidecar.bundle.units.coverage import decode_coverage, encode_coverage
from sidecar.bundle.units.fingerprints import FINGERPRINT, FingerprintIndex, fingerprint
from sidecar.bundle.units.reader import UnitsReader, decode_units_toc
from sidecar.bundle.units.writer import encode_units_blob
from sidecar.errors import DamagedFileError, UsageError
from tests.bundle.cases import known_as, segment_header, units_table


def reader_of(table: UnitsTable) -> tuple[UnitsReader, list[tuple[int, int]]]:
    """A reader, and the list that records which ranges it asks for."""
    blob = encode_units_blob(segment_header(), table)
    data = b"".join(blob.pieces())
    assert len(data) == blob.length
    assert data[-len(blob.toc) :] == blob.toc
    asked: list[tuple[int, int]] = []

    def read_ranges(ranges):
        asked.extend(ranges)
        return [data[offset : offset + length] for offset, length in ranges]

    return UnitsReader(decode_units_toc(blob.toc), read_ranges), asked


def full_files(reader: UnitsReader, ordinals: Sequence[int]) -> list[FileEntry]:
    """The files with their partitions and bounds, which :meth:`UnitsReader.files` leaves out."""
    partitions = reader.partitions()["partition"]
    bounds = {field_id: reader.bounds(field_id) for field_id in reader.bounded_fields}
    entries = []
    for ordinal, file in zip(ordinals, reader.files(ordinals), strict=True):
        recorded = {
            field_id: FieldBounds(**table.slice(ordinal, 1).to_pylist()[0])
            for field_id, table in bounds.items()
            if table is not None
        }
        known = {field_id: bound for field_id, bound in recorded.items() if bound != FieldBounds()}
        entries.append(replace(file, partition=tuple(partitions[ordinal].as_py()), bounds=known))
    return entries


@pytest.mark.parametrize(("manifests", "decoded"), [(8, 1), (9, 1), (2_000, 3)])
def test_the_manifests_of_a_small_table_are_decoded_once_for_all_lookups(monkeypatch, manifests, decoded):
    """Many take memory, so they are not kept. Nobody can change them for the next lookup."""
    line, rng = ListedManifest("", 10, 0, 1, 1, 1, 0, 0, 0, 0), random.Random(manifests)
    named = [replace(line, path=f"m-{rng.randbytes(64).hex()}.avro") for _ in range(manifests)]
    data, calls, right = arrow_tables.encode_manifests(named), [], arrow_tables.decode_table
    monkeypatch.setattr(arrow_tables, "decode_table", lambda *args: calls.append(1) or right(*args))
    for _ in range(3):
        assert arrow_tables.decode_manifests(data) == tuple(named)
    assert len(calls) == decoded


@pytest.mark.parametrize("files", [0, 1, 64, 65, 300, 4097])
@pytest.mark.parametrize("several_units", [False, True])
def test_everything_comes_back(files, several_units):
    counts = [ordinal % 4 for ordinal in range(files)] if several_units else [1] * files
    table = units_table(files, counts)
    reader, _ = reader_of(table)
    assert reader.toc.header == segment_header()
    assert (reader.toc.num_files, reader.toc.num_units) == (files, sum(counts))
    assert full_files(reader, range(0, files, 7)) == list(table.files)[::7]
    assert reader.manifests() == list(table.manifests)
    assert reader.schemas() == list(table.schemas)
    assert reader.first_units().tolist() == [0, *np.cumsum(counts, dtype=np.int64).tolist()]
    assert reader.fingerprints().tobytes() == b"".join(fingerprint(file.identity) for file in table.files)
    for found, expected in zip(reader.coverage(), table.coverage, strict=True):
        assert (found.field_id, found.kind, found.states) == (
            expected.field_id,
            expected.kind,
            expected.states,
        )
        assert found.codes.tolist() == expected.codes.tolist()
    assert reader.bounded_fields == ([1, 4] if files else [])
    assert reader.bounds(99) is None
    reader.verify()


def test_one_batch_is_read_for_one_file():
    reader, asked = reader_of(units_table(1000))
    (file,) = reader.files([500])
    assert file.path.endswith("part-00500.parquet")
    assert len(asked) == 2, "the lengths of pieces, then one batch"
    assert asked[1][1] < 4096


def test_what_a_plan_needs_is_read_together_and_once():
    table = units_table(1000)
    blob = encode_units_blob(segment_header(), table)
    data, calls = b"".join(blob.pieces()), []

    def read_ranges(ranges):
        calls.append(len(ranges))
        return [data[offset : offset + length] for offset, length in ranges]

    assert decode_units_toc(blob.toc) is decode_units_toc(bytes(bytearray(blob.toc)))  # each lookup decodes it
    reader = UnitsReader(decode_units_toc(blob.toc), read_ranges)
    reader.hold([1, 4, 99], True, np.array([500, 501, 700]))
    assert calls == [1, 5], "the lengths of pieces; then two columns, partitions and two batches"
    assert [reader.bounds(field_id).num_rows for field_id in (1, 4)] == [1000, 1000]
    assert reader.partitions().num_rows == 1000
    assert [file.path[-18:] for file in reader.files([500, 700])] == ["part-00500.parquet", "part-00700.parquet"]
    assert len(calls) == 2
    assert reader.bounds(1) == reader_of(table)[0].bounds(1)
    assert len(calls) == 3, "nothing is kept after it was asked for"


@pytest.mark.parametrize(("count", "width"), [(1, 0), (2, 1), (255, 1), (256, 2), (65535, 2), (65536, 4)])
def test_unit_counts_are_as_narrow_as_they_can_be(count, width):
    table = units_table(2)
    many = replace(table.files[0], units=table.files[0].units * count)
    reader, _ = reader_of(replace(table, files=[many, table.files[1]], coverage=()))
    assert reader.toc.unit_width == width
    assert reader.first_units().tolist() == [0, count, count + 1]


@pytest.mark.parametrize("counts", [[1, 1, 1], [1, 2, 3]])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_unit_counts_that_are_off_by_one_are_damage(counts, wrong):
    """The filters of every file behind the wrong one would be taken for another's."""
    reader, _ = reader_of(units_table(3, counts))
    reader.toc = replace(reader.toc, num_units=reader.toc.num_units + wrong)
    with pytest.raises(DamagedFileError, match="units"):
        reader.first_units()


@pytest.mark.parametrize("name", [MANIFESTS, SCHEMAS])
def test_two_pieces_of_a_section_that_has_one_are_damage(name):
    """Nobody knows which of them counts."""
    reader, _ = reader_of(units_table(3))
    sections = [replace(one, count=2) if one.name == name else one for one in reader.toc.sections]
    twice = UnitsReader(replace(reader.toc, sections=sections), reader._sections._read_ranges)
    with pytest.raises(DamagedFileError, match=f"the units blob does not have its {name}"):
        twice.manifests() if name == MANIFESTS else twice.schemas()


def test_verify_holds_fingerprints_against_the_entries_of_files():
    table = units_table(100)
    other = known_as(table.files[70], added_snapshot_id=4)
    reader, _ = reader_of(table)
    reader.verify()
    wrong, _ = reader_of(replace(table, files=[*table.files[:70], other, *table.files[71:]]))
    reader.fingerprints = wrong.fingerprints
    with pytest.raises(DamagedFileError, match=r"fingerprint of .*part-00070"):
        reader.verify()


@pytest.mark.parametrize("wrong", [{"file_size": -1}, {"record_count": -5}])
def test_numbers_that_no_fingerprint_holds_are_damage(wrong):
    table = units_table(3)
    batch = encode_files([known_as(table.files[0], **wrong), *table.files[1:]])
    reader, _ = reader_of(table)
    reader.file_batches = lambda batches: {0: files_of(decode_file_table(batch))}
    with pytest.raises(DamagedFileError, match="out of range"):
        reader.verify()


def test_files_of_unlisted_manifests_stand_behind_the_others():
    table = units_table(60)
    free = replace(known_as(table.files[0], path="x"), manifest=UNLISTED)
    files = [*table.files, free]
    reader, _ = reader_of(UnitsTable(files, table.manifests, table.schemas))
    assert reader.files([60])[0].manifest == UNLISTED
    for wrong in ([free, *table.files], [*table.files, table.files[0]], list(table.files)[:-1]):
        with pytest.raises(UsageError):
            encode_units_blob(segment_header(), UnitsTable(wrong, table.manifests, table.schemas))


def test_contradictions_are_refused():
    table = units_table(3)
    wrong = [
        (segment_header(b"short"), table),
        (segment_header(), replace(table, schemas=())),
        (
            segment_header(),
            replace(table, coverage=[Coverage.of(1, "bloom", [CoverageState(UnitState.INDEXED)])]),
        ),
        (segment_header(), replace(table, files=[known_as(table.files[0], file_size=-1), *table.files[1:]])),
    ]
    for header, units in wrong:
        with pytest.raises(UsageError):
            encode_units_blob(header, units)


FILE = DataFileIdentity("file:/ü", 7, 8, 1 << 40, 9)


def index_of(*files: DataFileIdentity) -> FingerprintIndex:
    return FingerprintIndex(np.frombuffer(b"".join(map(fingerprint, files)), FINGERPRINT))


def test_a_fingerprint_has_a_hash_of_the_name_and_one_of_who_added_it():
    data = "file:/ü".encode() + struct.pack("<QQ", 7, 8)
    name, added = xxhash.xxh64(data, seed=0), xxhash.xxh64(data + struct.pack("<q", 1 << 40), seed=1)
    assert fingerprint(FILE) == struct.pack("<QQq", name.intdigest(), added.intdigest(), 9)
    for unknown in (None, 0, -1):
        assert fingerprint(FILE._replace(added_snapshot_id=unknown)) == struct.pack("<QQq", name.intdigest(), 0, 9)
    for wrong in (
        DataFileIdentity("x", -1, 0),
        DataFileIdentity("x", 0, 2**64),
        DataFileIdentity("\ud800", 0, 0),
    ):
        with pytest.raises(ValueError):
            fingerprint(wrong)
        assert index_of(FILE).find(wrong) is None


OTHERS = [
    FILE._replace(path="file:/u"),
    FILE._replace(file_size=8),
    FILE._replace(record_count=7),
    FILE._replace(added_snapshot_id=5),
    FILE._replace(added_snapshot_id=None),
    FILE._replace(added_snapshot_id=0),
    FILE._replace(added_snapshot_id=-1),
    FILE._replace(file_sequence_number=10),
]


@pytest.mark.parametrize("other", OTHERS)
def test_each_part_of_an_identity_tells_files_apart(other):
    for one, two in ((FILE, other), (other, FILE)):
        assert not is_same_file(one, two)
        assert index_of(one).find(two) is None
        found = index_of(one).find_all(np.frombuffer(fingerprint(two), FINGERPRINT))
        assert found.tolist() == [-1]


def test_a_file_is_the_same_with_and_without_a_sequence_number():
    without = FILE._replace(file_sequence_number=0)
    for one, two in ((FILE, FILE), (FILE, without), (without, FILE), (without, without)):
        assert is_same_file(one, two)
        assert index_of(OTHERS[0], one).find(two) == 1
        found = index_of(OTHERS[0], one).find_all(np.frombuffer(fingerprint(two), FINGERPRINT))
        assert found.tolist() == [1]
    unknown = FILE._replace(added_snapshot_id=None)
    assert not is_same_file(unknown, unknown)
    assert index_of(unknown).find(unknown) is None
    assert index_of(unknown).find_all(np.frombuffer(fingerprint(unknown), FINGERPRINT)).tolist() == [-1]
    none = np.empty(0, FINGERPRINT)
    assert FingerprintIndex(none).find_all(np.frombuffer(fingerprint(FILE), FINGERPRINT)).tolist() == [-1]
    assert index_of(FILE).find_all(none).tolist() == []


def test_a_file_that_stands_twice_says_nothing():
    twice = index_of(FILE, OTHERS[0], FILE, FILE)
    assert (twice.find(FILE), twice.find(OTHERS[0])) == (None, 1)
    assert (twice.find_named(*FILE[:3]), twice.find_named(*OTHERS[0][:3])) == (None, 1)
    again = FILE._replace(added_snapshot_id=5, file_sequence_number=11)
    both = index_of(FILE, again)
    assert (both.find(FILE), both.find(again), both.find_named(*FILE[:3])) == (0, 1, None)


def unit_sets():
    return st.sets(st.integers(0, 3000), max_size=200) | st.builds(
        lambda first, count: set(range(first, first + count)), st.integers(0, 50), st.integers(0, 300)
    )


@given(unit_sets())
def test_sets_of_units_come_back(units):
    rising = np.array(sorted(units), np.int64)
    encoded = encode_units(rising)
    found = decode_units(encoded, 3001 + 300)
    assert count_units(found) == len(units)
    flags = np.zeros(3301, np.bool_)
    flags[found] = True
    assert np.flatnonzero(flags).tolist() == rising.tolist()


def test_dense_holes_are_a_bitmap_and_runs_are_runs():
    assert encode_units(np.arange(10_000)) == {"runs": [[0, 10_000]]}
    assert set(encode_units(np.arange(0, 10_000, 2))) == {"bitmap"}


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"runs": [[0, 0]]},
        {"runs": [[5, 2], [6, 1]]},
        {"runs": [[0, 11]]},
        {"runs": [[-1, 2]]},
        {"runs": [[0, True]]},
        {"runs": [0]},
        {"bitmap": "AAAI"},
        {"bitmap": "AAQ="},  # unit 10, the first that there is not
        {"bitmap": "A"},
        {"bitmap": 5},
    ],
)
def test_impossible_sets_of_units_are_damage(wrong):
    with pytest.raises(DamagedFileError):
        decode_units(wrong, 10)


@given(st.lists(st.integers(0, 3), max_size=60))
def test_coverage_comes_back(codes):
    names = [
        CoverageState(UnitState.INDEXED, "id"),
        CoverageState(UnitState.INDEXED, "name:ä"),
        CoverageState("why"),
        CoverageState(""),
    ]
    coverage = Coverage.of(7, "bloom", (names[code] for code in codes))
    found = decode_coverage(encode_coverage(coverage), len(codes))
    assert [found.states[code] for code in found.codes] == [names[code] for code in codes]
    assert found.indexed.tolist() == [code < 2 for code in codes]
    assert sum(found.counts().values()) == len(codes)
    with pytest.raises(DamagedFileError):
        decode_coverage(encode_coverage(coverage), len(codes) + 1)


def test_half_a_run_behind_coverage_is_damage():
    coverage = Coverage.of(1, "bloom", [CoverageState(UnitState.INDEXED, "id")] * 5)
    with pytest.raises(DamagedFileError, match="cut short"):
        decode_coverage(encode_coverage(coverage) + bytes(4), 5)


@given(st.binary(max_size=80))
def test_any_bytes_as_coverage_are_our_error(data):
    with pytest.raises(DamagedFileError):
        decode_coverage(data, 5)


def test_large_tables_go_through_a_temporary_file(monkeypatch):
    monkeypatch.setattr("sidecar.bundle.units.writer._SPOOL_BYTES", 1000)
    blob = encode_units_blob(segment_header(), units_table(200))
    sink = io.BytesIO()
    for piece in blob.pieces():
        sink.write(piece)
    assert sink.tell() == blob.length


def test_only_large_pieces_are_compressed() -> None:
    one, batch = [known_as(units_table(1).files[0], path="x" * 1000)], units_table(64).files
    assert b"x" * 1000 in encode_files(one)
    assert len(encode_files(batch)) < decode_file_table(encode_files(batch)).nbytes
