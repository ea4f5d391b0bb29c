"""What is asked of one Iceberg table of another project, and what sidecar and other engines answer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.expressions.visitors import bind
from pyiceberg.table import Table
from pyiceberg.types import NestedField, UUIDType

import sidecar
from scripts.torturing.foreign.asking import Asking
from scripts.torturing.foreign.cells import columns_of
from scripts.torturing.foreign.differences import AS_SIDECAR
from scripts.torturing.foreign.moved_tables import ROOT, ElsewhereIO, ForeignTable, linked, opened, within
from sidecar.errors import SidecarError
from sidecar.iceberg.predicates.predicate import parse_predicate
from tests.conftest import add_rest_catalog
from tests.duckdb_predicates import spark_condition
from tests.reading.random_predicates import Column, Predicates
from tests.reading.random_predicates import columns_of as askable_columns
from tests.serving.served import served

PREDICATES, VALUES, SERVED = 16, 8, 3
"""Predicates of a table, values that are looked for, predicates that servers are asked."""
MOST_CELLS = 600_000
FILE = "_file"
"""Spark's column of the data file that a row is in."""
Rows = Counter[Any]
Reader = Callable[[Table, ForeignTable, Path], pa.Table]


def by_pyiceberg(table: Table, foreign: ForeignTable, root: Path) -> pa.Table:
    return table.scan().to_arrow()


def by_duckdb(table: Table, foreign: ForeignTable, root: Path) -> pa.Table:
    version = foreign.metadata.name.removesuffix(".metadata.json")
    codec = "gzip" if version.endswith(".gz") else "none"
    place = f"{root}/{within(foreign.location)}"
    options = f"version=?, metadata_compression_codec='{codec}', allow_moved_paths=true"
    found = duckdb_with_iceberg().execute(
        f"from iceberg_scan(?, {options})", [place, version.removesuffix(".gz").removeprefix("v")]
    )
    return found.to_arrow_table()


def duckdb_with_iceberg() -> Any:
    """DuckDB with its own Iceberg reader."""
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect(config={"threads": 1})
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    connection.execute("set TimeZone = 'UTC'")
    return connection


