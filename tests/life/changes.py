"""What pyiceberg and other writers do to a table: one change a function, with the choices of a seed.

Each returns what it did, or ``None`` if it does not apply now, and tells the model which rows there are then.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import BucketTransform, DayTransform, TruncateTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
)

from tests.iceberg.cases import delete_by_equality, local
from tests.iceberg.mixed_tables import append_files, append_odd_orc
from tests.iceberg.table_cases import delete_by_position
from tests.life import files
from tests.life.conditions import askable_columns
from tests.life.sidecar_changes import (
    build,
    collect_garbage,
    damage,
    embed,
    expire_registrations,
    refresh,
    register_others,
)
from tests.life.table_life import Change, Contents, Life, Staged
from tests.life.values import Row

WIDER: dict[type[IcebergType], PrimitiveType] = {IntegerType: LongType(), FloatType: DoubleType()}
NEW: dict[str, PrimitiveType] = {
    "l": LongType(), "d": DoubleType(), "s": StringType(), "day": DateType(), "ts": TimestampType(),
}  # fmt: skip
"""Columns that are added, by the first name of their values."""


def append(life: Life, branch: str | None = None, counts: Sequence[int] = (1, 3, 8, 30)) -> str:
    """Rows come to a branch."""
    branch = branch or life.rng.choice([*["main"] * 3, *life.branches()])
    rows = life.begin(branch)
    data, new = life.new_rows(life.rng.choice(counts))
    can_be_orc = life.mixed and branch == "main" and not life.table.spec().fields
    if can_be_orc and life.rng.random() < 0.5:
        append_odd_orc(life.table, data, life.rng)
    else:
        append_files(life.table, life.new_files(data), branch)
    life.note_rows({**rows, **new}, branch)
    return f"append {len(new)} to {branch}"


def delete_rows(life: Life) -> str | None:
    """Rows of a range of ids leave; their files are written anew."""
    return _rewrite(life, [], {})


def overwrite_rows(life: Life) -> str | None:
    """Rows of a range of ids leave, and others come."""
    if life.head().equality_deletes or life.encrypted:
        return None
    data, new = life.new_rows(life.rng.choice([1, 5]))
    return _rewrite(life, files.data_files(life.table, data), new)


def _rewrite(life: Life, files_of_new: list[DataFile], new: dict[int, Row]) -> str | None:
    rows, table = life.begin(), life.table
    if not rows or life.head_before.equality_deletes or life.encrypted:
        return None
    start = life.rng.randrange(life.next_id)
    stop = start + life.rng.choice([1, 4, 40])
    found = list(files.rows_without(table, start, stop))
    left = [one for _, one in found if one.num_rows]
    if not found and not new:
        return None
    kept = [file for one in left for file in files.data_files(table, one)]
    files.remove(table, [file for file, _ in found], [*files_of_new, *kept])
    stay = {key: row for key, row in rows.items() if not start <= key < stop}
    life.note_rows({**stay, **new})
    return f"rewrite without {start} to {stop}, with {len(new)} more"


def compact_files(life: Life) -> str | None:
    """The rows of some data files move to new ones, without those that were deleted by position."""
    rows, table, live = life.begin(), life.table, life.files_of_id_ranges()
    if not live or life.head_before.equality_deletes or life.encrypted:
        return None
    chosen = {file.file_path for _, file in life.rng.sample(live, min(len(live), life.rng.choice([2, 3, 9])))}
    tasks = [task for task in table.scan().plan_files() if task.file.file_path in chosen]
    data = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
    files.remove(table, [task.file for task in tasks], files.data_files(table, data))
    life.note_rows(rows)
    return f"compact {len(tasks)} files"


def delete_by_predicate(life: Life) -> str | None:
    """pyiceberg deletes rows by a column's value: whole files where it can, else it writes files anew."""
    rows = life.begin()
    if not rows or life.head_before.equality_deletes or files.has_transforms(life.table) or life.encrypted:
        return None
    names = [n for n, (_, kind) in askable_columns(life.schema).items() if isinstance(kind, LongType | StringType)]
    name = life.rng.choice(sorted(names))
    field_id = life.schema.find_field(name).field_id
    value = rows[life.rng.choice(sorted(rows))].get(field_id)
    if value is None or "\x00" in str(value):
        return None
    life.table.delete(EqualTo(name, value))  # type: ignore[call-arg, arg-type]
    life.note_rows({key: row for key, row in rows.items() if row.get(field_id) != value})
    return f"delete where {name} = {value!r}"


