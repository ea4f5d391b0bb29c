"""Inspect, probe and verify one file of any format. The magic decides which room does the work.

PAR1 at the start or end                     Parquet (PARE: with an encrypted footer)
PFA1 at the start or end                     Puffin, a sidecar or not
ORC at the start, or before the last byte    ORC
a Bloom filter's header                      a single filter, see :mod:`sidecar.parquet.bare_filter`
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sidecar.errors import (
    DamagedFileError,
    Problem,
    UnsupportedFeatureError,
    UsageError,
    enough_memory,
    problem_in,
    refuse_text,
)
from sidecar.results.base import ProbedRowGroup, Result
from sidecar.source import AnyPath, Source, open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.bundle.inspect import PuffinFileInfo
    from sidecar.bundle.segment import ColumnNames
    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.filters.literals import LiteralValue
    from sidecar.orc.file_info import OrcFileInfo
    from sidecar.parquet.bare_filter import FilterFileInfo
    from sidecar.parquet.inspect import ParquetFileInfo
    from sidecar.parquet.verify.filters import ValuesLookedUp

FileInfo: TypeAlias = "ParquetFileInfo | OrcFileInfo | PuffinFileInfo | FilterFileInfo"
"""What :func:`inspect_file` says about a file. The attribute ``format`` tells which of them it is."""

PARQUET = "parquet"
ORC = "orc"
PUFFIN = "puffin"
BLOOM_FILTER = "bloom-filter"
_MAGIC = {b"PAR1": PARQUET, b"PARE": PARQUET, b"PFA1": PUFFIN}


@dataclass(frozen=True, repr=False, slots=True)
class FileProbe(Result):
    """The answers of a column's filters in one file."""

    omitted_if_none = ("fields", "types", "warnings")

    file: str
    """The path of the file."""
    column: str
    """The column, or the type of the values for a file that is one filter."""
    units: list[ProbedRowGroup]
    """The answer for each row group. In the answers of a sidecar each names its data file."""
    fields: list[int] | None = None
    """The field ids that a sidecar has for the column; ``None`` for a data file."""
    types: list[str] | None = None
    """The Iceberg types as which the value was read for a sidecar; ``None`` for a data file."""
    warnings: list[str] | None = None
    """What is wrong with a sidecar, in words; ``None`` for a data file."""


@dataclass(frozen=True, repr=False, slots=True)
class Verification(Result):
    """What ``verify`` found."""

    omitted_if_none = ("scope", "looked_up", "engine", "engine_reason")

    checked: int
    """The number of files (for a table: sidecar files and manifests) that were checked."""
    problems: list[Problem]
    """The defects; empty if there are none."""
    scope: str | None = None
    """What was checked, if values were not looked up."""
    looked_up: ValuesLookedUp | None = None
    """How many values were looked up; ``None`` if none were asked for."""
    engine: str | None = None
    """Where values of a table's files were looked up: ``local`` or ``spark``; ``None`` for one file."""
    engine_reason: str | None = None
    """Why this engine was chosen; ``None`` for one file."""


@enough_memory()
def inspect_file(
    path: AnyPath,
    io: FileIO | None = None,
    *,
    encryption_keys: EncryptionKeys | None = None,
    column_names: Mapping[int, str] | None = None,
    fill: bool = False,
) -> FileInfo:
    """Return the indexes that a file has.

    The result depends on the ``format`` of the file: :class:`~sidecar.parquet.inspect.ParquetFileInfo`,
    :class:`~sidecar.orc.file_info.OrcFileInfo`, :class:`~sidecar.bundle.inspect.PuffinFileInfo`, or
    :class:`~sidecar.parquet.bare_filter.FilterFileInfo` for a single filter. ``path`` is a path or URL, which ``io``
    opens if it is given. ``column_names`` names the columns of a Puffin file by field id, as ``{3: "user_id"}`` or
    ``{3: "user_id:long"}``, and ``fill`` reads all filters of it to count their bits. Without ``encryption_keys``, the
    result has only the plaintext parts of an encrypted Parquet file, and no fill of sealed filters. Raises
    :class:`DamagedFileError` and :class:`UnsupportedFeatureError` with the place,
    :class:`sidecar.errors.StorageError` if the file cannot be read, and :class:`UsageError` for ``column_names`` and
    ``fill`` of another file than a Puffin file.
    """
    with _opened(path, io) as opened:
        kind, source = _unlocked(opened, encryption_keys)
        _check_options(source, kind, column_names=column_names, fill=fill)
        if kind == PARQUET:
            from sidecar.parquet.inspect import inspect_file as inspect_parquet

            return inspect_parquet(source)
        if kind == ORC:
            from sidecar.orc.inspect import inspect_file as inspect_orc

            return inspect_orc(source)
        if kind == BLOOM_FILTER:
            from sidecar.parquet.bare_filter import inspect_bare_filter

            return inspect_bare_filter(source)
        from sidecar.bundle.inspect import inspect_sidecar

        return inspect_sidecar(source, column_names, fill=fill, encryption_keys=encryption_keys)


