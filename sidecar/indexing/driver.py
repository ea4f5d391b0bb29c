"""The driver of a build: pin the snapshot, index its files, fix positions once, write and register.

What needs memory in proportion to the table is metadata alone: the listing and one record a (unit, column).
Filters stay with the engine and pass through as finished regions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypedDict

from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.bundle.encryption import FieldKey
from sidecar.bundle.model import SegmentHeader
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.slicing import tail_piece
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.bundle.writer import FieldBundle, copy_segments, write_segment
from sidecar.convert.outcome import BLOOM, PAGE_INDEX
from sidecar.convert.protection import REFUSED, Protection, properties_of, refusal
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import StorageError, UsageError
from sidecar.filters.sizing import DEFAULT_FPP, MAX_BITS_PER_VALUE, auto_fpp, check_fpp
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.listing import ListedFile, Listing, list_snapshot, snapshot_of
from sidecar.iceberg.merge import Theta
from sidecar.iceberg.refs import snapshot_id_of
from sidecar.iceberg.resolve import Column, resolve_columns
from sidecar.iceberg.statistics import Registration, check_writable, register
from sidecar.indexing.assemble import (
    THETA,
    Indexed,
    Selection,
    collect,
    encrypted_of,
    expected_false_units,
    field_indexes,
    group_tasks,
    index_groups,
    select,
    tails,
    units_table,
)
from sidecar.indexing.bins import make_tasks
from sidecar.indexing.columns import Options
from sidecar.indexing.earlier import Earlier, look_back, other_segments
from sidecar.indexing.engine import Engine, Progress
from sidecar.indexing.local import LocalEngine
from sidecar.indexing.report import BuildReport, blob_dict, make_report
from sidecar.indexing.slices import GroupTask
from sidecar.indexing.tasks import Plan, TableOpener
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import ORC_BLOOM, ROW_INDEX, SBBF
from sidecar.puffin.types import PAGE_INDEX as PAGE_INDEX_BLOB
from sidecar.puffin.writer import PuffinWriter

KINDS = (BLOOM, THETA, PAGE_INDEX)
USUAL_KINDS = (BLOOM, THETA)
HARVEST = ("good", "always", "never")
FILTER_FORMATS = ("auto", "parquet", "orc")
ENGINES = ("auto", "spark", "local")

ORC_STRIDE = 10_000
"""Rows of a row group of ORC files, unless their writer was told otherwise."""

LOCAL_BYTES = 4 << 30
"""``engine="auto"`` runs tables of at most this many bytes of data files in this process."""


def build(
    table: Table,
    columns: Sequence[str],
    *,
    kinds: Sequence[str] = USUAL_KINDS,
    fpp: float | str = "auto",
    harvest: str = "good",
    filter_format: str = "auto",
    engine: str = "auto",
    snapshot_id: int | None = None,
    ref: str | None = None,
    spark: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
    lg_k: int = 12,
    full: bool = False,
    force: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
) -> BuildReport:
    """Index ``columns`` of a snapshot (that of a branch or tag ``ref``, or the current one) and register the sidecar.

    ``kinds``: ``bloom``, ``theta``, ``page-index`` (the first two by default). ``fpp``: target false-positive rate,
    or ``auto``, the smaller of 1 % and one over the number of units, at up to 32 bits a value. ``harvest``: filters
    that files carry are taken if they are ``good`` (at most 1 % by their bits), ``always`` or ``never``, and page
    indexes unless ``never``. ``filter_format``: what units of ORC files get, ``parquet`` split-block filters of their
    values, as Parquet files have, ``orc`` ORC filters (``auto`` rates are the writers' 1 % then), ``auto`` those that
    the file has, as ``harvest`` says, else split-block ones. ``engine``: ``local`` runs in this process, ``spark`` on
    ``spark`` or an embedded session; ``auto`` takes ``spark`` if one is given, else this process for tables up to
    4 GiB or where Spark cannot start. ``lg_k``: log2 of a sketch's entries.
    Files that the sidecar of the snapshot or of its nearest ancestor answers for are not indexed again; its
    segments are carried over, those of other columns too. ``full`` indexes all files again.
    ``force`` registers even if an existing statistics file cannot be read and is lost.
    ``encryption_keys`` open encrypted data files; without their key columns are not indexed. A column that is
    encrypted in some file goes into the sidecar encrypted, if ``bundle_keys`` of the keys name it (then whatever its
    files are, and without sketch and bounds), in plaintext with ``allow_plaintext``, as its blobs then say, or not.

    Damage costs the file or column chunk that it hits and is reported. Raises :class:`UsageError` before any
    work for unknown columns, a table without a snapshot and wrong options, before anything is written for encrypted
    columns that would go into a plaintext sidecar, and what :func:`sidecar.iceberg.statistics.register` raises.
    """
    start = time.monotonic()
    snapshot = snapshot_of(table, snapshot_id_of(table, snapshot_id, ref))
    schema = _schema(table, snapshot)
    wanted = _typed(table, snapshot, resolve_columns(schema, columns))
    _check_options(kinds, harvest, filter_format, engine)
    if engine == "spark" and spark is None:
        from sidecar.spark.session import check_available

        check_available()
    check_writable(table)
    show = progress or _silent
    show("listing files")
    listing = list_snapshot(table, snapshot.snapshot_id)
    protection = Protection(encryption_keys, allow_plaintext)
    protection.check([column.path for column in wanted])
    sealed = frozenset(column.field_id for column in wanted if protection.seals(column.path))
    options = replace(
        _options(listing, kinds, fpp, harvest, filter_format, lg_k),
        sealed=sealed,
        in_clear=frozenset(c.field_id for c in wanted) - sealed if allow_plaintext else frozenset(),
    )
    plan = Plan(wanted, schema, table.name_mapping(), options, encryption_keys)
    earlier = look_back(table, listing, plan, None if fpp == "auto" else options.fpp, full)
    try:
        files = [file for file in listing.files if file.ordinal not in earlier.served]
        runner, why = _engine(table, files, engine, spark, threads)
        try:
            return _Build(table, listing, files, plan, earlier, runner, why, show, force, protection).run(
                start
            )
        finally:
            runner.close()
    finally:
        earlier.close()


class Registered(TypedDict):
    """The snapshot that the file is registered for: what each of our blobs in it says of itself."""

    snapshot_id: int
    sequence_number: int


@dataclass
class _Build:
    """One build at work; the engine holds the filters between the stages."""

    table: Table
    listing: Listing
    files: Sequence[ListedFile]
    """Those of the listing that no earlier segment serves."""
    plan: Plan
    earlier: Earlier
    engine: Engine
    why: str
    progress: Progress
    force: bool
    protection: Protection

    def run(self, start: float) -> BuildReport:
        indexable = [file for file in self.files if file.not_indexable is None]
        options = self.plan.options
        records = self.engine.index(make_tasks(indexable), self.plan, self.progress)
        encrypted = encrypted_of(records, options)
        selection = select(self.listing, {file.ordinal for file in self.files}, encrypted, options.in_clear)
        indexed = collect(selection.files, records, options.lg_k)
        indexed.encrypted = encrypted
        self._check_any_read(indexable, indexed)
        self._check_protected(indexed)
        for field_id, sketch in self.earlier.sketches.items():
            parts = [sketch, *([indexed.sketches[field_id]] if field_id in indexed.sketches else [])]
            indexed.sketches[field_id] = ThetaSketch.union(parts, self.plan.options.lg_k)
        report = make_report(
            self.listing, indexed, self.plan.columns, self.plan.options, (self.engine.name, self.why)
        )
        report.carry(self.earlier)
        if indexable or not self._is_registered():
            self._add_registration(report, self._register(selection, indexed))
        report.seconds = time.monotonic() - start
        return report

    def _check_any_read(self, files: Sequence[ListedFile], indexed: Indexed) -> None:
        """Storage that is not there at all is no reason to replace the sidecar that is."""
        if files and indexed.unread.issuperset(file.ordinal for file in files):
            first = files[0]
            raise StorageError(
                f"no data file could be read, so nothing was registered: {indexed.failed[first.ordinal]}",
                file=first.path,
                hint="Check paths and credentials.",
            )

    def _check_protected(self, indexed: Indexed) -> None:
        """No column that only its file's encryption hides goes into a plaintext sidecar unasked."""
        refused = [
            column.path
            for column in self.plan.columns
            if any(unit.columns[column.field_id].reason == REFUSED for unit in indexed.units)
            or any(unit.columns[column.field_id].theta_reason == REFUSED for unit in indexed.units)
            or any(
                column.field_id in unit.pages and unit.pages[column.field_id].reason == REFUSED
                for unit in indexed.units
            )
        ]
        if refused:
            raise refusal(refused)

    def _is_registered(self) -> bool:
        """Whether the snapshot has the earlier sidecar itself, and all of it is still wanted."""
        found = self.earlier.found
        if found is None or found.snapshot_id != self.listing.snapshot_id:
            return False
        return len(self.earlier.segments) == len(found.sidecar.segments)

    def _add_registration(self, report: BuildReport, registration: Registration) -> None:
        report.statistics_path = registration.statistics_path
        report.file_size = registration.file_size
        report.blobs = [blob_dict(blob) for blob in registration.blobs]
        report.warnings += registration.notes
        if self.listing.delete_files and self.plan.options.theta:
            report.warnings.append(
                "the snapshot has delete files: rows that they remove are counted in the sketches"
            )

    def _register(self, selection: Selection, indexed: Indexed) -> Registration:
        header = SegmentHeader(
            table_uuid=self.listing.table_uuid,
            snapshot_id=self.listing.snapshot_id,
            sequence_number=self.listing.sequence_number,
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        place = Registered(snapshot_id=self.listing.snapshot_id, sequence_number=self.listing.sequence_number)
        units = units_table(selection, indexed, self.plan.columns, self.plan.options)
        keys = self._keys(header)
        in_clear = indexed.encrypted.fields & self.plan.options.in_clear
        groups = group_tasks(indexed, self.plan.columns, header.segment_id, keys)
        indexes = index_groups(indexed, self.plan.columns)
        thetas = [
            Theta(i, sketch.to_bytes(), sketch.ndv, properties_of(i in in_clear))
            for i, sketch in sorted(indexed.sketches.items())
        ]

        def write(writer: PuffinWriter, replaced: Sequence[PuffinReader]) -> None:
            """Our blobs; called again, and slicing again, if another commit came between."""
            entries = self._carry(writer, replaced, place)
            if selection.files or not entries:
                slices = self.engine.slices([t for tasks in groups.values() for t in tasks], self.progress)
                fields = (
                    FieldBundle(
                        field_id,
                        [task.group for task in tasks],
                        _pages(tasks, slices, indexed),
                        self.plan.options.fpp,
                        expected_false_units(indexed, field_id),
                        keys.get(field_id),
                        properties_of(field_id in in_clear),
                    )
                    for field_id, tasks in groups.items()
                )
                own = field_indexes(indexes, indexed, self.engine, keys, in_clear)
                entries += write_segment(writer, header, units, fields, own, **place)
            write_toc(writer, entries, **place)

        has_pages = bool(indexes) or any(
            s.page_index_blobs or s.row_index_blobs for s in self.earlier.segments
        )
        return register(
            self.table,
            self.listing.snapshot_id,
            thetas,
            write,
            force=self.force,
            has_pages=has_pages,
            unsketched=self.plan.options.sealed,
        )

    def _keys(self, header: SegmentHeader) -> dict[int, FieldKey]:
        """A fresh data key for each column whose bundles are encrypted."""
        place = header.table_uuid, header.segment_id
        found = {c.field_id: self.protection.key_for(c.path, *place, c.field_id) for c in self.plan.columns}
        return {field_id: key for field_id, key in found.items() if key is not None}

    def _carry(
        self, writer: PuffinWriter, replaced: Sequence[PuffinReader], place: Registered
    ) -> list[TocEntry]:
        """Segments of the earlier sidecar, and those that other builds have registered meanwhile."""
        entries: list[TocEntry] = []
        known: set[str] = set()
        if self.earlier.found is not None:
            old = self.earlier.found.sidecar
            known = {segment.id for segment in old.segments}
            entries += copy_segments(
                old, writer, segments=self.earlier.segments, keep=self._is_wanted, **place
            )
        for reader in replaced:
            now = SidecarFile.open(
                reader.source, footer_length=reader.footer_length, table_uuid=self.listing.table_uuid
            )
            new = other_segments(now.segments, known, self.plan)
            known |= {segment.id for segment in new}
            entries += copy_segments(now, writer, segments=new, keep=self._is_wanted, **place)
        return entries

    def _is_wanted(self, entry: TocEntry) -> bool:
        """Whether an earlier blob of a field is still of use: not if the column is gone or built anew for all files."""
        anew = set() if self.earlier.served else {column.field_id for column in self.plan.columns}
        live = self.table.schema().field_ids
        options = self.plan.options
        rebuilt = {
            **dict.fromkeys((SBBF, ORC_BLOOM), options.bloom),
            **dict.fromkeys((PAGE_INDEX_BLOB, ROW_INDEX), options.page_index),
        }
        if rebuilt.get(entry.blob_type) and anew.issuperset(entry.fields):
            return False
        return live >= set(entry.fields)


def _schema(table: Table, snapshot: Snapshot) -> Schema:
    """The schema that names columns: the table's present one for its current snapshot, else the snapshot's."""
    current = table.metadata.current_snapshot()
    if snapshot.schema_id is None or (current and current.snapshot_id == snapshot.snapshot_id):
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def _typed(table: Table, snapshot: Snapshot, columns: Sequence[Column]) -> tuple[Column, ...]:
    """``columns`` with their types in the snapshot's own schema: sketches are of those."""
    own = table.schemas().get(snapshot.schema_id) if snapshot.schema_id is not None else None
    if own is None:
        return tuple(columns)
    types = {c.field_id: str(own.find_type(c.field_id)) for c in columns if c.field_id in own.field_ids}
    return tuple(replace(column, type=types.get(column.field_id, column.type)) for column in columns)


def _pages(
    tasks: Sequence[GroupTask], slices: Iterator[tuple[int, bytes]], indexed: Indexed
) -> Iterator[bytes]:
    """The pages of one field's groups, taken from the slices of all fields, and each group's tails."""
    for task in tasks:
        for _ in range(task.parts):
            number, data = next(slices, (-1, b""))
            if number != task.number:
                raise StorageError("slices of the index were lost", expected=task.number, found=number)
            yield data
        if task.group.tail:
            yield tail_piece(task.group, tails(task, indexed), task.place)


def _silent(what: str, done: int | None = None, total: int | None = None) -> None:
    """Progress that nobody watches."""


def _check_options(kinds: Sequence[str], harvest: str, filter_format: str, engine: str) -> None:
    if not kinds:
        raise UsageError("nothing is to be built", hint=f"Name kinds: {', '.join(KINDS)}.")
    for what, value, known in (
        *(("kind", kind, KINDS) for kind in kinds),
        ("harvest rule", harvest, HARVEST),
        ("format of filters", filter_format, FILTER_FORMATS),
        ("engine", engine, ENGINES),
    ):
        if value not in known:
            raise UsageError(f"there is no {what} '{value}'", expected=" or ".join(known))


def _options(
    listing: Listing, kinds: Sequence[str], fpp: float | str, harvest: str, filter_format: str, lg_k: int
) -> Options:
    auto = fpp == "auto"
    if isinstance(fpp, str) and not auto:
        raise UsageError("a false-positive rate is a number or 'auto'", found=fpp)
    if not 7 <= lg_k <= 20:
        raise UsageError("lg_k is out of range", expected="7 to 20", found=lg_k)
    rate = auto_fpp(_units_expected(listing)) if auto else check_fpp(float(fpp))
    return Options(
        bloom=BLOOM in kinds,
        theta=THETA in kinds,
        page_index=PAGE_INDEX in kinds,
        fpp=rate,
        filter_format=filter_format,
        orc_fpp=DEFAULT_FPP if auto else rate,
        max_bits=MAX_BITS_PER_VALUE if auto else None,
        harvest=harvest,
        lg_k=lg_k,
    )


def _units_expected(listing: Listing) -> int:
    """Row groups of the table as far as manifests tell them (split offsets), before any footer is read.

    Of an ORC file split offsets are stripes: its row groups have 10,000 rows where nobody chose another stride.
    """
    orc = sum(
        -(-file.record_count // ORC_STRIDE)
        for file in listing.files
        if file.data_file.file_format == FileFormat.ORC
    )
    return orc + sum(max(len(file.data_file.split_offsets or ()), 1) for file in listing.files)


def _engine(
    table: Table, files: Sequence[ListedFile], engine: str, spark: Any, threads: int | None
) -> tuple[Engine, str]:
    """The engine and why it was chosen."""
    opener = TableOpener(table.io.properties, table.metadata_location, table.io)
    name, why = _choose(files, engine, spark)
    if name == "local":
        return LocalEngine(opener, threads), why
    from sidecar.spark.engine import SparkEngine
    from sidecar.spark.session import embedded_session

    return SparkEngine(spark if spark is not None else embedded_session(threads), opener), why


def _choose(files: Sequence[ListedFile], engine: str, spark: Any) -> tuple[str, str]:
    if not files:
        return "local", "there is nothing to index"
    if engine != "auto":
        return engine, "as asked for"
    if spark is not None:
        return "spark", "a Spark session was given"
    size = sum(file.file_size for file in files)
    if size <= LOCAL_BYTES:
        return "local", f"at most {LOCAL_BYTES >> 30} GiB of data files are to be indexed"
    from sidecar.spark.session import unavailable

    missing = unavailable()
    if missing:
        return "local", f"Spark cannot start: {missing}"
    return "spark", f"more than {LOCAL_BYTES >> 30} GiB of data files are to be indexed"
