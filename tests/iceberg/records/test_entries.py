"""Records that are walked: the entries are those that decoding each record gives, and no other bytes pass."""

from __future__ import annotations

import copy
import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.manifest import DataFile, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, LongType, NestedField

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.iceberg.bytes_decoder import BytesDecoder
from sidecar.iceberg.manifests import EntryDecoder, entry_decoder, identity_of, read_manifest
from sidecar.iceberg.records import entries as entries_module
from sidecar.iceberg.records.entries import EntryMaker, ListedDataFile, StoredRecords
from sidecar.iceberg.records.walking import walk

Manifest = tuple[ManifestFile, EntryDecoder, list[bytes]]


@pytest.fixture(scope="module", params=["1", "2"])
def manifests(request: pytest.FixtureRequest, catalog: Any) -> list[Manifest]:
    """Manifests of tables of each format version, with NULL partitions, and values that entries inherit."""
    table: Table = catalog.create_table(
        f"db.walked{request.param}",
        pa.schema([("k", pa.int64()), ("v", pa.string()), ("d", pa.decimal128(9, 2)), ("f", pa.float64())]),
        properties={"format-version": request.param},
    )
    rows = {
        "k": [1, -(2**60), None, 7],
        "v": ["a", "ä" * 20, None, "a"],
        "d": [Decimal("-1.25"), None] * 2,
        "f": [0.5, float("nan")] * 2,
    }
    table.append(pa.table(rows, schema=table.schema().as_arrow()))
    with table.update_spec() as spec:
        spec.add_identity("v")
        spec.add_identity("d")
    table.append(pa.table(rows, schema=table.schema().as_arrow()))
    table.delete("k = 7")
    lines = table.current_snapshot().manifests(table.io)
    return [manifest_of(table, line) for line in lines]


def manifest_of(table: Table, line: ManifestFile) -> Manifest:
    contents = read_manifest(table.io, line)
    live = [raw.raw for raw in contents.entries if raw.entry.status != ManifestEntryStatus.DELETED]
    return line, entry_decoder(contents.avro_schema), live


def stored(manifest: Manifest) -> StoredRecords:
    """What a units table says of the records."""
    line, decoder, records = manifest
    found = [identity_of(decoder.decode(raw, line)) for raw in records]
    rows = [(i.file_size, i.record_count, line.partition_spec_id, *i[3:]) for i in found]
    return StoredRecords(records, [i.path for i in found], np.array(rows, np.int64).reshape(-1, 5))


def values(file: DataFile) -> Any:
    return [dict(part) if hasattr(part, "items") else part for part in file._data], file.spec_id


def test_entries_are_those_that_decoding_gives(manifests: list[Manifest]) -> None:
    for manifest in manifests:
        line, decoder, records = manifest
        maker = EntryMaker(decoder, stored(manifest), lambda file: True)
        found = maker.entries(slice(0, len(records)), line)
        assert [row for row, _ in found] == list(range(len(records)))
        for raw, (_, entry) in zip(records, found, strict=True):
            plain = decoder.decode(raw, line)
            file = entry.data_file
            assert entry._data[:4] == plain._data[:4]
            for name in ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"):
                assert getattr(file, name) == getattr(plain.data_file, name), name
            assert "_data" not in vars(file), "nothing was decoded yet"
            assert values(file) == values(plain.data_file)
    assert sum(len(records) for _, _, records in manifests) > 3


def test_files_can_be_copied_before_and_after_they_are_decoded(manifests: list[Manifest]) -> None:
    line, decoder, records = manifests[0]
    maker = EntryMaker(decoder, stored(manifests[0]), lambda file: True)
    (_, entry), *_ = maker.entries(slice(0, len(records)), line)
    for again in (pickle.loads(pickle.dumps(entry.data_file)), copy.deepcopy(entry.data_file)):
        assert type(again) is DataFile
        assert values(again) == values(entry.data_file)
        assert again == entry.data_file
        assert again.file_path == entry.data_file.file_path