@enough_memory()
def probe_file(
    path: AnyPath,
    column: str,
    value: LiteralValue,
    io: FileIO | None = None,
    *,
    encryption_keys: EncryptionKeys | None = None,
    column_names: Mapping[int, str] | None = None,
) -> FileProbe:
    """Look up one value in the filters of a column of a data file or a sidecar.

    ``path`` is a path or URL, which ``io`` opens if it is given. ``value`` is text as a person writes it, or a value in
    the column's type. For a single filter file, ``column`` is the type of its values. For a sidecar it is a name or a
    field id, and ``column_names`` gives names to field ids, as ``{3: "user_id"}`` or ``{3: "user_id:long"}``. The
    result has an answer for each row group. Filters of encrypted columns need ``encryption_keys``. Raises
    :class:`UsageError` for an unknown column, a value that does not fit the column, ``column_names`` of another file
    than a Puffin file, and a Puffin file that is not a sidecar.
    """
    with _opened(path, io) as opened:
        return probe_source(opened, os.fspath(path), column, value, encryption_keys, column_names)


@enough_memory()
def probe_source(
    opened: Source,
    path: str,
    column: str,
    value: LiteralValue,
    encryption_keys: EncryptionKeys | None = None,
    column_names: Mapping[int, str] | None = None,
) -> FileProbe:
    """Do :func:`probe_file` with an open file. The result has ``path`` as the file's name."""
    kind, source = _unlocked(opened, encryption_keys)
    _check_options(source, kind, column_names=column_names)
    if kind == PUFFIN:
        from sidecar.bundle.probe import probe_sidecar

        found = probe_sidecar(source, column, value, column_names, encryption_keys)
        return FileProbe(path, column, found.units, found.fields, found.types, found.warnings)
    return FileProbe(path, column, _PROBES[kind](source, column, value))


def check_readable(path: AnyPath, io: FileIO | None = None, encryption_keys: EncryptionKeys | None = None) -> None:
    """Raise the error of a file whose format, footer or tail cannot be read; values and indexes are not looked at."""
    with _opened(path, io) as opened:
        kind, source = _unlocked(opened, encryption_keys)
        if kind == PARQUET:
            from sidecar.parquet.footer import read_footer

            read_footer(source)
        elif kind == ORC:
            from sidecar.orc.tail import read_tail

            read_tail(source)
        elif kind == PUFFIN:
            from sidecar.puffin.reader import PuffinReader

            PuffinReader(source)


