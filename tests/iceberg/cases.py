"""A table of every primitive type with awkward values, random predicates over it, and rows that compare."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    manifest_entry_schema_with_data_file,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from sidecar.iceberg.manifests import LATEST
from tests.disk import overwrite
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema(
    "id long, part string, i int, l long, f float, d double, dec9 decimal(9, 2), dec18 decimal(18, 3), "
    "dec38 decimal(38, 4), s string, b binary, fx fixed[4], u uuid, day date, t time, ts timestamp, "
    "tz timestamptz, bo boolean",
    NestedField(
        19,
        "st",
        StructType(NestedField(20, "x", LongType()), NestedField(21, "y", StringType())),
        required=False,
    ),
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
INDEXED = [
    "i", "l", "f", "d", "dec9", "dec18", "dec38", "s", "b", "fx", "u", "day", "t", "ts", "tz", "st.x", "st.y",
]  # fmt: skip

EPOCH = dt.datetime(2024, 1, 1)


def _value(column: str, n: int) -> Any:
    """The ``n``-th value of a column: a small domain, spread so that bounds of files overlap."""
    spread = (n * 7919) % 1009 - 500
    return {
        "id": n,
        "part": "ab?"[n % 3],
        "bo": n % 2 == 0,
        "i": spread,
        "l": spread * 2**40,
        "f": spread / 4,
        "d": spread / 10,
        "dec9": Decimal(spread).scaleb(-2),
        "dec18": Decimal(spread * 10**9).scaleb(-3),
        "dec38": Decimal(spread * 10**25 + 1).scaleb(-4),
        "s": f"värde-{spread}",
        "b": spread.to_bytes(3, "big", signed=True),
        "fx": spread.to_bytes(4, "little", signed=True),
        "u": uuid.UUID(int=(spread + 1000) << 80).bytes,
        "day": (EPOCH + dt.timedelta(days=spread)).date(),
        "t": (EPOCH + dt.timedelta(seconds=abs(spread) * 60, microseconds=n % 3)).time(),
        "ts": EPOCH + dt.timedelta(hours=spread, microseconds=spread),
        "tz": (EPOCH + dt.timedelta(minutes=spread)).replace(tzinfo=dt.timezone.utc),
        "x": spread * 3,
        "y": f"y{spread}",
        "e": float(np.float32(spread / 10)),
    }[column]


SPECIAL: dict[str, list[Any]] = {
    "f": [math.nan, 0.0, -0.0, math.inf, -math.inf],
    "d": [math.nan, 0.0, -0.0, math.inf, 0.1],
    "s": ["", "it's", "%"],
    "b": [b""],
    "i": [2**31 - 1, -(2**31)],
    "l": [2**63 - 1, -(2**63), 7],
    "e": [
        math.nan,
        0.0,
        -0.0,
        math.inf,
        0.1,
        *(float(np.float32(v)) for v in (0.1, 16777216.0, 3.4028234e38)),
    ],
}
"""Values of column "e": floats that FLOAT holds and that are not quarters, and 0.1, which it does not hold."""


def rows(start: int, count: int, seed: int, schema: pa.Schema) -> pa.Table:
    """``count`` rows with ids from ``start``; values of file n differ from those of others for the most part."""
    return pa.Table.from_pylist(records(start, count, seed), schema=schema)


def records(start: int, count: int, seed: int) -> list[dict[str, Any]]:
    """The rows of :func:`rows`, by the names of :data:`SCHEMA`."""
    rng = random.Random(seed)
    made = []
    for n in range(start, start + count):
        row: dict[str, Any] = {
            "id": n,
            "part": rng.choice(["a", "b", None]),
            "bo": rng.choice([True, False, None]),
        }
        for column in [name for name in INDEXED if "." not in name]:
            chance = rng.random()
            special = SPECIAL.get(column)
            row[column] = None if chance < 0.1 else _value(column, n)
            if special and chance > 0.92:
                row[column] = rng.choice(special)
        row["st"] = None if rng.random() < 0.1 else {"x": _value("x", n), "y": rng.choice([None, _value("y", n)])}
        made.append(row)
    return made


def create(catalog: Any, name: str, files: int = 6, count: int = 40, partitioned: bool = True) -> Table:
    """A table with one append for each of ``files``, which makes up to three data files each."""
    table: Table = catalog.create_table(
        name,
        SCHEMA,
        partition_spec=SPEC if partitioned else PartitionSpec(),
        properties={"write.parquet.row-group-limit": "25"},
    )
    for n in range(files):
        append(table, n * count, count)
    return table


def append(table: Table, start: int, count: int) -> None:
    """One more commit, with the rows of ids from ``start``."""
    table.append(rows(start, count, start, table.schema().as_arrow()))


LITERALS = {
    "i": str, "l": str, "f": repr, "e": repr, "d": repr, "dec9": str, "dec18": lambda v: format(v, "f"),
    "dec38": lambda v: format(v, "f"), "s": lambda v: "'" + v.replace("'", "''") + "'",
    "b": lambda v: f"'0x{v.hex()}'", "fx": lambda v: f"'0x{v.hex()}'", "u": lambda v: f"'{uuid.UUID(bytes=v)}'",
    "day": lambda v: f"'{v}'", "t": lambda v: f"'{v}'", "ts": lambda v: f"'{v}'", "tz": lambda v: f"'{v}'",
    "x": str, "y": lambda v: f"'{v}'", "id": str, "part": lambda v: f"'{v}'", "bo": lambda v: str(v).lower(),
}  # fmt: skip


def literal(rng: random.Random, leaf: str, ids: int | Sequence[int]) -> str:
    """A literal of values of a column ``leaf``: mostly one that some row has, else an absent or a special one.

    ``ids`` are the rows, or how many there are.
    """
    special = [v for v in SPECIAL.get(leaf, []) if v == v]
    value = _value(leaf, rng.choice(range(int(ids * 1.3)) if isinstance(ids, int) else ids))
    if special and rng.random() < 0.25:
        value = rng.choice(special)
    elif leaf == "e" and rng.random() < 0.8:
        value = rng.choice(_spellings(value))
    text = str(LITERALS[leaf](value))
    return f"'{text}'" if text in ("inf", "-inf") else text


def _spellings(value: float) -> list[float]:
    """The double that a person writes for a float, the floats beside it, and a double between it and its neighbour."""
    below, above = (float(np.nextafter(np.float32(value), np.float32(end))) for end in (-math.inf, math.inf))
    return [
        *[round(value, 1)] * 3,
        below,
        above,
        (value + above) / 2,
        value + (above - value) / 4,
        value - (value - below) / 4,
    ]


def predicate(
    rng: random.Random,
    columns: list[str],
    ids: int | Sequence[int],
    depth: int = 2,
    values: Mapping[str, str] | None = None,
) -> str:
    """A random predicate over ``columns``; ``values`` says whose values those have that go by another name."""
    if depth and rng.random() < 0.45:
        parts = [predicate(rng, columns, ids, depth - 1, values) for _ in range(rng.choice([2, 2, 3]))]
        return "(" + f" {rng.choice(['and', 'or', 'or'])} ".join(parts) + ")"
    if depth and rng.random() < 0.12:
        return f"not ({predicate(rng, columns, ids, depth - 1, values)})"
    column = rng.choice(columns)
    leaf = (values or {}).get(column, column.rsplit(".", 1)[-1])
    one, two, three = (literal(rng, leaf, ids) for _ in range(3))
    forms = ["{c} = {a}"] * 8 + ["{c} in ({a}, {b}, {d})"] * 4 + [
        "{c} != {a}", "{c} not in ({a}, {b})", "{c} < {a}", "{c} >= {a}", "{c} is null", "{c} is not null",
        "not {c} != {a}", "{c} between {a} and {b}",
    ]  # fmt: skip
    if leaf == "bo":
        forms = ["{c} = {a}", "{c} != {a}", "{c} is null", "{c} is not null", "{c} in ({a}, {b})"]
    if leaf in ("f", "d", "e"):
        forms += ["{c} is nan", "{c} is not nan"]
    if leaf == "s":
        forms += ["{c} like 'värde-1%'", "{c} not like 'värde-1%'"]
    return rng.choice(forms).format(c=column, a=one, b=two, d=three)


def comparable(table: pa.Table) -> list[str]:
    """Rows as sorted text: NaN equals NaN, 0.0 differs from -0.0, order does not matter."""
    return sorted(map(repr, table.to_pylist()))


def oracle(table: Table, row_filter: BooleanExpression, snapshot_id: int | None = None) -> pa.Table:
    """pyiceberg's own scan."""
    return table.scan(row_filter=row_filter, snapshot_id=snapshot_id).to_arrow()


