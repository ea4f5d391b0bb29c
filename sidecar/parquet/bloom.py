"""Reads the Bloom filters of a Parquet file, wherever the writer put them, and decides whether to trust them.

``bloom_filter_offset`` of a column chunk is the offset of a Thrift structure ``BloomFilterHeader`` (1 numBytes,
2 algorithm, 3 hash, 4 compression; the last three are unions whose only known member is field 1). The bitset of
``numBytes`` bytes follows it without padding. ``bloom_filter_length`` is header + bitset; older writers leave it out.

Old writers left filters of the historical form (:mod:`sidecar.filters.historical`), usually at the start of the column
chunk. The offset is then that of the historical header. Such a filter is never *trusted*, because a reader that takes
it for the current form denies its values. Code that knows both forms checks ``defect`` instead.

A filter that wrongly says "absent" loses rows; an unused filter loses nothing. So a filter is trusted only if
everything about it agrees. Otherwise it is still read if possible, with the reason why it must not be used:

- lengths that contradict each other, because readers differ in which one they believe;
- an unknown algorithm, hash or compression;
- a BOOLEAN column, because parquet-java writes empty filters for them;
- integers beyond the bits of their annotation, because readers show and look up other numbers;
- an INTERVAL column, if the file says that normalised intervals were hashed;
- a filter without a single bit, if the chunk has values.

A size that is not a power of two or not a multiple of 32 is legal: floor(n / 32) blocks are used. The bytes after them
are kept, so that the filter can be restored bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, located
from sidecar.filters import historical
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import TRAILER, ColumnChunk
from sidecar.parquet.thrift import I32, STRUCT, Struct, TruncatedError, decode_struct, encode_struct
from sidecar.storage.ranges import try_ranges
from sidecar.storage.source import Source

MIN_BYTES = 32
MAX_BYTES = 128 << 20
MAX_HEADER = 4096
"""Bytes of a header, at most. It may have unknown fields; without them it has 15 to 19 bytes."""

HISTORICAL = "of the historical form (MurmurHash3, masked block index): current readers deny its values"

_GUESS = 256  # bytes read if the length is absent: the header, and the bitset of a small filter
_BATCH = 8 << 20


@dataclass(frozen=True)
class FoundFilter:
    """A filter in a file. ``length`` is header + bitset in bytes, according to the header."""

    filter: BlockFilter
    offset: int
    length: int
    header_length: int
    defect: str
    """The reason why the filter must not be used, in either form; empty if there is none."""

    @property
    def trusted(self) -> bool:
        """Whether the filter has the current form and no defect, so that it never denies a value hashed by XXH64."""
        return not self.reason

    @property
    def reason(self) -> str:
        """The reason why the filter is not trusted; empty if it is."""
        is_present = isinstance(self.filter, SplitBlockBloomFilter)
        return self.defect or ("" if is_present else HISTORICAL)

    @property
    def hash(self) -> str:
        """Name of the hash function, see :mod:`sidecar.filters.plain_bytes_hash`."""
        return self.filter.function.name

    @property
    def bitset_length(self) -> int:
        """Bytes of the bitset, with those after the last whole block."""
        return self.length - self.header_length


def encode_header(num_bytes: int) -> bytes:
    """Encode the header of an uncompressed split-block filter with XXH64, 15 to 19 bytes."""
    chosen = (STRUCT, Struct({1: (STRUCT, Struct())}))
    return encode_struct(Struct({1: (I32, num_bytes), 2: chosen, 3: chosen, 4: chosen}))


def read_bloom_filter(source: Source, chunk: ColumnChunk) -> FoundFilter | None:
    """Read the filter of a column chunk; ``None`` if it has none, which an offset of 0 also means.

    This takes one read if the length is known or the filter is small, else two. Raises :class:`DamagedFileError` if the
    bytes are not a filter or are outside the file, and :class:`UnsupportedFeatureError` for a chunk in another
    file.
    """
    if not chunk.bloom_filter_offset:
        return None
    with located(source.name, chunk.leaf.path, chunk.bloom_filter_offset):
        return _read(source, chunk, chunk.bloom_filter_offset)


def read_bloom_filters(
    source: Source, chunks: Iterable[ColumnChunk]
) -> Iterator[tuple[ColumnChunk, FoundFilter | SidecarError | None]]:
    """Read the filters of many chunks, neighbours in one read, about 8 MiB at a time.

    Yields each chunk with its filter, ``None`` or the error, in the order of ``chunks``.
    """
    batch: list[ColumnChunk] = []
    total = 0
    for chunk in chunks:
        first = _first_range(source, chunk)
        if batch and total + (first[1] if first else 0) > _BATCH:
            yield from _read_batch(source, batch)
            batch, total = [], 0
        batch.append(chunk)
        total += first[1] if first else 0
    yield from _read_batch(source, batch)


def _read_batch(
    source: Source, chunks: Sequence[ColumnChunk]
) -> Iterator[tuple[ColumnChunk, FoundFilter | SidecarError | None]]:
    ranges = [found for chunk in chunks if (found := _first_range(source, chunk))]
    answers = zip(ranges, try_ranges(source, ranges), strict=True)
    fetched = _Fetched(source, {place: data for place, data in answers if isinstance(data, bytes)})
    for chunk in chunks:
        try:
            yield chunk, read_bloom_filter(fetched, chunk)
        except SidecarError as error:
            yield chunk, error


class _Fetched:
    """A source that has some ranges in memory already."""

    def __init__(self, source: Source, ranges: dict[tuple[int, int], bytes]) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source
        self._ranges = ranges

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`."""
        known = self._ranges.get((offset, length))
        return self._source.read(offset, length) if known is None else known

    def close(self) -> None:
        """Do nothing: the inner source stays open."""


