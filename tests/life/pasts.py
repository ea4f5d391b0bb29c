"""Tables with a past drawn from a seed, and predicates over them: what every door's rows are compared on.

A :class:`Past` is a life whose changes came before anything is asked: rows of ``tests.iceberg.cases`` in both formats,
a dozen of the changes that any life has, and a sidecar built in between. The same seed gives the same table.

What only some pasts have are their *features* (:data:`FEATURES`), which are part of the names of tests:

- ``v1``: a table of format version 1, upgraded at times;
- ``transform``: partitioned from the start, by bucket, truncate, day, month or hour;
- ``floats``: floats that are no quarters, and literals beside them;
- ``returning``: files that leave the table and come back under their name with other rows, of the same size and number;
- ``schema``: changes of the schema after the last snapshot;
- ``equality``: rows deleted by equality at the end;
- ``branch``: rows in a branch that ``main`` does not have;
- ``formats``: Avro and ORC files that Spark has written.

What a feature is for is asked often: predicates of such tables look for the rows and columns that it changed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from sidecar.iceberg.refs import schema_at
from tests.iceberg.cases import SCHEMA, local, predicate, records, replaced
from tests.iceberg.mixed_tables import UNREADABLE
from tests.iceberg.table_cases import SMALL_PAGES
from tests.life import changes
from tests.life.sidecar_changes import DAMAGE, build, damage, spoilt
from tests.life.table_life import PROPERTIES, WRITTEN_AS, Change, Life, SharedCatalog, numbers

CANNOT_COMPARE = ("u",)
"""pyarrow compares no UUIDs, so pyiceberg evaluates no such predicate."""
FLAVOURS = {"parquet": (), "mixed": UNREADABLE, "spark": ("t",)}
"""Types that a kind of table lacks: pyiceberg cannot read some from ORC, Spark has none for a time of day."""
FEATURES = {
    "v1": 0.25, "upgrade": 0.3, "transform": 0.5, "floats": 0.3, "returning": 0.25, "schema": 0.35, "equality": 0.3,
    "branch": 0.3, "formats": 0.5,
}  # fmt: skip
"""How often a past has each feature, if it fits the other ones."""
FIRST: dict[tuple[int, str], tuple[str, ...]] = {
    (0, "parquet"): ("v1", "returning"),
    (1, "parquet"): ("floats",),
    (2, "mixed"): ("returning", "schema"),
    (3, "parquet"): ("floats", "equality"),
    (4, "parquet"): ("v1", "transform"),
    (0, "spark"): ("floats", "equality", "branch", "formats"),
    (1, "spark"): ("transform", "schema", "branch"),
}
"""The features of the first pasts, which a short run has; fewer things happen to these tables."""
TRANSFORMS: dict[str, list[Transform[Any, Any]]] = {
    "id": [BucketTransform(3), TruncateTransform(40)],
    "l": [BucketTransform(4)],
    "s": [BucketTransform(3), TruncateTransform(7)],
    "dec9": [TruncateTransform(200)],
    "day": [MonthTransform(), YearTransform()],
    "ts": [YearTransform(), MonthTransform(), DayTransform(), HourTransform()],
    "tz": [DayTransform(), HourTransform()],
}
"""Transforms by the values of a column; of timestamps every few rows are of another hour."""
CODECS = ["zstd", "snappy", "gzip", "uncompressed"]
APART = (damage, changes.delete_by_equality_of, changes.upgrade)
"""Changes that a past does not have before its end: what they leave is asked by tests and features of their own."""
OF_OLD_SNAPSHOTS = (changes.roll_back, changes.set_current, changes.create_branch, changes.stage, changes.cherry_pick)
"""Changes that bring back files of old snapshots, which have other content by then where files return."""


def features_of(seed: int, flavour: str) -> tuple[str, ...]:
    """What the past of a seed has, among :data:`FEATURES`."""
    if (seed, flavour) in FIRST:
        return FIRST[seed, flavour]
    rng = random.Random(f"features {flavour} {seed}")
    has: list[str] = []
    for name, chance in FEATURES.items():
        if rng.random() < chance and _go_together(name, has, flavour):
            has.append(name)
    return tuple(has)


def _go_together(name: str, has: list[str], flavour: str) -> bool:
    """Whether a past can have a feature along with those before it."""
    if name == "upgrade":
        return "v1" in has and flavour != "spark"  # Spark upgrades all tables
    if name == "transform":
        return flavour != "mixed"  # pyiceberg writes no ORC: the manifests of these files have no partitions
    if name == "equality":  # deletes are of an unpartitioned spec, and not of version 1
        return "transform" not in has and ("v1" not in has or flavour == "spark")
    if name == "branch":  # what is written anew is another file in the branch too
        return "returning" not in has
    return name != "formats" or flavour == "spark"


@dataclass
class Past(Life):
    """A life with rows of ``tests.iceberg.cases``, and predicates over its columns and rows."""

    flavour: str = "parquet"
    features: tuple[str, ...] = ()
    asked_ids: list[int] = field(default_factory=list)
    """Rows that most predicates are about."""
    asked_columns: list[str] = field(default_factory=list)
    """Columns that many predicates are about."""
    older: Table | None = None
    """The table as pyiceberg had it before Spark changed its schema."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if "floats" in self.features:
            self.values["f"] = "e"

    def new_table(self) -> Table:
        schema = Schema(*(f for f in SCHEMA.fields if f.name not in FLAVOURS[self.flavour]))
        rng = self.rng
        own = {name: rng.choice(values) for name, values in WRITTEN_AS.items()}
        version = "1" if "v1" in self.features else "2"
        properties = {
            **PROPERTIES, "write.parquet.compression-codec": rng.choice(CODECS), **own, "format-version": version,
            **(SMALL_PAGES if rng.random() < 0.6 else {}),
        }  # fmt: skip
        spec = self._first_spec(schema) if "transform" in self.features else PartitionSpec()
        table: Table = self.catalog.create_table(self.name, schema, partition_spec=spec, properties=properties)
        return table

    def _first_spec(self, schema: Schema) -> PartitionSpec:
        rng, known = self.rng, [name for name in TRANSFORMS if schema.find_field(name)]
        chosen = rng.sample(known, rng.choice([1, 1, 2]))
        ids = [schema.find_field(name).field_id for name in chosen]
        return PartitionSpec(
            *(
                PartitionField(field_id, 1000 + n, rng.choice(TRANSFORMS[name]), f"{name}_part")
                for n, (name, field_id) in enumerate(zip(chosen, ids, strict=True))
            )
        )

    def records(self, keys: range) -> list[dict[str, Any]]:
        made = []
        for record in records(keys.start, len(keys), keys.start + 17):
            flat = record | (record["st"] or {})
            flat["e"] = None if flat["f"] is None else flat["f"] * 4 / 10
            row: dict[str, Any] = {}
            for name, value in self.values.items():
                top, _, below = name.partition(".")
                if not below:
                    row[name] = flat.get(value)
                elif record["st"] is not None:
                    row.setdefault(top, {})[below] = flat.get(value)
            made.append(row)
        return made

    def ask_about(self, change: Change) -> None:
        """Change the table; predicates are about the rows and columns that it changes."""
        before, first, columns = {*self.head().rows}, self.next_id, dict(self.values)
        self.do(change)
        self.asked_ids += sorted(before ^ {*self.head().rows}) or range(first, self.next_id)
        self.asked_columns += [name for name, value in self.values.items() if columns.get(name, value) != value]

    @property
    def columns(self) -> list[str]:
        """Columns that predicates may ask."""
        cannot = () if self.flavour == "spark" else CANNOT_COMPARE
        return sorted(name for name, value in self.values.items() if value not in cannot)

    def columns_at(self, snapshot_id: int | None) -> list[str]:
        """Those of :attr:`columns` whose names mean columns of the same type in the schema of a snapshot."""
        present, then = self.table.schema(), schema_at(self.table, snapshot_id)
        known = set(then.column_names)
        return [name for name in self.columns if name in known and then.find_type(name) == present.find_type(name)]

    def predicate(self, columns: list[str] | None = None) -> str:
        """A random predicate, often only for some ids: these rise from row to row."""
        rng, chosen = self.rng, columns or self.columns
        for often in ([*self.asked_columns, *(n for n, v in self.values.items() if v == "e")], self.indexed):
            known = [name for name in chosen if name in often]
            if known and rng.random() < 0.6:
                chosen = known
                break
        asked = rng.sample(chosen, min(len(chosen), 3))
        ids: Sequence[int] = range(self.next_id)
        if self.asked_ids and rng.random() < 0.6:
            ids = self.asked_ids
        text = predicate(rng, asked, ids, rng.choice([0, 0, 1, 2]), self.values)
        start = rng.choice(ids)
        form = rng.choice(
            [*["{0}"] * 5, "id >= {1} and id < {2} and {0}", "id in ({1}, {2}) or {0}", "id = {1} and {0}"]
        )
        return form.format(text, start, start + rng.randrange(1, 40))

    def snapshot(self) -> int | None:
        """``None`` for the present one, mostly; else any that pyiceberg can plan, those of branches among them."""
        known = [one for one in self.known_snapshots() if not self.contents[one].equality_deletes]
        return None if self.rng.random() < 0.75 or not known else self.rng.choice(known)

    def before_equality(self) -> int | None:
        """The snapshot before those in which rows are deleted by equality; ``None`` if that is the present one."""
        if not self.head().equality_deletes:
            return None
        known = (s.snapshot_id for s in ancestors_of(self.table.current_snapshot(), self.table.metadata))
        return next(one for one in known if one in self.contents and not self.contents[one].equality_deletes)


