"""The Spark engine builds the same sidecar as the in-process one, bit for bit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

import sidecar
from sidecar.access import Access
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import UsageError
from sidecar.indexing import slices
from sidecar.spark import engine, frames
from sidecar.spark import session as spark_session
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.indexing.cases import Filters, filters_of, group_sketches_of, sidecar_of, sketches_of
from tests.tables import create_with_rows

SCHEMA = pa.schema([("k", pa.int64()), ("c", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
COLUMNS = ["k", "c", "s", "l.element"]


def _rows(number: int, count: int = 2000) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table(
        {
            "k": random.integers(0, 2**60, count),
            "c": (np.arange(count) % 100).astype(np.int32),
            "s": [f"row {i} {number}" for i in range(count)],
            "l": [[int(i), int(i) * number] if i % 3 else None for i in range(count)],
        },
        schema=SCHEMA,
    )


def _built(catalog: Any, name: str, columns: list[str], **options: Any) -> tuple[Any, Filters, dict[int, bytes], Any]:
    report = sidecar.build(catalog.load_table(name), columns, full=True, **options)
    table = catalog.load_table(name)
    return report, filters_of(table), sketches_of(table), group_sketches_of(table)


def _page_indexes(catalog: Any, name: str) -> dict[tuple[str, int], Any]:
    sidecar_file = sidecar.open_sidecar(catalog.load_table(name))
    (segment,) = [segment for segment in sidecar_file.segments if segment.page_index_blobs]
    found = {
        (field_id, unit): stored
        for field_id in segment.page_index_blobs
        for unit, stored in segment.page_indexes(field_id, range(segment.num_units)).items()
    }
    sidecar_file.close()
    return found


@pytest.fixture(scope="module")
def mixed(catalog: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Appended files, files with filters of their own, a damaged file and one without a footer."""
    folder: Path = tmp_path_factory.mktemp("mixed")
    properties = {"write.parquet.row-group-limit": "700"}
    table = create_with_rows(catalog, "db.spark_mixed", map(_rows, range(3)), SCHEMA, **properties)
    paths = []
    for number in range(4):
        path = folder / f"{number}.parquet"
        filters = {"k": {"ndv": 2000, "fpp": 0.001}} if number < 2 else None
        pq.write_table(_rows(10 + number), path, bloom_filter_options=filters, use_dictionary=["c"], row_group_size=900)
        paths.append(f"file:{path}")
    table.add_files(paths)
    bad = folder / "2.parquet"
    chunk = pq.ParquetFile(bad).metadata.row_group(1).column(2)
    data = bytearray(bad.read_bytes())
    data[chunk.data_page_offset : chunk.data_page_offset + 50] = b"\xff" * 50
    bad.write_bytes(data)
    (folder / "3.parquet").write_bytes((folder / "3.parquet").read_bytes()[:-4] + b"XXXX")
    return "db.spark_mixed"


@pytest.mark.jvm
def test_both_engines_build_the_same(catalog: Any, mixed: str, spark: Any) -> None:
    kept = set(spark.sparkContext._jsc.getPersistentRDDs())  # of other tests
    here = _built(catalog, mixed, COLUMNS, engine="local")
    there = _built(catalog, mixed, COLUMNS, engine="spark", spark=spark)
    assert there[1] == here[1]
    assert there[2:] == here[2:]
    hows = {how for column in here[0].columns for how in column.filters}
    assert hows == {"reused", "dictionary", "scanned"}
    assert here[0].to_dict()["files"] == {"total": 7, "indexed": 5, "covered": 5, "failed": 2}
    same = ("files", "failed_files", "units", "fpp", "columns", "expected_false_units", "bytes_read")
    ours, theirs = here[0].to_dict(), there[0].to_dict()
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert (there[0].engine, there[0].engine_reason) == ("spark", "as asked for")
    assert verify_sidecar(LocalSource(local_path(there[0].statistics_path or "") or "")) == []
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= kept


@pytest.mark.jvm
def test_both_engines_carry_the_same_page_indexes(catalog: Any, mixed: str, spark: Any) -> None:
    kinds = ["bloom", "page-index"]
    here = _built(catalog, mixed, COLUMNS, engine="local", kinds=kinds)
    found = _page_indexes(catalog, mixed)
    there = _built(catalog, mixed, COLUMNS, engine="spark", spark=spark, kinds=kinds)
    assert _page_indexes(catalog, mixed) == found
    assert len(found) > 40
    ours, theirs = here[0].to_dict(), there[0].to_dict()
    assert ours["columns"] == theirs["columns"]
    assert verify_sidecar(LocalSource(local_path(there[0].statistics_path or "") or "")) == []


