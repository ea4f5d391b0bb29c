"""What only Spark does to a table with a random past: Avro files, partition transforms, merge-on-read deletes, deletion
vectors, equality deletes, rewrites of files and manifests. Everything after the last build of a sidecar."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.equivalence_history import History


def go_on_in_spark(spark: Any, history: History) -> None:
    """Change the table further, once; ``cat`` is Spark's name of the catalog."""
    if history.changed_in_spark:
        return
    history.changed_in_spark = True
    name = "cat." + ".".join(history.table.name())
    rng = history.rng
    # parquet-java cannot write pages as small as those of the files so far
    sizes = ", ".join(f"'write.parquet.{what}-size-bytes'='65536'" for what in ("page", "dict"))
    spark.sql(f"alter table {name} set tblproperties ({sizes})")
    if history.table.format_version == 1:
        spark.sql(f"alter table {name} set tblproperties ('format-version'='2')")
    features = history.features
    unpartitioned = any(not spec.fields for spec in history.table.specs().values())
    steps: list[Callable[[Any, str, History], str]] = [
        rng.choice([_append_avro, _append_orc]) if "formats" in features else _append_parquet,
        _delete_merge_on_read,
        rng.choice([_partition, _rewrite_files, _rewrite_manifests]),
        _delete_by_equality if "equality" in features and unpartitioned else _delete_by_vector,
    ]
    if "side" in history.table.metadata.refs:
        steps.insert(rng.randrange(1, 4), _append_to_branch)
    for step in steps:
        history.log.append(step(spark, name, history))
    if "schema" in features:
        history.older = history.table.catalog.load_table(history.table.name())
        history.log.append(_change_schema(spark, name, history))
    history.table.refresh()


def _append(spark: Any, name: str, history: History, form: str, branch: str = "") -> str:
    """Some of the rows once more, under new ids."""
    from pyspark.sql import functions as f

    spark.sql(f"alter table {name} set tblproperties ('write.format.default'='{form}')")
    rows = spark.table(name).where(f.col("id") % 3 == history.rng.randrange(3))
    rows.withColumn("id", f.col("id") + history.ids).coalesce(1).writeTo(name + branch).append()
    history.ids *= 2
    return f"append {form} in Spark"


def _append_avro(spark: Any, name: str, history: History) -> str:
    return _append(spark, name, history, "avro")


def _append_orc(spark: Any, name: str, history: History) -> str:
    return _append(spark, name, history, "orc")


def _append_parquet(spark: Any, name: str, history: History) -> str:
    return _append(spark, name, history, "parquet")


def _append_to_branch(spark: Any, name: str, history: History) -> str:
    _append(spark, name, history, "parquet", ".branch_side")
    return "append to the branch in Spark"


def _change_schema(spark: Any, name: str, history: History) -> str:
    """Two columns swap their names, or one is dropped and added again; there is no new snapshot."""
    history.table.refresh()
    rng, kinds = history.rng, {"long": "bigint", "string": "string", "double": "double", "date": "date"}
    alike: dict[str, list[str]] = {}
    used = {f.source_id for spec in history.table.specs().values() for f in spec.fields}
    for field in history.table.schema().fields:
        if field.name in history.values and field.name != "id" and field.field_id not in used:
            alike.setdefault(str(field.field_type), []).append(field.name)
    pairs = [names for names in alike.values() if len(names) > 1]
    again = [(column, kinds[kind]) for kind, names in alike.items() if kind in kinds for column in names]
    if again and (not pairs or rng.random() < 0.3):
        column, kind = rng.choice(again)
        spark.sql(f"alter table {name} drop column {column}")
        spark.sql(f"alter table {name} add column {column} {kind}")
        history.asked_columns.append(column)
        return f"drop {column} and add it again in Spark"
    if not pairs:
        return "change nothing"
    one, two = rng.sample(rng.choice(pairs), 2)
    for old, new in ((one, "between"), (two, one), ("between", two)):
        spark.sql(f"alter table {name} rename column {old} to {new}")
    history.values[one], history.values[two] = history.values[two], history.values[one]
    history.asked_columns += [one, two]
    return f"swap {one} and {two} in Spark"


def _some_ids(rng: random.Random, history: History) -> str:
    return ", ".join(str(rng.randrange(history.ids)) for _ in range(12))


def _delete_merge_on_read(spark: Any, name: str, history: History) -> str:
    spark.sql(f"alter table {name} set tblproperties ('write.delete.mode'='merge-on-read')")
    spark.sql(f"delete from {name} where id in ({_some_ids(history.rng, history)})")
    return "delete merge-on-read in Spark"


def _delete_by_vector(spark: Any, name: str, history: History) -> str:
    spark.sql(f"alter table {name} set tblproperties ('format-version'='3')")
    spark.sql(f"delete from {name} where id in ({_some_ids(history.rng, history)})")
    return "delete by vectors in Spark"


def _partition(spark: Any, name: str, history: History) -> str:
    columns = {value: column for column, value in history.values.items() if "." not in column}
    fields = ["bucket(3, id)", "truncate(5, id)"]
    fields += [f"days({columns['ts']})"] if "ts" in columns else []
    fields += [f"truncate(8, {columns['s']})"] if "s" in columns else []
    field = history.rng.choice(fields)
    spark.sql(f"alter table {name} add partition field {field}")
    return f"partition by {field}, " + _append(spark, name, history, "parquet")


def _rewrite_files(spark: Any, name: str, history: History) -> str:
    table = name.removeprefix("cat.")
    spark.sql(
        f"call cat.system.rewrite_data_files(table => '{table}', where => 'id < 40', "
        "options => map('min-input-files', '2'))"
    )
    return "rewrite data files"


def _rewrite_manifests(spark: Any, name: str, history: History) -> str:
    spark.sql(f"call cat.system.rewrite_manifests('{name.removeprefix('cat.')}')")
    return "rewrite manifests"


def _delete_by_equality(spark: Any, name: str, history: History) -> str:
    """By Iceberg's Java library: Spark reads such deletes and writes none."""
    table, jvm = history.table, spark._jvm
    table.refresh()
    path = f"{table.location()}/data/equality-delete-{history.rng.getrandbits(60)}.parquet"
    key = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    keys = pa.array(history.rng.sample(range(history.ids // 2), 12))  # ids were doubled: most are of the first half
    history.asked_ids += keys.to_pylist()
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table([keys], schema=pa.schema([key])), stream)
    native = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    unpartitioned = next(spec for spec in table.specs().values() if not spec.fields)
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = 1
    file = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(native.specs().get(unpartitioned.spec_id))
    file = file.ofEqualityDeletes(ids).withPath(path).withFormat("PARQUET").withRecordCount(len(keys))
    file = file.withFileSizeInBytes(len(table.io.new_input(path)))
    native.newRowDelta().addDeletes(file.build()).commit()
    history.equality_deletes = True
    return "delete by equality"