def _first_range(source: Source, chunk: ColumnChunk) -> tuple[int, int] | None:
    """Return the first range to read: the whole filter if its length is plausible, else a guess; ``None`` for none."""
    offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
    end = source.size - TRAILER
    if not offset or not 0 < offset < end or chunk.file_path is not None:
        return None
    plausible = length is not None and MIN_BYTES < length <= min(MAX_BYTES + MAX_HEADER, end - offset)
    return offset, length if plausible and length is not None else min(_GUESS, end - offset)


def _read(source: Source, chunk: ColumnChunk, offset: int) -> FoundFilter:
    if chunk.file_path is not None:
        raise UnsupportedFeatureError("the column chunk is in another file (file_path), and so is its filter")
    first = _first_range(source, chunk)
    if first is None:
        raise DamagedFileError("the filter's offset is outside the file", expected=f"1 to {source.size}")
    data = source.read(*first)
    if historical.is_header(data):
        header, header_length, num_bytes = None, historical.HEADER_LENGTH, historical.decode_header(data)
    else:
        header, header_length, data = _decode_header(source, offset, data)
        num_bytes = check_num_bytes(header)
    end = header_length + num_bytes
    if offset + end > source.size - TRAILER:
        raise DamagedFileError(
            "the filter reaches beyond the end of the file",
            expected=f"{end} bytes",
            found=source.size - offset,
        )
    if end > len(data):
        data += source.read(offset + len(data), end - len(data))
    form = SplitBlockBloomFilter if header is not None else HistoricalBloomFilter
    bits = form.from_bytes(data[header_length:end])
    defect = (header and header_doubt(header)) or _wrong_length(chunk, end) or doubt_of(bits, chunk)
    return FoundFilter(bits, offset, end, header_length, defect)


def check_num_bytes(header: Struct) -> int:
    """Return the header's numBytes. Raises :class:`DamagedFileError` if it is absent or out of range."""
    num_bytes = header.need_integer(1, "the filter's numBytes")
    if not MIN_BYTES <= num_bytes <= MAX_BYTES:
        raise DamagedFileError(
            "the filter's numBytes is out of range", expected=f"{MIN_BYTES} to {MAX_BYTES}", found=num_bytes
        )
    return num_bytes


def _decode_header(source: Source, offset: int, data: bytes) -> tuple[Struct, int, bytes]:
    """Decode the header. Returns it, its length in bytes, and the bytes read so far; reads more only if needed."""
    most = min(MAX_HEADER, source.size - TRAILER - offset)
    try:
        return *decode_struct(data, base=offset), data
    except TruncatedError:
        if len(data) >= most:
            raise
    data += source.read(offset + len(data), most - len(data))
    return *decode_struct(data, base=offset), data


def header_doubt(header: Struct) -> str:
    """Return which algorithm, hash or compression of the header is unknown; empty if none is."""
    for field_id, what in ((2, "algorithm"), (3, "hash"), (4, "compression")):
        union = header.struct(field_id)
        if union is None or list(union.fields) != [1]:
            members = "absent" if union is None else f"member {', '.join(map(str, union.fields)) or 'none'}"
            return f"the header's {what} is unknown ({members})"
    return ""


def _wrong_length(chunk: ColumnChunk, length: int) -> str:
    stated = chunk.bloom_filter_length
    if stated is None or stated == length:
        return ""
    return f"bloom_filter_length is {stated}, but header and bitset have {length} bytes"


def doubt_of(bits: BlockFilter, chunk: ColumnChunk) -> str:
    """Return the reason in the footer to doubt a filter of any writer; empty if there is none."""
    if chunk.leaf.physical == "BOOLEAN":
        return "filters of BOOLEAN columns are not to be trusted: common writers leave them empty"
    if chunk.may_show_other_values:
        return "bounds do not rule out values beyond the bits of the annotation, which readers show as other numbers"
    if chunk.leaf.normalized_interval:
        return "the file says that its INTERVAL filters hash normalised values"
    values = chunk.num_values - (chunk.null_count or 0)
    if values <= 0 or bits.blocks.any() or chunk.leaf.annotation.kind == "UNKNOWN":  # a column of nulls
        return ""
    if chunk.null_count is None:
        return "the filter is empty, but the footer does not say that the chunk has only nulls"
    return f"the filter is empty, but the chunk has {values} values"
