"""Inspect, probe and verify one file of any format. The magic decides which room does the work.

PAR1 at the start or end                     Parquet (PARE: with an encrypted footer)
PFA1 at the start or end                     Puffin, a sidecar or not
ORC at the start, or before the last byte    ORC
a Bloom filter's header                      a single filter, see :mod:`sidecar.parquet.bare_filter`
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sidecar.errors import (
    DamagedFileError,
    Problem,
    UnsupportedFeatureError,
    UsageError,
    problem_in,
    refuse_text,
)
from sidecar.questions.value_check import ValueCheck, ValuesLookedUp
from sidecar.results.base import FileProbe, ProbedRowGroup, Result
from sidecar.storage.source import AnyPath, Source

if TYPE_CHECKING:
    from sidecar.access import Access
    from sidecar.bundle.inspect import PuffinFileInfo
    from sidecar.bundle.segment import ColumnNames
    from sidecar.filters.literals import LiteralValue
    from sidecar.orc.file_info import OrcFileInfo
    from sidecar.parquet.bare_filter import FilterFileInfo
    from sidecar.parquet.inspect import ParquetFileInfo

FileInfo: TypeAlias = "ParquetFileInfo | OrcFileInfo | PuffinFileInfo | FilterFileInfo"
"""What :func:`sidecar.inspect` says about a file. The attribute ``format`` tells which of them it is."""

PARQUET = "parquet"
ORC = "orc"
PUFFIN = "puffin"
BLOOM_FILTER = "bloom-filter"
_MAGIC = {b"PAR1": PARQUET, b"PARE": PARQUET, b"PFA1": PUFFIN}


@dataclass(frozen=True, repr=False, slots=True)
class VerifiedFile(Result):
    """What ``verify`` found in one file."""

    omitted_if_none = ("scope", "looked_up")

    file: str
    """The path of the file."""
    problems: list[Problem]
    """The defects; empty if there are none."""
    scope: str | None = None
    """What was checked, if values were not looked up."""
    looked_up: ValuesLookedUp | None = None
    """How many values were looked up; ``None`` if none were asked for."""


def inspect_file(
    path: AnyPath,
    access: Access,
    *,
    fill: bool = False,
) -> FileInfo:
    """Return the indexes that a file has, as :func:`sidecar.inspect` does.

    Without keys, the result has only the plaintext parts of an encrypted Parquet file, and no fill of
    encrypted filters. Raises :class:`DamagedFileError` and :class:`UnsupportedFeatureError` with the place, and
    :class:`UsageError` for ``fill`` of another file than a Puffin file.
    """
    with closing(access.open(path)) as opened:
        kind, source = _unlocked(access, opened)
        if fill:
            _check_is_puffin(source, kind, "--fill is for Puffin files")
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

        return inspect_sidecar(source, fill=fill, encryption_keys=access.keys)


def probe_source(access: Access, opened: Source, column: str | int, value: LiteralValue) -> FileProbe:
    """Look up one value in the filters of a column of an open file.

    ``column`` and ``value`` are as for :func:`sidecar.probe`. Raises :class:`UsageError` for an unknown column, a value
    that does not fit the column, and a Puffin file that is not a sidecar.
    """
    kind, source = _unlocked(access, opened)
    if kind == PUFFIN:
        from sidecar.bundle.probe import probe_sidecar

        return probe_sidecar(source, column, value, access.keys)
    return FileProbe(_PROBES[kind](source, str(column), value))


def verify_file(
    path: AnyPath,
    access: Access,
    *,
    data: bool = False,
    sample: float | None = None,
    against: Sequence[AnyPath] | None = None,
) -> VerifiedFile:
    """Check a file's structure and checksums. With ``data``, also check a data file's indexes against its values.

    ``sample`` is the share of row groups whose values are looked up. A sidecar is compared with the data files
    ``against``. Damage is reported as a problem, not raised. Raises :class:`sidecar.errors.StorageError`, and
    :class:`UsageError` for a file without values or footer key, for ``against`` of another file than a Puffin file, and
    for files ``against`` that are none or not distinct.
    """
    name = os.fspath(path)
    with closing(access.open(path)) as opened:
        try:
            kind, source = _unlocked(access, opened)
        except (DamagedFileError, UnsupportedFeatureError) as error:
            return VerifiedFile(name, [problem_in(name, str(error))])
        if against is not None:
            _check_is_puffin(source, kind, "only a Puffin file is compared with data files")
            refuse_text(against=against)
            others = [os.fspath(file) for file in against]
            return _verify_against(source, name, others, access, sample)
        if data or sample is not None:
            return _verify_values(source, name, kind, 1.0 if sample is None else sample)
        problems = verify_puffin(access, source) if kind == PUFFIN else _VERIFIERS[kind](source)
        return VerifiedFile(name, problems, _SCOPES[kind])


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


def _unlocked(access: Access, source: Source) -> tuple[str, Source]:
    """Return the format of a file and the source to read it from, decrypted if there are keys."""
    kind = format_of(source)
    if kind == PARQUET and access.keys is not None:
        from sidecar.parquet.encrypted.plain_view import unlock

        return kind, unlock(source, access.keys)
    return kind, source


def _verify_parquet(source: Source, values: ValueCheck | None = None) -> list[Problem]:
    from sidecar.parquet.verify.file import verify_file as verify_parquet

    return verify_parquet(source, values)


def _verify_orc(source: Source, values: ValueCheck | None = None) -> list[Problem]:
    from sidecar.orc.verify.verify import verify_file as verify_orc

    return verify_orc(source, values)


def _verify_values(source: Source, name: str, kind: str, share: float) -> VerifiedFile:
    verify = _VALUE_VERIFIERS.get(kind)
    if verify is None:
        raise UsageError(
            "only a Parquet or ORC file or a table has values to check against",
            file=source.name,
            hint="Check a sidecar against data files (--against), or by the name of its table.",
        )
    values = ValueCheck(share)
    return VerifiedFile(name, verify(source, values), looked_up=values.looked_up())


def _check_is_puffin(source: Source, kind: str, what: str) -> None:
    """Raise :class:`UsageError` for a file of another format."""
    if kind != PUFFIN:
        raise UsageError(what, file=source.name, found=f"a {kind} file")


def _verify_against(
    source: Source,
    name: str,
    against: Sequence[str],
    access: Access,
    sample: float | None,
) -> VerifiedFile:
    """Return the problems of a sidecar, and those that it has with data files."""
    from sidecar.conversion.verify_values import verify_against

    share = 1.0 if sample is None else sample
    problems = verify_puffin(access, source)
    others, looked_up = verify_against(source, against, access, share)
    return VerifiedFile(name, problems + others, looked_up=looked_up)


def _verify_bare_filter(source: Source) -> list[Problem]:
    from sidecar.parquet.bare_filter import verify_bare_filter

    return verify_bare_filter(source)


def verify_puffin(access: Access, source: Source, columns: ColumnNames | None = None) -> list[Problem]:
    """Return the problems of the Puffin container, then those of the sidecar, each problem once.

    ``columns`` names the columns of field ids, if the schema is known.
    """
    from sidecar.bundle.verify import verify_sidecar
    from sidecar.puffin.inspect import verify_puffin as verify_container

    container_problems = [problem_in(source.name, problem.problem) for problem in verify_container(source)]
    sidecar_problems = verify_sidecar(source, encryption_keys=access.keys, columns=columns)
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


_VALUE_VERIFIERS = {PARQUET: _verify_parquet, ORC: _verify_orc}
_VERIFIERS = {**_VALUE_VERIFIERS, BLOOM_FILTER: _verify_bare_filter}
_SCOPES = {
    PARQUET: "structure and page indexes; --data looks every value up",
    ORC: "structure only; --data looks every value up",
    PUFFIN: "structure only; --against FILES, or --data by the name of its table, looks every value up",
    BLOOM_FILTER: "structure only; the file does not say which values it has",
}
_PROBES = {PARQUET: _probe_parquet, ORC: _probe_orc, BLOOM_FILTER: _probe_bare_filter}
