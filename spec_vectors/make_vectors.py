"""Make the vectors of the sidecar's own blob types: `scripts/vectors` (see SPEC.md for what they are).

Filters are made here by the Parquet specification's own words, not by sidecar; sidecar only lays them out. Expected
answers come from checking each filter alone. Vectors that stand in the repository are frozen: new ones are added
under new names, and readers keep answering the old ones.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.envelopes.envelope import encode_toc
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.filters.rules import SPLIT_BLOCK, OrcRule
from sidecar.bundle.filters.slicing import gather_blocks, group_pages
from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import plan_index_groups
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexKind
from sidecar.bundle.indexes.row_indexes import ROW_INDEXES, RowIndexKind
from sidecar.bundle.model import (
    UNLISTED,
    Coverage,
    CoverageState,
    FieldBounds,
    FileEntry,
    ListedManifest,
    SegmentHeader,
    StoredColumn,
    UnitEntry,
    UnitsTable,
    UnitState,
)
from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.bundle.units.fingerprints import fingerprint
from sidecar.bundle.writer import write_segment, write_toc
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource

HERE = Path(__file__).resolve().parent / "bundle"
TABLE = "5f1d2c3b-0a49-4e58-8b6d-7c6f5e4d3c2b"
SNAPSHOT, SEQUENCE = 3776207205136740581, 7
SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
PLACE = {"snapshot_id": SNAPSHOT, "sequence_number": SEQUENCE}
COLUMNS = {
    1: StoredColumn(("id",), "long"),
    2: StoredColumn(("a.b", "größe", "\N{DROPLET}"), "decimal(9, 2)"),
    3: StoredColumn(("", 'x"\\,'), ""),
}
"""The names of columns in plaintext blobs. Field 4 has none."""


@dataclass
class Filter:
    """A unit's filter: its blocks, odd bytes after them, and the values that were put in."""

    unit: int
    encoding: str
    blocks: np.ndarray[Any, np.dtype[np.uint32]]
    values: list[int]
    tail: bytes = b""
    resolution: str = "id"
    rule = SPLIT_BLOCK

    @property
    def bitset(self) -> bytes:
        return self.blocks.astype("<u4").tobytes() + self.tail


