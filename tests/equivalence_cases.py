"""Tables with a past drawn from a seed, and predicates over them: what every door's rows are compared on.

A :class:`History` is a table that was changed a dozen times: rows appended in both formats, to branches too, rows
deleted by rewriting files, by position and by equality, columns added, renamed, dropped, added again and promoted,
partition fields added and removed, snapshots rolled back and expired, and in between a sidecar built for some columns
of some snapshot, at times damaged or gone. The same seed gives the same table.

What only some histories have are its *features* (:data:`FEATURES`), which are part of the names of tests:

- ``v1``: a table of format version 1, upgraded at times;
- ``transform``: partitioned from the start, by bucket, truncate, day, month or hour;
- ``floats``: floats that are no quarters, and literals beside them;
- ``returning``: files that leave the table and come back under their name with other rows, of the same size and number;
- ``schema``: changes of the schema after the last snapshot;
- ``equality``: rows deleted by equality at the end;
- ``branch``: rows in a branch that ``main`` does not have;
- ``formats``: Avro and ORC files that Spark has written.

What a feature is for is asked often: predicates of such tables look for the rows and columns that it changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
)

import sidecar
from tests import equivalence_files as files
from tests.iceberg.cases import SCHEMA, delete_by_equality, local, predicate, records, replaced
from tests.iceberg.mixed_tables import UNREADABLE, append_orc
from tests.iceberg.table_cases import SMALL_PAGES, delete_by_position

FLAVOURS = {"parquet": (), "mixed": UNREADABLE, "spark": ("t",)}
"""Types that a kind of table lacks: pyiceberg cannot read some from ORC, Spark has none for a time of day."""
CANNOT_COMPARE = ("u",)
"""pyarrow compares no UUIDs, so pyiceberg evaluates no such predicate."""
WIDER: dict[str, PrimitiveType] = {"i": LongType(), "f": DoubleType(), "dec9": DecimalType(20, 2)}
NEW: dict[str, PrimitiveType] = {
    "l": LongType(), "d": DoubleType(), "s": StringType(), "day": DateType(), "ts": TimestampType(),
}  # fmt: skip
FEATURES = {
    "v1": 0.25, "upgrade": 0.3, "transform": 0.5, "floats": 0.3, "returning": 0.25, "schema": 0.35, "equality": 0.3,
    "branch": 0.3, "formats": 0.5,
}  # fmt: skip
"""How often a history has each feature, if it fits the history's other ones."""
FIRST: dict[tuple[int, str], tuple[str, ...]] = {
    (0, "parquet"): ("v1", "returning"),
    (1, "parquet"): ("floats",),
    (2, "mixed"): ("returning", "schema"),
    (3, "parquet"): ("floats", "equality"),
    (4, "parquet"): ("v1", "transform"),
    (0, "spark"): ("floats", "equality", "branch", "formats"),
    (1, "spark"): ("transform", "schema", "branch"),
}
"""The features of the first histories, which a short run has; fewer things happen to these tables."""
TRANSFORMS: dict[str, list[Transform[Any, Any]]] = {
    "id": [BucketTransform(3), TruncateTransform(40)],
    "l": [BucketTransform(4)],
    "s": [BucketTransform(3), TruncateTransform(7)],
    "dec9": [TruncateTransform(200)],
    "day": [MonthTransform(), YearTransform()],
    "ts": [YearTransform(), MonthTransform(), DayTransform(), HourTransform()],
    "tz": [DayTransform(), HourTransform()],
}
"""Transforms by the values of a column; of timestamps every few rows are of another hour."""
ROWS = (8, 30)
"""The least and the most rows of an append."""
FEW = (1, 2)
"""The same of a small one."""


