"""Prepares a build: what is asked for, and what the table and its last sidecar say, before any data file is opened."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.bundle.sketches.count_marks import AlsoCounted, CountMarks, NotCounted, marked
from sidecar.convert.harvest import GOOD, HarvestRule
from sidecar.convert.outcome import Progress, no_progress
from sidecar.convert.protection import Protection
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import BuildEngine, asked_engine
from sidecar.errors import UsageError, refuse_text
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.iceberg.find_sidecar import FoundSidecar, find_sidecar
from sidecar.iceberg.listing import ListedFile, Listing, list_snapshot, snapshot_of
from sidecar.iceberg.merge import SketchToCopy
from sidecar.iceberg.registering import check_writable
from sidecar.iceberg.resolve import TableColumn, resolve_columns
from sidecar.indexing.assemble import THETA
from sidecar.indexing.columns import Options
from sidecar.indexing.declaration import BuiltIndexes, ColumnWish, Rate, built_indexes, wishes_of
from sidecar.indexing.options import (
    USUAL_KINDS,
    BuildKind,
    FilterFormat,
    check_options,
    check_rate,
    options_of,
)
from sidecar.indexing.previous.earlier import Earlier, look_back, sketches_to_carry
from sidecar.indexing.sketch_groups import sketched_columns
from sidecar.indexing.tasks import BuildPlan


@dataclass(frozen=True)
class BuildRequest:
    """What a build is asked for, in the words of :func:`sidecar.indexing.driver.build`.

    ``most_files``: the most data files that are indexed; ``None`` for all. ``only_carry``: index nothing, and carry
    over what the table still has of its last sidecar. ``what``: the operation, for the log and the history of the
    sidecar. ``at`` and ``started`` are the time when it began, of the calendar and of the clock.
    """

    columns: Sequence[str] | None = None
    kinds: Sequence[BuildKind] | None = None
    fpp: Rate | None = None
    harvest: HarvestRule = GOOD
    filter_format: FilterFormat = "auto"
    engine: BuildEngine | None = None
    spark: Any = None
    threads: int | None = None
    progress: Progress = no_progress
    lg_k: int = 12
    full: bool = False
    exact: bool = False
    force: bool = False
    encryption_keys: EncryptionKeys | None = None
    allow_plaintext: bool = False
    most_files: int | None = None
    only_carry: bool = False
    what: str = "build"
    started: float = field(default_factory=time.monotonic)
    at: datetime = field(default_factory=partial(datetime.now, timezone.utc))

    def seconds(self) -> float:
        """Return the time since the request was made."""
        return time.monotonic() - self.started

    def chosen_engine(self) -> BuildEngine:
        """Return the engine that is asked for, or else the configured one."""
        return asked_engine(self.engine, self.spark)

    def wishes(
        self, table: Table, snapshot: Snapshot | None, built: Mapping[int, BuiltIndexes]
    ) -> tuple[list[ColumnWish], list[str]]:
        """Return the indexes that a snapshot is to have, and notes for people.

        ``built`` is what its last sidecar has. Without a snapshot, the table's schema counts. Raises as
        :func:`sidecar.indexing.declaration.wishes_of`.
        """
        if self.only_carry:
            return [], []
        schema = table.schema() if snapshot is None else _schema(table, snapshot)
        found, notes = wishes_of(table, schema, self.columns, self.kinds, self.fpp, built)
        return [replace(wish, column=_typed(table, snapshot, wish.column)) for wish in found], notes

    def check_options(self) -> None:
        """Raise :class:`UsageError` for an option that makes no sense."""
        refuse_text(columns=self.columns or (), kinds=self.kinds or ())
        kinds = USUAL_KINDS if self.kinds is None else self.kinds
        check_options(kinds, self.harvest, self.filter_format)
        self.chosen_engine()
        if self.fpp is not None:
            check_rate(self.fpp)
        if self.most_files is not None and self.most_files < 1:
            raise UsageError("the number of files to be indexed is at least 1", found=self.most_files)


@dataclass
class PreparedBuild:
    """A build that has read the table's metadata and its earlier sidecar, and no data file yet. It is a context manager
    that closes the sidecar."""

    table: Table
    request: BuildRequest
    listing: Listing
    asked: Sequence[ColumnWish]
    """The indexes that the table is to have."""
    wishes: Sequence[ColumnWish]
    """Those of :attr:`asked` that can be built with the given keys."""
    plan: BuildPlan
    built: dict[int, BuiltIndexes]
    """What the earlier sidecar has of each column, by field id."""
    earlier: Earlier
    protection: Protection
    notes: Sequence[str]
    """What the caller should know."""

    @cached_property
    def indexable(self) -> list[ListedFile]:
        """The files that no earlier segment serves and that could be indexed."""
        return [file for file in self._unserved if file.not_indexable is None]

    @property
    def to_index(self) -> list[ListedFile]:
        """The files of :attr:`indexable` that are indexed now; none if no column is."""
        return self.indexable[: self.request.most_files] if self.wishes else []

    @property
    def left(self) -> list[ListedFile]:
        """The files of :attr:`indexable` that are left to later builds."""
        return self.indexable[len(self.to_index) :]

    @property
    def files(self) -> list[ListedFile]:
        """The files that the new segment lists: those that are indexed now, and those in formats without indexes."""
        return self.to_index + [file for file in self._unserved if file.not_indexable is not None]

    @property
    def files_to_read(self) -> list[ListedFile]:
        """:attr:`files`, and those that are read again for distinct counts."""
        return [*self.files, *self.earlier.counts.files]

    def marks(self, field_id: int, new: Collection[int] = ()) -> CountMarks:
        """Return why the count of a field is a bound: of its new sketch, or else of the sketch that is carried over.

        ``new`` are the ordinals of the files that this build has counted.
        """
        earlier, counts = self.earlier, self.earlier.counts
        counted, removed = earlier.counted.get(field_id, set()), field_id in earlier.removed
        if any(column.field_id == field_id for column in sketched_columns(self.plan.columns, self.plan.options)):
            counted, removed = counted & counts.counted.get(field_id, set()), field_id in counts.inexact
        upper = {AlsoCounted.REMOVED_FILES} if removed else set[AlsoCounted]()
        upper |= {AlsoCounted.ROW_DELETES} if self.listing.delete_files else set()
        lacks = any(f.record_count and f.ordinal not in counted and f.ordinal not in new for f in self.listing.files)
        return CountMarks(frozenset(map(str, upper)), frozenset({str(NotCounted.FILES)} if lacks else ()))

    def carried_sketches(self) -> list[SketchToCopy]:
        """Return the sketches of the earlier sidecar that hold for what is carried over, with today's marks."""
        return [
            (replace(blob, properties=marked(blob.properties, self.marks(blob.fields[0]))), puffin)
            for blob, puffin in sketches_to_carry(self.earlier)
        ]

    @property
    def _unserved(self) -> list[ListedFile]:
        return [file for file in self.listing.files if file.ordinal not in self.earlier.served]

    def __enter__(self) -> PreparedBuild:
        return self

    def __exit__(self, *_: object) -> None:
        self.earlier.close()