def overwrite_all(life: Life) -> str | None:
    """All rows leave, and others come."""
    life.begin()
    if files.has_transforms(life.table) or life.head_before.equality_deletes:
        return None
    data, new = life.new_rows(life.rng.choice([2, 12]))
    life.table.overwrite(data)
    life.note_rows(new)
    return f"overwrite all with {len(new)}"


def overwrite_partitions(life: Life) -> str | None:
    """The partitions of new rows lose their other rows."""
    rows, spec = life.begin(), life.table.spec()
    if not spec.fields or files.has_transforms(life.table) or life.head_before.equality_deletes:
        return None
    if any(s.spec_id != spec.spec_id for s in life.table.specs().values()):
        return None  # pyiceberg then finds partitions of the present spec alone
    data, new = life.new_rows(life.rng.choice([1, 3]))
    sources = [field.source_id for field in spec.fields]
    if any(row[source] is None for row in new.values() for source in sources):
        return None
    life.table.dynamic_partition_overwrite(data)
    gone = {tuple(row[source] for source in sources) for row in new.values()}
    stay = {key: row for key, row in rows.items() if tuple(row.get(source) for source in sources) not in gone}
    life.note_rows({**stay, **new})
    return f"overwrite the partitions of {len(new)} rows"


def delete_by_positions(life: Life) -> str | None:
    """A position delete file for one data file."""
    rows, places = life.begin(), life.places()
    live = [(first, f) for first, f in life.files_of_id_ranges() if f.file_path in places.values()]
    if not live or life.table.format_version == 1:
        return None
    _, file = life.rng.choice(live)
    here = sorted(key for key, path in places.items() if path == file.file_path)
    gone = set(life.rng.sample(here, min(len(here), life.rng.choice([1, 3, 30]))))
    positions = {file.file_path: [at for at, key in enumerate(life.ids_in_order(file)) if key in gone]}
    delete_by_position(life.table, positions, file.spec_id, file.partition)
    life.note_rows({key: row for key, row in rows.items() if key not in gone})
    return f"delete {len(gone)} by position"


def delete_by_equality_of(life: Life, name: str | None = None) -> str | None:
    """An equality delete file, by ids or by values of another column."""
    rows = life.begin()
    if not rows or life.table.format_version == 1 or all(spec.fields for spec in life.table.specs().values()):
        return None
    kinds = (IntegerType, LongType, StringType, DecimalType)
    names = [n for n, (_, k) in askable_columns(life.schema).items() if isinstance(k, kinds) and "." not in n]
    name = name or life.rng.choice(["id", *sorted(names)])
    field_id = life.schema.find_field(name).field_id
    some = [rows[key][field_id] for key in life.rng.sample(sorted(rows), min(len(rows), 4)) if field_id in rows[key]]
    values = [value for value in some if value is not None]
    if not values:
        return None
    kind = life.schema.as_arrow().field(name).type
    column = pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})
    delete_by_equality(life.table, pa.table([pa.array(values, kind)], pa.schema([column])), [field_id])
    life.table.refresh()
    snapshot = life.table.current_snapshot()
    assert snapshot is not None
    contents = {key: row for key, row in rows.items() if row.get(field_id) not in values}
    life.contents[snapshot.snapshot_id] = Contents(contents, equality_deletes=True)
    return f"delete by equality of {name}"