@dataclass
class History:
    """``values`` says whose values each column of the present schema has, by the names of ``tests.iceberg.cases``."""

    table: Table
    rng: random.Random
    flavour: str
    ids: int = 0
    values: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    """What was done, for messages."""
    equality_deletes: bool = False
    deleted: set[tuple[str, int]] = field(default_factory=set)
    dropped: list[str] = field(default_factory=list)
    indexed: list[str] = field(default_factory=list)
    """Columns that were built, as they were named then."""
    features: tuple[str, ...] = ()
    asked_ids: list[int] = field(default_factory=list)
    """Rows that most predicates are about."""
    asked_columns: list[str] = field(default_factory=list)
    """Columns that many predicates are about."""
    before_equality: int | None = None
    """The snapshot before rows were deleted by equality."""
    gone: set[int] = field(default_factory=set)
    """The ids of these rows."""
    older: Table | None = None
    """The table as pyiceberg had it before Spark changed its schema."""
    imported: dict[str, DataFile] = field(default_factory=dict)
    """Files that may come back under their name."""
    changed_in_spark: bool = False

    @property
    def columns(self) -> list[str]:
        """Columns that predicates may ask."""
        cannot = () if self.flavour == "spark" else CANNOT_COMPARE
        return sorted(name for name, value in self.values.items() if value not in cannot)

    def predicate(self, columns: list[str] | None = None) -> str:
        """A random predicate, often only for some ids: these rise from row to row."""
        rng, chosen = self.rng, columns or self.columns
        for often in ([*self.asked_columns, *(n for n, v in self.values.items() if v == "e")], self.indexed):
            known = [name for name in chosen if name in often]
            if known and rng.random() < 0.6:
                chosen = known
                break
        asked = rng.sample(chosen, min(len(chosen), 3))
        ids: Sequence[int] = range(self.ids)
        if self.asked_ids and rng.random() < 0.6:
            ids = self.asked_ids
        text = predicate(rng, asked, ids, rng.choice([0, 0, 1, 2]), self.values)
        start = rng.choice(ids)
        form = rng.choice(
            [*["{0}"] * 5, "id >= {1} and id < {2} and {0}", "id in ({1}, {2}) or {0}", "id = {1} and {0}"]
        )
        return form.format(text, start, start + rng.randrange(1, 40))

    def snapshot(self) -> int | None:
        """``None`` for the present one, mostly; else any that pyiceberg can plan, those of branches among them."""
        if self.rng.random() < 0.75 or "returning" in self.features:  # files of old snapshots have other content by now
            return None
        chosen = self.rng.choice(self.table.metadata.snapshots)
        return None if self._has_equality_deletes(chosen) else chosen.snapshot_id

    def _has_equality_deletes(self, snapshot: Snapshot) -> bool:
        """Only the last steps of a history delete by equality; the rows of the present are known without pyiceberg."""
        if self.before_equality is None:
            return False
        before = self.table.metadata.snapshot_by_id(self.before_equality)
        assert before is not None
        return (snapshot.sequence_number or 0) > (before.sequence_number or 0)

    def present(self) -> bool:
        """Whether ``main`` has rows at all."""
        return self.table.current_snapshot() is not None


def features_of(seed: int, flavour: str) -> tuple[str, ...]:
    """What the history of a seed has, among :data:`FEATURES`."""
    if (seed, flavour) in FIRST:
        return FIRST[seed, flavour]
    rng = random.Random(f"features {flavour} {seed}")
    has: list[str] = []
    for name, chance in FEATURES.items():
        if rng.random() < chance and _go_together(name, has, flavour):
            has.append(name)
    return tuple(has)


def _go_together(name: str, has: list[str], flavour: str) -> bool:
    """Whether a history can have a feature along with those before it."""
    if name == "upgrade":
        return "v1" in has and flavour != "spark"  # Spark upgrades all tables
    if name == "transform":
        return flavour != "mixed"  # pyiceberg writes no ORC: the manifests of these files have no partitions
    if name == "equality":  # deletes are of an unpartitioned spec, and not of version 1
        return "transform" not in has and ("v1" not in has or flavour == "spark")
    if name == "branch":  # what is written anew is another file in the branch too
        return "returning" not in has
    return name != "formats" or flavour == "spark"


