"""Files that are one Bloom filter and nothing else: a header and its bitset, as tools and tests exchange them.

The header is that of the present form (Thrift) or of the historical one (three little-endian u32), and the file
ends where the bitset does. It does not say which column it is of, nor the type of the values: who asks it
must know, and by a wrong type gets a wrong answer.
"""

from __future__ import annotations

from typing import Any

from sidecar.errors import DamagedFileError, Problem, SidecarError, UsageError, located, problem_in
from sidecar.filters import historical
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.literals import LiteralValue, literal_from_text
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.values import probe_hashes
from sidecar.parquet.bloom import MAX_HEADER, FoundFilter, check_num_bytes, header_doubt
from sidecar.parquet.inspect import ProbedUnit, describe_found, reason_of
from sidecar.parquet.thrift import decode_struct
from sidecar.source import Source


def is_bare_filter(source: Source) -> bool:
    """Whether the file begins as a filter does; whether it also ends as one, :func:`read_bare_filter` tells."""
    try:
        _decode_header(source)
    except SidecarError:
        return False
    return True


def read_bare_filter(source: Source) -> FoundFilter:
    """The filter; :class:`DamagedFileError` where the file is none or has another length than its header says."""
    with located(source.name, None, 0):
        form, header_length, num_bytes = _decode_header(source)
        if header_length + num_bytes != source.size:
            raise DamagedFileError(
                "the file begins as a Bloom filter, but has another length",
                expected=f"{header_length + num_bytes} bytes",
                found=source.size,
            )
        found = form.from_bytes(source.read(header_length, num_bytes))
        return FoundFilter(found, 0, source.size, header_length, "")


def _decode_header(
    source: Source,
) -> tuple[type[SplitBlockBloomFilter] | type[HistoricalBloomFilter], int, int]:
    """Form, length of the header, length of the bitset; an error for anything that is not known for certain."""
    data = source.read(0, min(MAX_HEADER, source.size))
    if historical.is_header(data):
        return HistoricalBloomFilter, historical.HEADER_LENGTH, historical.decode_header(data)
    header, length = decode_struct(data)
    if doubt := header_doubt(header):
        raise DamagedFileError(doubt)
    return SplitBlockBloomFilter, length, check_num_bytes(header)


def inspect_bare_filter(source: Source) -> dict[str, Any]:
    """The filter as :func:`sidecar.parquet.inspect.describe_found` says it, and its ``form`` in words."""
    found = read_bare_filter(source)
    return {
        "file": source.name,
        "format": "bloom-filter",
        "size": source.size,
        "form": found.filter.form,
        "bloom_filter": describe_found(found),
    }


def verify_bare_filter(source: Source) -> list[Problem]:
    """What is wrong with the file; a bitset has no checksum, and any bits are a filter."""
    try:
        read_bare_filter(source)
    except SidecarError as error:
        return [problem_in(source.name, reason_of(error))]
    return []


def probe_bare_filter(source: Source, value_type: str, literal: LiteralValue) -> list[ProbedUnit]:
    """Ask the filter for a value of Iceberg type ``value_type``, which may name an encoding: ``TYPE as ENCODING``.

    Without one it is asked in the encoding that Iceberg's own writers give the type; the reason says which
    that was. ``literal`` as for :func:`sidecar.parquet.inspect.probe_file`. Raises :class:`UsageError` for what is
    no type and for a literal that does not fit it, :class:`UnsupportedFeatureError` for an unknown encoding.
    """
    value_type, named, name = value_type.partition(" as ")
    encoding = Encoding.parse(name) if named else usual_encoding(value_type)
    value = literal_from_text(literal, value_type, quoted=True) if isinstance(literal, str) else literal
    found = read_bare_filter(source).filter
    probe = probe_hashes(value, value_type, encoding, found.function)
    if probe.verdict == "unknown":
        return [{"row_group": None, "might_contain": None, "reason": probe.reason}]
    might = any(map(found.might_contain_hash, probe.hashes))
    return [{"row_group": None, "might_contain": might, "reason": probe.reason or f"asked as {encoding}"}]


def usual_encoding(value_type: str) -> Encoding:
    """The encoding in which Iceberg's own writers store a type; :class:`UsageError` if it is none with filters."""
    kind = ColumnType.parse(value_type)
    if kind.encoding is None or kind.family == "boolean":
        raise UsageError(
            f"'{value_type}' is not the type of a filter's values",
            hint="A filter file names no column: say the type instead, such as string, long or decimal(9, 2).",
        )
    return Encoding.parse(kind.encoding)