def import_file(life: Life) -> str:
    """A file comes that may come back later."""
    rows, rng = life.begin(), life.rng
    data, new = life.new_rows(rng.choice([6, 14]))
    name = f"imported-{len(life.log)}-{rng.getrandbits(30)}.parquet"
    key, part = max(files.partitions(life.table, data), key=lambda one: one[1].num_rows)
    file = files.imported(life.table, part, name, key)
    assert file is not None
    append_files(life.table, [file])
    life.returned[name] = file
    life.note_rows({**rows, **{one: new[one] for one in part["id"].to_pylist()}})
    return f"import {name}"


def return_file(life: Life) -> str | None:
    """An imported file leaves, is written anew with other rows, in as many bytes, and comes back."""
    rows, table, rng = life.begin(), life.table, life.rng
    snapshot = table.current_snapshot()
    if snapshot is None or life.head_before.equality_deletes:
        return None
    live = {file.file_path.rsplit("/", 1)[-1]: file for file in life.data_files(snapshot)}
    names = sorted(name for name in life.returned if name in live and _is_whole(life, live[name]))
    if not names:
        return import_file(life)
    name = rng.choice(names)
    file = live[name]
    data, new = life.new_rows(file.record_count * (12 if table.spec().fields else 1))
    parts = [(k, p) for k, p in files.partitions(table, data) if p.num_rows >= file.record_count]
    if not parts or file.spec_id != table.spec().spec_id:
        return None
    before = life.ids_in(file)
    key, part = rng.choice(parts)
    part = part.slice(0, file.record_count)
    files.remove(table, [file], [])
    stay = {one: row for one, row in rows.items() if one not in before}
    life.note_rows(stay)
    life.forget_file(file.file_path)
    made = files.imported(table, part, name, key, file.file_size_in_bytes)
    if made is None:
        return f"remove {name}"
    append_files(table, [made])
    life.note_rows({**stay, **{one: new[one] for one in part["id"].to_pylist()}})
    life.files_of_snapshots.clear()
    return f"return {name}"


def _is_whole(life: Life, file: DataFile) -> bool:
    """Whether no row of the file was deleted: deletes apply to a file of the same path that came after them, too."""
    return life.ids_in(file) <= life.head().rows.keys() and all(
        file.file_path not in {f.file_path for f in life.data_files(snapshot)}
        or life.ids_in(file) <= life.contents[snapshot.snapshot_id].rows.keys()
        for snapshot in life.table.metadata.snapshots
        if snapshot.snapshot_id in life.contents
    )


def create_branch(life: Life) -> str | None:
    known = life.known_snapshots()
    if not known or len(life.branches()) > 2:
        return None
    name = f"branch{len(life.log)}"
    life.table.manage_snapshots().create_branch(life.rng.choice(known), name).commit()
    return f"create {name}"


def create_tag(life: Life) -> str | None:
    known = life.known_snapshots()
    if not known:
        return None
    life.table.manage_snapshots().create_tag(life.rng.choice(known), f"tag{len(life.log)}").commit()
    return "create a tag"


def drop_ref(life: Life) -> str | None:
    refs = sorted((name, ref) for name, ref in life.table.metadata.refs.items() if name != "main")
    if not refs:
        return None
    name, ref = life.rng.choice(refs)
    change = life.table.manage_snapshots()
    (change.remove_tag if ref.snapshot_ref_type == SnapshotRefType.TAG else change.remove_branch)(name).commit()
    return f"drop {name}"


def roll_back(life: Life) -> str | None:
    """The head becomes one of its ancestors again."""
    head = life.table.current_snapshot()
    if head is None:
        return None
    older = [s.snapshot_id for s in ancestors_of(head, life.table.metadata)][1:]
    known = [snapshot_id for snapshot_id in older if snapshot_id in life.contents]
    if not known:
        return None
    chosen = life.rng.choice(known[:3])
    life.table.manage_snapshots().rollback_to_snapshot(chosen).commit()
    return f"roll back by {older.index(chosen) + 1}"


def set_current(life: Life) -> str | None:
    """The head becomes any snapshot: that of a branch that is published, or one that was rolled back."""
    known = life.known_snapshots()
    if not known:
        return None
    life.table.manage_snapshots().set_current_snapshot(life.rng.choice(known)).commit()
    return "set the current snapshot"


