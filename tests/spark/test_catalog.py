"""Tables of Spark's catalogs: all verbs, what commits compare, and what is said of those that cannot be had."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.statistics import StatisticsFile

import sidecar
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.catalog import command_for, reload_table
from sidecar.spark import jvm, local_versions
from sidecar.spark.catalog import open_spark_catalog
from sidecar.spark.costs import BY_FILE
from sidecar.spark.jvm import iceberg_class
from sidecar.spark.jvm_files import JvmFileIO
from sidecar.storage.locations import local_path
from tests.cli import running

pytestmark = pytest.mark.jvm


def add_catalog(session: Any, name: str, **settings: str) -> None:
    session.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.{name}.{key}", value)


@pytest.fixture(scope="module", autouse=True)
def lakes(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of ``lake``, a Hadoop catalog that the session caches, and of ``far``, which Python cannot read."""
    folder = tmp_path_factory.mktemp("lakes")
    (folder / "far").mkdir()
    lake = {"type": "hadoop", "warehouse": f"file:{folder}/lake"}
    far = {"type": "hadoop", "warehouse": "viewfs://far/wh"}
    add_catalog(spark, "lake", **lake)
    add_catalog(spark, "far", **far, **{"hadoop.fs.viewfs.mounttable.far.link./wh": f"file:{folder}/far"})
    yield lake
    for setting in [row.key for row in spark.sql("SET").collect() if row.key.startswith("spark.sql.catalog.")]:
        if setting.split(".")[3] in ("lake", "far", "bare", "bare2"):
            spark.conf.unset(setting)


def made(spark: Any, name: str, version: int = 2, rows: int = 60) -> Any:
    """A table of three files in one of Spark's catalogs, opened through the session."""
    properties = f"'format-version'='{version}', 'write.delete.mode'='merge-on-read'"
    spark.sql(f"create table {name} (id bigint, word string) using iceberg tblproperties ({properties})")
    append(spark, name, 0, rows, files=3)
    return sidecar.open_table(name, spark=spark)


def append(spark: Any, name: str, first: int, rows: int, files: int = 1) -> None:
    spark.sql(f"insert into {name} select id, concat('w', id) from range({first}, {first + rows}, 1, {files})")


def rows_of(spark: Any, name: str, where: str = "true") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.table(name).where(where).collect())


def scanned(table: Any, where: str = "true") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in sidecar.scan(table, where).to_pylist())


def java_statistics(table: Any) -> dict[int, str]:
    """The statistics entries that Iceberg's own reader sees."""
    entries = table.catalog._java_table(table.name()).statisticsFiles()
    return {int(entry.snapshotId()): str(entry.path()) for entry in entries}


@pytest.mark.parametrize(("catalog_name", "version"), [("lake", 2), ("cat", 3), ("far", 2)])
def test_all_verbs_take_a_table_of_spark(
    spark: Any, catalog: Any, catalog_name: str, version: int, tmp_path: Path
) -> None:
    name = f"{catalog_name}.db.spark_verbs"
    table = made(spark, name, version)
    assert isinstance(table.io, JvmFileIO) == (catalog_name == "far")
    sidecar.build(table, ["id", "word"], save=True, fpp=1e-4)
    spark.sql(f"delete from {name} where id = 5")
    append(spark, name, 100, 10)
    table.refresh()
    assert sidecar.refresh(table).action == "written"
    where = "id in (4, 5, 6, 105)"
    assert scanned(table, where) == rows_of(spark, name, where) == [(4, "w4"), (6, "w6"), (105, "w105")]
    assert len(sidecar.plan(table, "word = 'w105'").kept_files) == 1
    found = sidecar.status(table)
    assert (found.share_covered, found.waiting.files) == (1.0, 0)
    assert sidecar.verify(table, data=True).ok
    assert sidecar.find(table, {"id": [105]}).answer == "found"
    assert sidecar.advise(table).files == 4
    done = sidecar.care(table, report=tmp_path / "page.html")
    assert done.exit_code == 0
    assert done.page_error is None
    stands = {entry.snapshot_id: entry.statistics_path for entry in table.refresh().metadata.statistics}
    assert stands
    assert java_statistics(table) == stands
    if catalog_name == "cat":
        seen = catalog.load_table("db.spark_verbs").metadata.statistics
        assert {entry.snapshot_id: entry.statistics_path for entry in seen} == stands
    if version == 2:
        replaced = sidecar.embed(table, bloom=["id"])
        assert len(replaced.replaced) == 3
        assert len(replaced.left_alone) == 1
    assert rows_of(spark, name) == scanned(table.refresh())
    assert len(scanned(table)) == 69
    assert sidecar.find_tables("db.spark_verb*", table.catalog) == ["db.spark_verbs"]
    assert command_for(table, "status") == f"sidecar status db.spark_verbs --spark-catalog {catalog_name}"