def prepare(table: Table, snapshot_id: int | None, request: BuildRequest) -> PreparedBuild:
    """Resolve the columns, list the snapshot's files, and look which of them an earlier sidecar serves.

    ``snapshot_id`` is by default the current one, which must exist. Raises the errors of
    :func:`sidecar.indexing.driver.build` that come before the first data file.
    """
    request.check_options()
    snapshot = snapshot_of(table, snapshot_id)
    if request.columns is not None:  # wrong names are refused before any file is opened
        resolve_columns(_schema(table, snapshot), request.columns)
    if request.chosen_engine() == "spark" and request.spark is None:
        from sidecar.spark.session import check_available

        check_available()
    check_writable(table)
    request.progress("listing files")
    found = find_sidecar(table, snapshot.snapshot_id)
    try:
        return _prepared(table, snapshot, request, found)
    except BaseException:
        if found is not None:
            found.sidecar.close()
        raise


def _prepared(table: Table, snapshot: Snapshot, request: BuildRequest, found: FoundSidecar | None) -> PreparedBuild:
    built = {} if found is None else built_indexes(found.sidecar)
    asked, notes = request.wishes(table, snapshot, built)
    if request.exact and not any(THETA in wish.kinds for wish in asked):
        raise UsageError(
            "exact is about distinct counts, and none are to be built",
            expected=f"the kind {THETA} for some column",
            found=", ".join(dict.fromkeys(kind for wish in asked for kind in wish.kinds)),
            hint="Add it with --kinds (kinds=), or leave out --exact.",
        )
    wishes = asked
    protection = Protection(request.encryption_keys, request.allow_plaintext)
    if request.columns is None and found is not None:
        wishes = _openable(wishes, found, protection, notes)
    wanted = tuple(wish.column for wish in wishes)
    protection.check([column.path for column in wanted])
    listing = list_snapshot(table, snapshot.snapshot_id)
    sealed = frozenset(column.field_id for column in wanted if protection.seals(column.path))
    common = Options(
        bloom=False,
        theta=False,
        fpp=DEFAULT_FPP,
        max_bits=None,
        harvest=request.harvest,
        lg_k=request.lg_k,
        filter_format=request.filter_format,
        sealed=sealed,
        in_clear=frozenset(c.field_id for c in wanted) - sealed if request.allow_plaintext else frozenset(),
    )
    options = options_of(listing, {wish.column.field_id: (wish.kinds, wish.fpp) for wish in wishes}, common)
    plan = BuildPlan(wanted, _schema(table, snapshot), table.name_mapping(), options, request.encryption_keys)
    earlier = look_back(table, listing, plan, found, request.full, request.most_files, request.exact)
    return PreparedBuild(table, request, listing, asked, wishes, plan, built, earlier, protection, notes)


