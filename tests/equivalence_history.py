"""A table with a past, and predicates over its columns and rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.iceberg.refs import schema_at
from tests.iceberg.cases import predicate

CANNOT_COMPARE = ("u",)
"""pyarrow compares no UUIDs, so pyiceberg evaluates no such predicate."""


@dataclass
class History:
    """``values`` says whose values each column of the present schema has, by the names of ``tests.iceberg.cases``."""

    table: Table
    rng: random.Random
    flavour: str
    ids: int = 0
    values: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    """What was done, for messages."""
    equality_deletes: bool = False
    deleted: set[tuple[str, int]] = field(default_factory=set)
    dropped: list[str] = field(default_factory=list)
    indexed: list[str] = field(default_factory=list)
    """Columns that were built, as they were named then."""
    features: tuple[str, ...] = ()
    asked_ids: list[int] = field(default_factory=list)
    """Rows that most predicates are about."""
    asked_columns: list[str] = field(default_factory=list)
    """Columns that many predicates are about."""
    before_equality: int | None = None
    """The snapshot before rows were deleted by equality."""
    gone: set[int] = field(default_factory=set)
    """The ids of these rows."""
    older: Table | None = None
    """The table as pyiceberg had it before Spark changed its schema."""
    imported: dict[str, DataFile] = field(default_factory=dict)
    """Files that may come back under their name."""
    changed_in_spark: bool = False
    truths: dict[Any, Any] = field(default_factory=dict)
    """What is known of the rows of its snapshots, for :mod:`tests.equivalence_truth`."""

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
        ids: Sequence[int] = range(self.ids)
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
        if self.rng.random() < 0.75 or "returning" in self.features:  # files of old snapshots have other content by now
            return None
        chosen = self.rng.choice(self.table.metadata.snapshots)
        return None if self._has_equality_deletes(chosen) else chosen.snapshot_id

    def _has_equality_deletes(self, snapshot: Snapshot) -> bool:
        """Only the last steps of a history delete by equality; the rows of the present are known without pyiceberg."""
        if self.before_equality is None:
            return False
        before = self.table.metadata.snapshot_by_id(self.before_equality)
        assert before is not None
        return (snapshot.sequence_number or 0) > (before.sequence_number or 0)

    def present(self) -> bool:
        """Whether ``main`` has rows at all."""
        return self.table.current_snapshot() is not None