@dataclass
class OrcFilter:
    """A unit's ORC filter: its bytes, k, and the values that were put in."""

    unit: int
    encoding: str
    bitset: bytes
    k: int
    resolution: str = "id"

    @property
    def rule(self) -> OrcRule:
        return OrcRule(self.k, 8 * len(self.bitset))

    @property
    def blocks(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        whole = self.bitset + bytes(-len(self.bitset) % 32)
        return np.frombuffer(whole, "<u4").reshape(-1, 8)

    tail = b""


def plain(value: int, encoding: str) -> bytes:
    """What is hashed of a value: its PLAIN bytes, or its ORC key (of ``orc/bytes``: the number as a text)."""
    if encoding == "orc/bytes":
        return str(value).encode()
    return value.to_bytes(4 if encoding == "int32" else 8, "little", signed=True)


def orc_hash(key: bytes, encoding: str) -> int:
    """The hash of SPEC.md, section 3.5."""
    if encoding == "orc/bytes":
        return orc_hash_of_bytes(key)
    k = np.frombuffer(key, "<i8").copy()  # wraps, and shifts with the sign
    k = ~k + (k << 21)
    k ^= k >> 24
    k = k + (k << 3) + (k << 8)
    k ^= k >> 14
    k = k + (k << 2) + (k << 4)
    k ^= k >> 28
    k += k << 31
    return int(k.view(np.uint64)[0])


def orc_hash_of_bytes(key: bytes) -> int:
    mask = (1 << 64) - 1

    def rotate(number: int, by: int) -> int:
        return (number << by | number >> (64 - by)) & mask

    def mix(word: bytes) -> int:
        number = int.from_bytes(word, "little") * 0x87C37B91114253D5 & mask
        return rotate(number, 31) * 0x4CF5AD432745937F & mask

    digest, whole = 104729, len(key) // 8 * 8
    for at in range(0, whole, 8):
        digest = (rotate(digest ^ mix(key[at : at + 8]), 27) * 5 + 0x52DCE729) & mask
    digest ^= mix(key[whole:]) ^ len(key)
    digest = (digest ^ digest >> 33) * 0xFF51AFD7ED558CCD & mask
    digest = (digest ^ digest >> 33) * 0xC4CEB9FE1A85EC53 & mask
    return digest ^ digest >> 33


def orc_bits(value: int, encoding: str, k: int, bits: int) -> list[int]:
    """Bits of a value: what ORC Java and C++ do, on 32-bit numbers that wrap."""
    digest = orc_hash(plain(value, encoding), encoding)
    chosen = []
    for i in range(1, k + 1):
        combined = (digest + i * (digest >> 32)) & 0xFFFFFFFF
        chosen.append((combined ^ 0xFFFFFFFF if combined >> 31 else combined) % bits)
    return chosen


def make_orc(unit: int, encoding: str, bits: int, k: int, values: list[int], **others: Any) -> OrcFilter:
    bitset = bytearray(bits // 8)
    for value in values:
        for bit in orc_bits(value, encoding, k, bits):
            bitset[bit >> 3] |= 1 << (bit & 7)
    return OrcFilter(unit, encoding, bytes(bitset), k, **others)


def bits(value: int, encoding: str, blocks: int) -> tuple[int, list[int]]:
    """Block and bits of a value: Parquet specification, "Bloom filter"."""
    digest = xxhash.xxh64_intdigest(plain(value, encoding))
    key = digest & 0xFFFFFFFF
    return ((digest >> 32) * blocks) >> 32, [((key * salt) & 0xFFFFFFFF) >> 27 for salt in SALT]


def make_filter(unit: int, encoding: str, blocks: int, values: list[int], **others: Any) -> Filter:
    words = np.zeros((blocks, 8), np.uint32)
    for value in values:
        block, positions = bits(value, encoding, blocks)
        for word, bit in enumerate(positions):
            words[block, word] |= np.uint32(1 << bit)
    return Filter(unit, encoding, words, values, **others)


AnyFilter = Filter | OrcFilter


def holds(own: AnyFilter, value: int) -> bool:
    if isinstance(own, OrcFilter):
        chosen = orc_bits(value, own.encoding, own.k, 8 * len(own.bitset))
        return all(own.bitset[bit >> 3] >> (bit & 7) & 1 for bit in chosen)
    block, positions = bits(value, own.encoding, len(own.blocks))
    return all(int(own.blocks[block, word]) >> bit & 1 for word, bit in enumerate(positions))


def bundle_of(field_id: int, filters: Sequence[AnyFilter], segment: bytes, key: FieldKey | None = None) -> FieldBundle:
    by_unit = {own.unit: own for own in filters}
    members = [GroupMember(own.unit, own.encoding, own.resolution, len(own.bitset), rule=own.rule) for own in filters]
    place = BlobContext(segment, field_id) if key is None else key.place
    groups = plan_groups(members, place.sealing)
    pages = [
        page
        for group in groups
        for page in group_pages(
            group,
            place,
            lambda first, count, group=group: gather_blocks(
                group, [by_unit[unit].blocks for unit in group.units.tolist()], first, count
            ),
            [by_unit[unit].tail for unit in group.units.tolist()],
        )
    ]
    return FieldBundle(field_id, groups, pages, 0.01, len(filters) * 0.01, key)


def lookups(field_id: int, filters: Sequence[AnyFilter], units: int, values: Sequence[int]) -> list[dict[str, Any]]:
    """What a reader must keep for a value, asked in the encoding of each group."""
    have = {own.unit: own for own in filters}
    return [
        {
            "field": field_id,
            "value": value,
            "plain": {encoding: plain(value, encoding).hex() for encoding in sorted({own.encoding for own in filters})},
            "units": [unit for unit in range(units) if unit not in have or holds(have[unit], value)],
        }
        for value in values
    ]


def described(field_id: int, filters: Sequence[AnyFilter]) -> list[dict[str, Any]]:
    return [
        {
            "field": field_id,
            "unit": own.unit,
            "encoding": own.encoding,
            "bytes": len(own.bitset),
            "sha256": hashlib.sha256(own.bitset).hexdigest(),
        }
        for own in filters
    ]


def table_of(counts: Sequence[int], coverage: Sequence[Coverage]) -> UnitsTable:
    files = [
        FileEntry(
            DataFileIdentity(
                f"s3://lake/db/t/data/part-{ordinal:05}.parquet",
                4096 + ordinal,
                100 * count,
                None if ordinal == 43 else SNAPSHOT - ordinal % 3,
                SEQUENCE - ordinal % 4,
            ),
            spec_id=ordinal % 2,
            manifest=0 if ordinal < 40 else UNLISTED,
            entry=b"Avro record of file %d" % ordinal,
            units=tuple(UnitEntry(group, 100 * group, 100) for group in range(count)),
            partition=(b"2026", None) if ordinal % 2 else (),
            bounds={1: FieldBounds((0).to_bytes(8, "little"), (1 << 40).to_bytes(8, "little"), 100 * count, 0)},
        )
        for ordinal, count in enumerate(counts)
    ]
    listed = files[:40]
    manifest = ListedManifest(
        path="s3://lake/db/t/metadata/manifest-0.avro",
        length=7000,
        spec_id=0,
        sequence_number=6,
        min_sequence_number=2,
        added_snapshot_id=SNAPSHOT,
        live_files=len(listed),
        live_rows=sum(file.identity.record_count for file in listed),
        first_file=0,
        schema=0,
    )
    return UnitsTable(files, [manifest], ['{"type":"record","name":"manifest_entry","fields":[]}'], coverage)


def expected_columns(fields: Iterable[int]) -> dict[str, Any]:
    return {str(i): {"name": list(COLUMNS[i].path), "type": COLUMNS[i].type} for i in sorted(fields) if i in COLUMNS}


def expected_table(table: UnitsTable) -> dict[str, Any]:
    first, ranges = 0, []
    for file in table.files:
        ranges.append([first, len(file.units)])
        first += len(file.units)
    return {
        "files": [
            {
                "path": file.path,
                "file_size": file.identity.file_size,
                "record_count": file.identity.record_count,
                "manifest": file.manifest,
                "entry": file.entry.hex(),
                "added_snapshot_id": file.identity.added_snapshot_id,
                "file_sequence_number": file.identity.file_sequence_number,
                "fingerprint": fingerprint(file.identity).hex(),
                "units": units,
            }
            for file, units in zip(table.files, ranges, strict=True)
        ],
        "manifests": [asdict(manifest) for manifest in table.manifests],
        "coverage": [
            {
                "field": coverage.field_id,
                "kind": coverage.kind,
                "runs": [[len(list(run)), *coverage.states[code]] for code, run in groupby(coverage.codes.tolist())],
            }
            for coverage in table.coverage
        ],
    }


def small() -> tuple[bytes, dict[str, Any]]:
    """70 files, 72 units. Field 1: sliced, with widened members, and a group of another encoding as a bitmap.

    Field 2: block-transposed, odd tails, several pages; field 3: one unit, which is the plain Parquet bitset.
    """
    segment = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
    counts = [3 if ordinal == 1 else 1 for ordinal in range(70)]
    units = sum(counts)
    first = [
        make_filter(unit, "int64", 4 if unit % 9 else 2, [unit * 1000 + step for step in range(6)])
        for unit in range(66)
    ]
    first += [make_filter(unit, "int32", 1, [unit * 1000], resolution="name:a.b") for unit in (67, 69, 71)]
    second = [
        make_filter(unit, "int64", 50, [unit, -unit, unit * 7], tail=bytes([unit, 255, unit])) for unit in (0, 5, 40)
    ]
    third = [make_filter(70, "int64", 3, [1, 2, 3])]
    yes, no = CoverageState(UnitState.INDEXED, "id"), CoverageState("the column is absent from the file")
    coverage = [
        Coverage.of(
            1,
            "bloom",
            [yes] * 66 + [CoverageState(UnitState.INDEXED, "name:a.b") if unit % 2 else no for unit in range(66, 72)],
        )
    ]
    table = table_of(counts, coverage)
    header = SegmentHeader(TABLE, SNAPSHOT, SEQUENCE, "2026-01-02T03:04:05+00:00", segment)
    fields = {1: first, 2: second, 3: third}
    expected = {
        "table_uuid": TABLE,
        "segment": segment.hex(),
        "snapshot_id": SNAPSHOT,
        "units": units,
        "lookups": [
            *lookups(1, first, units, [0, 1000, 33_004, 65_005, 67_000, 71_000, 123_456_789]),
            *lookups(2, second, units, [0, 5, -40, 280, 99]),
            *lookups(3, third, units, [1, 4]),
        ],
        "filters": [line for field_id, filters in fields.items() for line in described(field_id, filters)],
        "columns": expected_columns(fields),
        **expected_table(table),
    }
    return write(header, table, fields), expected


def rows() -> tuple[bytes, dict[str, Any]]:
    """One file of 2,050 units, long enough for rows with checksums of their own."""
    segment = bytes.fromhex("f0e1d2c3b4a5968778695a4b3c2d1e0f")
    filters = [make_filter(unit, "int64", 1, [unit, unit + 5000]) for unit in range(2050)]
    table = table_of([2050], [Coverage.of(1, "bloom", [CoverageState(UnitState.INDEXED, "id")] * 2050)])
    header = SegmentHeader(TABLE, SNAPSHOT, SEQUENCE, "2026-01-02T03:04:05+00:00", segment)
    expected = {
        "table_uuid": TABLE,
        "segment": segment.hex(),
        "snapshot_id": SNAPSHOT,
        "units": 2050,
        "lookups": lookups(1, filters, 2050, [0, 1024, 2049, 7049, 99_999]),
        "filters": described(1, filters[::500]),
        "columns": expected_columns([1]),
        **expected_table(table),
    }
    return write(header, table, {1: filters}), expected


def pages() -> tuple[bytes, dict[str, Any]]:
    """1,040 units. Field 1: page indexes in two groups, one of them with a table of two pieces; field 2: of one unit.

    To a sidecar the structures are bytes, so texts stand for them here.
    """
    segment = bytes.fromhex("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
    first, other = (
        PageIndexKind("int64", "id", "signed:8", 1),
        PageIndexKind("byte_array", "name:a.list.element", "", 0, 3, 1),
    )
    kinds = {unit: other if unit % 90 == 7 else first for unit in range(1040) if unit != 5}
    given = {
        1: {unit: _structures(unit, kind is first) for unit, kind in kinds.items()},
        2: {1039: _structures(1039, True)},
    }
    table = table_of(
        [1, 1039],
        [
            Coverage.of(
                1,
                "page-index",
                [
                    CoverageState(UnitState.INDEXED, kinds[u].resolution)
                    if u in kinds
                    else CoverageState("a page is damaged")
                    for u in range(1040)
                ],
            )
        ],
    )
    header = SegmentHeader(TABLE, SNAPSHOT, SEQUENCE, "2026-01-02T03:04:05+00:00", segment)
    blobs = [
        page_index_bundle(field_id, {unit: (kinds.get(unit, first), *parts) for unit, parts in units.items()})
        for field_id, units in given.items()
    ]
    told = {1: (0, 5, 6, 7, 97, 1023, 1024, 1025, 1039), 2: (0, 1038, 1039)}
    expected = {
        "table_uuid": TABLE,
        "segment": segment.hex(),
        "snapshot_id": SNAPSHOT,
        "units": 1040,
        "lookups": [],
        "filters": [],
        "page_indexes": [
            {
                "field": field_id,
                "unit": unit,
                **(
                    {
                        **kinds.get(unit, first)._asdict(),
                        "column_index": given[field_id][unit][0].hex(),
                        "offset_index": given[field_id][unit][1].hex(),
                    }
                    if unit in given[field_id]
                    else {"column_index": None, "offset_index": None}
                ),
            }
            for field_id, units in told.items()
            for unit in units
        ],
        "columns": expected_columns(given),
        **expected_table(table),
    }
    return write(header, table, {}, blobs), expected


def _structures(unit: int, with_bounds: bool) -> tuple[bytes, bytes]:
    column = b"ColumnIndex of unit %d, as the file has it" % unit if with_bounds else b""
    return column, b"OffsetIndex of unit %d" % unit + bytes(unit % 3)


def page_index_bundle(field_id: int, units: dict[int, tuple[PageIndexKind, bytes, bytes]]) -> FieldIndexes:
    groups = plan_index_groups(
        PAGE_INDEXES, ((unit, kind, (len(column), len(offset))) for unit, (kind, column, offset) in units.items())
    )
    entries = [units[unit][1:] for group in groups for unit in group.units.tolist()]
    return FieldIndexes(PAGE_INDEXES, field_id, groups, entries)


def orc() -> tuple[bytes, dict[str, Any]]:
    """300 units. Field 1: split-block and ORC filters, the latter sliced in regions. Field 2: rows with seals of their
    own, a last block that is filled up. Field 3: transposed, several pages, byte keys. Row indexes of fields 1 and 4.
    """
    segment = bytes.fromhex("a0b1c2d3e4f5061728394a5b6c7d8e9f")
    first: list[AnyFilter] = [make_filter(unit, "int64", 2, [unit, unit + 500]) for unit in range(10)]
    first += [make_orc(unit, "orc/long", 320, 3, [unit, unit + 500, -unit]) for unit in range(10, 80)]
    second: list[AnyFilter] = [
        make_orc(unit, "orc/long", 576, 4, list(range(unit, unit + 40, 7))) for unit in range(260)
    ]
    third: list[AnyFilter] = [
        make_orc(unit, "orc/bytes", 9600, 7, [unit, unit * 12345678901], resolution="name:s")
        for unit in (0, 7, 8, 9, 299)
    ]
    third += [make_orc(unit, "orc/bytes", 9600, 5, [unit], resolution="name:s") for unit in (1, 2)]
    kinds = {
        1: RowIndexKind("id", "LONG", "DIRECT_V2", False, True, 0, 9, "2.2.2", "0.12", "proleptic_gregorian"),
        4: RowIndexKind(
            "name:t.d", "DECIMAL", "DIRECT", True, False, 1, 6, "", "0.11", "unknown", "UTC", 9, 2, True, True
        ),
    }
    other = kinds[1]._replace(has_present=True)
    rows = {
        1: {unit: (other if unit % 50 == 3 else kinds[1], b"entry of unit %d" % unit) for unit in range(299)},
        4: {299: (kinds[4], b"")},
    }
    table = table_of([100, 199, 1], [Coverage.of(2, "bloom", [CoverageState(UnitState.INDEXED, "id")] * 300)])
    header = SegmentHeader(TABLE, SNAPSHOT, SEQUENCE, "2026-01-02T03:04:05+00:00", segment)
    fields = {1: first, 2: second, 3: third}
    blobs = [row_index_bundle(field_id, units) for field_id, units in rows.items()]
    expected = {
        "table_uuid": TABLE,
        "segment": segment.hex(),
        "snapshot_id": SNAPSHOT,
        "units": 300,
        "lookups": [
            *lookups(1, first, 300, [0, 9, 10, 79, 579, -33, 123_456_789, -123_456_789]),
            *lookups(2, second, 300, [0, 35, 259, 299, -1, 1 << 40]),
            *lookups(3, third, 300, [0, 7, 7 * 12345678901, 299 * 12345678901, 2, 99]),
        ],
        "filters": [
            *described(1, first[::9]),
            *described(2, second[::50]),
            *described(3, third),
        ],
        "row_indexes": [
            {
                "field": field_id,
                "unit": unit,
                "entry": rows[field_id][unit][1].hex() if unit in rows[field_id] else None,
                **(rows[field_id][unit][0]._asdict() if unit in rows[field_id] else {}),
            }
            for field_id, unit in [(1, 0), (1, 3), (1, 4), (1, 53), (1, 298), (1, 299), (4, 0), (4, 299)]
        ],
        "columns": expected_columns({**fields, **rows}),
        **expected_table(table),
    }
    return write(header, table, fields, row_indexes=blobs), expected


def row_index_bundle(field_id: int, units: dict[int, tuple[RowIndexKind, bytes]]) -> FieldIndexes:
    groups = plan_index_groups(ROW_INDEXES, ((unit, kind, (len(data),)) for unit, (kind, data) in units.items()))
    entries = [(units[unit][1],) for group in groups for unit in group.units.tolist()]
    return FieldIndexes(ROW_INDEXES, field_id, groups, entries)


def sketches() -> tuple[bytes, dict[str, Any]]:
    """12 files of 14 units. Field 1: a group in a run, one with gaps and files that were removed since, one without
    values, one with theta; field 2: one group of all files. Sketches are packed here by the words of DataSketches.
    """
    segment = bytes.fromhex("c0c1c2c3c4c5c6c7c8c9cacbcccdcecf")
    counts = [3 if ordinal == 4 else 1 for ordinal in range(12)]
    table = table_of(counts, [Coverage.of(1, "theta", [CoverageState(UnitState.INDEXED, "id")] * 14)])
    header = SegmentHeader(TABLE, SNAPSHOT, SEQUENCE, "2026-01-02T03:04:05+00:00", segment)
    given = {
        1: [
            ([0, 1, 2, 3], 4, 400, "long", packed([5, 77, 1 << 62])),
            ([4, 6, 9], 5, 1700, "long", packed([99])),
            ([5], 1, 100, "long", packed([])),
            ([7, 8, 10, 11], 4, 400, "long", packed(range(1000, 9000, 1000), 9999)),
        ],
        2: [(list(range(12)), 12, 1400, "decimal(9, 2)", packed([1, 2]))],
    }
    blobs = [
        FieldSketches(
            field_id,
            [SketchGroup(np.array(f), counted, rows, rows * 10, kind, data) for f, counted, rows, kind, data in groups],
        )
        for field_id, groups in given.items()
    ]
    expected = {
        "table_uuid": TABLE,
        "segment": segment.hex(),
        "snapshot_id": SNAPSHOT,
        "units": 14,
        "lookups": [],
        "filters": [],
        "sketches": [
            {
                "field": field_id,
                "files": files,
                "counted": counted,
                "rows": rows,
                "size": rows * 10,
                "type": kind,
                "sketch": data.hex(),
            }
            for field_id, groups in given.items()
            for files, counted, rows, kind, data in groups
        ],
        "columns": expected_columns(given),
        **expected_table(table),
    }
    return write(header, table, {}, sketches=blobs), expected


def packed(hashes: Iterable[int], theta: int = (1 << 63) - 1) -> bytes:
    """A compact, ordered theta sketch of these rising hashes below theta."""
    found = list(hashes)
    body = struct.pack(f"<{len(found)}Q", *found)
    if theta < (1 << 63) - 1:
        return struct.pack("<6BHIfQ", 3, 3, 3, 0, 0, 26, 0x93CC, len(found), 1.0, theta) + body
    if len(found) > 1:
        return struct.pack("<6BHIf", 2, 3, 3, 0, 0, 26, 0x93CC, len(found), 1.0) + body
    return struct.pack("<6BH", 1, 3, 3, 0, 0, 58 if found else 30, 0x93CC if found else 0) + body


def encrypted() -> tuple[bytes, dict[str, Any]]:
    """2,060 units, everything encrypted: field 1 in regions, with page and row indexes; 2 in rows; 3 in pages with odd
    tails; 4 ORC filters in rows. Fields 1 and 3 have a master key of 128 bits, 2 and 4 one of 256 bits.
    """
    segment = bytes.fromhex("5a5b5c5d5e5f60616263646566676869")
    masters = {"short": bytes(range(16)), "long": bytes(range(32, 64))}
    names = {1: "short", 2: "long", 3: "short", 4: "long"}
    first: list[AnyFilter] = [
        make_filter(unit, "int64", 4 if unit % 9 else 2, [unit * 1000 + step for step in range(6)])
        for unit in range(70)
    ]
    second: list[AnyFilter] = [make_filter(unit, "int64", 1, [unit, unit + 5000]) for unit in range(2055)]
    third: list[AnyFilter] = [
        make_filter(unit, "int64", 50, [unit, -unit, unit * 7], tail=bytes([unit, 255, unit])) for unit in (0, 5, 40)
    ]
    fourth: list[AnyFilter] = [make_orc(unit, "orc/long", 256, 3, [unit, unit + 700]) for unit in range(510)]
    table = table_of([2060], [Coverage.of(2, "bloom", [CoverageState(UnitState.INDEXED, "id")] * 2060)])
    header = SegmentHeader(TABLE, SNAPSHOT, SEQUENCE, "2026-01-02T03:04:05+00:00", segment)
    keys = {
        field_id: FieldKey(masters[name], name.encode(), TABLE, segment, field_id) for field_id, name in names.items()
    }
    pages = {unit: _structures(unit, unit % 2 == 0) for unit in range(1030)}
    page_kind, row_kind = (
        PageIndexKind("int64", "id", "signed:8", 1),
        RowIndexKind("id", "LONG", "DIRECT_V2", False, True, 0, 9),
    )
    page_indexes = page_index_bundle(1, {unit: (page_kind, *parts) for unit, parts in pages.items()})
    row_indexes = row_index_bundle(1, {unit: (row_kind, b"entry of unit %d" % unit) for unit in range(3)})
    fields = {1: first, 2: second, 3: third, 4: fourth}
    expected = {
        "table_uuid": TABLE,
        "segment": segment.hex(),
        "snapshot_id": SNAPSHOT,
        "units": 2060,
        "master_keys": {name: key.hex() for name, key in masters.items()},
        "lookups": [
            *lookups(1, first, 2060, [0, 1000, 33_004, 69_005, 123_456_789]),
            *lookups(2, second, 2060, [0, 1024, 2049, 7049, 99_999]),
            *lookups(3, third, 2060, [0, 5, -40, 280, 99]),
            *lookups(4, fourth, 2060, [0, 509, 1209, -1]),
        ],
        "filters": [
            line
            for field_id, some in {1: first[::7], 2: second[::500], 3: third, 4: fourth[::100]}.items()
            for line in described(field_id, some)
        ],
        "page_indexes": [
            {
                "field": 1,
                "unit": unit,
                **page_kind._asdict(),
                "column_index": pages[unit][0].hex(),
                "offset_index": pages[unit][1].hex(),
            }
            for unit in (0, 1, 1023, 1024, 1029)
        ],
        "row_indexes": [
            {"field": 1, "unit": unit, "entry": (b"entry of unit %d" % unit).hex(), **row_kind._asdict()}
            for unit in range(3)
        ],
        "columns": expected_columns(()),
        **expected_table(table),
    }
    indexes = [replace(page_indexes, key=keys[1])], [replace(row_indexes, key=keys[1])]
    return write(header, table, fields, *indexes, keys), expected


def write(
    header: SegmentHeader,
    table: UnitsTable,
    fields: dict[int, list[AnyFilter]],
    page_indexes: Sequence[FieldIndexes] = (),
    row_indexes: Sequence[FieldIndexes] = (),
    keys: Mapping[int, FieldKey] | None = None,
    sketches: Sequence[FieldSketches] = (),
) -> bytes:
    sink = io.BytesIO()
    puffin = PuffinWriter(sink, created_by="sidecar spec vectors")
    own = keys or {}
    bundles = [
        bundle_of(field_id, filters, header.segment_id, own.get(field_id)) for field_id, filters in fields.items()
    ]
    entries = write_segment(
        puffin, replace(header, columns=COLUMNS), table, [*page_indexes, *row_indexes, *bundles, *sketches], **PLACE
    )
    write_toc(puffin, entries, **PLACE)
    puffin.finish()
    return sink.getvalue()


def main(names: Sequence[str]) -> int:
    HERE.mkdir(exist_ok=True)
    vectors = {"small": small, "rows": rows, "pages": pages, "orc": orc, "sketches": sketches, "encrypted": encrypted}
    for name in names or vectors:
        data, expected = vectors[name]()
        reader = PuffinReader(BytesSource(data))
        expected["blobs"] = [
            {
                "type": blob.type,
                "fields": list(blob.fields),
                "offset": blob.offset,
                "length": blob.length,
                "sha256": hashlib.sha256(reader.read_raw(blob)).hexdigest(),
            }
            for blob in reader.metadata.blobs
        ]
        (HERE / f"{name}.stats").write_bytes(data)
        text = json.dumps(expected, indent=1)
        (HERE / f"{name}.expected.json").write_text(text + "\n")
        print(f"{name}: {len(data)} bytes, {len(encode_toc(expected))} bytes of answers")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
