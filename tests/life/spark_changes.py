"""What Spark does to a table in its life: rows deleted and updated, files and manifests rewritten, commits picked.

Spark's rows of an insert are rows that the table has, under new ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions.visitors import bind
from pyiceberg.table import Table

import sidecar
from sidecar.iceberg.predicates.predicate import parse_predicate
from tests.duckdb_predicates import spark_condition
from tests.life import changes, sidecar_changes
from tests.life.conditions import random_condition
from tests.life.pasts import Past
from tests.life.table_life import Change, Contents, Life
from tests.life.values import Row

PROPERTIES = {f"write.parquet.{what}-size-bytes": "65536" for what in ("page", "dict")}
"""parquet-java cannot write pages as small as those of other lives."""
serial = itertools.count(1)


def name_in_spark(life: Life) -> str:
    return f"{life.place.in_spark}.{life.name}"


def sql(life: Life, text: str) -> list[Any]:
    """Run a statement; ``{t}`` in it is the table."""
    found: list[Any] = life.spark.sql(text.replace("{t}", name_in_spark(life))).collect()
    return found


def call(life: Life, procedure: str, more: str = "") -> None:
    """Call one of Iceberg's procedures for the table."""
    sql(life, f"call {life.place.in_spark}.system.{procedure}(table => '{life.name}'{', ' if more else ''}{more})")


def insert(life: Life, branch: str | None = None, form: str = "parquet") -> str | None:
    """Some rows once more, under new ids; at times into a branch."""
    branch = branch or life.rng.choice(life.branches())
    rows, base = life.begin(branch), life.next_id
    new, condition = _copies(life)
    if not new:
        return None
    if form != "parquet":
        sql(life, f"alter table {{t}} set tblproperties ('write.format.default'='{form}')")
    _insert(life, base, condition, "" if branch == "main" else f".branch_{branch}")
    life.note_rows({**rows, **new}, branch)
    return f"insert {len(new)} into {branch} as {form} in Spark"


def _copies(life: Life) -> tuple[dict[int, Row], str]:
    """Rows of ``main`` under new ids, and which ones, as SQL."""
    third, base = life.rng.randrange(3), life.next_id
    new = {key + base: {**row, 1: key + base} for key, row in life.head().rows.items() if key % 3 == third}
    life.next_id = max([*new, base]) + 1
    return new, f"id % 3 = {third}"


def _insert(life: Life, base: int, condition: str, into: str = "") -> None:
    from pyspark.sql import functions as f

    rows = life.spark.table(name_in_spark(life)).where(condition).withColumn("id", f.col("id") + base)
    rows.coalesce(1).writeTo(name_in_spark(life) + into).append()


def _mode(life: Life, what: str, mode: str | None = None) -> str:
    mode = mode or life.rng.choice(["merge-on-read", "merge-on-read", "copy-on-write"])
    sql(life, f"alter table {{t}} set tblproperties ('write.{what}.mode'='{mode}')")
    return mode


def _some(life: Life, rows: Mapping[int, Row]) -> list[int]:
    return life.rng.sample(sorted(rows), min(len(rows), life.rng.choice([1, 3, 12])))


def delete(life: Life, mode: str | None = None) -> str | None:
    """Rows leave, by deletes beside their files or in files written anew."""
    rows = life.begin()
    gone = _some(life, rows)
    if not gone:
        return None
    mode = _mode(life, "delete", mode)
    sql(life, f"delete from {{t}} where id in ({', '.join(map(str, gone))})")
    life.note_rows({key: row for key, row in rows.items() if key not in gone})
    return f"delete {len(gone)} {mode} in Spark"


