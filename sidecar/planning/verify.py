"""Checks files, or a table's sidecar: structure and checksums, its registration, and its records of data files.

Of a table, :mod:`sidecar.planning.verify_registration` checks statistics files, :mod:`sidecar.planning.verify_records`
the records of manifests and data files, and :mod:`sidecar.planning.verify_values` looks values up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestContent, ManifestEntry
from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.kinds.declared import KIND_OF_BLOB
from sidecar.conversion.verify_values import DataPlace
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import asked_engine, work_engine
from sidecar.engines.work import WorkEngine
from sidecar.errors import Problem, SidecarError, UsageError, problem_in
from sidecar.iceberg.listing import INDEXABLE, list_snapshot, snapshot_of
from sidecar.iceberg.manifests import identity_of, read_manifest, read_manifests
from sidecar.iceberg.refs import is_empty, snapshot_id_of, table_at
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, search_sidecar
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.many_files.find import Paths, find_files
from sidecar.many_files.verify import FileCheck, Verification, verify_paths, verify_prefixes
from sidecar.planning.verify_records import RecordedColumns, live_entries, manifest_problems
from sidecar.planning.verify_registration import other_file_problems, registered_file_problems
from sidecar.planning.verify_values import table_value_problems
from sidecar.questions.value_check import ValueCheck
from sidecar.results.choices import BuildEngine

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.bundle.sidecar_file import SidecarFile

STRUCTURE_ONLY = "structure only; --data looks every value up"
NOTHING = "nothing: there is no sidecar"
NO_SNAPSHOT = "the table has no snapshot yet"


def verify(
    target: Table | Paths,
    *,
    data: bool = False,
    sample: float | None = None,
    against: Paths | None = None,
    aad_prefixes: Sequence[bytes | str] | None = None,
    at: int | str | None = None,
    threads: int | None = None,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> Verification:
    """Check ``target`` for errors: the sidecar of a table, or files (paths, folders, globs).

    Example: ``sidecar.verify(table, data=True)``
    ``data`` compares indexes with all values, ``sample`` with those of a share of the row groups or data files.
    ``against`` compares a Puffin file with data files. ``aad_prefixes`` checks instead that encrypted files have these
    prefixes, one each. ``at`` is a snapshot id, branch or tag of the table. ``threads`` files are read at a time.
    ``io`` opens files. ``encryption_keys`` open what is encrypted. ``engine`` and ``spark`` say where values are
    read. Damage is a problem, not raised. Raises the error of a file that is named alone and cannot be read, and of the
    table's own metadata.
    """
    access = Access(target.io if isinstance(target, Table) else io, encryption_keys)
    if isinstance(target, Table):
        if against is not None:
            raise UsageError("against is for a Puffin file, not for a table")
        if aad_prefixes is not None:
            listed = list_snapshot(target, snapshot_id_of(target, at)).files
            paths = sorted(file.path for file in listed)
            return verify_prefixes(paths, aad_prefixes, access)
        check = ValueCheck(1.0 if sample is None else sample) if data or sample is not None else None
        return _verify_table(target, at, check, access, engine, spark)
    if at is not None:
        raise UsageError("a snapshot, branch or tag is of a table, not of files", found=at)
    if aad_prefixes is not None:
        every = find_files(target, access, endings=("",))
        return verify_prefixes(every.files, aad_prefixes, access, every.failed)
    return verify_paths(target, FileCheck(data, sample, access), against, threads, engine, spark)


def _verify_table(
    table: Table,
    at: int | str | None,
    check: ValueCheck | None,
    access: Access,
    engine: BuildEngine | None,
    spark: Any,
) -> Verification:
    """Check the sidecar that answers for a snapshot of ``table``, and the manifests that it lists.

    ``check`` looks values up. It is a problem if values were asked for, there are data files and the sidecar lists
    none of them. A bundle without its key is a problem, too. Raises :class:`sidecar.errors.UsageError` for an unknown
    snapshot, and :class:`sidecar.errors.StorageError` or :class:`sidecar.errors.DamagedFileError` if the table's own
    metadata cannot be read.
    """
    asked_engine(engine, spark)  # a wrong name is refused, whatever there is to check
    table, snapshot_id = table_at(table, at)
    if is_empty(table, snapshot_id):
        return Verification((), {}, checked=0, problems=[], scope=NO_SNAPSHOT)
    snapshot = snapshot_of(table, snapshot_id)
    search = search_sidecar(table, access, snapshot.snapshot_id)
    found, problems = search.found, search.problems
    if found is None:
        if not problems:
            problems.append(problem_in(None, "neither the snapshot nor another one has a sidecar"))
        return Verification((), {}, checked=0, problems=problems, scope=NOTHING)
    try:
        problems += registered_file_problems(table, found.statistics, access)
        problems += other_file_problems(table, found, problems, access)
        problems += _unused_blob_problems(found.sidecar, problems)
        lines = [x for x in read_manifests(table.io, snapshot.manifest_list) if x.content == ManifestContent.DATA]
        columns, path = RecordedColumns(found.files), found.statistics.statistics_path
        answers = [manifest_problems(table, line, columns, path) for line in lines]
        listed = [answer for answer in answers if answer is not None]
        problems += [problem for answer in listed for problem in answer]
        verified = Verification((), {}, checked=1 + len(listed), problems=problems, scope=STRUCTURE_ONLY)
        if check is None:
            return verified
        files = [raw.entry for line in lines for raw in live_entries(read_manifest(table.io, line))]
        size = sum(entry.data_file.file_size_in_bytes for entry in files)
        workers = work_engine(engine, spark, lambda: size, io=table.io)
        denied = _value_problems(table, found, files, check, access, workers)
    finally:
        found.sidecar.close()
    return replace(
        verified,
        problems=[*problems, *denied],
        scope=None if check.values or check.indexes else _never_looked_up(found.sidecar),
        looked_up=check.looked_up(len(files) - check.units_total),
        engine=workers.name,
        engine_reason=workers.reason,
    )


def _value_problems(
    table: Table,
    found: FoundSidecar,
    files: Sequence[ManifestEntry],
    check: ValueCheck,
    access: Access,
    engine: WorkEngine,
) -> list[Problem]:
    """Find the values of data files that the sidecar denies; report a problem if it lists none of the files."""
    places = [_data_place(entry, found.files) for entry in files if entry.data_file.file_format in INDEXABLE]
    problems = table_value_problems(table, found, places, check, access, engine)
    if not (problems or check.units_total) and any(entry.data_file.record_count for entry in files):
        nothing = f"no value was looked up: the sidecar has no index of the snapshot's {len(files)} data files"
        problems.append(problem_in(found.statistics.statistics_path, nothing))
    return problems


def _never_looked_up(sidecar: SidecarFile) -> str | None:
    """Return which indexes a sidecar has, if it has only such as are compared with no value: none drops a file."""
    entries = chain.from_iterable(segment.entries for segment in sidecar.segments)
    kinds = {KIND_OF_BLOB[entry.blob_type] for entry in entries if entry.blob_type in KIND_OF_BLOB}
    if not kinds or any(kind.answers for kind in kinds):
        return None
    return f"{' and '.join(sorted(kind.plural for kind in kinds))} are not looked up"


def _data_place(entry: ManifestEntry, files: SidecarFiles) -> DataPlace:
    """Return a data file with the identity that the sidecar lists: an earlier path if the table has moved."""
    file = identity_of(entry)
    listed = file
    for known in files.entries(files.earlier(file)):
        listed = listed if known is None else file._replace(path=known.path)
    return DataPlace(file.path, listed)


def _unused_blob_problems(sidecar: SidecarFile, known: list[Problem]) -> list[Problem]:
    """Find blobs that a reader with these keys does not use, except those that ``known`` problems name already."""
    problems = []
    for blob in sidecar.field_blobs:
        try:
            blob.check_key()
        except SidecarError as error:
            if not any(error.what in problem.problem for problem in known):
                column = sidecar.damage.column(blob.toc.field_id)
                problems.append(problem_in(sidecar.source.name, f"not used: {error}", column))
    return problems