@enough_memory()
def verify_file(
    path: AnyPath,
    io: FileIO | None = None,
    *,
    data: bool = False,
    sample: float | None = None,
    encryption_keys: EncryptionKeys | None = None,
    against: Sequence[AnyPath] | None = None,
    column_names: Mapping[int, str] | None = None,
) -> Verification:
    """Check a file's structure and checksums. With ``data``, also check a data file's indexes against its values.

    ``path`` is a path or URL, which ``io`` opens if it is given. ``sample`` is the share of row groups, chosen at
    random, whose values are looked up (default: all). With ``data``, the result's ``looked_up`` counts the values;
    without ``data``, ``scope`` states what was not checked. A sidecar is compared with the data files ``against``:
    their identities, and the values of a ``sample`` of them; ``column_names`` names its columns by field id in
    problems. With ``encryption_keys``, every module of an encrypted file is decrypted, and a module without a key is a
    problem too. Damage is reported as a problem, not raised. Raises :class:`sidecar.errors.StorageError`, and
    :class:`UsageError` for a file without values or footer key, for ``against`` and ``column_names`` of another file
    than a Puffin file, and for files ``against`` that are none or not distinct.
    """
    with _opened(path, io) as opened:
        try:
            kind, source = _unlocked(opened, encryption_keys)
        except (DamagedFileError, UnsupportedFeatureError) as error:
            return Verification(1, [problem_in(os.fspath(path), str(error))])
        _check_options(source, kind, column_names=column_names, against=against is not None)
        names = _names(column_names)
        if against is not None:
            refuse_text(against=against)
            return _verify_against(source, [os.fspath(file) for file in against], io, sample, encryption_keys, names)
        if data or sample is not None:
            return _verify_values(source, kind, 1.0 if sample is None else sample)
        problems = verify_puffin(source, encryption_keys, names) if kind == PUFFIN else _VERIFIERS[kind](source)
        return Verification(1, problems, _SCOPES[kind])


@enough_memory()
def verify_parts(
    paths: Iterable[str],
    prefixes: Iterable[bytes | str],
    encryption_keys: EncryptionKeys,
    io: FileIO | None = None,
) -> Verification:
    """Check that encrypted Parquet files match ``prefixes`` (AAD prefixes) one to one: none missing, none twice.

    Only footers of the files at ``paths`` are read; ``io`` opens them if it is given. A rule in ``encryption_keys``
    also binds each path to its prefix. The problem of a missing prefix has no ``file``.
    Raises :class:`UsageError` for a prefix that is given twice, :class:`sidecar.errors.StorageError`.
    """
    from sidecar.parquet.encrypted.file_set import verify_file_set

    files = list(paths)
    expected = [prefix.encode() if isinstance(prefix, str) else prefix for prefix in prefixes]
    problems = verify_file_set(files, expected, encryption_keys, lambda path: open_source(path, io))
    return Verification(len(files), problems)


def format_of(source: Source) -> str:
    """Return ``parquet``, ``orc``, ``puffin`` or ``bloom-filter``, by the magic at the start, else at the end.

    Raises :class:`DamagedFileError` if the file has none of these formats.
    """
    size = source.size
    if size < 4:
        raise DamagedFileError("too short for any format", file=source.name, expected="4 bytes", found=size)
    head = source.read(0, 4)
    kind = ORC if head[:3] == b"ORC" else _MAGIC.get(head)
    if kind is None:
        end = source.read(size - 4, 4)
        kind = ORC if end[:3] == b"ORC" else _MAGIC.get(end)
    if kind is None:
        from sidecar.parquet.bare_filter import is_bare_filter

        if is_bare_filter(source):
            return BLOOM_FILTER
        raise DamagedFileError(
            "neither a Parquet, ORC or Puffin file nor a Bloom filter",
            file=source.name,
            offset=0,
            expected="PAR1, ORC, PFA1 or a filter's header",
            found=head,
        )
    return kind


def _unlocked(source: Source, encryption_keys: EncryptionKeys | None) -> tuple[str, Source]:
    """Return the format of a file and the source to read it from, decrypted if there are keys."""
    kind = format_of(source)
    if kind == PARQUET and encryption_keys is not None:
        from sidecar.parquet.encrypted.plain_view import unlock

        return kind, unlock(source, encryption_keys)
    return kind, source


@contextmanager
def _opened(path: AnyPath, io: FileIO | None) -> Iterator[Source]:
    source = open_source(path, io)
    try:
        yield source
    finally:
        source.close()


def _verify_parquet(source: Source) -> list[Problem]:
    from sidecar.parquet.verify.file import verify_file as verify_parquet

    return verify_parquet(source)


def _verify_orc(source: Source) -> list[Problem]:
    from sidecar.orc.verify import verify_file as verify_orc

    return verify_orc(source)


