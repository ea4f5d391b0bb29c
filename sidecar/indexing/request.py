"""The request of a build. It loads nothing of what builds, so that a refresh with nothing to do starts quickly."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.access import Access
from sidecar.bundle.kinds.declared import USUAL_KINDS, BuildKind
from sidecar.conversion.reuse import GOOD
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import asked_engine
from sidecar.errors import UsageError, refuse_text
from sidecar.iceberg.resolve import TableColumn
from sidecar.indexing.declaration import BuiltIndexes, ColumnDeclaration, Rate, declarations_of
from sidecar.indexing.options import check_options, check_rate
from sidecar.results.choices import BuildEngine, FilterFormat, ReuseRule


@dataclass(frozen=True)
class BuildMeans:
    """Where a build runs and what it may open: the options that build, refresh and care have in common."""

    engine: BuildEngine | None = None
    spark: Any = None
    threads: int | None = None
    keys: EncryptionKeys | None = field(default=None, repr=False)
    allow_plaintext: bool = False

    def chosen_engine(self) -> BuildEngine:
        """Return the engine that is asked for, or else the configured one."""
        return asked_engine(self.engine, self.spark)

    def access(self, table: Table) -> Access:
        """Return what opens the files of ``table``, with the keys."""
        return Access(table.io, self.keys)


@dataclass(frozen=True)
class BuildRequest:
    """The request of a build, in the words of :func:`sidecar.indexing.driver.build`.

    ``schema`` has the names of the columns (:func:`sidecar.iceberg.refs.schema_at`), by default the table's present
    one. ``most_files``: the most data files that are indexed; ``None`` for all. ``only_carry``: index nothing, and
    carry over what the table still has of its last sidecar. ``merge_up_to``: the bytes up to which all segments become
    one; of any size if there is no new one. ``None``: at most two are left (:mod:`sidecar.bundle.merging.arrangement`).
    ``longest_wait``: for how long files may wait at most until a large sidecar is written anew for them.
    ``thorough``: look at all checksums of the earlier sidecar before anything is indexed.
    ``what``: the operation, for the log and the history of the sidecar. ``at`` and ``started`` are the time when it
    began, of the calendar and of the clock.
    """

    means: BuildMeans
    columns: Sequence[str] | None = None
    kinds: Sequence[BuildKind] | None = None
    fpp: Rate | None = None
    reuse: ReuseRule = GOOD
    filter_format: FilterFormat = "auto"
    full: bool = False
    force: bool = False
    most_files: int | None = None
    only_carry: bool = False
    merge_up_to: int | None = None
    longest_wait: timedelta | None = None
    thorough: bool = True
    schema: Schema | None = None
    what: str = "build"
    started: float = field(default_factory=time.monotonic)
    at: datetime = field(default_factory=partial(datetime.now, timezone.utc))

    def seconds(self) -> float:
        """Return the time since the request was made."""
        return time.monotonic() - self.started

    def declared(
        self, table: Table, snapshot: Snapshot | None, built: Mapping[int, BuiltIndexes]
    ) -> tuple[list[ColumnDeclaration], list[str]]:
        """Return the indexes that a snapshot is to have, and notes for people.

        ``built`` is what its last sidecar has. Without a snapshot, the table's schema counts. Raises as
        :func:`sidecar.indexing.declaration.declarations_of`.
        """
        if self.only_carry:
            return [], []
        found, notes = declarations_of(table, self.schema_for_names(table), self.columns, self.kinds, self.fpp, built)
        return [replace(one, column=_typed(table, snapshot, one.column)) for one in found], notes

    def schema_for_names(self, table: Table) -> Schema:
        """Return the schema that has the names of the columns."""
        return table.schema() if self.schema is None else self.schema

    def check_options(self) -> None:
        """Raise :class:`UsageError` for an option that makes no sense."""
        refuse_text(columns=self.columns or (), kinds=self.kinds or ())
        kinds = USUAL_KINDS if self.kinds is None else self.kinds
        check_options(kinds, self.reuse, self.filter_format)
        self.means.chosen_engine()
        if self.fpp is not None:
            check_rate(self.fpp)
        if self.most_files is not None and self.most_files < 1:
            raise UsageError("the number of files to be indexed is at least 1", found=self.most_files)


def _typed(table: Table, snapshot: Snapshot | None, column: TableColumn) -> TableColumn:
    """Return ``column`` with its type in the snapshot's own schema, which sketches are hashed in."""
    own = None if snapshot is None or snapshot.schema_id is None else table.schemas().get(snapshot.schema_id)
    if own is None or column.field_id not in own.field_ids:
        return column
    return replace(column, type=str(own.find_type(column.field_id)))