def test_a_commit_compares_the_entries_that_it_replaces(spark: Any) -> None:
    """Iceberg's own ``updateStatistics`` would take the entry of another writer away, and say nothing."""
    mine = made(spark, "lake.db.compared")
    theirs = sidecar.open_table("db.compared", "lake", spark=spark)
    sidecar.build(theirs, ["id"])
    (entry,) = theirs.metadata.statistics
    append(spark, "lake.db.compared", 100, 5)
    ours = StatisticsFile.model_validate({**entry.model_dump(by_alias=True), "statistics-path": "file:/ours.stats"})
    with pytest.raises(CommitFailedException, match="statistics of snapshot"):
        mine.update_statistics().set_statistics(ours).commit()
    assert java_statistics(mine) == {entry.snapshot_id: entry.statistics_path}
    fresh = sidecar.open_table("lake.db.compared", spark=spark)
    append(spark, "lake.db.compared", 200, 5)  # a newer version with the same entry: the commit keeps the rows
    fresh.update_statistics().remove_statistics(entry.snapshot_id).commit()
    assert java_statistics(mine) == {}
    assert len(rows_of(spark, "lake.db.compared")) == 70


def test_a_table_that_was_dropped_and_made_anew_keeps_its_rows(spark: Any, lakes: dict[str, str]) -> None:
    """A session refreshes a table that it remembers to the old version, and takes a commit on it."""
    name = "lake.db.anew"
    old = made(spark, name)
    sidecar.build(old, ["id"], save=True)
    assert len(rows_of(spark, name)) == 60  # which the session remembers
    other = spark.newSession()
    add_catalog(other, "lake", **lakes)
    other.sql(f"drop table {name}")
    made(other, name, rows=9)
    (entry,) = old.metadata.statistics
    with pytest.raises(SidecarError):
        sidecar.build(old, ["word"])
    with pytest.raises(CommitFailedException, match="UUID"):
        old.update_statistics().set_statistics(entry).commit()
    with pytest.raises(CommitFailedException, match="UUID"):
        old.transaction().set_properties({"a": "b"}).commit_transaction()
    new = sidecar.open_table(name, spark=spark)
    assert new.metadata.table_uuid != old.metadata.table_uuid
    assert "a" not in new.properties
    assert len(scanned(new)) == len(rows_of(other, name)) == 9


