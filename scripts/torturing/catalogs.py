"""Tables of Spark's catalogs: random changes by Spark and sidecar, with rows compared, and races of writers.

``scripts/torture catalogs --cases 500`` makes tables of six kinds in each catalog (Hadoop, ``viewfs``, JDBC, Hive in an
embedded metastore, REST): Spark changes them and sidecar follows, and each case compares the rows of a predicate. Then
two processes change one entry, a table is dropped and made anew, and Spark writes while every verb that commits runs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import CommitFailedException

import sidecar
from sidecar.errors import CommitConflictError, SidecarError
from tests.tables import sketch_metadata, statistics_entry

KINDS = ("plain", "partitioned", "bucketed", "deletes", "evolved", "gzip")
PARTITIONS = {"partitioned": "partitioned by (region)", "bucketed": "partitioned by (bucket(4, id))"}
PROPERTIES = {
    "deletes": {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")},
    "gzip": {"write.metadata.compression-codec": "gzip"},
}
VERSIONS = {"hadoop": (2, 3), "viewfs": (2,), "jdbc": (2, 3), "hive": (2, 3), "rest": (2, 3)}
REGIONS = ("north", "south", "east")


def settings_of(folder: Path, rest: str | None) -> dict[str, dict[str, str]]:
    """Settings of each of Spark's catalogs, whose files are in a folder."""
    derby = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "None",
        "hive.metastore.schema.verification": "false",
    }
    jdbc = {"uri": f"jdbc:sqlite:{folder}/jdbc.db", "jdbc.schema-version": "V1"}
    far = {"hadoop.fs.viewfs.mounttable.far.link./wh": f"file:{folder}/viewfs"}
    found = {
        "hadoop": {"type": "hadoop", "warehouse": f"file:{folder}/hadoop"},
        "viewfs": {"type": "hadoop", "warehouse": "viewfs://far/wh", **far},
        "jdbc": {"type": "jdbc", "warehouse": f"file:{folder}/jdbc", **jdbc},
        "hive": {
            "type": "hive",
            "warehouse": f"file:{folder}/hive",
            "table-default.engine.hive.lock-enabled": "false",
            **{f"hadoop.{name}": value for name, value in derby.items()},
        },
    }
    return found if rest is None else {**found, "rest": {"type": "rest", "uri": rest}}


def session_of(folder: Path, catalogs: dict[str, dict[str, str]]) -> Any:
    """A session that knows the catalogs."""
    from tests.conftest import start_spark

    (folder / "viewfs").mkdir(exist_ok=True)
    (own := folder / uuid.uuid4().hex).mkdir()
    session = start_spark(own)
    session._jvm.java.lang.System.setProperty("derby.stream.error.file", f"{folder}/derby.log")
    describe(session, catalogs)
    return session


def describe(session: Any, catalogs: dict[str, dict[str, str]]) -> None:
    for name, settings in catalogs.items():
        session.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        for key, value in settings.items():
            session.conf.set(f"spark.sql.catalog.{name}.{key}", value)


