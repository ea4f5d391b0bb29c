"""Inspect, probe and verify one file of any format. The magic decides which room does the work.

PAR1 at the start or end                     Parquet (PARE: with an encrypted footer)
PFA1 at the start or end                     Puffin, a sidecar or not
ORC at the start, or before the last byte    ORC
a Bloom filter's header                      a single filter, see :mod:`sidecar.parquet.bare_filter`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sidecar.errors import (
    DamagedFileError,
    Problem,
    UnsupportedFeatureError,
    UsageError,
    enough_memory,
    problem_in,
)
from sidecar.source import Source, open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.bundle.segment import ColumnNames
    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.filters.literals import LiteralValue

PARQUET = "parquet"
ORC = "orc"
PUFFIN = "puffin"
BLOOM_FILTER = "bloom-filter"
_MAGIC = {b"PAR1": PARQUET, b"PARE": PARQUET, b"PFA1": PUFFIN}


@enough_memory()
def inspect_file(
    path: str, io: FileIO | None = None, *, encryption_keys: EncryptionKeys | None = None
) -> dict[str, Any]:
    """Return the indexes that a file has.

    Data files: ``units``, as :func:`sidecar.parquet.inspect.inspect_file` and
    :func:`sidecar.orc.inspect.inspect_file` return them. Puffin files: ``blobs`` as in the footer, and for a sidecar
    its ``segments``, as :func:`sidecar.bundle.inspect.inspect_sidecar` returns them. A single filter: ``form`` and
    ``bloom_filter``. Without ``encryption_keys``, the result has only the plaintext parts of an encrypted Parquet file.
    Raises :class:`DamagedFileError` and :class:`UnsupportedFeatureError` with the place, and
    :class:`sidecar.errors.StorageError` if the file cannot be read.
    """
    with _opened(path, io) as opened:
        kind, source = _unlocked(opened, encryption_keys)
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
        from sidecar.puffin.inspect import inspect_puffin

        return {**inspect_puffin(source), **inspect_sidecar(source)}


@enough_memory()
def probe_file(
    path: str,
    column: str,
    value: LiteralValue,
    io: FileIO | None = None,
    *,
    encryption_keys: EncryptionKeys | None = None,
) -> dict[str, Any]:
    """Look up one value in the filters of a data file's column.

    ``value`` is text as a person writes it, or a value in the column's type. For a single filter file, ``column`` is
    the type of its values. Returns ``units``, each with ``might_contain`` (true, false, or ``None`` if nothing certain
    is known) and ``reason``. Filters of encrypted columns need ``encryption_keys``. Raises :class:`UsageError` for an
    unknown column, a value that does not fit the column, and a file without columns.
    """
    with _opened(path, io) as opened:
        kind, source = _unlocked(opened, encryption_keys)
        if kind == PUFFIN:
            raise UsageError(
                "a Puffin file does not say what its columns are called",
                file=path,
                hint="Probe the table that it belongs to.",
            )
        return {"file": path, "column": column, "units": _PROBES[kind](source, column, value)}


@enough_memory()
def verify_file(
    path: str,
    io: FileIO | None = None,
    *,
    data: bool = False,
    sample: float | None = None,
    encryption_keys: EncryptionKeys | None = None,
) -> dict[str, Any]:
    """Check a file's structure and checksums. With ``data``, also check a data file's indexes against its values.

    ``sample`` is the share of row groups, chosen at random, whose values are looked up (default: all). Returns
    ``checked`` and ``problems``, each with ``file``, ``unit``, ``column`` and ``problem``. With ``data``, also
    ``looked_up``: ``units`` (row groups), ``units_total``, ``values`` and ``indexes``; without ``data``, ``scope``
    states what was not checked. With ``encryption_keys``, every module of an encrypted file is decrypted, and a module
    without a key is a problem too. Damage is reported as a problem, not raised. Raises
    :class:`sidecar.errors.StorageError`, and :class:`UsageError` for a file without values or footer key.
    """
    with _opened(path, io) as opened:
        try:
            kind, source = _unlocked(opened, encryption_keys)
        except (DamagedFileError, UnsupportedFeatureError) as error:
            return {"checked": 1, "problems": [problem_in(path, str(error))]}
        if data or sample is not None:
            return _verify_values(source, kind, 1.0 if sample is None else sample)
        problems = verify_puffin(source, encryption_keys) if kind == PUFFIN else _VERIFIERS[kind](source)
        return {"checked": 1, "problems": problems, "scope": _SCOPES[kind]}


@enough_memory()
def verify_parts(
    paths: Iterable[str],
    prefixes: Iterable[bytes | str],
    encryption_keys: EncryptionKeys,
    io: FileIO | None = None,
) -> dict[str, Any]:
    """Check that encrypted Parquet files match ``prefixes`` (AAD prefixes) one to one: none missing, none twice.

    Only footers are read. A rule in ``encryption_keys`` also binds each path to its prefix. Returns
    ``checked`` (files) and ``problems`` as :func:`verify_file` does; the problem of a missing prefix has no ``file``.
    Raises :class:`UsageError` for a prefix that is given twice, :class:`sidecar.errors.StorageError`.
    """
    from sidecar.parquet.encrypted.file_set import verify_file_set

    files = list(paths)
    expected = [prefix.encode() if isinstance(prefix, str) else prefix for prefix in prefixes]
    problems = verify_file_set(files, expected, encryption_keys, lambda path: open_source(path, io))
    return {"checked": len(files), "problems": problems}


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
def _opened(path: str, io: FileIO | None) -> Iterator[Source]:
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


def _verify_values(source: Source, kind: str, share: float) -> dict[str, Any]:
    if kind not in (PARQUET, ORC):
        raise UsageError(
            "only a Parquet or ORC file or a table has values to check against",
            file=source.name,
            hint="Check a table's sidecar by the name of the table.",
        )
    from sidecar.orc.verify import verify_file as verify_orc
    from sidecar.parquet.verify.file import verify_file as verify_parquet
    from sidecar.parquet.verify.filters import ValueCheck

    values = ValueCheck(share)
    problems = verify_orc(source, values) if kind == ORC else verify_parquet(source, values)
    return {"checked": 1, "problems": problems, "looked_up": values.to_dict()}


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

    container_problems = [problem_in(source.name, problem["problem"]) for problem in verify_container(source)]
    sidecar_problems = verify_sidecar(source, encryption_keys=encryption_keys, columns=columns)
    return container_problems + [problem for problem in sidecar_problems if problem not in container_problems]


def _probe_parquet(source: Source, column: str, value: LiteralValue) -> list[dict[str, Any]]:
    from sidecar.parquet.inspect import probe_file as probe_parquet

    return [dict(unit) for unit in probe_parquet(source, column, value)]


def _probe_orc(source: Source, column: str, value: LiteralValue) -> list[dict[str, Any]]:
    from sidecar.orc.inspect import probe_file as probe_orc

    return [dict(unit) for unit in probe_orc(source, column, value)]


def _probe_bare_filter(source: Source, column: str, value: LiteralValue) -> list[dict[str, Any]]:
    from sidecar.parquet.bare_filter import probe_bare_filter

    return [dict(unit) for unit in probe_bare_filter(source, column, value)]


_VERIFIERS = {
    PARQUET: _verify_parquet,
    ORC: _verify_orc,
    BLOOM_FILTER: _verify_bare_filter,
}
_SCOPES = {
    PARQUET: "structure and page indexes; --data looks every value up",
    ORC: "structure only; --data looks every value up",
    PUFFIN: "structure only; by the name of its table, --data looks every value up",
    BLOOM_FILTER: "structure only; the file does not say which values it has",
}
_PROBES = {PARQUET: _probe_parquet, ORC: _probe_orc, BLOOM_FILTER: _probe_bare_filter}