def _openable(
    wishes: Sequence[ColumnWish], found: FoundSidecar, protection: Protection, notes: list[str]
) -> list[ColumnWish]:
    """Return the wishes without columns that the sidecar has encrypted and whose bundle key is not given.

    A build without the key would write their indexes in plaintext.
    """
    locked = {b.toc.field_id for segment in found.sidecar.segments for b in segment.blobs if b.toc.lock is not None}
    refused = [
        wish.column.path
        for wish in wishes
        if wish.column.field_id in locked and not protection.seals(wish.column.path) and not protection.allow_plaintext
    ]
    if refused and len(refused) == len(wishes):
        raise UsageError(
            "the indexes of all columns are encrypted, and none of their bundle keys is given",
            file=found.statistics.statistics_path,
            expected=f"bundle keys of {', '.join(refused)}",
            hint="Give the keys with --encryption-keys (encryption_keys=).",
        )
    if refused:
        notes.append(
            f"the indexes of {', '.join(refused)} are encrypted and their bundle keys are not given: "
            "they are kept, and new files are not indexed for them"
        )
    return [wish for wish in wishes if wish.column.path not in refused]


def _schema(table: Table, snapshot: Snapshot) -> Schema:
    """Return the schema for column names: the table's present one for its current snapshot, else the snapshot's."""
    current = table.metadata.current_snapshot()
    if snapshot.schema_id is None or (current and current.snapshot_id == snapshot.snapshot_id):
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def _typed(table: Table, snapshot: Snapshot | None, column: TableColumn) -> TableColumn:
    """Return ``column`` with its type in the snapshot's own schema, which sketches are hashed in."""
    own = None if snapshot is None or snapshot.schema_id is None else table.schemas().get(snapshot.schema_id)
    if own is None or column.field_id not in own.field_ids:
        return column
    return replace(column, type=str(own.find_type(column.field_id)))