class Life:
    """A table in one of Spark's catalogs, changed at random by Spark and followed by sidecar."""

    def __init__(self, spark: Any, catalog: str, kind: str, version: int, chance: random.Random) -> None:
        self.spark, self.kind, self.chance = spark, kind, chance
        self.catalog, self.local = catalog, f"db.{kind}_v{version}"
        self.name = f"{catalog}.{self.local}"
        self.next, self.word = 0, "word"
        properties = {"format-version": str(version), **PROPERTIES.get(kind, {})}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        spark.sql(
            f"create table {self.name} (id bigint, word string, region string, d date) using iceberg "
            f"{PARTITIONS.get(kind, '')} tblproperties ({listed})"
        )
        self.insert()
        self.table = sidecar.open_table(self.name, spark=spark)
        sidecar.build(self.table, ["id", self.word, "region"], engine="local", save=True)

    def rows(self, first: int, count: int) -> str:
        regions = ", ".join(f"'{one}'" for one in REGIONS)
        region = f"element_at(array({regions}), cast(id % 3 as int) + 1)"
        day = "date_add(date'2024-01-01', cast(id % 50 as int))"
        return f"select id, concat('w', id % 40), {region}, {day} from range({first}, {first + count}, 1, 2)"

    def insert(self) -> None:
        self.spark.sql(f"insert into {self.name} {self.rows(self.next, 40)}")
        self.next += 40

    def delete(self) -> None:
        self.spark.sql(f"delete from {self.name} where id % 17 = {self.chance.randrange(17)}")

    def merge(self) -> None:
        first = self.chance.randrange(max(self.next - 20, 1))
        self.spark.sql(
            f"merge into {self.name} t using (select id from range({first}, {first + 30})) s on t.id = s.id "
            f"when matched and s.id % 2 = 0 then update set {self.word} = 'merged' when matched then delete "
            f"when not matched then insert (id, {self.word}) values (s.id, 'new')"
        )

    def rewrite(self) -> None:
        self.spark.sql(f"call {self.catalog}.system.rewrite_data_files(table => '{self.local}')")

    def rename(self) -> None:
        if self.kind == "evolved":
            new = f"word_{uuid.uuid4().hex[:4]}"
            self.spark.sql(f"alter table {self.name} rename column {self.word} to {new}")
            self.word = new

    def statistics(self) -> None:
        self.spark.sql(f"call {self.catalog}.system.compute_table_stats(table => '{self.local}')")

    def follow(self) -> None:
        """Do with sidecar what follows a change."""
        self.table = sidecar.open_table(self.name, spark=self.spark)
        with suppress(CommitConflictError):
            verb = self.chance.choice(("refresh", "refresh", "build", "care", "nothing"))
            if verb == "refresh":
                sidecar.refresh(self.table)
            elif verb == "build":
                sidecar.build(self.table, ["id", self.word], engine="local", kinds=["bloom", "theta"])
            elif verb == "care":
                done = sidecar.care(self.table)
                assert done.exit_code == 0, done.tables[0].to_dict()
        self.table.refresh()

    def step(self) -> None:
        change = self.chance.choice(
            (self.insert, self.insert, self.delete, self.merge, self.rewrite, self.rename, self.statistics)
        )
        change()
        self.follow()

    def predicate(self) -> str:
        chance, some = self.chance, self.chance.randrange(max(self.next, 1))
        return chance.choice(
            (
                f"id = {some}",
                f"id in ({some}, {some + 7}, {some + 400})",
                f"{self.word} = 'w{some % 44}'",
                f"{self.word} = 'merged' and id > {some}",
                f"region = '{chance.choice(REGIONS)}' and id < {some}",
                f"d = '2024-01-{chance.randrange(1, 29):02}'",
                f"id >= {some} and id < {some + 9} or {self.word} is null",
            )
        )

    def compare(self) -> str | None:
        """Compare the rows of a predicate; return what is wrong."""
        where = self.predicate()
        theirs = Counter(tuple(row) for row in self.spark.table(self.name).where(where).collect())
        ours = Counter(tuple(row.values()) for row in sidecar.scan(self.table, where).to_pylist())
        return None if ours == theirs else f"{self.name}: {where}: {sum(ours.values())} of {sum(theirs.values())} rows"

    def registrations(self) -> str | None:
        """Compare the entries that pyiceberg's table shows with those that Iceberg's own reader has."""
        utility = self.spark._jvm.org.apache.iceberg.spark.Spark3Util
        java = utility.loadIcebergTable(self.spark._jsparkSession, self.name)
        java.refresh()
        theirs = {int(one.snapshotId()): str(one.path()) for one in java.statisticsFiles()}
        ours = {one.snapshot_id: one.statistics_path for one in self.table.metadata.statistics}
        return None if ours == theirs else f"{self.name}: entries differ: {ours} and {theirs}"


