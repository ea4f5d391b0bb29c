"""A table and what each of its snapshots holds: the rows as a list that no index and no engine has a part in."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from tests.iceberg.cases import local
from tests.life import files
from tests.life.conditions import askable_columns
from tests.life.encrypted import encrypt, keys_of
from tests.life.values import SCHEMA, Row, by_field_id, make_record

PROPERTIES = {
    "write.avro.compression-codec": "null",
    "write.parquet.compression-codec": "uncompressed",
    "write.parquet.row-group-limit": "12",
    "write.parquet.page-row-limit": "6",
    "write.parquet.page-size-bytes": "64",
}
"""Several row groups and pages a file, and names in metadata as plain text, so that the table can move."""
WRITTEN_AS = {
    "commit.manifest-merge.enabled": ["false", "true"],
    "commit.manifest.min-count-to-merge": ["2", "5"],
    "write.metadata.metrics.default": ["truncate(16)", "truncate(16)", "counts", "none"],
    "write.parquet.dict-size-bytes": ["2097152", "2097152", "1"],
}
"""Manifests that are merged, entries with few bounds or none, chunks without dictionaries."""
NOT_IN_ORC = ("fx", "u", "t")
"""pyiceberg reads these types from ORC as plain bytes and numbers."""

NOT_IN_SPARK = ("t",)


@dataclass(frozen=True)
class Contents:
    """What a snapshot holds."""

    rows: Mapping[int, Row] = field(default_factory=dict)
    """The live rows by the column ``id``."""
    equality_deletes: bool = False
    """Whether some of its rows may be deleted by equality, so that pyiceberg reads none of them."""


@dataclass(frozen=True)
class Staged:
    """What a snapshot without a ref has added."""

    files: list[DataFile]
    spec_id: int
    rows: Mapping[int, Row]


class SharedCatalog(NamedTuple):
    """A catalog that Spark and pyiceberg have.

    Attributes:
        catalog: pyiceberg's.
        in_spark: its name in Spark.
        namespace: where the tables are.
        can_commit_version_3: whether changes of the metadata of version 3 are committed for pyiceberg: a REST server
            writes that metadata itself; pyiceberg's own catalogs do not write it.
    """

    catalog: Any
    in_spark: str = "cat"
    namespace: str = "db"
    can_commit_version_3: bool = False


numbers = itertools.count(1)


@dataclass
class Life:
    """A table while it changes. ``name`` ends with its number, which grows when the table moves."""

    place: SharedCatalog
    number: int
    rng: random.Random
    mixed: bool = False
    """Whether some files are ORC."""
    more_columns: int = 0
    """How many columns the table has besides those of every life."""
    encrypted: bool = False
    """Whether files that pyiceberg writes are encrypted, so that it can read them no more."""
    spark: Any = None
    """A Spark session with the catalog of the table."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Other properties of the table than :data:`PROPERTIES`."""
    contents: dict[int, Contents] = field(default_factory=dict)
    """The snapshots whose rows are known. Not all are: an overwrite by pyiceberg is two of them, for one."""
    table: Table = field(init=False)
    log: list[str] = field(default_factory=list)
    """What was done, for messages."""
    values: dict[str, str] = field(default_factory=dict)
    """The columns that changes of the schema may take, each with the first name of its values."""
    dropped: list[tuple[str, str]] = field(default_factory=list)
    """Columns that were dropped, likewise."""
    indexed: list[str] = field(default_factory=list)
    """Columns that were indexed, by the names that they had then."""
    returned: dict[str, DataFile] = field(default_factory=dict)
    """Files that may leave and come back under their name."""
    staged: list[Staged] = field(default_factory=list)
    """What snapshots without a ref have added, to be picked."""
    tally: Counter[str] = field(default_factory=Counter)
    """Checks that were made, and what plans dropped."""
    warnings: Counter[str] = field(default_factory=Counter)
    """What reports and plans warned of, by text."""
    next_id: int = 0
    client: Any = None
    """A catalog that is a client of a server of the table's catalog."""
    damaged: set[str] = field(default_factory=set)
    """Sidecars that were damaged."""
    lost: set[str] = field(default_factory=set)
    """Those of them that are gone."""
    files_of_snapshots: dict[int, list[DataFile]] = field(default_factory=dict)
    ids_of_files: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = self.new_table()
        self.values = {name: name.rpartition(".")[2] for name in askable_columns(self.table.schema())}

    def new_table(self) -> Table:
        """The table before anything happens to it."""
        without = NOT_IN_ORC if self.mixed else NOT_IN_SPARK if self.spark else ()
        version = "2" if self.spark else self.rng.choice(["1", "2", "2", "2"])
        written = random.Random(repr(self.rng.getstate()))  # nothing is drawn, so that lives stay as they were
        own = {name: written.choice(values) for name, values in WRITTEN_AS.items()}
        properties = {**PROPERTIES, **own, "format-version": version, **self.properties}
        fields = [f for f in SCHEMA.fields if f.name not in without]
        kinds = [LongType(), StringType(), DoubleType(), TimestampType()]
        fields += [NestedField(100 + n, f"more{n}", kinds[n % 4]) for n in range(self.more_columns)]
        table: Table = self.catalog.create_table(self.name, Schema(*fields), properties=properties)
        return table

    @property
    def name(self) -> str:
        return f"{self.place.namespace}.life_{self.number:06}"

    @property
    def catalog(self) -> Any:
        """pyiceberg's catalog of the table."""
        return self.place.catalog

    def seen(self) -> Table:
        """The table, at times as a client of the server has it."""
        if self.client is None or self.rng.random() < 0.5:
            return self.table
        found: Table = self.client.load_table(self.name)
        return found

    @property
    def schema(self) -> Schema:
        return self.table.schema()

    def changeable_columns(self) -> list[str]:
        """Columns that no partition depends on, those inside of structs too."""
        used = {f.source_id for spec in self.table.specs().values() for f in spec.fields}
        return sorted(n for n, (key, _) in askable_columns(self.schema).items() if n != "id" and key not in used)

    def do(self, change: Change, seed: int | None = None) -> str | None:
        """Change the table, with the choices of a seed; its log says what was done."""
        if seed is not None:
            self.choose(seed)
        done = change(self)
        if done is not None:
            self.log.append(done)
        self.table.refresh()
        return done

    def choose(self, seed: int) -> random.Random:
        """The choices of the next change."""
        self.rng = random.Random(seed)
        return self.rng

    def head(self, branch: str = "main") -> Contents:
        """What a branch holds."""
        snapshot = self.table.metadata.snapshot_by_name(branch)
        return Contents() if snapshot is None else self.contents[snapshot.snapshot_id]

    def holds(self, snapshot_id: int | None = None) -> Contents:
        """What a snapshot holds, or ``main``."""
        return self.head() if snapshot_id is None else self.contents[snapshot_id]

    def branches(self) -> list[str]:
        """The branches whose rows are known, ``main`` first."""
        refs = [(n, r) for n, r in self.table.metadata.refs.items() if r.snapshot_id in self.contents and n != "main"]
        return ["main", *sorted(n for n, ref in refs if ref.snapshot_ref_type == SnapshotRefType.BRANCH)]

    def note(self, contents: Contents, branch: str = "main") -> None:
        """Record what a branch holds after a change."""
        self.table.refresh()
        snapshot = self.table.metadata.snapshot_by_name(branch)
        if snapshot is not None:
            self.contents[snapshot.snapshot_id] = contents

    def note_rows(self, rows: Mapping[int, Row], branch: str = "main") -> None:
        """Record the rows of a branch; what deletes there were are there still."""
        before = self.head_before
        self.note(replace(before, rows=rows), branch)

    head_before: Contents = field(default_factory=Contents)
    """What the branch that changes held before the change."""

    def begin(self, branch: str = "main") -> Mapping[int, Row]:
        """Start a change of a branch; its rows."""
        self.head_before = self.head(branch)
        return self.head_before.rows

    def known_snapshots(self) -> list[int]:
        """Snapshots of the table whose rows are known, oldest first."""
        return [s.snapshot_id for s in self.table.metadata.snapshots if s.snapshot_id in self.contents]

    def new_rows(self, count: int) -> tuple[pa.Table, dict[int, Row]]:
        """Rows that the table does not have, for pyarrow and for the model."""
        keys = range(self.next_id, self.next_id + count)
        self.next_id += count
        records = self.records(keys)
        made = pa.Table.from_pylist(records, schema=self.schema.as_arrow())
        written = made.to_pylist(maps_as_pydicts="strict")  # as the columns' types hold them
        return made, {key: by_field_id(self.schema, record) for key, record in zip(keys, written, strict=True)}

    def records(self, keys: range) -> list[dict[str, Any]]:
        """New rows in the present schema, by names."""
        return [make_record(self.schema, key, self.rng, self.mixed) for key in keys]

    def new_files(self, data: pa.Table) -> list[DataFile]:
        """Rows as data files that no snapshot has yet."""
        made = files.data_files(self.table, data)
        return [encrypt(file, self.rng) for file in made] if self.encrypted else made

    @property
    def keys(self) -> dict[str, Any]:
        """What sidecar's functions are told of keys."""
        return {"encryption_keys": keys_of(self.table)} if self.encrypted else {}

    def data_files(self, snapshot: Snapshot) -> list[DataFile]:
        """The live data files of a snapshot, as pyiceberg reads the manifests, oldest first."""
        known = self.files_of_snapshots.get(snapshot.snapshot_id)
        if known is None:
            lines = [m for m in snapshot.manifests(self.table.io) if m.content == ManifestContent.DATA]
            entries = [entry for line in lines for entry in line.fetch_manifest_entry(self.table.io)]
            known = [entry.data_file for entry in sorted(entries, key=lambda entry: entry.sequence_number or 0)]
            self.files_of_snapshots[snapshot.snapshot_id] = known
        return known

    def ids_in(self, file: DataFile) -> frozenset[int]:
        """The ids that a data file has, deleted ones too."""
        return frozenset(self.ids_in_order(file))

    def ids_in_order(self, file: DataFile) -> list[int]:
        """The same in the order of its rows."""
        path = local(file.file_path)
        key = str(path), path.stat().st_mtime_ns
        if key not in self.ids_of_files:
            read = orc.read_table if file.file_format == FileFormat.ORC else pq.read_table
            with path.open("rb") as stream:
                self.ids_of_files[key] = read(stream, columns=["id"])["id"].to_pylist()
        return self.ids_of_files[key]

    def file_of_id(self, snapshot: Snapshot) -> dict[int, str]:
        """The file that each live row of a snapshot is in: the newest of those that have its id.

        A row that was updated, with a delete beside its old file, is in two.
        """
        live = self.contents[snapshot.snapshot_id].rows
        return {key: f.file_path for f in self.data_files(snapshot) for key in self.ids_in(f) if key in live}

    def places(self) -> dict[int, str]:
        """The file that each live row of ``main`` is in."""
        snapshot = self.table.current_snapshot()
        return {} if snapshot is None else self.file_of_id(snapshot)

    def files_of_id_ranges(self) -> list[tuple[int, DataFile]]:
        """The live files of ``main`` in an order that does not depend on their names."""
        snapshot = self.table.current_snapshot()
        found = [] if snapshot is None else self.data_files(snapshot)
        return sorted(((min(self.ids_in(f)), f) for f in found), key=lambda pair: (pair[0], pair[1].record_count))

    def forget_file(self, path: str) -> None:
        """A file is written anew: what old snapshots hold is not known any more."""
        for snapshot in self.table.metadata.snapshots:
            if snapshot.snapshot_id in self.contents and any(f.file_path == path for f in self.data_files(snapshot)):
                del self.contents[snapshot.snapshot_id]

    def warn(self, texts: Iterable[str]) -> None:
        self.warnings.update(texts)


def leaf_paths(schema: Schema) -> list[str]:
    """The paths of all columns that can be indexed, those in lists and maps too."""
    return sorted(name for name in schema.column_names if schema.find_field(name).field_type.is_primitive)


Change = Callable[[Life], str | None]
"""Something that happens to a table. It returns what it did; ``None`` if it does not apply now."""