def make_history(catalog: Any, name: str, seed: int, flavour: str) -> History:
    """A table whose past is drawn from ``seed``."""
    rng, features = random.Random(f"{flavour} {seed}"), features_of(seed, flavour)
    schema = Schema(*(f for f in SCHEMA.fields if f.name not in FLAVOURS[flavour]))
    properties = {**(SMALL_PAGES if rng.random() < 0.6 else {})}
    if "v1" in features:
        properties["format-version"] = "1"
    spec = _first_spec(rng, schema) if "transform" in features else PartitionSpec()
    table = catalog.create_table(name, schema, partition_spec=spec, properties=properties)
    history = History(table, rng, flavour, features=features)
    for column in schema.fields:
        if isinstance(column.field_type, StructType):
            history.values |= {f"{column.name}.{f.name}": f.name for f in column.field_type.fields}
        else:
            history.values[column.name] = column.name
    if "floats" in features:
        history.values["f"] = "e"
    for _ in range(rng.randint(2, 5)):
        _do(history, _append)
    steps = 6 if (seed, flavour) in FIRST else 10
    built, known = rng.randrange(steps), _steps_of(features)
    for step in range(steps):
        _do(history, _build if step == built else rng.choice(known))
    if "returning" in features:
        _return_indexed(history)
    if "branch" in features:
        first = history.ids
        _do(history, _append_to_branch)
        history.asked_ids += range(first, history.ids)
    if "floats" in features:
        for _ in range(4):
            _do(history, _append_floats)
    if "equality" in features and flavour != "spark":
        # Iceberg in Java cannot read the ids as pyiceberg writes them
        _do(history, _delete_by_equality)
    if "schema" in features:
        for doing in rng.sample([_promote, _rename, _rename, _drop, _add, _drop_and_add], 2):
            _do(history, doing)
    history.table.refresh()
    return history


def _first_spec(rng: random.Random, schema: Schema) -> PartitionSpec:
    known = [name for name in TRANSFORMS if schema.find_field(name)]
    chosen = rng.sample(known, rng.choice([1, 1, 2]))
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, 1000 + n, rng.choice(TRANSFORMS[name]), f"{name}_part")
            for n, name in enumerate(chosen)
        )
    )


def _steps_of(features: tuple[str, ...]) -> list[Callable[[History], str | None]]:
    steps = list(_STEPS)
    if "upgrade" in features:
        steps += [*[_upgrade] * 4]
    if "returning" in features:  # what goes back to an old snapshot finds other content in its files
        steps = [step for step in steps if step not in (_roll_back, _append_to_branch)]
        steps += [*[_import] * 3, *[_return] * 8]
    return steps


def _do(history: History, doing: Callable[[History], str | None]) -> None:
    done = doing(history)
    if done is not None:
        history.log.append(done)
    history.table.refresh()


def rows_of(history: History, count: int, schema: pa.Schema) -> pa.Table:
    """New rows in the present schema."""
    start = history.ids
    history.ids += count
    made = []
    for record in records(start, count, start + 17):
        flat = record | (record["st"] or {})
        flat["e"] = None if flat["f"] is None else flat["f"] * 4 / 10
        row: dict[str, Any] = {}
        for name, value in history.values.items():
            top, _, below = name.partition(".")
            if not below:
                row[name] = flat.get(value)
            elif record["st"] is not None:
                row.setdefault(top, {})[below] = flat.get(value)
        made.append(row)
    return pa.Table.from_pylist(made, schema=schema)


def _some_rows(history: History, between: tuple[int, int] = ROWS) -> pa.Table:
    """Few ones where every other row is a file of its own."""
    least, most = (4, 8) if files.has_transforms(history.table) else between
    return rows_of(history, history.rng.randint(least, most), history.table.schema().as_arrow())


def _append(history: History, between: tuple[int, int] = ROWS) -> str:
    table, rng = history.table, history.rng
    if history.flavour == "mixed" and rng.random() < 0.5 and not table.spec().fields:
        append_orc(table, _some_rows(history, between), row_index_stride=20)
        return "append ORC"
    if files.has_transforms(table):
        files.append(table, files.data_files(table, _some_rows(history, between)))
        return "append by transforms"
    table.append(_some_rows(history, between))
    return "append"


def _append_floats(history: History) -> str:
    """A literal beside a float matters where the float is a bound of its file."""
    first = history.ids
    done = _append(history, FEW)
    history.asked_ids += range(first, history.ids)
    return done