def update(life: Life) -> str | None:
    """Rows get another value."""
    rows = life.begin()
    changed = _some(life, rows)
    names = [name for name in life.changeable_columns() if str(life.schema.find_type(name)) in ("long", "string")]
    names = [name for name in names if "." not in name]
    if not changed or not names:
        return None
    name, mode = life.rng.choice(names), _mode(life, "update")
    field = life.schema.find_field(name)
    value: Any = life.rng.randrange(10**6) if str(field.field_type) == "long" else f"new {life.rng.randrange(99)}"
    sql(life, f"update {{t}} set {name} = {value!r} where id in ({', '.join(map(str, changed))})")
    life.note_rows({k: {**row, field.field_id: value} if k in changed else row for k, row in rows.items()})
    return f"update {name} of {len(changed)} {mode} in Spark"


def delete_by_equality(life: Life) -> str | None:
    """Rows leave by a file of their ids."""
    rows = life.begin()
    if life.table.format_version == 1 or all(s.fields for s in life.table.specs().values()) or life.next_id < 24:
        return None
    gone = set(life.rng.sample(range(life.next_id), 12))
    _commit_equality_deletes(life, gone)
    life.note(Contents({key: row for key, row in rows.items() if key not in gone}, equality_deletes=True))
    return f"delete {len(gone & rows.keys())} by equality"


def _commit_equality_deletes(life: Life, ids: Collection[int]) -> None:
    """By Iceberg's Java library: Spark reads such deletes and writes none; it cannot read ids as pyiceberg has them."""
    table, jvm = life.table.refresh(), life.spark._jvm
    path = f"{table.location()}/data/equality-delete-{life.rng.getrandbits(60)}.parquet"
    key = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table([pa.array(sorted(ids))], schema=pa.schema([key])), stream)
    native = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(life.spark._jsparkSession, name_in_spark(life))
    unpartitioned = next(spec for spec in table.specs().values() if not spec.fields)
    field_ids = life.spark.sparkContext._gateway.new_array(jvm.int, 1)
    field_ids[0] = 1
    file = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(native.specs().get(unpartitioned.spec_id))
    file = file.ofEqualityDeletes(field_ids).withPath(path).withFormat("PARQUET").withRecordCount(len(ids))
    file = file.withFileSizeInBytes(len(table.io.new_input(path)))
    native.newRowDelta().addDeletes(file.build()).commit()


def rewrite_data_files(life: Life) -> str:
    """Files become fewer ones, without the rows that were deleted."""
    rows = life.begin()
    options = life.rng.choice(["'rewrite-all', 'true'", "'min-input-files', '2'"])
    call(life, "rewrite_data_files", f"options => map({options})")
    life.note_rows(rows)
    return f"rewrite data files {options}"


def rewrite_manifests(life: Life) -> str:
    rows = life.begin()
    call(life, "rewrite_manifests")
    life.note_rows(rows)
    return "rewrite manifests"