def test_a_commit_takes_no_other_version_away(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg looks for the next version and then renames, which on a local disk replaces one that came between."""
    table = made(spark, "lake.db.linked")
    place = local_path(table.location())
    version, hint = Path(f"{place}/metadata/v3.metadata.json"), Path(f"{place}/metadata/version-hint.text")
    before, link = {path.name for path in version.parent.iterdir()}, os.link

    def later(source: str, target: str) -> None:
        version.write_text("of another process")
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", later)
        with pytest.raises(CommitFailedException, match="newer version"):
            table.transaction().set_properties({"a": "b"}).commit_transaction()
    assert version.read_text() == "of another process"
    assert {path.name for path in version.parent.iterdir()} == before | {version.name}
    version.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(local_versions, "_hinted", lambda hint: 7)  # the third version was deleted after newer commits
        with pytest.raises(CommitFailedException, match="newer version"):
            table.transaction().set_properties({"a": "b"}).commit_transaction()
    assert not version.exists()
    table.transaction().set_properties({"a": "b"}).commit_transaction()
    assert (version.exists(), hint.read_text()) == (True, "3")
    assert sidecar.open_table("lake.db.linked", spark=spark).properties["a"] == "b"
    hinted = local_versions._hinted

    def another_goes_on(place: str) -> int:
        append(spark, "lake.db.linked", 100, 5)
        return hinted(place)

    with monkeypatch.context() as patch:
        patch.setattr(local_versions, "_hinted", another_goes_on)
        table.transaction().set_properties({"c": "d"}).commit_transaction()
    assert version.with_name("v4.metadata.json").exists()  # the fifth is made from it
    assert hint.read_text() == "5"
    assert sidecar.open_table("lake.db.linked", spark=spark).properties["c"] == "d"

    def no_links(source: str, target: str) -> None:
        raise OSError(errno.ENOSYS, "as file systems of FUSE say")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_links)
        table.transaction().set_properties({"e": "f"}).commit_transaction()
    assert sidecar.open_table("lake.db.linked", spark=spark).properties["e"] == "f"


def test_files_of_the_jvm_are_files(spark: Any) -> None:
    table = made(spark, "far.db.bytes")
    io, place = table.io, f"{table.location()}/metadata/part"
    data = bytes(range(256)) * (BY_FILE // 64)
    with io.new_output(place).create() as stream:
        stream.write(data)
    with pytest.raises(FileExistsError):
        io.new_output(place).create()
    file = io.new_input(place)
    assert file.exists()
    assert len(file) == len(data)
    with file.open() as stream:
        stream.seek(3)
        assert stream.read(5) == data[3:8]
        assert stream.read(BY_FILE + 1) == data[8 : BY_FILE + 9]
        assert stream.read() == data[BY_FILE + 9 :]
    io.delete(place)
    assert not file.exists()
    with pytest.raises(FileNotFoundError):
        io.new_input(place).open().read()
    with pytest.raises(UsageError, match="only Spark's driver can open the files"):
        sidecar.build(table, ["id"], engine="spark")
    assert sidecar.build(table, ["id"], spark=spark).engine == "local"


def test_columns_that_pyiceberg_does_not_know_are_left_out(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    spark.sql(
        "create table lake.db.variants (id bigint, v variant) using iceberg tblproperties ('format-version' = '3')"
    )
    append_variant = "insert into lake.db.variants select 1, parse_json('{}')"
    spark.sql(append_variant)
    table = sidecar.open_table("lake.db.variants", spark=spark)
    assert table.schema().column_names == ["id"]
    assert "v: columns of types that pyiceberg does not know are left out" in caplog.text
    with pytest.raises(UnsupportedFeatureError, match=r"column v\. Name the columns"):
        sidecar.scan(table)
    sidecar.build(table, ["id"])
    spark.sql(append_variant)
    assert spark.table("lake.db.variants").columns == ["id", "v"]
    assert spark.table("lake.db.variants").count() == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lake.db.nothing", "the catalog 'lake' has no table 'db.nothing'"),
        ("lake.nowhere.t", "the catalog 'lake' has no namespace 'nowhere'. It has: db."),
        ("lak.db.t", r"no catalog 'spark_catalog' of Iceberg tables. Its configuration has: cat, .*lake"),
        ("lake.t", "'t' is not a table name"),
        ("lake.db.named.files", "has no namespace 'db.named'"),
    ],
)
def test_names_that_are_nothing(spark: Any, name: str, message: str) -> None:
    spark.sql("create table if not exists lake.db.named (id bigint) using iceberg")
    with pytest.raises(UsageError, match=message):
        sidecar.open_table(name, spark=spark)


def test_tables_that_are_not_where_their_paths_say(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a scheme would be taken for one of this machine, and read and written there."""
    spark.sql("create table lake.db.hostile (id bigint) using iceberg tblproperties ('s3.endpoint' = 'http://there')")
    assert "s3.endpoint" not in sidecar.open_table("lake.db.hostile", spark=spark).io.properties
    settings = {"type": "hadoop", "warehouse": "/wh", "hadoop.fs.defaultFS": "viewfs://bare/"}
    add_catalog(spark, "bare", **settings, **{"hadoop.fs.viewfs.mounttable.bare.link./wh": f"file:{tmp_path}"})
    spark.sql("create table bare.db.t (id bigint) using iceberg")
    with pytest.raises(UnsupportedFeatureError, match="have no scheme, and Spark looks for them on viewfs:"):
        sidecar.open_table("bare.db.t", spark=spark)
    spark.sql("drop table bare.db.t")
    table = made(spark, "lake.db.stopped")
    stopped = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True))
    monkeypatch.setattr(jvm, "java_context_of", lambda session: stopped)
    with pytest.raises(UsageError, match="the Spark session was stopped"):
        reload_table(table)