def random_cases(spark: Any, catalogs: list[str], cases: int, chance: random.Random) -> tuple[Counter[str], list[str]]:
    """Compare rows of so many predicates, in all catalogs; return how many of each catalog, and what is wrong."""
    places = [(name, kind, version) for name in catalogs for version in VERSIONS[name] for kind in KINDS]
    each = -(-cases // len(places))
    done: Counter[str] = Counter()
    wrong = []
    for name, kind, version in places:
        spark.sql(f"create namespace if not exists {name}.db")
        life = Life(spark, name, kind, version, chance)
        for case in range(each):
            if case % 3 == 0:
                life.step()
                wrong += [one for one in [life.registrations()] if one]
            wrong += [one for one in [life.compare()] if one]
            done[f"{name} v{version}"] += 1
    return done, wrong


def mark_entry(folder: str, catalogs: str, name: str, worker: int, rounds: int, answers: Any) -> None:
    """Read the table's one entry, add a mark, and commit it, so many times; another process does the same."""
    spark = session_of(Path(folder), json.loads(catalogs))
    conflicts = 0
    for number in range(rounds):
        while True:
            table = sidecar.open_table(name, spark=spark)
            standing = table.metadata.statistics
            head = table.metadata.current_snapshot_id
            mark = sketch_metadata(head, [1], {"mark": f"{worker}-{number}"})
            marks = [*(standing[0].blob_metadata if standing else ()), mark]
            entry = statistics_entry(head, f"{table.location()}/metadata/{uuid.uuid4()}.stats", blobs=marks)
            try:
                table.update_statistics().set_statistics(entry).commit()
                break
            except CommitFailedException:
                conflicts += 1
    answers.put(conflicts)
    spark.stop()


def race(spark: Any, folder: Path, catalogs: dict[str, dict[str, str]], rounds: int) -> tuple[int, int]:
    """Let two processes change one entry in JDBC; return how many marks are kept, and the conflicts that they had."""
    name = "jdbc.db.raced"
    spark.sql("create namespace if not exists jdbc.db")
    spark.sql(f"create table {name} (id bigint) using iceberg")
    spark.sql(f"insert into {name} values (1)")
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    known = json.dumps({"jdbc": catalogs["jdbc"]})
    workers = [
        context.Process(target=mark_entry, args=(str(folder), known, name, worker, rounds, answers))
        for worker in range(2)
    ]
    for one in workers:
        one.start()
    conflicts = sum(answers.get(timeout=1800) for _ in workers)
    for one in workers:
        one.join()
    (entry,) = sidecar.open_table(name, spark=spark).metadata.statistics
    return len({(blob.properties or {})["mark"] for blob in entry.blob_metadata}), conflicts


def made_anew(spark: Any, catalogs: dict[str, dict[str, str]]) -> list[str]:
    """Commit through a table that another session has dropped and made anew; return which catalogs lost its rows."""
    wrong = []
    for catalog in catalogs:
        name = f"{catalog}.db.anew"
        spark.sql(f"create table {name} (id bigint) using iceberg")
        spark.sql(f"insert into {name} select id from range(50)")
        old = sidecar.open_table(name, spark=spark)
        sidecar.build(old, ["id"], engine="local", save=True)
        spark.table(name).count()
        other = spark.newSession()
        describe(other, {catalog: catalogs[catalog]})
        other.sql(f"drop table {name}")
        other.sql(f"create table {name} (id bigint) using iceberg")
        other.sql(f"insert into {name} select id from range(7)")
        (entry,) = old.metadata.statistics
        for change in (
            lambda old=old: sidecar.build(old, ["id"], engine="local"),
            lambda old=old: sidecar.care(old),
            lambda old=old, entry=entry: old.update_statistics().set_statistics(entry).commit(),
            lambda old=old: old.transaction().set_properties({"lost": "yes"}).commit_transaction(),
        ):
            with suppress(SidecarError, CommitFailedException, ValueError):
                change()
        found = sidecar.scan(sidecar.open_table(name, spark=spark)).num_rows
        if found != 7 or other.table(name).count() != 7:
            wrong.append(f"{name}: {found} of 7 rows")
    return wrong


def beside_spark(spark: Any, catalog: str, seconds: float) -> tuple[Counter[str], list[str]]:
    """Run each verb that commits while Spark inserts, deletes and counts; return what was done, and rows lost."""
    name, done, wrong = f"{catalog}.db.beside", Counter[str](), list[str]()
    spark.sql(f"create table {name} (id bigint, word string) using iceberg")
    spark.sql(f"insert into {name} select id, concat('w', id) from range(20)")
    kept, end = set(range(20)), time.monotonic() + seconds

    def write() -> None:
        session, number = spark, 100
        while time.monotonic() < end:
            number += 5
            statement, change = f"insert into {name} select id, 'x' from range({number}, {number + 5})", kept.update
            ids = set(range(number, number + 5))
            if number % 4 == 0:
                ids = {number - 5}
                statement, change = f"delete from {name} where id = {number - 5}", kept.difference_update
            elif number % 7 == 0:
                statement, ids = f"call {catalog}.system.compute_table_stats(table => 'db.beside')", set()
            try:
                session.sql(statement)
            except Exception as error:  # it may be a conflict: Spark then has changed nothing
                done[f"Spark: {type(error).__name__}"] += 1
                continue
            done["Spark"] += 1
            change(ids)

    writer = threading.Thread(target=write)
    writer.start()
    table = sidecar.open_table(name, spark=spark)
    verbs: dict[str, Callable[[Any], Any]] = {
        "build": lambda one: sidecar.build(one, ["id", "word"], engine="local", save=True),
        "refresh": sidecar.refresh,
        "repair": sidecar.repair,
        "expire": sidecar.expire,
        "gc": sidecar.gc,
        "care": sidecar.care,
        "embed": lambda one: sidecar.embed(one, bloom=["id"]),
    }
    while time.monotonic() < end:
        for verb, run in verbs.items():
            table.refresh()
            try:
                run(table)
                done[verb] += 1
            except CommitConflictError:
                done[f"{verb}: conflict"] += 1
            except SidecarError as error:
                done[f"{verb}: {type(error).__name__}"] += 1
                wrong += [] if "embed" in verb else [f"{name}: {verb}: {error}"]
    writer.join()
    table.refresh()
    for what, found in (
        ("Spark", [row.id for row in spark.table(name).collect()]),
        ("sidecar", sidecar.scan(table)["id"].to_pylist()),
    ):
        if sorted(found) != sorted(kept):
            wrong.append(f"{name}: {what} has {len(found)} rows of {len(kept)}: {sorted(kept ^ set(found))[:9]}")
    return done, wrong


@contextmanager
def _server(folder: Path, is_wanted: bool) -> Iterator[str | None]:
    """The address of a REST server for as long as the block runs."""
    if not is_wanted:
        yield None
        return
    from scripts.servers.iceberg_rest import start_server

    process, address = start_server(folder, lambda process, *folders: None)
    try:
        yield address
    finally:
        process.stop()


def main(arguments: list[str]) -> int:
    """Run everything. Returns 1 if a row or an entry was lost."""
    parser = argparse.ArgumentParser(prog="scripts/torture catalogs", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="changes are the same for the same seed")
    parser.add_argument("--cases", type=int, default=500, help="predicates whose rows are compared")
    parser.add_argument("--rounds", type=int, default=100, help="changes of one entry by each of two processes")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long Spark writes beside each catalog's verbs")
    parser.add_argument("--without-rest", action="store_true", help="leave the catalog of a REST server out")
    given = parser.parse_args(arguments)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as temporary, _server(Path(temporary) / "rest", not given.without_rest) as rest:
        folder = Path(temporary)
        catalogs = settings_of(folder, rest)
        spark = session_of(folder, catalogs)
        start = time.monotonic()
        done, lost = random_cases(spark, list(catalogs), given.cases, random.Random(given.seed))
        wrong += lost
        counts = ", ".join(f"{name} {count}" for name, count in done.items())
        print(
            f"cases: {sum(done.values())}, {len(lost)} wrong ({counts}), {time.monotonic() - start:.0f} s", flush=True
        )
        wrong += (lost := made_anew(spark, catalogs))
        print(f"dropped and made anew in {len(catalogs)} catalogs: {len(lost)} lost rows", flush=True)
        for catalog in catalogs:
            found, lost = beside_spark(spark, catalog, given.seconds)
            wrong += lost
            counts = ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
            print(f"{catalog} beside Spark's writer: {len(lost)} wrong; {counts}", flush=True)
        if given.rounds:
            kept, conflicts = race(spark, folder, catalogs, given.rounds)
            print(f"one entry in JDBC: {kept} of {2 * given.rounds} kept, {conflicts} conflicts", flush=True)
            wrong += [] if kept == 2 * given.rounds else [f"{2 * given.rounds - kept} changes of an entry were lost"]
        spark.stop()
    for one in wrong:
        print(one, file=sys.stderr)
    return int(bool(wrong))
