"""Tables with a past drawn from a seed, and predicates over them: what every door's rows are compared on.

A :class:`History` is a table that was changed a dozen times: rows appended in both formats, to branches too, rows
deleted by rewriting files, by position and by equality, columns added, renamed, dropped, added again and promoted,
partition fields added and removed, snapshots rolled back and expired, and in between a sidecar built for some columns
of some snapshot, at times damaged or gone. The same seed gives the same table.

What only some histories have are its *features* (:data:`FEATURES`), which are part of the names of tests:

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    StructType,
)

from tests.equivalence_changes import (
    CHANGES,
    add_column,
    append_floats,
    append_rows,
    append_to_branch,
    build,
    delete_rows_by_equality,
    do,
    drop_and_add_column,
    drop_column,
    import_file,
    promote_column,
    rename_column,
    return_file,
    return_indexed,
    roll_back,
    upgrade,
)
from tests.equivalence_history import History
from tests.iceberg.cases import SCHEMA, local, replaced
from tests.iceberg.mixed_tables import UNREADABLE
from tests.iceberg.table_cases import SMALL_PAGES

FLAVOURS = {"parquet": (), "mixed": UNREADABLE, "spark": ("t",)}
"""Types that a kind of table lacks: pyiceberg cannot read some from ORC, Spark has none for a time of day."""
FEATURES = {
    "v1": 0.25, "upgrade": 0.3, "transform": 0.5, "floats": 0.3, "returning": 0.25, "schema": 0.35, "equality": 0.3,
    "branch": 0.3, "formats": 0.5,
}  # fmt: skip
"""How often a history has each feature, if it fits the history's other ones."""
FIRST: dict[tuple[int, str], tuple[str, ...]] = {
    (0, "parquet"): ("v1", "returning"),
    (1, "parquet"): ("floats",),
    (2, "mixed"): ("returning", "schema"),
    (3, "parquet"): ("floats", "equality"),
    (4, "parquet"): ("v1", "transform"),
    (0, "spark"): ("floats", "equality", "branch", "formats"),
    (1, "spark"): ("transform", "schema", "branch"),
}
"""The features of the first histories, which a short run has; fewer things happen to these tables."""
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


def features_of(seed: int, flavour: str) -> tuple[str, ...]:
    """What the history of a seed has, among :data:`FEATURES`."""
    if (seed, flavour) in FIRST:
        return FIRST[seed, flavour]
    rng = random.Random(f"features {flavour} {seed}")
    has: list[str] = []
    for name, chance in FEATURES.items():
        if rng.random() < chance and _go_together(name, has, flavour):
            has.append(name)
    return tuple(has)


def _go_together(name: str, has: list[str], flavour: str) -> bool:
    """Whether a history can have a feature along with those before it."""
    if name == "upgrade":
        return "v1" in has and flavour != "spark"  # Spark upgrades all tables
    if name == "transform":
        return flavour != "mixed"  # pyiceberg writes no ORC: the manifests of these files have no partitions
    if name == "equality":  # deletes are of an unpartitioned spec, and not of version 1
        return "transform" not in has and ("v1" not in has or flavour == "spark")
    if name == "branch":  # what is written anew is another file in the branch too
        return "returning" not in has
    return name != "formats" or flavour == "spark"