def matching_files(table: Table, row_filter: BooleanExpression, snapshot_id: int | None = None) -> set[str]:
    """Files in which pyiceberg itself finds a matching row."""
    from pyiceberg.io.pyarrow import ArrowScan

    scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), row_filter)
    return {task.file.file_path for task in scan.plan_files() if reader.to_table([task]).num_rows}


def local(path: str) -> Path:
    """The file that a ``file:`` location names."""
    return Path(path.removeprefix("file://").removeprefix("file:"))


@contextmanager
def replaced(path: Path, data: bytes | None) -> Iterator[None]:
    """The file has other bytes, or is gone, for a while."""
    before = path.read_bytes()
    try:
        if data is None:
            path.unlink()
        else:
            overwrite(path, data)
        yield
    finally:
        overwrite(path, before)


def file_in_manifest(path: str, records: int, size: int, **more: Any) -> DataFile:
    """A file as manifests name it: Parquet rows without a partition, if ``more`` does not say otherwise."""
    known = {"content": DataFileContent.DATA, "file_format": FileFormat.PARQUET, "partition": Record()}
    return DataFile.from_args(file_path=path, record_count=records, file_size_in_bytes=size, **{**known, **more})


class _DeleteManifestWriter(ManifestWriterV2):
    def _with_partition(self, format_version: TableVersion) -> Schema:
        """Have ``equality_ids`` as int, as the specification says. pyiceberg writes long, which Java cannot read."""
        entry = super()._with_partition(format_version)
        fields = [
            NestedField(f.field_id, f.name, ListType(136, IntegerType(), element_required=True), f.required)
            if f.field_id == 135
            else f
            for f in entry.find_type("data_file").fields  # type: ignore[union-attr]
        ]
        return manifest_entry_schema_with_data_file(format_version, StructType(*fields))

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _LatestDeleteManifestWriter(_DeleteManifestWriter):
    """Entries of version 3, which say for which data file a deletion vector is."""

    def new_writer(self) -> Any:
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(LATEST),
            record_schema=self._with_partition(LATEST),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def commit_files(table: Table, files: DataFile | Sequence[DataFile], spec: PartitionSpec, snapshot_id: int) -> None:
    """One more snapshot, with a manifest of delete files, or of data files, written with any spec."""
    files = [files] if isinstance(files, DataFile) else files
    are_latest = len(files[0]) == len(DATA_FILE_TYPE[LATEST].fields)
    kind: Any = _LatestDeleteManifestWriter if are_latest else _DeleteManifestWriter
    if files[0].content == DataFileContent.DATA:
        kind = ManifestWriterV2
    snapshot, metadata, io = table.current_snapshot(), table.metadata, table.io
    assert snapshot is not None
    folder = f"{table.location()}/metadata"
    output = io.new_output(f"{folder}/deletes-{snapshot_id}.avro")
    with kind(spec, table.schema(), output, snapshot_id, "null") as writer:
        for file in files:
            status = ManifestEntryStatus.ADDED
            writer.add(ManifestEntry.from_args(status=status, snapshot_id=snapshot_id, data_file=file))
    manifest, sequence = writer.to_manifest_file(), metadata.last_sequence_number + 1
    path = f"{folder}/list-{snapshot_id}.avro"
    with write_manifest_list(2, io.new_output(path), snapshot_id, snapshot.snapshot_id, sequence, "null") as lines:
        lines.add_manifests([manifest, *snapshot.manifests(io)])
    made = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=snapshot.snapshot_id,
        sequence_number=sequence,
        manifest_list=path,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
    head = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
    with table.transaction() as transaction:
        transaction._apply((AddSnapshotUpdate(snapshot=made), head), ())


def delete_by_equality(table: Table, deletes: pa.Table, field_ids: list[int]) -> None:
    """Commit an equality delete file for all partitions: pyiceberg cannot write one, but its parts can."""
    snapshot_id = uuid.uuid4().int >> 66
    path = f"{table.location()}/data/equality-delete-{snapshot_id}.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(deletes, stream)
    is_about = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": field_ids}
    file = file_in_manifest(path, deletes.num_rows, len(table.io.new_input(path)), **is_about)
    spec = next((spec for spec in table.specs().values() if not spec.fields), table.spec())
    commit_files(table, file, spec, snapshot_id)