def stage(life: Life) -> str | None:
    """Write, audit, publish: a snapshot without a ref."""
    rows = life.begin()
    data, new = life.new_rows(life.rng.choice([2, 9]))
    made = life.new_files(data)
    append_files(life.table, made, None)
    life.table.refresh()
    snapshot = life.table.metadata.snapshots[-1]
    life.contents[snapshot.snapshot_id] = replace(life.head_before, rows={**rows, **new})
    life.staged.append(Staged(made, life.table.spec().spec_id, new))
    return f"stage {len(new)}"


def cherry_pick(life: Life) -> str | None:
    """The files of a staged snapshot come to ``main`` in a snapshot of its own."""
    if not life.staged:
        return None
    staged, rows = life.staged.pop(life.rng.randrange(len(life.staged))), life.begin()
    if staged.rows.keys() & rows.keys() or staged.spec_id != life.table.spec().spec_id:
        return None
    append_files(life.table, staged.files)
    life.note_rows({**rows, **staged.rows})
    return "pick a staged snapshot"


def expire_snapshots(life: Life) -> str | None:
    metadata = life.table.metadata
    held = {ref.snapshot_id for ref in metadata.refs.values()}
    free = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in held]
    if not free:
        return None
    life.table.maintenance.expire_snapshots().by_ids(life.rng.sample(free, min(len(free), 2))).commit()
    return "expire snapshots"


def promote_column(life: Life) -> str | None:
    """A number gets a wider type."""
    schema, open_ = life.schema, []
    for name in life.changeable_columns():
        kind = schema.find_type(name)
        if isinstance(kind, DecimalType) and kind.precision < 38:
            open_.append((name, DecimalType(min(kind.precision + life.rng.choice([1, 9, 20]), 38), kind.scale)))
        elif (wider := WIDER.get(type(kind))) is not None:
            open_.append((name, wider))
    if not open_:
        return None
    name, wider = life.rng.choice(open_)
    with life.table.update_schema() as update:
        update.update_column(name, wider)
    return f"promote {name} to {wider}"


def rename_column(life: Life) -> str:
    old = life.rng.choice(life.changeable_columns())
    top, _, below = old.rpartition(".")
    new = f"{below}_{len(life.log)}"
    with life.table.update_schema() as update:
        update.rename_column(tuple(old.split(".")), new)
    life.values[f"{top}.{new}" if top else new] = life.values.pop(old)
    return f"rename {old}"


def drop_column(life: Life) -> str | None:
    open_ = [n for n in life.changeable_columns() if "." not in n]
    if len(open_) < 6:
        return None
    name = life.rng.choice(open_)
    with life.table.update_schema() as update:
        update.delete_column(name)
    life.dropped.append((name, life.values.pop(name)))
    return f"drop {name}"


def drop_and_add_column(life: Life) -> str | None:
    """A column dropped and added again under its name at once, of the same values or of others."""
    done = drop_column(life)
    if done is None:
        return None
    life.table.refresh()
    name, value = life.dropped[-1]
    value = value if value in NEW and life.rng.random() < 0.5 else life.rng.choice(sorted(NEW))
    with life.table.update_schema() as update:
        update.add_column(name, NEW[value])
    life.values[name] = value
    return f"{done} and add it again"


def add_column(life: Life) -> str:
    """A column, at times under the name of one that was dropped."""
    known = [(name, value) for name, value in life.dropped if name not in life.values and value in NEW]
    if known and life.rng.random() < 0.7:
        name, value = life.rng.choice(known)
    else:
        name, value = f"new{len(life.log)}", life.rng.choice(sorted(NEW))
    with life.table.update_schema() as update:
        update.add_column(name, NEW[value])
    life.values[name] = value
    return f"add {name}"


def upgrade(life: Life) -> str | None:
    if life.table.format_version > 1:
        return None
    with life.table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    return "upgrade to version 2"