@pytest.mark.jvm
def test_many_parts_and_widened_filters(
    catalog: Any, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seventy files of two sizes, sliced by bit in parts of a few blocks; results of one task in several partitions."""
    monkeypatch.setattr(slices, "PART_BYTES", 70 * 32 * 3)
    monkeypatch.setattr(engine, "FLUSH_BYTES", 5_000)
    monkeypatch.setattr(frames, "PARTITION_BYTES", 10_000)
    monkeypatch.setattr(frames, "MOST_OF_A_TASK", 20_000)
    divided: list[int] = []
    rows_of = frames.rows_of

    def noted(frame: Any) -> Any:
        divided.append(frame.rdd.getNumPartitions())
        return rows_of(frame)

    monkeypatch.setattr(frames, "rows_of", noted)
    table = catalog.create_table("db.spark_many", pa.schema([("k", pa.int64())]))
    paths = []
    for number in range(70):
        path = tmp_path / f"{number}.parquet"
        keys = np.random.default_rng(number).integers(0, 2**60, 100 if number % 2 else 400)
        pq.write_table(pa.table({"k": keys}), path, use_dictionary=False)
        paths.append(f"file:{path}")
    table.add_files(paths)
    here = _built(catalog, "db.spark_many", ["k"], engine="local")
    there = _built(catalog, "db.spark_many", ["k"], spark=spark)  # a session that is given is taken
    assert (there[0].engine, len(there[1])) == ("spark", 70)
    assert divided[0] > 2
    assert there[1:] == here[1:]
    (segment,) = sidecar_of(catalog.load_table("db.spark_many")).segments
    (group,) = segment.fields[1]
    assert group.layout.sliced
    assert group.layout.widened
    assert group.layout.blocks > 3


@pytest.mark.jvm
def test_nothing_to_index(catalog: Any, spark: Any) -> None:
    table = create_with_rows(catalog, "db.spark_nothing", [_rows(0, 10)], SCHEMA)
    table.delete("c >= 0")
    assert sidecar.build(table, ["k"], engine="spark", spark=spark).units == 0
    table.append(_rows(0, 10))
    report = sidecar.build(table, ["k"], kinds=["theta"], engine="spark", spark=spark)
    assert report.columns[0].ndv.to_dict() == {"estimate": 10, "lower": 10, "upper": 10}


@pytest.mark.jvm
def test_spark_indexes_the_files_of_a_group_again(catalog: Any, spark: Any) -> None:
    table = create_with_rows(catalog, "db.spark_recount", (_rows(number, 100) for number in range(3)), SCHEMA)
    sidecar.build(table, ["k"], engine="local")
    table.delete(f"k in ({', '.join(map(str, _rows(1, 100)['k'].to_pylist()))})")
    table.append(_rows(7, 100))
    report = sidecar.build(table, ["k"], engine="spark", spark=spark)
    assert (report.units, report.files_carried) == (2, 1)  # a group has the removed file and one more
    table = catalog.load_table("db.spark_recount")
    found = group_sketches_of(table), sketches_of(table), filters_of(table)
    here = _built(catalog, "db.spark_recount", ["k"], engine="local")
    assert found[1] == here[2]
    assert {key: found[2][key] for key in here[1]} == here[1]
    assert sorted(rows for _, rows, _ in found[0][1]) == [100, 100, 100]


def test_without_java_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert spark_session.java_runtime() is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError) as raised:
        spark_session.embedded_session()
    assert str(raised.value).startswith("Spark cannot start: there is no Java runtime. Install Java 17 or 21")


@pytest.mark.parametrize("package", ["pyspark", "pandas"])
def test_without_a_package_the_message_names_it_and_not_java(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = spark_session.find_spec
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None if name == package else found(name))
    with pytest.raises(UsageError) as raised:
        spark_session.embedded_session()
    assert str(raised.value) == (
        f"Spark cannot start: the package {package} is not installed. "
        "Type pip install 'lakehouse-sidecar[spark]', or choose the engine 'local'."
    )


def test_with_another_pyspark_the_message_names_its_version_and_not_java(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
    monkeypatch.setattr("pyspark.__version__", "3.5.8")
    with pytest.raises(UsageError) as raised:
        spark_session.embedded_session()
    assert "pyspark 3.5.8 is installed, and sidecar works with pyspark" in str(raised.value)
    assert "Java" not in str(raised.value)


def test_secrets_travel_unseen() -> None:
    access = Access(PyArrowFileIO({"s3.secret-access-key": "hush"}))
    for text in (repr(access), str(access), f"{vars(access).keys()}"):
        assert "hush" not in text
    sent = pickle.loads(pickle.dumps(access))
    assert sent.io.properties == {"s3.secret-access-key": "hush"}
    assert "hush" not in repr(sent)
