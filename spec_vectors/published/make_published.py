"""Make the vectors of published formats, each with a foreign writer; see README.md for what they are.

`.venv/bin/python spec_vectors/published/make_published.py`. It needs the packages of the extra [test], and Java with
Iceberg's runtime for Spark (what the tests marked `jvm` need). Nothing here is imported from sidecar. Files differ from
run to run in what a writer says of itself and of the time; filters, sketches and values do not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datafusion
import datasketches
import duckdb
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pyorc

HERE = Path(__file__).resolve().parent
KEYS = [(7919 * n - 500_000) << 22 for n in range(300)]
TEXTS = [f"name {n % 90}" for n in range(300)]
"""The rows of all data files: `k`, integers beyond 32 bits (py4j makes an Integer of shorter ones); `s`, strings."""
ROWS = pa.table({"k": pa.array(KEYS, pa.int64()), "s": TEXTS})
FOOTER_KEY = b"0123456789012345"
ENCRYPTED_ROWS = 200


# --- Parquet: split-block filters ---


def parquet_by_pyarrow() -> None:
    """Arrow C++ folds its filters to the rate."""
    options = {"bloom_filter_options": {"k": {"ndv": 300, "fpp": 0.01}, "s": {"ndv": 90, "fpp": 0.01}}}
    pq.write_table(ROWS, HERE / "pyarrow.parquet", row_group_size=150, write_page_index=True, **options)


def parquet_by_duckdb() -> None:
    """DuckDB writes filters for columns in a dictionary alone; keys occur twice for that."""
    target = HERE / "duckdb.parquet"
    with duckdb.connect() as connection:
        connection.register("rows", pa.concat_tables([ROWS, ROWS]))
        connection.execute(f"copy rows to '{target}' (format parquet, dictionary_size_limit 10000)")


def parquet_by_the_crate() -> None:
    """The parquet crate, through DataFusion."""
    context = datafusion.SessionContext()
    context.register_record_batches("rows", [ROWS.to_batches()])
    options = datafusion.DataFrameWriteOptions(single_file_output=True)
    settings = datafusion.ParquetWriterOptions(bloom_filter_on_write=True, bloom_filter_fpp=0.01)
    target = HERE / "parquet_crate.parquet"
    target.unlink(missing_ok=True)
    context.table("rows").write_parquet_with_options(str(target), settings, options)


def parquet_java_writer(jvm: Any, name: str) -> Any:
    """A builder of parquet-java's writer of examples, for the rows' schema."""
    text = "message rows { optional int64 k; optional binary s (STRING); }"
    schema = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(text)
    (HERE / name).unlink(missing_ok=True)
    path = jvm.org.apache.hadoop.fs.Path(str(HERE / name))
    builder = jvm.org.apache.parquet.hadoop.example.ExampleParquetWriter.builder(path)
    return schema, builder.withType(schema).withDictionaryEncoding(False)


def write_rows(jvm: Any, schema: Any, builder: Any, rows: list[tuple[int | None, str | None]]) -> None:
    writer = builder.build()
    factory = jvm.org.apache.parquet.example.data.simple.SimpleGroupFactory(schema)
    for k, s in rows:
        group = factory.newGroup()
        if k is not None:
            group.add("k", k)
        if s is not None:
            group.add("s", s)
        writer.write(group)
    writer.close()


def parquet_by_parquet_java(jvm: Any) -> None:
    schema, builder = parquet_java_writer(jvm, "parquet_java.parquet")
    builder = builder.withBloomFilterEnabled(True).withBloomFilterNDV("k", 300).withBloomFilterNDV("s", 90)
    write_rows(jvm, schema, builder, list(zip(KEYS, TEXTS, strict=True)))


def encrypted_v2_by_parquet_java(jvm: Any) -> None:
    """Data pages v2 under AES_GCM_V1: their levels are not inside the encrypted body. Every third `s` is null."""
    schema, builder = parquet_java_writer(jvm, "parquet_java_encrypted_v2.parquet")
    crypto = jvm.org.apache.parquet.crypto.FileEncryptionProperties.builder(FOOTER_KEY).build()
    version = jvm.org.apache.parquet.column.ParquetProperties.WriterVersion.PARQUET_2_0
    rows = [(k, None if n % 3 == 0 else s) for n, (k, s) in enumerate(zip(KEYS, TEXTS, strict=True))]
    builder = builder.withEncryption(crypto).withWriterVersion(version).withPageRowCountLimit(50)
    write_rows(jvm, schema, builder, rows[:ENCRYPTED_ROWS])


# --- ORC: filters of both kinds of keys, in both streams ---


def orc_by_java(spark: Any) -> None:
    """Both streams, BLOOM_FILTER and BLOOM_FILTER_UTF8, as Java writes them on request."""
    schema = "k bigint, s string"
    frame = spark.createDataFrame(list(zip(KEYS, TEXTS, strict=True)), schema).coalesce(1)
    folder = HERE / "orc_java.tmp"
    options = {"orc.bloom.filter.columns": "k,s", "orc.bloom.filter.write.version": "original"}
    options |= {"orc.bloom.filter.fpp": "0.01", "orc.row.index.stride": "1000", "orc.compress": "NONE"}
    frame.write.options(**options).mode("overwrite").orc(str(folder))
    (part,) = folder.glob("part-*.orc")
    part.replace(HERE / "orc_java.orc")
    for left in folder.iterdir():
        left.unlink()
    for left in folder.glob(".*"):
        left.unlink()
    folder.rmdir()


def orc_by_pyarrow() -> None:
    options = {"bloom_filter_columns": [1, 2], "bloom_filter_fpp": 0.01, "row_index_stride": 1000}
    po.write_table(ROWS, HERE / "orc_pyarrow.orc", compression="uncompressed", **options)


def orc_by_pyorc() -> None:
    with (HERE / "orc_pyorc.orc").open("wb") as target:
        columns = {"bloom_filter_columns": (1, 2), "bloom_filter_fpp": 0.01, "row_index_stride": 1000}
        kind = pyorc.CompressionKind.NONE
        with pyorc.Writer(target, "struct<k:bigint,s:string>", compression=kind, **columns) as writer:
            for row in zip(KEYS, TEXTS, strict=True):
                writer.write(row)


# --- theta sketches ---


def theta_by_datasketches_python() -> None:
    sketch = datasketches.update_theta_sketch(12)
    for key in KEYS:
        sketch.update(key)
    (HERE / "theta_python.bin").write_bytes(sketch.compact().serialize())
    small = datasketches.update_theta_sketch(5)
    for key in KEYS:
        small.update(key)
    (HERE / "theta_python_estimating.bin").write_bytes(small.compact().serialize())


def theta_by_datasketches_java(jvm: Any) -> None:
    theta = jvm.org.apache.datasketches.theta
    sketch = theta.UpdateSketch.builder().setNominalEntries(4096).build()
    for key in KEYS:
        sketch.update(key)
    (HERE / "theta_java.bin").write_bytes(bytes(sketch.compact().toByteArray()))


# --- Puffin ---


def puffin_by_iceberg(jvm: Any, gateway: Any) -> None:
    """Blobs in plain and in zstd, a theta sketch among them, and a property of the file."""
    puffin = jvm.org.apache.iceberg.puffin
    target = HERE / "iceberg.puffin"
    target.unlink(missing_ok=True)
    output = jvm.org.apache.iceberg.Files.localOutput(str(target))
    builder = puffin.Puffin.write(output).createdBy("Iceberg's Puffin writer").set("note", "größe")
    writer = builder.build()
    contents = [
        ("apache-datasketches-theta-v1", [1], (HERE / "theta_java.bin").read_bytes(), "NONE"),
        ("some-blob", [1, 2], b"content " * 40, "ZSTD"),
        ("empty-blob", [], b"", "NONE"),
    ]
    for kind, fields, content, codec in contents:
        numbers = jvm.java.util.ArrayList()
        for field in fields:
            numbers.add(field)
        properties = jvm.java.util.HashMap()
        if kind.startswith("apache"):
            properties.put("ndv", "300")
        data = jvm.java.nio.ByteBuffer.wrap(gateway(content))
        codec_of = getattr(puffin.PuffinCompressionCodec, codec)
        writer.add(puffin.Blob(kind, numbers, 2**62, 7, data, codec_of, properties))
    writer.close()
    crc = target.with_name(f".{target.name}.crc")
    crc.unlink(missing_ok=True)


def main() -> None:
    parquet_by_pyarrow()
    parquet_by_duckdb()
    parquet_by_the_crate()
    orc_by_pyarrow()
    orc_by_pyorc()
    theta_by_datasketches_python()
    sys.path.insert(0, str(HERE.parents[1]))
    from pyspark.sql import SparkSession

    from tests.conftest import ICEBERG_PACKAGES

    packages = ",".join(ICEBERG_PACKAGES)
    builder = SparkSession.builder.master("local[1]").config("spark.jars.packages", packages)
    spark = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate()
    jvm: Any = spark._jvm
    parquet_by_parquet_java(jvm)
    encrypted_v2_by_parquet_java(jvm)
    orc_by_java(spark)
    theta_by_datasketches_java(jvm)
    puffin_by_iceberg(jvm, bytearray)
    spark.stop()
    for left in HERE.glob(".*.crc"):
        left.unlink()
    rows = {"k": KEYS, "s": TEXTS}
    (HERE / "rows.json").write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