def make_past(catalog: Any, seed: int, flavour: str, features: tuple[str, ...] | None = None) -> Past:
    """A table whose past is drawn from ``seed``, and its features too, if they are not given."""
    rng = random.Random(f"{flavour} {seed}")
    features = features_of(seed, flavour) if features is None else features
    place = SharedCatalog(catalog)
    life = Past(place, next(numbers), rng, mixed=flavour == "mixed", flavour=flavour, features=features)
    counts = range(4, 9) if "transform" in features else range(8, 31)
    append, one = partial(changes.append, counts=counts), partial(changes.append, branch="main", counts=(1, 2))
    for _ in range(rng.randint(2, 5)):
        life.do(append)
    steps = 6 if (seed, flavour) in FIRST else 10
    built, known = rng.randrange(steps), [*_steps_of(features), append, append, append]
    for step in range(steps):
        life.do(build if step == built else rng.choice(known))
    if "returning" in features:
        _return_indexed(life)
    if "branch" in features:
        life.do(changes.create_branch)
        life.ask_about(partial(changes.append, branch=life.branches()[-1]))
    if "floats" in features:
        for _ in range(4):  # a literal beside a float matters where the float is a bound of its file
            life.ask_about(one)
    # Iceberg in Java cannot read the ids as pyiceberg writes them; DuckDB crashes if the column is dropped afterwards
    if "equality" in features and flavour != "spark":
        life.ask_about(partial(changes.delete_by_equality_of, name="id"))
        life.ask_about(append)
    if "schema" in features:
        for doing in rng.sample(SCHEMA_CHANGES, 2):
            life.do(doing)
    return life