def rewrite_deletes(life: Life) -> str | None:
    rows = life.begin()
    if life.table.format_version == 3:
        return None
    call(life, "rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    life.note_rows(rows)
    return "rewrite position deletes"


def compute_statistics(life: Life) -> str | None:
    """Spark's own statistics replace ours."""
    if not life.head().rows:
        return None
    call(life, "compute_table_stats", "columns => array('id')")
    return "compute statistics in Spark"


def publish(life: Life) -> str | None:
    """Write, audit, publish: a staged insert is indexed at times, and picked after another commit at times."""
    rows, base = life.begin(), life.next_id
    new, condition = _copies(life)
    if not new:
        return None
    sql(life, "alter table {t} set tblproperties ('write.wap.enabled'='true')")
    mark = f"wap{next(serial)}"
    life.spark.conf.set("spark.wap.id", mark)
    try:
        _insert(life, base, condition)
    finally:
        life.spark.conf.unset("spark.wap.id")
    life.table.refresh()
    snapshot = life.table.metadata.snapshots[-1]
    life.contents[snapshot.snapshot_id] = Contents({**rows, **new}, life.head_before.equality_deletes)
    if life.rng.random() < 0.6 and can_commit(life):
        sidecar.build(life.table, ["id"], engine="local", at=snapshot.snapshot_id)
    if life.rng.random() < 0.5:
        life.table.refresh()
        insert(life)
        rows = life.head().rows
    call(life, "publish_changes", f"wap_id => '{mark}'")
    life.note_rows({**rows, **new})
    return f"publish {len(new)}"


def fast_forward(life: Life) -> str | None:
    """``main`` becomes a branch that is ahead of it."""
    main = life.table.current_snapshot()
    for branch in life.branches()[1:]:
        head = life.table.metadata.snapshot_by_name(branch)
        while head is not None and main is not None and head.snapshot_id != main.snapshot_id:
            head = life.table.metadata.snapshot_by_id(head.parent_snapshot_id or 0)
        if head is not None:
            call(life, "fast_forward", f"branch => 'main', to => '{branch}'")
            return f"fast forward to {branch}"
    return None


def add_partition_field(life: Life) -> str | None:
    if life.table.spec().fields:
        return None
    columns = {value: column for column, value in life.values.items() if "." not in column}
    forms = {"part": "{}", "ts": "days({})", "s": "truncate(8, {})"}
    fields = ["bucket(3, id)", "truncate(20, id)", *(f.format(columns[v]) for v, f in forms.items() if v in columns)]
    field = life.rng.choice(fields)
    sql(life, f"alter table {{t}} add partition field {field}")
    return f"partition by {field} in Spark"


def build_in_spark(life: Life) -> str | None:
    """The same stages as executors run them."""
    if not can_commit(life):
        return None
    return sidecar_changes.build(life, engine="spark", spark=life.spark)


def refresh_in_spark(life: Life) -> str | None:
    if not can_commit(life):
        return None
    return sidecar_changes.refresh(life, engine="spark", spark=life.spark)


def upgrade_to_3(life: Life, chance: float = 0.4) -> str | None:
    """Deletes become deletion vectors. What pyiceberg can commit then depends on the catalog."""
    if life.table.format_version == 3 or life.rng.random() >= chance:
        return None
    sql(life, "alter table {t} set tblproperties ('format-version'='3')")
    return "upgrade to version 3"


def swap_or_add_again(life: Life) -> str | None:
    """Two columns swap their names, or one is dropped and added again; there is no new snapshot."""
    rng, kinds = life.rng, {"long": "bigint", "string": "string", "double": "double", "date": "date"}
    alike: dict[str, list[str]] = {}
    for name in (name for name in life.changeable_columns() if "." not in name):
        alike.setdefault(str(life.schema.find_type(name)), []).append(name)
    pairs = [names for names in alike.values() if len(names) > 1]
    again = [(column, kinds[kind]) for kind, names in alike.items() if kind in kinds for column in names]
    if again and (not pairs or rng.random() < 0.3):
        column, kind = rng.choice(again)
        sql(life, f"alter table {{t}} drop column {column}")
        sql(life, f"alter table {{t}} add column {column} {kind}")
        return f"drop {column} and add it again in Spark"
    if not pairs:
        return None
    one, two = rng.sample(rng.choice(pairs), 2)
    for old, new in ((one, "between"), (two, one), ("between", two)):
        sql(life, f"alter table {{t}} rename column {old} to {new}")
    life.values[one], life.values[two] = life.values[two], life.values[one]
    return f"swap {one} and {two} in Spark"


def go_on_in_spark(spark: Any, life: Past) -> None:
    """Change a table with a past further, once: all that only Spark does to it, after the last build of a sidecar."""
    if life.spark is not None:
        return
    life.spark, rng = spark, life.rng
    # parquet-java cannot write pages as small as those of the files so far, and Java's name of no codec is another one
    own = {**PROPERTIES, "write.avro.compression-codec": "uncompressed"}
    sizes = ", ".join(f"'{name}'='{value}'" for name, value in own.items())
    version = ", 'format-version'='2'" if life.table.format_version == 1 else ""
    sql(life, f"alter table {{t}} set tblproperties ({sizes}{version})")
    life.table.refresh()
    unpartitioned = any(not spec.fields for spec in life.table.specs().values())
    by_equality = "equality" in life.features and unpartitioned
    form = rng.choice(["avro", "orc"]) if "formats" in life.features else "parquet"
    steps: list[Change] = [
        partial(insert, branch="main", form=form),
        partial(delete, mode="merge-on-read"),
        rng.choice([add_partition_field, rewrite_data_files, rewrite_manifests]),
        partial(insert, branch="main", form=form),
        *([delete_by_equality] if by_equality else [partial(upgrade_to_3, chance=1.0), delete]),
    ]
    if branches := life.branches()[1:]:
        steps.insert(rng.randrange(1, 5), partial(insert, branch=branches[0], form=form))
    for step in steps:
        life.do(step)
    if "schema" in life.features:
        life.older = life.catalog.load_table(life.name)
        life.ask_about(swap_or_add_again)


def can_commit(life: Life) -> bool:
    """Whether pyiceberg can commit changes of the table's metadata."""
    return life.table.format_version < 3 or life.place.can_commit_version_3


def by_pyiceberg(change: Change) -> Change:
    """A change that pyiceberg commits. It writes no manifests of version 3, whatever the catalog."""

    def run(life: Life) -> str | None:
        writes_manifests = change.__name__ in ("append", "embed", "delete_by_positions")
        return change(life) if life.table.format_version < 3 or (can_commit(life) and not writes_manifests) else None

    run.__name__ = change.__name__
    return run


def check_in_spark(life: Life, seed: int) -> None:
    """Spark finds the rows of the model, in all files and in those that a plan leaves."""
    table: Table = life.table.refresh()
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    contents, rng = life.contents[snapshot.snapshot_id], life.choose(seed)
    rows = [contents.rows[key] for key in sorted(contents.rows)]
    for _ in range(20):  # no fixed type in SQL; bounds of UUIDs as signed numbers
        condition = random_condition(rng, life.schema, rows, life.indexed, orc=True)
        kinds = {str(life.schema.find_type(name)) for name in condition.columns()}
        if not any(kind.startswith(("fixed", "uuid")) for kind in kinds):
            break
    else:
        return
    schema = life.schema
    where = spark_condition(bind(schema, parse_predicate(condition.text(), schema), case_sensitive=True), schema)
    with sidecar.spark_read(life.spark, name_in_spark(life), table, condition.text(), ["id"]) as frame:
        found = {row.id for row in frame.collect()}
    own = {row.id for row in life.spark.table(name_in_spark(life)).where(where).select("id").collect()}
    truth = {key: condition.truth(row) for key, row in contents.rows.items()}
    said = (condition.text(), life.log)
    for who, ids in (("Spark", own), ("spark_read", found)):
        lost = sorted(key for key, one in truth.items() if one.must and key not in ids)
        foreign = sorted(key for key in ids if key not in truth or not truth[key].may)
        assert (lost, foreign) == ([], []), (who, "rows lost and foreign", said)
    life.tally["reads by Spark"] += 2


SPARK_CHANGES: dict[Change, int] = {
    insert: 3, delete: 4, swap_or_add_again: 1, update: 3, delete_by_equality: 1, rewrite_data_files: 3,
    rewrite_manifests: 2,
    rewrite_deletes: 1, compute_statistics: 1, publish: 2, fast_forward: 1, add_partition_field: 1, build_in_spark: 1,
    refresh_in_spark: 2, upgrade_to_3: 1,
}  # fmt: skip
LOCAL_CHANGES: dict[Change, int] = {
    by_pyiceberg(change): times
    for change, times in changes.CHANGES.items()
    if change.__name__
    in {
        "append", "build", "refresh", "embed", "rename_column", "drop_and_add_column", "promote_column",
        "swap_columns",
        "create_branch", "create_tag", "roll_back", "expire_snapshots", "collect_garbage", "expire_registrations",
        "delete_by_positions", "register_others",
    }
}  # fmt: skip
CHANGES: dict[Change, int] = SPARK_CHANGES | LOCAL_CHANGES
"""The changes of tables that Spark and pyiceberg write by turns, and how often each is tried."""