def _verify_values(source: Source, kind: str, share: float) -> Verification:
    if kind not in (PARQUET, ORC):
        raise UsageError(
            "only a Parquet or ORC file or a table has values to check against",
            file=source.name,
            hint="Check a sidecar against data files (--against), or by the name of its table.",
        )
    from sidecar.orc.verify import verify_file as verify_orc
    from sidecar.parquet.verify.file import verify_file as verify_parquet
    from sidecar.parquet.verify.filters import ValueCheck

    values = ValueCheck(share)
    problems = verify_orc(source, values) if kind == ORC else verify_parquet(source, values)
    return Verification(1, problems, looked_up=values.looked_up())


def _check_options(
    source: Source,
    kind: str,
    *,
    column_names: Mapping[int, str] | None = None,
    fill: bool = False,
    against: bool = False,
) -> None:
    """Raise :class:`UsageError` if a file of another format comes with what is for Puffin files."""
    texts = {
        "id=name (--columns) names columns of Puffin files": bool(column_names),
        "--fill is for Puffin files": fill,
        "only a Puffin file is compared with data files": against,
    }
    for text, is_given in texts.items():
        if is_given and kind != PUFFIN:
            raise UsageError(text, file=source.name, found=f"a {kind} file")


def _names(column_names: Mapping[int, str] | None) -> ColumnNames | None:
    """Return the names that were given for field ids, if any were."""
    from sidecar.bundle.columns import NamedColumns

    return NamedColumns.of((), column_names).name if column_names else None


def _verify_against(
    source: Source,
    against: Sequence[str],
    io: FileIO | None,
    sample: float | None,
    encryption_keys: EncryptionKeys | None,
    names: ColumnNames | None,
) -> Verification:
    """Return the problems of a sidecar, and those that it has with data files."""
    from sidecar.conversion.verify_values import verify_against

    share = 1.0 if sample is None else sample
    problems = verify_puffin(source, encryption_keys, names)
    others, looked_up = verify_against(source, against, io, share=share, encryption_keys=encryption_keys, columns=names)
    return Verification(1 + len(against), problems + others, looked_up=looked_up)


def _verify_bare_filter(source: Source) -> list[Problem]:
    from sidecar.parquet.bare_filter import verify_bare_filter

    return verify_bare_filter(source)


def verify_puffin(
    source: Source, encryption_keys: EncryptionKeys | None = None, columns: ColumnNames | None = None
) -> list[Problem]:
    """Return the problems of the Puffin container, then those of the sidecar, each problem once.

    ``columns`` names the columns of field ids, if the schema is known.
    """
    from sidecar.bundle.verify import verify_sidecar
    from sidecar.puffin.inspect import verify_puffin as verify_container

    container_problems = [problem_in(source.name, problem.problem) for problem in verify_container(source)]
    sidecar_problems = verify_sidecar(source, encryption_keys=encryption_keys, columns=columns)
    return container_problems + [problem for problem in sidecar_problems if problem not in container_problems]


def _probe_parquet(source: Source, column: str, value: LiteralValue) -> list[ProbedRowGroup]:
    from sidecar.parquet.inspect import probe_file as probe_parquet

    return probe_parquet(source, column, value)


def _probe_orc(source: Source, column: str, value: LiteralValue) -> list[ProbedRowGroup]:
    from sidecar.orc.inspect import probe_file as probe_orc

    return probe_orc(source, column, value)


def _probe_bare_filter(source: Source, column: str, value: LiteralValue) -> list[ProbedRowGroup]:
    from sidecar.parquet.bare_filter import probe_bare_filter

    return probe_bare_filter(source, column, value)


_VERIFIERS = {
    PARQUET: _verify_parquet,
    ORC: _verify_orc,
    BLOOM_FILTER: _verify_bare_filter,
}
_SCOPES = {
    PARQUET: "structure and page indexes; --data looks every value up",
    ORC: "structure only; --data looks every value up",
    PUFFIN: "structure only; --against FILES, or --data by the name of its table, looks every value up",
    BLOOM_FILTER: "structure only; the file does not say which values it has",
}
_PROBES = {PARQUET: _probe_parquet, ORC: _probe_orc, BLOOM_FILTER: _probe_bare_filter}
