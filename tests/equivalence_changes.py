"""What can happen to a table, one change a function; each returns what it did, or ``None`` if it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
)

import sidecar
from tests import equivalence_files as files
from tests.equivalence_history import History
from tests.iceberg.cases import delete_by_equality, records
from tests.iceberg.mixed_tables import append_odd_orc
from tests.iceberg.table_cases import delete_by_position

WIDER: dict[str, PrimitiveType] = {"i": LongType(), "f": DoubleType(), "dec9": DecimalType(20, 2)}
NEW: dict[str, PrimitiveType] = {
    "l": LongType(), "d": DoubleType(), "s": StringType(), "day": DateType(), "ts": TimestampType(),
}  # fmt: skip
ROWS = (8, 30)
"""The least and the most rows of an append."""
FEW = (1, 2)
"""The same of a small one."""


def do(history: History, doing: Callable[[History], str | None]) -> None:
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


def _new_rows(history: History, between: tuple[int, int] = ROWS) -> pa.Table:
    """Few ones where every other row is a file of its own."""
    least, most = (4, 8) if files.has_transforms(history.table) else between
    return rows_of(history, history.rng.randint(least, most), history.table.schema().as_arrow())


def append_rows(history: History, between: tuple[int, int] = ROWS) -> str:
    table, rng = history.table, history.rng
    if history.flavour == "mixed" and rng.random() < 0.5 and not table.spec().fields:
        append_odd_orc(table, _new_rows(history, between), rng)
        return "append ORC"
    if files.has_transforms(table):
        files.append(table, files.data_files(table, _new_rows(history, between)))
        return "append by transforms"
    table.append(_new_rows(history, between))
    return "append"


def append_floats(history: History) -> str:
    """A literal beside a float matters where the float is a bound of its file."""
    first = history.ids
    done = append_rows(history, FEW)
    history.asked_ids += range(first, history.ids)
    return done


def append_to_branch(history: History) -> str | None:
    table, current = history.table, history.table.current_snapshot()
    if current is None:
        return None
    if "side" not in table.metadata.refs:
        table.manage_snapshots().create_branch(current.snapshot_id, "side").commit()
        table.refresh()
    files.append(table, files.data_files(table, _new_rows(history)), "side")
    return "append to a branch"


def delete_rows(history: History) -> str | None:
    start = history.rng.randrange(history.ids)
    stop = start + history.rng.choice([1, 3, 30])
    if files.has_transforms(history.table):
        return _rewrite(history, start, stop, [])
    history.table.delete(f"id >= {start} and id < {stop}")
    return "delete by rewriting"


def overwrite_rows(history: History) -> str | None:
    start = history.rng.randrange(history.ids)
    stop = start + history.rng.choice([5, 60])
    if files.has_transforms(history.table):
        return _rewrite(history, start, stop, files.data_files(history.table, _new_rows(history)))
    history.table.overwrite(_new_rows(history), overwrite_filter=f"id >= {start} and id < {stop}")
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


def import_file(history: History) -> str:
    """A file with a name and a size of its own."""
    table, rng = history.table, history.rng
    name = f"imported-{len(history.log)}-{rng.getrandbits(40)}.parquet"
    key, rows = max(files.partitions(table, _new_rows(history)), key=lambda part: part[1].num_rows)
    file = files.imported(table, rows, name, key)
    assert file is not None
    files.append(table, [file])
    history.imported[name] = file
    return f"import {name}"


def return_file(history: History) -> str | None:
    """An imported file leaves, is written anew with other rows, and comes back."""
    table, rng = history.table, history.rng
    live = {task.file.file_path.rsplit("/", 1)[-1]: task.file for task in table.scan().plan_files()}
    # pyiceberg 0.12 applies position deletes to a file of the same path that came after them
    deleted = {path.rsplit("/", 1)[-1] for path, _ in history.deleted}
    known = sorted(name for name in history.imported if name in live and name not in deleted)
    if not known:
        return import_file(history)
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
        do(history, append_rows)
    key, rows = rng.choice(parts)
    made = files.imported(table, rows.slice(0, wanted), name, key, file.file_size_in_bytes)
    if made is None:
        return f"remove {name}"
    files.append(table, [made])
    history.asked_ids = rows.slice(0, wanted)["id"].to_pylist()
    return f"return {name}"


def return_indexed(history: History) -> None:
    """A file comes back after a sidecar was built for it; at times another one is built for other columns then."""
    for _ in range(3):
        do(history, import_file)
        before, history.indexed = history.indexed, []
        do(history, build)
        history.asked_columns, history.indexed = history.indexed, sorted({*before, *history.indexed})
        do(history, return_file)
        if history.log[-1].startswith("return"):
            break
    others = sorted({*history.values} - {*history.asked_columns})
    if others and history.rng.random() < 0.4:
        do(history, lambda it: build(it, others))


def upgrade(history: History) -> str | None:
    if history.table.format_version > 1:
        return None
    with history.table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    return "upgrade to version 2"


def delete_rows_by_position(history: History) -> str | None:
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


def delete_rows_by_equality(history: History) -> str | None:
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
    append_rows(history)
    return "delete by equality and append"


def _changeable(history: History) -> list[str]:
    """Columns that no partition depends on."""
    used = {f.source_id for spec in history.table.specs().values() for f in spec.fields}
    schema = history.table.schema()
    return sorted(n for n in history.values if n != "id" and schema.find_field(n).field_id not in used)


def promote_column(history: History) -> str | None:
    schema = history.table.schema()
    open_ = [n for n in _changeable(history) if n in WIDER and schema.find_field(n).field_type != WIDER[n]]
    if not open_:
        return None
    name = history.rng.choice(open_)
    with history.table.update_schema() as update:
        update.update_column(name, WIDER[name])
    return f"promote {name}"


def rename_column(history: History) -> str:
    old = history.rng.choice(_changeable(history))
    top, _, below = old.rpartition(".")
    new = f"{below}_{len(history.log)}"
    with history.table.update_schema() as update:
        update.rename_column(tuple(old.split(".")), new)
    history.values[f"{top}.{new}" if top else new] = history.values.pop(old)
    return f"rename {old}"


def drop_column(history: History) -> str | None:
    open_ = [n for n in _changeable(history) if "." not in n]
    if len(open_) < 6:
        return None
    name = history.rng.choice(open_)
    with history.table.update_schema() as update:
        update.delete_column(name)
    history.dropped.append(f"{name} {history.values.pop(name)}")
    return f"drop {name}"


def drop_and_add_column(history: History) -> str | None:
    """A column dropped and added again under its name at once, of the same values or of others."""
    done = drop_column(history)
    if done is None:
        return None
    history.table.refresh()
    name, value = history.dropped[-1].split()
    value = value if value in NEW and history.rng.random() < 0.5 else history.rng.choice(sorted(NEW))
    with history.table.update_schema() as update:
        update.add_column(name, NEW[value])
    history.values[name] = value
    return f"{done} and add it again"


def add_column(history: History) -> str:
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


def change_partitions(history: History) -> str | None:
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


def roll_back(history: History) -> str | None:
    current = history.table.current_snapshot()
    if current is None or current.parent_snapshot_id is None or history.equality_deletes:
        return None
    history.table.manage_snapshots().rollback_to_snapshot(current.parent_snapshot_id).commit()
    return "roll back"


def expire(history: History) -> str | None:
    metadata = history.table.metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    open_ = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in named]
    if not open_:
        return None
    history.table.maintenance.expire_snapshots().by_id(history.rng.choice(open_)).commit()
    return "expire a snapshot"


def build(history: History, among: Collection[str] | None = None) -> str | None:
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
    options: dict[str, Any] = {"as_": rng.choice(["auto", "parquet", "orc"])}
    options["at"] = None if snapshot is None else snapshot.snapshot_id
    sidecar.build(table, chosen, kinds=kinds, fpp=fpp, engine="local", threads=1, **options)
    history.indexed = sorted({*history.indexed, *chosen})
    return f"build {','.join(chosen)} as {','.join(kinds)}"


CHANGES: list[Callable[[History], str | None]] = [
    *[append_rows] * 4, append_to_branch, *[delete_rows] * 2, overwrite_rows, *[delete_rows_by_position] * 3,
    *[promote_column] * 2, *[rename_column] * 2, drop_column, *[add_column] * 2, *[change_partitions] * 2,
    roll_back, expire, *[build] * 2,
]  # fmt: skip