@dataclass
class TableQuestions(Asking):
    """Asks about the table ``foreign``, of which a copy is made in ``folder``; ``session`` is Spark's, if it runs."""

    foreign: ForeignTable | None = None
    readers: dict[str, Reader] = field(default_factory=dict)
    session: Any = None

    def ask_all(self) -> None:
        assert self.foreign is not None
        with ExitStack() as stack:
            try:
                stack.enter_context(linked(self.foreign.location, self.folder))
                self.table = stack.enter_context(opened(self.foreign, self.folder))
            except (ValueError, OSError):  # pyiceberg refuses the metadata, or the place is taken
                return
            self.ask_opened()

    def ask_opened(self) -> None:
        assert self.foreign is not None
        for name, reader in self.readers.items():
            self.say(f"reader {name}")
            with suppress(Exception):
                self.theirs[name] = reader(self.table, self.foreign, self.folder)
        self.ours("status", lambda: sidecar.status(self.table))
        self.ours("verify", lambda: sidecar.verify(self.table))
        self.whole = self.ours("scan", lambda: sidecar.scan(self.table, "true"))
        if self.whole is not None:
            self.compare_rows(self.whole)
        located = self.theirs.get("Spark")
        self.judge = judge = self.whole if self.whole is not None else located.drop([FILE]) if located else None
        if judge is None or judge.num_rows * judge.num_columns > MOST_CELLS:
            return
        columns = self.askable(judge)
        self.scan("scan, no sidecar", columns)
        self.build()
        self.sound("built, verify")
        self.sound("built, verify --data", data=True)
        self.ours("built, status", lambda: sidecar.status(self.table))
        self.scan("built, scan", columns)
        self.find(columns)
        self.ours("refresh", lambda: sidecar.refresh(self.table, engine="local"))
        self.serve(columns)

    def sound(self, question: str, data: bool = False) -> None:
        found = self.ours(question, lambda: sidecar.verify(self.table, data=data, engine="local"))
        if found is not None and found.problems:
            texts = [f"{problem.column or ''}: {problem.problem}" for problem in found.problems]
            self.differ(question, f"{len(texts)} problems: " + "; ".join(texts[:3]), self.reads)

    def compare_rows(self, own: pa.Table) -> None:
        """The rows of each other engine, in any order, by position of their columns."""
        ours, answers = rows_of(own), {}
        for name, table in self.theirs.items():
            other = table.drop([FILE]) if FILE in table.column_names else table
            if other.num_columns == own.num_columns:
                theirs = rows_of(other)
                lost, foreign = theirs - ours, ours - theirs
                said = (
                    f"{lost.total()} more: {next(iter(lost), '')}, {foreign.total()} fewer: {next(iter(foreign), '')}"
                )
                answers[name] = AS_SIDECAR if theirs == ours else said[:300]
        if any(said != AS_SIDECAR for said in answers.values()):
            self.differ("rows", f"{own.num_rows} rows", answers)

    def askable(self, judge: pa.Table) -> list[Column]:
        """The columns that predicates can ask. Spark has UUIDs as texts, which have another order."""
        found = []
        for at, name in enumerate(judge.column_names):
            is_uuid = isinstance(self.table.schema().find_field(name).field_type, UUIDType)
            with suppress(ValueError, pa.ArrowException, OverflowError):
                found += [] if is_uuid else askable_columns(judge.select([at]))
        return found

    def predicates(self, columns: list[Column], count: int) -> Iterator[tuple[str, list[bool]]]:
        source = Predicates(columns, random.Random(self.seed))
        for _ in range(min(count, 4 * len(columns))):
            yield source.next()

    def scan(self, question: str, columns: list[Column]) -> None:
        """The rows that meet random predicates, and with Spark the files that plans keep for them."""
        for text, truth in self.predicates(columns, PREDICATES):
            if self.whole is not None:
                found = self.ours(f"{question}: {text}", lambda text=text: sidecar.scan(self.table, text))
                plain = partial(self.table.scan, parse_predicate(text, self.table.schema()))
                self.same(f"{question}: {text}", found, chosen(self.whole, truth), plain=plain)
            if "Spark" not in self.theirs:
                continue
            planned = self.ours(
                f"{question}, plan: {text}",
                lambda text=text: sidecar.plan(self.table, text, allow_equality_deletes=True),
            )
            files = self.theirs["Spark"][FILE].to_pylist()
            if planned and len(files) == len(truth) and self.whole is None:
                missing = {within(file) for file, met in zip(files, truth, strict=True) if met}
                if missing := missing - {within(file) for file in planned.kept_files}:
                    self.differ(f"{question}, plan: {text}", f"dropped {sorted(missing)[:2]}", {"Spark": "rows there"})

    def same(self, question: str, found: pa.Table | None, wanted: Rows, by: str = "Python", plain: Any = None) -> None:
        """``plain``: the scan of pyiceberg, whose meaning is sidecar's."""
        if found is None or (rows := rows_of(found)) == wanted:
            return
        lost, more = wanted - rows, rows - wanted
        theirs = {by: "the truth"}
        with suppress(Exception):
            if plain is not None and rows_of(plain().to_arrow()) == rows:
                theirs["pyiceberg"] = AS_SIDECAR
        said = f"{lost.total()} rows lost: {next(iter(lost), '')}, {more.total()} too many: {next(iter(more), '')}"
        self.differ(question, said[:400], theirs)

    def build(self) -> None:
        """Build all indexes of all columns that can have some."""
        names = [*leaves_of(self.table.schema().fields, "")]
        able = []
        for name in names:
            with suppress(SidecarError):
                sidecar.build(self.table, [name], engine="local", dry_run=True)
                able.append(name)
        if able:
            self.ours(f"build {able}"[:100], lambda: sidecar.build(self.table, able, engine="local"))

    def find(self, columns: list[Column]) -> None:
        """The rows with a value, of those that readers see."""
        rng = random.Random(self.seed)
        for column in rng.sample(columns, min(VALUES, len(columns))):
            cells = [cell for cell in column.cells if cell is not None and cell == cell]
            if not cells or not column.can_compare:
                continue
            cell = rng.choice(cells)
            if not column.can_spell(cell):
                continue
            spelt = column.spell(cell)
            text = spelt[1:-1].replace("''", "'") if spelt[:1] == "'" else spelt
            name = column.name.replace('"', "")
            found = self.ours(f"find {name} = {text}", lambda n=name, t=text: sidecar.find(self.table, {n: t}))
            if found is None or found.not_asked:
                continue
            shown = [one.snapshots[0] for one in found.files if one.snapshots]
            live, doubt = sum(one.live for one in shown), sum(one.in_doubt for one in shown)
            count = sum(other == cell for other in cells)
            if not live <= count <= live + doubt:
                self.differ(f"find {name} = {text}", f"{live} live rows, {doubt} in doubt", {"Python": f"{count} rows"})

    def serve(self, columns: list[Column]) -> None:
        """The rows that pyiceberg and Spark find with plans of the server are those that they find alone."""
        options = {"py-io-impl": f"{ElsewhereIO.__module__}.{ElsewhereIO.__name__}", ROOT: str(self.folder)}
        with served(self.table.catalog) as server:
            server.planner.mode = lambda table, identifier: "server"
            client = server.catalog(**options).load_table("db.t")
            for text, truth in self.predicates(columns, SERVED):
                row_filter = parse_predicate(text, self.table.schema())
                with suppress(Exception):
                    alone = rows_of(self.table.scan(row_filter).to_arrow())
                    question = f"serve, pyiceberg: {text}"
                    found = self.ours(question, lambda f=row_filter: client.scan(f).to_arrow())
                    self.same(question, found, alone, "pyiceberg alone")
                if "Spark" in self.theirs:
                    self.serve_spark(server.url, text, row_filter, chosen(self.judge, truth))

    def serve_spark(self, address: str, text: str, row_filter: Any, truth: Rows) -> None:
        """Spark alone may leave out equality deletes that apply; then the truth is what Python finds."""
        assert self.foreign is not None
        schema, name = self.table.schema(), f"served{address.rpartition(':')[2]}"
        condition = spark_condition(bind(schema, row_filter, True), schema)
        add_rest_catalog(self.session, name, address)
        self.session.conf.set(f"spark.sql.catalog.{name}.io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        self.say("reader Spark")
        with suppress(Exception):
            own = self.session.read.format("iceberg").load(self.foreign.metadata_location)
            alone = rows_of(own.where(condition).toArrow())
            question, frame = f"serve, Spark: {text}", self.session.table(f"{name}.db.t")
            found = self.ours(question, frame.where(condition).toArrow)
            if found is not None and rows_of(found) != truth:
                self.same(question, found, alone, "Spark alone")


def leaves_of(fields: Iterable[NestedField], before: str) -> Iterator[str]:
    """The names of the primitive columns, those in structs with dots."""
    for one in fields:
        if one.field_type.is_primitive:
            yield before + one.name
        elif one.field_type.is_struct:
            yield from leaves_of(one.field_type.fields, f"{before}{one.name}.")


def rows_of(table: pa.Table) -> Rows:
    """The rows of a table by their cells, whatever their order."""
    columns = columns_of(table).values()
    return Counter(map(repr, zip(*columns, strict=True))) if columns else Counter({"()": table.num_rows})


def chosen(table: pa.Table, truth: list[bool]) -> Rows:
    return rows_of(table.filter(pa.array(truth, pa.bool_())))