def test_catalogs_that_are_none(spark: Any) -> None:
    with pytest.raises(UsageError, match="has no catalog 'lak' of Iceberg tables"):
        open_spark_catalog(spark, "lak")
    add_catalog(spark, "bare2", type="jdbc", uri="jdbc:sqlite:/nowhere/x.db?password=hunter2", warehouse="file:/tmp/no")
    with pytest.raises(UsageError, match=r"no catalog of Iceberg tables: Failed to connect: \*\*\*"):
        open_spark_catalog(spark, "bare2")
    with pytest.raises(UsageError, match="spark is not a session"):
        sidecar.open_table("lake.db.t", spark="lake")
    failed = iceberg_class(spark, "rest.responses.ErrorResponse").builder().responseCode(500).withType("any")
    handler = iceberg_class(spark, "rest.ErrorHandlers").tableErrorHandler()
    with pytest.raises(OSError, match='"message": "no signer"'), jvm.java_errors():
        handler.accept(failed.withMessage('{\n"message": "no signer"\n}').build())


def test_commands_take_tables_of_spark(spark: Any, tmp_path: Path) -> None:
    """The session of the tests is active, so that the commands take it."""

    def run(*words: str, code: int | None = None) -> Any:
        return running.run(*words, "--spark-catalog", "lake", code=code)

    name = "lake.db.typed"
    made(spark, name)
    assert run("build", "db.typed", "--columns", "id", "--save", "--conf", "spark.app.name=x").exit_code == 0
    append(spark, name, 100, 5)
    cared = run("care", "db.typ*", "--json")
    assert (cared.exit_code, json.loads(cared.stdout)["tables"][0]["refresh"]["action"]) == (0, "written")
    planned = run("plan", "db.typed", "id = 104", "--json")
    assert json.loads(planned.stdout)["files"]["kept"] == 1, planned.stdout
    assert "104" in run("scan", "db.typed", "id = 104").stdout
    for words, code, said in (
        (["find", "db.typ*", "id=104"], 1, "found"),
        (["find", "db.typed", "id=4444"], 0, "absent"),
        (["advise", "db.typed"], 0, "id"),
        (["verify", "db.typ*", "--data"], 0, "db.typed"),
        (["refresh", "db.typed"], 0, "nothing to do"),
        (["report", "db.typ*", "-o", str(tmp_path / "page.html")], 0, "page.html"),
        (["embed", "db.typed", "--bloom", "id", "--dry-run"], 0, "dry run"),
    ):
        done = run(*words)
        assert (done.exit_code, said in done.stdout + done.stderr) == (code, True), (words, done.output)
    assert sidecar.find_tables("lake.db.typ*", spark=spark) == ["lake.db.typed"]
    for words, message in (
        (["status", "lake.db.typed"], "has no namespace 'lake.db'. Leave the name of the catalog out: db."),
        (["status", "db.typed", "--catalog", "cat"], "two places for one table"),
        (["status", "db.typed", "--conf", "spark.sql"], "--conf is KEY=VALUE; found spark.sql"),
        (["status", "db.typed", "--conf", "hunter2"], "--conf is KEY=VALUE; found another text"),
        (["verify", "./no.parquet"], "--spark-catalog is for tables"),
    ):
        done = run(*words, code=2)
        assert message in done.stderr
    alone = running.run("status", "db.typed", "--conf", "a=b")
    assert "--conf has settings of Spark for --spark-catalog" in alone.stderr
