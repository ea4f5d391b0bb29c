"""The engines that the demo asks: Spark with Iceberg's runtime, and DuckDB's own Iceberg reader."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sidecar.storage.locations import local_path

PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"


def start_spark(folder: Path) -> tuple[Any, str]:
    """A session on this machine that knows the catalog ``demo``; ``None`` and the reason where it cannot be.

    The JVM's chatter goes to ``spark.log`` in ``folder``. Where Iceberg's runtime cannot be fetched, a plain
    session is enough to build with.
    """
    if not os.environ.get("JAVA_HOME"):
        return None, "no Java 17 or 21"
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None, "pyspark is not installed"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    send_stderr_to(folder / "spark.log")
    reason = ""
    for with_iceberg in (True, False):
        builder = SparkSession.builder.master("local[*]").appName("sidecar demo")
        for key, value in settings(folder, with_iceberg).items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            reason = f"{type(error).__name__}, see {folder / 'spark.log'}"
            continue
        session.sparkContext.setLogLevel("ERROR")
        return session, ""
    return None, reason


def settings(folder: Path, with_iceberg: bool) -> dict[str, str]:
    plain = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.showConsoleProgress": "false",
    }
    lake, prefix = folder / "lake", "spark.sql.catalog.demo"
    iceberg = {
        "spark.jars.packages": PACKAGES,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.cbo.enabled": "true",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{lake}/cat.db",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": f"file:{lake}/warehouse",
        f"{prefix}.cache-enabled": "false",
    }
    return {**plain, **iceberg} if with_iceberg else plain


def send_stderr_to(log: Path) -> None:
    """The JVM inherits file descriptor 2: give it a file, and keep the terminal for Python's own errors."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 2)
    os.close(target)


def knows_iceberg(session: Any) -> bool:
    """Whether a session was started with Iceberg's runtime."""
    return session is not None and bool(session.conf.get("spark.jars.packages", ""))


def spark_sees(session: Any, table: Any) -> str:
    """Row count, and the numbers of distinct values that its optimiser takes from the table's metadata."""
    if not knows_iceberg(session):
        return "not asked: it was not started with Iceberg's runtime"
    frame = session.table("demo.db.lineitem")
    relation = frame._jdf.queryExecution().optimizedPlan()
    known = {}
    for attribute in session._jvm.scala.jdk.javaapi.CollectionConverters.asJava(relation.output()):
        column = relation.stats().attributeStats().get(attribute)
        if column.isDefined() and column.get().distinctCount().isDefined():
            known[attribute.name()] = int(str(column.get().distinctCount().get()))
    ndv = ", ".join(f"{name} {number:,}" for name, number in known.items())
    return f"{frame.count():,} rows; its optimiser knows distinct values: {ndv}"


def duckdb_sees(table: Any) -> str:
    """Row count by DuckDB's own Iceberg reader, whose extensions come as Python packages."""
    try:
        import duckdb
        import duckdb_extension_avro
        import duckdb_extension_iceberg
    except ImportError:
        return "not asked: it is not installed"
    with duckdb.connect() as connection:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        found = connection.execute("select count(*) from iceberg_scan(?)", [local_path(table.metadata_location)])
        (rows,) = found.fetchone() or (0,)
    return f"{rows:,} rows"
