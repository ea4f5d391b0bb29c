"""Bloom filters of a Parquet file, wherever a writer placed them.

``bloom_filter_offset`` of a column chunk points at a Thrift structure ``BloomFilterHeader`` (1 numBytes,
2 algorithm, 3 hash, 4 compression; the last three are unions whose only known member is field 1), and the
bitset of ``numBytes`` follows it without padding. ``bloom_filter_length``, which older writers leave out,
is header + bitset.

Where an old writer left a filter of the historical form (:mod:`sidecar.filters.historical`), usually at the start
of the column chunk, the offset points at that form's own header. It is read, but never trusted: whoever takes
it for the present form denies what it holds. Those who know it ask for its ``defect``.

A filter is *trusted* only if everything about it agrees; otherwise it is still read where that is
possible, and says why it must not be used. A filter that says "absent" wrongly loses rows, one that is
not used loses nothing:

- lengths that contradict each other: readers differ in which one they believe;
- an algorithm, hash or compression that is not known;
- BOOLEAN columns: parquet-java writes filters for them that hold nothing;
- INTERVAL columns where the file says that normalised intervals were hashed;
- a filter without a single bit for a chunk that has values.

A size that is no power of two, or no multiple of 32, is legal: floor(n / 32) blocks count, and the odd bytes
at the end are kept so that the filter can be put back bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, located
from sidecar.filters import historical
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.historical import HistoricalBloomFilter
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.footer import ColumnChunk
from sidecar.parquet.thrift import I32, STRUCT, Struct, TruncatedError, decode_struct, encode_struct
from sidecar.source import Source, try_ranges

MIN_BYTES = 32
MAX_BYTES = 128 << 20
MAX_HEADER = 4096
"""Bytes of a header with fields that are not known; the plain one has 15 to 19."""

HISTORICAL = "of the historical form (MurmurHash3, masked block index): readers of today deny what it holds"

_GUESS = 256  # bytes read where the length is absent: the header, and of a small filter the bitset too
_BATCH = 8 << 20
_TRAILER = 8  # footer length and magic


@dataclass(frozen=True)
class FoundFilter:
    """A filter as it stands in a file. ``length`` is header + bitset as the header has it."""

    filter: BlockFilter
    offset: int
    length: int
    header_length: int
    defect: str
    """What is wrong with the filter, whatever its form; empty if nothing is."""

    @property
    def trusted(self) -> bool:
        """Whether it is of the present form and without defect, so that its "no" is certain when asked by XXH64."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the filter is not trusted; empty if it is."""
        is_present = isinstance(self.filter, SplitBlockBloomFilter)
        return self.defect or ("" if is_present else HISTORICAL)

    @property
    def hash(self) -> str:
        """Name of the hash function, see :mod:`sidecar.filters.plain_bytes_hash`."""
        return self.filter.function.name

    @property
    def bitset_length(self) -> int:
        """Bytes of the bitset, odd ones at its end included."""
        return self.length - self.header_length


def encode_header(num_bytes: int) -> bytes:
    """The header of a split-block filter with XXH64, uncompressed: 15 to 19 bytes."""
    chosen = (STRUCT, Struct({1: (STRUCT, Struct())}))
    return encode_struct(Struct({1: (I32, num_bytes), 2: chosen, 3: chosen, 4: chosen}))


def read_bloom_filter(source: Source, chunk: ColumnChunk) -> FoundFilter | None:
    """The filter of a column chunk, ``None`` if it has none (an offset of 0 means the same).

    One read where the length is given or the filter is small, two otherwise. Raises
    :class:`DamagedFileError` where the bytes are no filter or lie outside the file, and
    :class:`UnsupportedFeatureError` for an encrypted column or a chunk in another file.
    """
    if not chunk.bloom_filter_offset:
        return None
    with located(source.name, chunk.leaf.path, chunk.bloom_filter_offset):
        return _read(source, chunk, chunk.bloom_filter_offset)