SCHEMA_CHANGES: list[Change] = [
    changes.promote_column, changes.rename_column, changes.rename_column, changes.drop_column, changes.add_column,
    changes.drop_and_add_column, changes.swap_columns,
]  # fmt: skip


def _steps_of(features: Collection[str]) -> list[Change]:
    steps = [change for change, often in changes.CHANGES.items() if change not in APART for _ in range(often)]
    if "upgrade" in features:
        steps += [changes.upgrade] * 4
    if "returning" in features:
        steps = [step for step in steps if step not in OF_OLD_SNAPSHOTS]
        steps += [*[changes.import_file] * 3, *[changes.return_file] * 8]
    return steps


def _return_indexed(life: Past) -> None:
    """A file comes back after a sidecar was built for it; at times another one is built for other columns then."""
    for _ in range(3):
        life.do(changes.import_file)
        before, life.indexed = life.indexed, []
        life.do(partial(build, among=life.columns))
        life.asked_columns, life.indexed = life.indexed, sorted({*before, *life.indexed})
        life.ask_about(changes.return_file)
        if life.log[-1].startswith("return"):
            break
    others = sorted({*life.values} - {*life.asked_columns})
    if others and life.rng.random() < 0.4:
        life.do(partial(build, among=others))


@contextmanager
def damaged(life: Life) -> Iterator[str]:
    """The sidecars of the table as they are, or some of them with wrong bytes, too short, or gone, for a while."""
    rng, entries = life.rng, life.table.metadata.statistics
    what = rng.choice([*["none"] * 6, *DAMAGE])
    there = [path for entry in entries if (path := local(entry.statistics_path)).exists()]
    if not there or what == "none":
        yield "none"
        return
    path = rng.choice(there)
    with replaced(path, spoilt(path.read_bytes(), what, rng)):
        yield what