def _append_to_branch(history: History) -> str | None:
    table, current = history.table, history.table.current_snapshot()
    if current is None:
        return None
    if "side" not in table.metadata.refs:
        table.manage_snapshots().create_branch(current.snapshot_id, "side").commit()
        table.refresh()
    files.append(table, files.data_files(table, _some_rows(history)), "side")
    return "append to a branch"


def _delete_rows(history: History) -> str | None:
    start = history.rng.randrange(history.ids)
    stop = start + history.rng.choice([1, 3, 30])
    if files.has_transforms(history.table):
        return _rewrite(history, start, stop, [])
    history.table.delete(f"id >= {start} and id < {stop}")
    return "delete by rewriting"


def _overwrite(history: History) -> str | None:
    start = history.rng.randrange(history.ids)
    stop = start + history.rng.choice([5, 60])
    if files.has_transforms(history.table):
        return _rewrite(history, start, stop, files.data_files(history.table, _some_rows(history)))
    history.table.overwrite(_some_rows(history), overwrite_filter=f"id >= {start} and id < {stop}")
    return "overwrite"


def _rewrite(history: History, start: int, stop: int, new: list[DataFile]) -> str | None:
    """Remove rows as pyiceberg does where it can write the partitions."""
    table = history.table
    found = list(files.rows_without(table, start, stop))
    left = [rows for _, rows in found if rows.num_rows]
    if not found and not new:
        return None
    kept = [file for rows in left for file in files.data_files(table, rows)]
    files.remove(table, [file for file, _ in found], [*new, *kept])
    return "rewrite by transforms"


def _import(history: History) -> str:
    """A file with a name and a size of its own."""
    table, rng = history.table, history.rng
    name = f"imported-{len(history.log)}-{rng.getrandbits(40)}.parquet"
    key, rows = max(files.partitions(table, _some_rows(history)), key=lambda part: part[1].num_rows)
    file = files.imported(table, rows, name, key)
    assert file is not None
    files.append(table, [file])
    history.imported[name] = file
    return f"import {name}"


def _return(history: History) -> str | None:
    """An imported file leaves, is written anew with other rows, and comes back."""
    table, rng = history.table, history.rng
    live = {task.file.file_path.rsplit("/", 1)[-1]: task.file for task in table.scan().plan_files()}
    # pyiceberg 0.12 applies position deletes to a file of the same path that came after them
    deleted = {path.rsplit("/", 1)[-1] for path, _ in history.deleted}
    known = sorted(name for name in history.imported if name in live and name not in deleted)
    if not known:
        return _import(history)
    name = rng.choice(known)
    file = live[name]
    wanted = file.record_count
    many = rows_of(history, wanted * (12 if files.has_transforms(table) else 1), table.schema().as_arrow())
    parts = [(key, rows) for key, rows in files.partitions(table, many) if rows.num_rows >= wanted]
    if not parts:
        return None
    files.remove(table, [file], [])
    table.refresh()
    between = rng.random()
    if between < 0.3:
        _do(history, _append)
    key, rows = rng.choice(parts)
    made = files.imported(table, rows.slice(0, wanted), name, key, file.file_size_in_bytes)
    if made is None:
        return f"remove {name}"
    files.append(table, [made])
    history.asked_ids = rows.slice(0, wanted)["id"].to_pylist()
    return f"return {name}"


def _return_indexed(history: History) -> None:
    """A file comes back after a sidecar was built for it; at times another one is built for other columns then."""
    for _ in range(3):
        _do(history, _import)
        before, history.indexed = history.indexed, []
        _do(history, _build)
        history.asked_columns, history.indexed = history.indexed, sorted({*before, *history.indexed})
        _do(history, _return)
        if history.log[-1].startswith("return"):
            break
    others = sorted({*history.values} - {*history.asked_columns})
    if others and history.rng.random() < 0.4:
        _do(history, lambda it: _build(it, others))


def _upgrade(history: History) -> str | None:
    if history.table.format_version > 1:
        return None
    with history.table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    return "upgrade to version 2"