def read_bloom_filters(
    source: Source, chunks: Iterable[ColumnChunk]
) -> Iterator[tuple[ColumnChunk, FoundFilter | SidecarError | None]]:
    """The filters of many chunks, neighbours fetched together, at most some 8 MiB at a time.

    What is wrong with one filter is that chunk's answer and no other's. Answers come in the order of
    ``chunks``.
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
    """A source whose first reads were made already."""

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
        """The source below stays open."""


def _first_range(source: Source, chunk: ColumnChunk) -> tuple[int, int] | None:
    """What to read first: all of it if the length is given and possible, else a guess; or nothing."""
    offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
    end = source.size - _TRAILER
    if not offset or not 0 < offset < end or chunk.encrypted or chunk.file_path is not None:
        return None
    plausible = length is not None and MIN_BYTES < length <= min(MAX_BYTES + MAX_HEADER, end - offset)
    return offset, length if plausible and length is not None else min(_GUESS, end - offset)


def _read(source: Source, chunk: ColumnChunk, offset: int) -> FoundFilter:
    if chunk.encrypted:
        raise UnsupportedFeatureError("the column is encrypted (Parquet modular encryption), its filter too")
    if chunk.file_path is not None:
        raise UnsupportedFeatureError("the column chunk is in another file (file_path), and so is its filter")
    first = _first_range(source, chunk)
    if first is None:
        raise DamagedFileError("the filter's offset lies outside the file", expected=f"1 to {source.size}")
    data = source.read(*first)
    if historical.is_header(data):
        header, header_length, num_bytes = None, historical.HEADER_LENGTH, historical.decode_header(data)
    else:
        header, header_length, data = _decode_header(source, offset, data)
        num_bytes = check_num_bytes(header)
    end = header_length + num_bytes
    if offset + end > source.size - _TRAILER:
        raise DamagedFileError(
            "the filter reaches beyond the end of the file",
            expected=f"{end} bytes",
            found=source.size - offset,
        )
    if end > len(data):
        data += source.read(offset + len(data), end - len(data))
    form = SplitBlockBloomFilter if header is not None else HistoricalBloomFilter
    bits = form.from_bytes(data[header_length:end])
    defect = (header and header_doubt(header)) or _doubt(chunk, end) or _empty(bits, chunk)
    return FoundFilter(bits, offset, end, header_length, defect)


def check_num_bytes(header: Struct) -> int:
    """The header's numBytes; :class:`DamagedFileError` where it is absent or out of range."""
    num_bytes = header.need_integer(1, "the filter's numBytes")
    if not MIN_BYTES <= num_bytes <= MAX_BYTES:
        raise DamagedFileError(
            "the filter's numBytes is out of range", expected=f"{MIN_BYTES} to {MAX_BYTES}", found=num_bytes
        )
    return num_bytes


def _decode_header(source: Source, offset: int, data: bytes) -> tuple[Struct, int, bytes]:
    """Header, its length, and the bytes read so far: more of them only if the header needs them."""
    most = min(MAX_HEADER, source.size - _TRAILER - offset)
    try:
        return *decode_struct(data, base=offset), data
    except TruncatedError:
        if len(data) >= most:
            raise
    data += source.read(offset + len(data), most - len(data))
    return *decode_struct(data, base=offset), data


def header_doubt(header: Struct) -> str:
    """What the header says that is not known; empty if nothing."""
    for field_id, what in ((2, "algorithm"), (3, "hash"), (4, "compression")):
        union = header.struct(field_id)
        if union is None or list(union.fields) != [1]:
            members = "absent" if union is None else f"member {', '.join(map(str, union.fields)) or 'none'}"
            return f"the header's {what} is not known ({members})"
    return ""


def _doubt(chunk: ColumnChunk, length: int) -> str:
    """Why the footer gives no reason to believe the bits; empty if it agrees."""
    stated = chunk.bloom_filter_length
    if stated is not None and stated != length:
        return f"bloom_filter_length is {stated}, but header and bitset have {length} bytes"
    if chunk.leaf.physical == "BOOLEAN":
        return "filters of BOOLEAN columns are not to be trusted: common writers leave them empty"
    if chunk.leaf.normalized_interval:
        return "the file says that its INTERVAL filters hash normalised values"
    return ""


def _empty(bits: BlockFilter, chunk: ColumnChunk) -> str:
    values = chunk.num_values - (chunk.null_count or 0)
    if values <= 0 or bits.blocks.any():
        return ""
    return f"the filter is empty, but the chunk has {values} values"