def make_history(catalog: Any, name: str, seed: int, flavour: str) -> History:
    """A table whose past is drawn from ``seed``."""
    rng, features = random.Random(f"{flavour} {seed}"), features_of(seed, flavour)
    schema = Schema(*(f for f in SCHEMA.fields if f.name not in FLAVOURS[flavour]))
    properties = {
        **(SMALL_PAGES if rng.random() < 0.6 else {}),
        **written_as(random.Random(f"writing {flavour} {seed}")),
    }
    if "v1" in features:
        properties["format-version"] = "1"
    spec = _first_spec(rng, schema) if "transform" in features else PartitionSpec()
    table = catalog.create_table(name, schema, partition_spec=spec, properties=properties)
    history = History(table, rng, flavour, features=features)
    for column in schema.fields:
        if isinstance(column.field_type, StructType):
            history.values |= {f"{column.name}.{f.name}": f.name for f in column.field_type.fields}
        else:
            history.values[column.name] = column.name
    if "floats" in features:
        history.values["f"] = "e"
    for _ in range(rng.randint(2, 5)):
        do(history, append_rows)
    steps = 6 if (seed, flavour) in FIRST else 10
    built, known = rng.randrange(steps), _steps_of(features)
    for step in range(steps):
        do(history, build if step == built else rng.choice(known))
    if "returning" in features:
        return_indexed(history)
    if "branch" in features:
        first = history.ids
        do(history, append_to_branch)
        history.asked_ids += range(first, history.ids)
    if "floats" in features:
        for _ in range(4):
            do(history, append_floats)
    if "equality" in features and flavour != "spark":
        # Iceberg in Java cannot read the ids as pyiceberg writes them
        do(history, delete_rows_by_equality)
    if "schema" in features:
        for doing in rng.sample(
            [promote_column, rename_column, rename_column, drop_column, add_column, drop_and_add_column], 2
        ):
            do(history, doing)
    history.table.refresh()
    return history


WRITTEN_AS = {
    "commit.manifest-merge.enabled": ["false", "true"],
    "write.metadata.metrics.default": ["truncate(16)", "truncate(16)", "truncate(2)", "counts", "none", "full"],
    "write.parquet.compression-codec": ["zstd", "snappy", "gzip", "uncompressed"],
    "write.parquet.dict-size-bytes": ["2097152", "2097152", "1"],
}
"""How a table is written, without a change of its rows: two manifests become one, entries have few bounds or none,
chunks have other codecs, and no dictionaries."""


def written_as(rng: random.Random) -> dict[str, str]:
    """Properties of a table, each at random, with a seed of its own: histories stay as they were."""
    found = {name: rng.choice(values) for name, values in WRITTEN_AS.items()}
    return found | {"commit.manifest.min-count-to-merge": str(rng.choice([2, 5]))}


def _first_spec(rng: random.Random, schema: Schema) -> PartitionSpec:
    known = [name for name in TRANSFORMS if schema.find_field(name)]
    chosen = rng.sample(known, rng.choice([1, 1, 2]))
    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, 1000 + n, rng.choice(TRANSFORMS[name]), f"{name}_part")
            for n, name in enumerate(chosen)
        )
    )


def _steps_of(features: tuple[str, ...]) -> list[Callable[[History], str | None]]:
    steps = list(CHANGES)
    if "upgrade" in features:
        steps += [*[upgrade] * 4]
    if "returning" in features:  # what goes back to an old snapshot finds other content in its files
        steps = [step for step in steps if step not in (roll_back, append_to_branch)]
        steps += [*[import_file] * 3, *[return_file] * 8]
    return steps


@contextmanager
def damaged(history: History) -> Iterator[str]:
    """The sidecars of the table as they are, or some of them with wrong bytes, too short, or gone, for a while."""
    rng, entries = history.rng, history.table.metadata.statistics
    what = rng.choice([*["none"] * 6, *DAMAGE])
    if not entries or what == "none":
        yield "none"
        return
    path = local(rng.choice(entries).statistics_path)
    if not path.exists():
        yield "none"
        return
    with replaced(path, spoilt(path.read_bytes(), what, rng)):
        yield what


DAMAGE = ("bits", "bytes", "short", "gone")


def spoilt(data: bytes, what: str, rng: random.Random) -> bytes | None:
    """The bytes of a file after one kind of :data:`DAMAGE`; ``None`` if it is gone."""
    if what == "gone":
        return None
    if what == "short":
        return data[: rng.randrange(len(data))]
    whole = bytearray(data)
    for at in rng.sample(range(len(whole)), min(len(whole), 1 if what == "bits" else len(whole) // 50)):
        whole[at] ^= 1 << rng.randrange(8)
    return bytes(whole)