def swap_columns(life: Life) -> str | None:
    """Two columns of one type swap their names."""
    open_ = [name for name in life.changeable_columns() if "." not in name]
    kind_of = life.schema.find_type
    pairs = [(one, two) for one in open_ for two in open_ if one < two and kind_of(one) == kind_of(two)]
    if not pairs:
        return None
    one, two = life.rng.choice(pairs)
    for old, new in ((one, "between"), (two, one), ("between", two)):
        with life.table.update_schema() as update:
            update.rename_column(old, new)
    life.values[one], life.values[two] = life.values[two], life.values[one]
    return f"swap {one} and {two}"


def change_partitions(life: Life) -> str | None:
    """A partition field comes or goes: identities, and at times a transform."""
    table, rng = life.table, life.rng
    if life.mixed:
        return None  # the manifest entries of ORC files that pyiceberg is made to list have no partitions
    if not table.spec().fields and rng.random() < 0.4:
        columns = askable_columns(table.schema())
        fields: list[tuple[str, Any]] = [("id", BucketTransform(3)), ("id", TruncateTransform(20))]
        fields += [(n, DayTransform()) for n, (_, k) in columns.items() if str(k) == "timestamp" and "." not in n]
        name, transform = rng.choice(fields)
        with table.update_spec() as spec:
            spec.add_field(name, transform, f"{name}_part{len(life.log)}")
        return f"partition by {transform} of {name}"
    taken = [f.name for f in table.spec().fields]
    if taken and rng.random() < 0.5:
        name = rng.choice(taken)
        with table.update_spec() as spec:
            spec.remove_field(name)
        return f"remove partition {name}"
    used = {f.source_id for f in table.spec().fields}
    open_ = [n for n, v in life.values.items() if v in ("part", "bo")]
    open_ = [n for n in open_ if table.schema().find_field(n).field_id not in used]
    if not open_:
        return None
    name = rng.choice(sorted(open_))
    with table.update_spec() as spec:
        spec.add_identity(name)
    return f"partition by {name}"


def move(life: Life) -> str | None:
    """The table goes to another place, as a copy of all its files whose metadata names the new one."""
    old, table = life.name, life.table
    place, catalog = local(table.location()), life.catalog
    location = table.location()
    life.number += 1000
    new_location = location.replace(old.rpartition(".")[2], life.name.rpartition(".")[2])
    target = local(new_location)
    current = local(table.metadata_location).name
    shutil.move(place, target)
    for path in _with_paths(target):
        path.write_bytes(path.read_bytes().replace(location.encode(), new_location.encode()))
    catalog.drop_table(old)
    life.table = catalog.register_table(life.name, f"{new_location}/metadata/{current}")
    for names in (life.files_of_snapshots, life.ids_of_files, life.staged, life.returned):
        names.clear()
    return "move the table"


def _with_paths(folder: Any) -> Iterable[Any]:
    """The files that name others: metadata, manifests, and delete files by position."""
    yield from (path for path in (folder / "metadata").iterdir() if path.suffix in (".avro", ".json"))
    yield from (folder / "data").glob("position-delete-*")


CHANGES: dict[Change, int] = {
    append: 6, delete_rows: 2, overwrite_rows: 2, compact_files: 2, delete_by_predicate: 1,
    overwrite_all: 1, overwrite_partitions: 1,
    delete_by_positions: 2, delete_by_equality_of: 1, import_file: 1, return_file: 2, create_branch: 1, create_tag: 1,
    drop_ref: 1, roll_back: 2, set_current: 1, stage: 1, cherry_pick: 2, expire_snapshots: 1, promote_column: 2,
    rename_column: 2, drop_column: 1, add_column: 1, drop_and_add_column: 2, swap_columns: 1, upgrade: 1,
    change_partitions: 2, build: 5, refresh: 4, expire_registrations: 1, collect_garbage: 1,
    register_others: 1, embed: 2, move: 1, damage: 1,
}  # fmt: skip
"""The changes, and how often each is tried."""
