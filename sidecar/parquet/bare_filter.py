"""Reads files that have one Bloom filter and nothing else, a header and a bitset, as tools and tests exchange them.

The header has the current form (Thrift) or the historical form (three little-endian u32). The file ends where the
bitset ends. It does not name the column or the type of the values: the caller must know the type, because a wrong type
gives a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sidecar.errors import DamagedFileError, Problem, SidecarError, UsageError, located, problem_in, reason_of
from sidecar.filters import historical
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.literals import LiteralValue, as_literal
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.values import probe_hashes
from sidecar.parquet.bloom import MAX_HEADER, FoundFilter, check_num_bytes, header_doubt
from sidecar.parquet.inspect import ParquetFilterInfo, describe_found
from sidecar.parquet.thrift import decode_struct
from sidecar.results.base import ProbedRowGroup, Result
from sidecar.storage.source import Source


def is_bare_filter(source: Source) -> bool:
    """Return whether the file begins with a filter's header. :func:`read_bare_filter` also checks the length."""
    try:
        _decode_header(source)
    except SidecarError:
        return False
    return True


def read_bare_filter(source: Source) -> FoundFilter:
    """Return the filter. Raises :class:`DamagedFileError` if the file is not a filter or has the wrong length."""
    with located(source.name, None, 0):
        form, header_length, num_bytes = _decode_header(source)
        if header_length + num_bytes != source.size:
            raise DamagedFileError(
                "the file begins with the header of a Bloom filter, but has the wrong length",
                expected=f"{header_length + num_bytes} bytes",
                found=source.size,
            )
        found = form.from_bytes(source.read(header_length, num_bytes))
        return FoundFilter(found, 0, source.size, header_length, "")


def _decode_header(
    source: Source,
) -> tuple[type[SplitBlockBloomFilter] | type[HistoricalBloomFilter], int, int]:
    """Return the form, the length of the header and of the bitset in bytes.

    Raises :class:`DamagedFileError` unless the header is certainly that of a filter.
    """
    data = source.read(0, min(MAX_HEADER, source.size))
    if historical.is_header(data):
        return HistoricalBloomFilter, historical.HEADER_LENGTH, historical.decode_header(data)
    header, length = decode_struct(data)
    if doubt := header_doubt(header):
        raise DamagedFileError(doubt)
    return SplitBlockBloomFilter, length, check_num_bytes(header)


@dataclass(frozen=True, repr=False, slots=True)
class FilterFileInfo(Result):
    """A file that is one Bloom filter."""

    file: str
    """The path of the file."""
    format: Literal["bloom-filter"]
    """The format of the file."""
    size: int
    """The size of the file in bytes."""
    form: str
    """The form of the filter in words."""
    bloom_filter: ParquetFilterInfo
    """The filter."""


def inspect_bare_filter(source: Source) -> FilterFileInfo:
    """Describe the filter as :func:`sidecar.parquet.inspect.describe_found` does, with its ``form`` in words."""
    found = read_bare_filter(source)
    return FilterFileInfo(source.name, "bloom-filter", source.size, found.filter.form, describe_found(found))


def verify_bare_filter(source: Source) -> list[Problem]:
    """Return the defects of the file. Wrong bits cannot be found, because a bitset has no checksum."""
    try:
        read_bare_filter(source)
    except SidecarError as error:
        return [problem_in(source.name, reason_of(error))]
    return []


def probe_bare_filter(source: Source, value_type: str, literal: LiteralValue) -> list[ProbedRowGroup]:
    """Ask the filter for a value of Iceberg type ``value_type``, which may name an encoding: ``TYPE as ENCODING``.

    The default encoding is that of Iceberg's own writers; the reason names it. ``literal`` is as for
    :func:`sidecar.parquet.inspect.probe_file`. Raises :class:`UsageError` for an unknown type and for a literal that
    does not fit it, and :class:`UnsupportedFeatureError` for an unknown encoding.
    """
    value_type, named, name = value_type.partition(" as ")
    encoding = Encoding.parse(name) if named else usual_encoding(value_type)
    value = as_literal(literal, value_type)
    found = read_bare_filter(source).filter
    probe = probe_hashes(value, value_type, encoding, found.function)
    if probe.verdict == "unknown":
        return [ProbedRowGroup(row_group=None, might_contain=None, reason=probe.reason)]
    might = any(map(found.might_contain_hash, probe.hashes))
    return [ProbedRowGroup(row_group=None, might_contain=might, reason=probe.reason or f"asked as {encoding}")]


def usual_encoding(value_type: str) -> Encoding:
    """Return the encoding in which Iceberg's own writers store a type.

    Raises :class:`UsageError` for an unknown type and for a type that filters do not support.
    """
    kind = ColumnType.parse(value_type)
    if kind.encoding is None or kind.family == "boolean":
        raise UsageError(
            f"'{value_type}' is not the type of a filter's values",
            hint="A filter file has no column: give the type instead, such as string, long or decimal(9, 2).",
        )
    return Encoding.parse(kind.encoding)
