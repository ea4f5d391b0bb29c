"""Tables of very many data files that do not exist: real manifests, and a sidecar of random bits over them.

Planning opens no data files. The filters are as full as such that are wrong once in 32,000 lookups, and one in the
middle has the key that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from scripts.benchmarks.harness import data
from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import SPLIT_BLOCK
from sidecar.bundle.filters.slicing import slice_blocks
from sidecar.bundle.model import (
    Coverage,
    CoverageState,
    FieldBounds,
    FileEntry,
    SegmentHeader,
    UnitEntry,
    UnitsTable,
    UnitState,
)
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import write_segment
from sidecar.filters.encoding import Encoding
from sidecar.filters.probes import probe_for
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.statistics_files.registering import register

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

KEY, BLOCKS, ROWS = 424_242, 4, 100_000
DAY = 86_400_000_000


def catalog_of_manifests(files: int, per_manifest: int) -> SqlCatalog:
    """Return a catalog with the table ``db.many``, without a sidecar."""

    def make(folder: Path, catalog: SqlCatalog) -> None:
        write_table(catalog, files, per_manifest)

    return data.table(f"manifests-{files}-by-{per_manifest}", make)


def write_table(catalog: Any, files: int, per_manifest: int, name: str = "db.many") -> Table:
    """Random keys in every file, so that bounds rule none out; days rise from file to file."""
    catalog.create_namespace_if_not_exists("db")
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("s", pa.string()), ("f", pa.float64())])
    table: Table = catalog.create_table(name, schema, properties={"commit.manifest-merge.enabled": "false"})
    for first in range(0, files, per_manifest):
        with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
            for number in range(first, min(first + per_manifest, files)):
                append.append_data_file(data_file(table, number, files))
    return table


def data_file(table: Table, number: int, files: int) -> DataFile:
    start = 1_577_836_800_000_000 + number * 365 * DAY // files
    low = [-(2**61) - number * 977, start, None, -number / 7]
    high = [2**61 + number * 991, start + DAY // 24, None, number / 3]

    def serialized(values: Sequence[Any], text: str) -> dict[int, bytes]:
        k, t, _, f = values
        return {
            1: int(k).to_bytes(8, "little", signed=True),
            2: int(t).to_bytes(8, "little", signed=True),
            3: f"{text}{number:08}".encode(),
            4: np.float64(f).tobytes(),
        }

    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/{number % 97:02}/00000-{number}-{number * 7919:012x}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS,
        file_size_in_bytes=10_000_000 + number,
        column_sizes=dict.fromkeys(range(1, 5), 2000000 + number % 1000),
        value_counts=dict.fromkeys(range(1, 5), ROWS),
        null_value_counts=dict.fromkeys(range(1, 5), 0),
        nan_value_counts={4: 0},
        lower_bounds=serialized(low, "a"),
        upper_bounds=serialized(high, "z"),
        split_offsets=[4],
    )
    made.spec_id = 0
    return made


def write_sidecar(table: Table, units: int, *, rules_out: bool = True) -> int:
    """A units table of the whole snapshot, and filters of column 1, which may rule nothing out. Returns its bytes."""
    listing = list_snapshot(table)
    schemas = list(dict.fromkeys(manifest.avro_schema for manifest in listing.manifests))
    row_groups = tuple(UnitEntry(i, i * ROWS // units, ROWS // units) for i in range(units))
    files = [
        FileEntry(
            identity=file.known_as,
            spec_id=file.spec_id,
            manifest=file.manifest,
            entry=file.raw_entry,
            units=row_groups,
            partition=file.partition,
            bounds={
                i: FieldBounds(b.lower, b.upper, b.value_count, b.null_count, b.nan_count)
                for i, b in file.bounds.items()
            },
        )
        for file in listing.files
    ]
    manifests = [replace(m.listed, schema=schemas.index(m.avro_schema)) for m in listing.manifests]
    count = len(files) * units
    codes = np.zeros(count, np.int32)
    coverage = Coverage(1, "bloom", (CoverageState(UnitState.INDEXED, "id"),), codes)
    header = SegmentHeader(
        listing.table_uuid, listing.snapshot_id, listing.sequence_number, "2026-01-02T03:04:05+00:00"
    )
    (group,) = plan_groups(GroupMember(unit, "int64", "id", BLOCKS * 32) for unit in range(count))
    place = {"snapshot_id": listing.snapshot_id, "sequence_number": listing.sequence_number}

    def write(puffin: Any, _replaced: Any) -> None:
        bundle = FieldBundle(1, [group], regions(group, header.segment_id, rules_out))
        units_table = UnitsTable(files, manifests, schemas, [coverage])
        write_toc(puffin, write_segment(puffin, header, units_table, [bundle], **place), **place)

    written = register(table, listing.snapshot_id, [], write)
    table.refresh()
    return int(written.file_size)


def regions(group: BundleGroup, segment: bytes, rules_out: bool) -> Iterator[bytes]:
    """27 % of the bits set, and those of the key in one filter in the middle; or all bits."""
    random, members = np.random.default_rng(1), len(group.units)
    (key_hash,) = probe_for(KEY, "long", Encoding.parse("int64")).hashes
    key_bits = list(SPLIT_BLOCK.rows(key_hash, group.blocks))
    for first in range(0, group.blocks, group.block_step):
        count = min(group.block_step, group.blocks - first)
        drawn = [random.integers(0, 2**32, (members, count, 8), dtype=np.uint32) for _ in range(7)]
        blocks = np.bitwise_and.reduce(drawn[:2]) | np.bitwise_and.reduce(drawn[2:])
        if not rules_out:
            blocks = np.full_like(blocks, 0xFFFFFFFF)
        for region, row in key_bits:
            if first <= region < first + count:
                blocks[members // 2, region - first, row // 32] |= np.uint32(1 << row % 32)
        yield slice_blocks(group, first, blocks, BlobContext(segment, 1))