def test_a_partition_is_asked_about_once_and_too_many_are_refused(
    manifests: list[Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    chosen = max(manifests, key=lambda manifest: len(manifest[2]))
    line, decoder, records = chosen
    what = stored(chosen)
    twice = StoredRecords(records * 2, [*what.paths] * 2, np.concatenate([what.numbers] * 2))
    maker = EntryMaker(decoder, twice, lambda file: asked.append(file.partition) or file.partition[0] == "a")
    found = maker.entries(slice(0, len(twice.records)), line)
    assert len(asked) == len({str(one) for one in asked}) > 1
    assert {entry.data_file.partition[0] for _, entry in found} == {"a"}
    monkeypatch.setattr(entries_module, "MOST_PARTITIONS", 1)
    with pytest.raises(UnsupportedFeatureError):
        EntryMaker(decoder, twice, lambda file: True).entries(slice(0, len(twice.records)), line)


@pytest.mark.parametrize("column", range(5))
def test_a_record_of_another_file_is_refused(manifests: list[Manifest], column: int) -> None:
    line, decoder, records = manifests[0]
    what = stored(manifests[0])
    what.numbers[0, column] += 1
    with pytest.raises(DamagedFileError):
        EntryMaker(decoder, what, lambda file: True).entries(slice(0, len(records)), line)
    moved = stored(manifests[0])
    moved = StoredRecords(moved.records, [path + "x" for path in moved.paths], moved.numbers)
    with pytest.raises(DamagedFileError, match="another file"):
        EntryMaker(decoder, moved, lambda file: True).entries(slice(0, len(records)), line)


@pytest.mark.parametrize("status", [2 * ManifestEntryStatus.DELETED.value, 6])
def test_a_record_that_is_not_live_is_refused(manifests: list[Manifest], status: int) -> None:
    line, decoder, records = manifests[0]
    what = stored(manifests[0])
    gone = StoredRecords([bytes([status]) + raw[1:] for raw in records], what.paths, what.numbers)
    with pytest.raises(DamagedFileError, match="live"):
        EntryMaker(decoder, gone, lambda file: True).entries(slice(0, len(records)), line)


def test_bytes_that_pass_the_walk_decode_without_an_error(manifests: list[Manifest]) -> None:
    """Any byte changed, any truncation: an error now, or the entry that decoding gives, and never an error later."""
    rng, passed, refused = random.Random(7), 0, 0
    for line, decoder, records in manifests:
        for raw in records:
            for _ in range(60):
                at = rng.randrange(len(raw))
                changed = raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]
                mutated = rng.choice([changed, changed, raw[:at], raw + b"\x00"])
                try:
                    plain = decoder.decode(mutated, line)
                    what = stored((line, decoder, [mutated]))
                except OverflowError:
                    continue  # no units table has such numbers
                except SidecarError:
                    refused += 1
                    continue
                try:
                    maker = EntryMaker(decoder, what, lambda file: True)
                    ((_, entry),) = maker.entries(slice(0, 1), line)
                except SidecarError:
                    refused += 1
                    continue
                passed += 1
                assert isinstance(entry.data_file, ListedDataFile)
                assert repr(values(entry.data_file)) == repr(values(plain.data_file))
    assert passed > 50
    assert refused > 50


def test_a_walk_refuses_what_decoding_refuses(manifests: list[Manifest]) -> None:
    rng = random.Random(8)
    for line, decoder, records in manifests:
        for raw in records:
            for _ in range(60):
                at = rng.randrange(len(raw))
                mutated = rng.choice([raw[:at], raw + b"\x00", raw[:at] + b"\xff" * 11 + raw[at:]])
                try:
                    walk([mutated], decoder.schema)
                except SidecarError:
                    continue
                decoder.decode(mutated, line)  # all of the record is read, and no more


def test_a_count_that_exceeds_the_record_is_refused_at_once(manifests: list[Manifest]) -> None:
    _, decoder, (raw, *_) = manifests[0]
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2**63 - 1 items
    for at in range(len(raw)):
        with pytest.raises(SidecarError):
            walk([raw[:at] + huge], decoder.schema)


def test_blocks_with_a_length_are_walked_like_others() -> None:
    numbers = NestedField(1, "numbers", ListType(2, LongType(), element_required=True), required=True)
    schema = Schema(numbers, NestedField(3, "last", LongType(), required=True))
    sized, plain = b"\x03\x04\x02\x04\x00\x0e", b"\x04\x02\x04\x00\x0e"  # two numbers, with and without their length
    reader = construct_reader(schema)
    assert reader.read(BytesDecoder(sized))._data == reader.read(BytesDecoder(plain))._data == [[1, 2], 7]
    assert walk([sized, plain, b"\x00\x0e"], schema).numbers[3].tolist() == [7, 7, 7]
    smallest = b"\xff" * 9 + b"\x01"  # -2**63 items, whose number has no positive one
    for broken in (sized[:-1], b"\x03\x04\x02\x00\x0e", b"\x80", smallest + b"\x02\x02\x00\x0e"):
        with pytest.raises(DamagedFileError):
            walk([plain, broken], schema)