def _delete_by_position(history: History) -> str | None:
    rng, table = history.rng, history.table
    live = sorted((task.file for task in table.scan().plan_files()), key=_first_id)
    if not live or table.format_version == 1:
        return None
    first = rng.choice(live)
    alike = [f for f in live if f.spec_id == first.spec_id and f.partition == first.partition]
    chosen = {first.file_path: first} | {f.file_path: f for f in rng.sample(alike, len(alike) // 2)}
    places: dict[str, list[int]] = {}
    for path, file in sorted(chosen.items(), key=lambda item: _first_id(item[1])):
        left = [at for at in range(file.record_count) if (path, at) not in history.deleted]
        taken = rng.sample(left, min(len(left), rng.choice([1, 4, 9])))
        history.deleted |= {(path, at) for at in taken}
        if taken:
            places[path] = sorted(taken)
    if not places:
        return None
    delete_by_position(table, places, first.spec_id, first.partition)
    return "delete by position"


def _first_id(file: DataFile) -> tuple[bytes, int]:
    """An order of files in which the same seed finds them again: names are random."""
    return (file.lower_bounds or {}).get(1, b"")[::-1], file.record_count


def _delete_by_equality(history: History) -> str | None:
    """Some rows by their ids, after which others come. The deletes are for files of all partition specs."""
    table, rng = history.table, history.rng
    if not history.present() or all(spec.fields for spec in table.specs().values()):
        return None
    ids = rng.sample(range(history.ids), 12)
    history.before_equality = table.metadata.current_snapshot_id
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    delete_by_equality(table, pa.table([pa.array(ids)], schema=pa.schema([field])), [1])
    history.equality_deletes, history.gone = True, set(ids)
    table.refresh()
    history.asked_ids += [*ids, *range(history.ids, history.ids + ROWS[0])]
    _append(history)
    return "delete by equality and append"


def _changeable(history: History) -> list[str]:
    """Columns that no partition depends on."""
    used = {f.source_id for spec in history.table.specs().values() for f in spec.fields}
    schema = history.table.schema()
    return sorted(n for n in history.values if n != "id" and schema.find_field(n).field_id not in used)


def _promote(history: History) -> str | None:
    schema = history.table.schema()
    open_ = [n for n in _changeable(history) if n in WIDER and schema.find_field(n).field_type != WIDER[n]]
    if not open_:
        return None
    name = history.rng.choice(open_)
    with history.table.update_schema() as update:
        update.update_column(name, WIDER[name])
    return f"promote {name}"


def _rename(history: History) -> str:
    old = history.rng.choice(_changeable(history))
    top, _, below = old.rpartition(".")
    new = f"{below}_{len(history.log)}"
    with history.table.update_schema() as update:
        update.rename_column(tuple(old.split(".")), new)
    history.values[f"{top}.{new}" if top else new] = history.values.pop(old)
    return f"rename {old}"


def _drop(history: History) -> str | None:
    open_ = [n for n in _changeable(history) if "." not in n]
    if len(open_) < 6:
        return None
    name = history.rng.choice(open_)
    with history.table.update_schema() as update:
        update.delete_column(name)
    history.dropped.append(f"{name} {history.values.pop(name)}")
    return f"drop {name}"


def _drop_and_add(history: History) -> str | None:
    """A column dropped and added again under its name at once, of the same values or of others."""
    done = _drop(history)
    if done is None:
        return None
    history.table.refresh()
    name, value = history.dropped[-1].split()
    value = value if value in NEW and history.rng.random() < 0.5 else history.rng.choice(sorted(NEW))
    with history.table.update_schema() as update:
        update.add_column(name, NEW[value])
    history.values[name] = value
    return f"{done} and add it again"


def _add(history: History) -> str:
    """A column, at times under the name of one that was dropped."""
    rng, again = history.rng, [d.split() for d in history.dropped]
    known = [(name, value) for name, value in again if name not in history.values and value in NEW]
    if known and rng.random() < 0.7:
        name, value = rng.choice(known)
    else:
        name, value = f"new{len(history.log)}", rng.choice(sorted(NEW))
    with history.table.update_schema() as update:
        update.add_column(name, NEW[value])
    history.values[name] = value
    return f"add {name}"


def _partition(history: History) -> str | None:
    table, rng = history.table, history.rng
    taken = [f.name for f in table.spec().fields]
    if history.flavour == "mixed":
        return None  # pyiceberg writes no ORC: the manifests of these files have no partitions
    if taken and rng.random() < 0.5:
        name = rng.choice(taken)
        with table.update_spec() as spec:
            spec.remove_field(name)
        return f"remove partition {name}"
    used = {f.source_id for f in table.spec().fields}
    open_ = [n for n, v in history.values.items() if v in ("part", "bo")]
    open_ = [n for n in open_ if table.schema().find_field(n).field_id not in used]
    if not open_:
        return None
    name = rng.choice(sorted(open_))
    with table.update_spec() as spec:
        spec.add_identity(name)
    return f"partition by {name}"


def _roll_back(history: History) -> str | None:
    current = history.table.current_snapshot()
    if current is None or current.parent_snapshot_id is None or history.equality_deletes:
        return None
    history.table.manage_snapshots().rollback_to_snapshot(current.parent_snapshot_id).commit()
    return "roll back"


def _expire(history: History) -> str | None:
    metadata = history.table.metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    open_ = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in named]
    if not open_:
        return None
    history.table.maintenance.expire_snapshots().by_id(history.rng.choice(open_)).commit()
    return "expire a snapshot"


def _build(history: History, among: Collection[str] | None = None) -> str | None:
    rng, table = history.rng, history.table
    if not history.present():
        return None
    columns = [n for n, v in history.values.items() if v != "bo" or rng.random() < 0.3]
    columns = [n for n in columns if among is None or n in among]
    chosen = rng.sample(sorted(columns), rng.randint(len(columns) // 3, len(columns)))
    kinds = rng.choice([["bloom"], ["bloom", "page-index"], ["bloom", "theta", "page-index"]])
    fpp: Any = rng.choice(["auto", "auto", 0.01, 0.2])
    present = rng.random() < 0.8 or "returning" in history.features
    snapshot = None if present else rng.choice(table.metadata.snapshots)
    names = set(table.schema().column_names)
    if snapshot is not None:  # which is built with its own schema
        schema = table.scan(snapshot_id=snapshot.snapshot_id).projection()
        names = set(schema.column_names)
    chosen = [name for name in chosen if name in names]
    if not chosen:
        return None
    options: dict[str, Any] = {"filter_format": rng.choice(["auto", "parquet", "orc"])}
    options["snapshot_id"] = None if snapshot is None else snapshot.snapshot_id
    sidecar.build(table, chosen, kinds=kinds, fpp=fpp, engine="local", threads=1, **options)
    history.indexed = sorted({*history.indexed, *chosen})
    return f"build {','.join(chosen)} as {','.join(kinds)}"


_STEPS: list[Callable[[History], str | None]] = [
    *[_append] * 4, _append_to_branch, *[_delete_rows] * 2, _overwrite, *[_delete_by_position] * 3, *[_promote] * 2,
    *[_rename] * 2, _drop, *[_add] * 2, *[_partition] * 2, _roll_back, _expire, *[_build] * 2,
]  # fmt: skip


@contextmanager
def damaged(history: History) -> Iterator[str]:
    """The sidecars of the table as they are, or some of them with wrong bytes, too short, or gone, for a while."""
    rng, entries = history.rng, history.table.metadata.statistics
    what = rng.choice([*["none"] * 6, "bits", "bytes", "short", "gone"])
    if not entries or what == "none":
        yield "none"
        return
    path = local(rng.choice(entries).statistics_path)
    if not path.exists():
        yield "none"
        return
    whole = bytearray(path.read_bytes())
    data: bytes | None = bytes(whole[: rng.randrange(len(whole))])
    if what == "gone":
        data = None
    elif what != "short":
        for at in rng.sample(range(len(whole)), min(len(whole), 1 if what == "bits" else len(whole) // 50)):
            whole[at] ^= 1 << rng.randrange(8)
        data = bytes(whole)
    with replaced(path, data):
        yield what
