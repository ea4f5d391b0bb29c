"""Decides which statements of a Parquet footer about values are believed.

A false statement loses rows, and one that is not used costs only time. Some statements can be seen to be false without
a look at the values: they contradict others, or the program that wrote the file is known to write them wrong. These
are not used by a scan, not copied by ``embed``, ``extract`` or ``build``, and named by ``inspect`` and ``verify``.

| written by | not believed | why |
| --- | --- | --- |
| DuckDB up to 0.9.2 | null_count | those of earlier row groups are added |
| parquet-cpp, Arrow C++ before 5.0 | null_count of strings with a dictionary | only its nulls count (ARROW-12513) |
| Polars before 2.0 | bounds of decimals in bytes | pages are merged as unsigned bytes (polars#29347) |
| Polars before 2.1 | bounds, column indexes of floats | pages with NaN are left out, and said to be null |
| segmentio/parquet-go | column indexes of byte arrays | a maximum is cut and not raised (parquet-go#496) |
| segmentio/parquet-go | offset indexes | sizes of pages lack the header |
| parquet-mr before 1.2.9, old fastparquet | total_compressed_size | lacks a dictionary page or header (PARQUET-816) |

A name without a version stands for right and wrong releases, so it is not believed either. A page index that is built
anew for such a file says that it is ours (:data:`sidecar.parquet.page_indexes.page_index.OURS`), and is believed.

:mod:`sidecar.parquet.page_indexes.page_bounds` compares page indexes with themselves and with the footer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sidecar.errors import DamagedFileError
from sidecar.filters.leaf import Leaf
from sidecar.parquet.thrift import Struct

Part = Literal["null_count", "bounds", "column index", "offset index", "total_compressed_size"]
Version = tuple[int, int, int]
INDEX_PARTS: tuple[Part, Part] = ("column index", "offset index")

_VERSION = re.compile(r"version\s+v?(\d{1,5})\.(\d{1,5})(?:\.(\d{1,5}))?")
_BOUND_FIELDS = (1, 2, 5, 6)
_DICTIONARY_ENCODINGS = {2, 8}  # PLAIN_DICTIONARY, RLE_DICTIONARY


@dataclass(frozen=True)
class WrongWriter:
    """A program that writes ``parts`` wrong for the leaves that ``concerns`` accepts.

    ``name`` is searched in ``created_by``. Releases from ``right_from`` on are right; ``None`` if none is. A name
    without a version is as wrong as the oldest release. ``concerns`` takes the leaf and the encodings of its chunk.
    """

    name: re.Pattern[str]
    right_from: Version | None
    parts: frozenset[Part]
    concerns: Callable[[Leaf, Sequence[int]], bool]
    why: str

    def wrote(self, created_by: str) -> bool:
        """Return whether a wrong release may have written a file."""
        found = self.name.search(created_by)
        if found is None:
            return False
        version = _VERSION.search(created_by, found.start())
        if version is None or self.right_from is None:
            return True
        return tuple(int(number or 0) for number in version.groups()) < self.right_from


def _in_any_encoding(leaf: Leaf, encodings: Sequence[int]) -> bool:
    return True


def _dictionary_of_bytes(leaf: Leaf, encodings: Sequence[int]) -> bool:
    return leaf.physical == "BYTE_ARRAY" and bool(_DICTIONARY_ENCODINGS & set(encodings))


def _decimal_in_bytes(leaf: Leaf, encodings: Sequence[int]) -> bool:
    return leaf.encoding.is_decimal and leaf.physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def _float(leaf: Leaf, encodings: Sequence[int]) -> bool:
    return is_float(leaf)


def _byte_array(leaf: Leaf, encodings: Sequence[int]) -> bool:
    return leaf.physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def is_float(leaf: Leaf) -> bool:
    """Return whether values of the leaf can be NaN."""
    return leaf.physical in ("FLOAT", "DOUBLE") or leaf.encoding.name == "float16"


_POLARS = re.compile(r"^polars\b", re.IGNORECASE)
_SEGMENTIO = re.compile(r"\bsegmentio/parquet-go\b")

WRONG_WRITERS = (
    WrongWriter(
        re.compile(r"^DuckDB\b"),
        (0, 10, 0),
        frozenset({"null_count"}),
        _in_any_encoding,
        "DuckDB up to 0.9.2 adds the null counts of earlier row groups, and the file names no version",
    ),
    WrongWriter(
        re.compile(r"\bparquet-cpp(-arrow)?(?![-\w])"),
        (5, 0, 0),
        frozenset({"null_count"}),
        _dictionary_of_bytes,
        "Arrow C++ before 5.0 does not count the nulls of dictionary arrays (ARROW-12513)",
    ),
    WrongWriter(
        _POLARS,
        (2, 0, 0),
        frozenset({"bounds"}),
        _decimal_in_bytes,
        "Polars before 2.0 merges bounds of decimals as unsigned bytes (polars#29347)",
    ),
    WrongWriter(
        _POLARS,
        (2, 1, 0),
        frozenset({"bounds", "column index"}),
        _float,
        "Polars before 2.1 leaves pages with NaN out of the bounds",
    ),
    WrongWriter(
        _SEGMENTIO,
        None,
        frozenset({"column index"}),
        _byte_array,
        "segmentio/parquet-go does not raise a maximum that it cuts (parquet-go#496)",
    ),
    WrongWriter(
        _SEGMENTIO,
        None,
        frozenset({"offset index"}),
        _in_any_encoding,
        "segmentio/parquet-go leaves the header out of the sizes of pages",
    ),
    WrongWriter(
        re.compile(r"^parquet-mr\b"),
        (1, 2, 9),
        frozenset({"total_compressed_size"}),
        _in_any_encoding,
        "parquet-mr before 1.2.9 leaves the dictionary page or its header out of a chunk's size (PARQUET-816)",
    ),
    WrongWriter(
        re.compile(r"^fastparquet"),
        (2021, 0, 0),
        frozenset({"total_compressed_size"}),
        _in_any_encoding,
        "old releases of fastparquet leave the dictionary page's header out of a chunk's size (PARQUET-816)",
    ),
)


@lru_cache(maxsize=256)
def wrong_writers(created_by: str | None) -> tuple[WrongWriter, ...]:
    """Return the entries of :data:`WRONG_WRITERS` for a file with this ``created_by``; usually none."""
    return tuple(writer for writer in WRONG_WRITERS if writer.wrote(created_by or ""))


def why_not_believed(created_by: str | None, part: Part, leaf: Leaf, encodings: Sequence[int]) -> str:
    """Return why the writer of a file is not believed about ``part`` of a chunk; empty if it is."""
    for writer in wrong_writers(created_by):
        if part in writer.parts and writer.concerns(leaf, encodings):
            return writer.why
    return ""


def counts_problem(max_rep: int, num_values: int, num_rows: int) -> str:
    """Return why a chunk's number of values, nulls included, contradicts the rows of its row group; empty if not.

    Nothing that the file says of the chunk's values is believed then. ``max_rep`` is the highest repetition level.
    """
    if num_values == num_rows or (max_rep and num_values > num_rows):
        return ""
    return f"num_values is {num_values}, the row group has {num_rows} rows"


def null_count_problem(max_def: int, null_count: int, num_values: int, *, bounded: bool) -> str:
    """Return why a chunk's null_count contradicts what else is said of the chunk; empty if it does not.

    ``max_def`` is the highest definition level, and ``bounded`` says whether the chunk has bounds, which no chunk of
    nulls has.
    """
    if not 0 <= null_count <= num_values:
        return f"null_count is {null_count}, the chunk has {num_values} values"
    if null_count and not max_def:
        return f"null_count is {null_count} in a column without nulls"
    if null_count and null_count == num_values and bounded:
        return "null_count says that all values are null, but the chunk has bounds"
    return ""


def histogram_problem(leaf: Leaf, null_count: int, sizes: Struct | None) -> str:
    """Return why a null_count contradicts the definition levels in the ``size_statistics`` of its chunk; empty if not.

    Only flat columns are compared: writers do not agree on what a null of a repeated column is.
    """
    if sizes is None or leaf.max_rep:
        return ""
    try:
        histogram = sizes.integers(3) or []
    except DamagedFileError:
        return ""
    if len(histogram) != leaf.max_def + 1 or sum(histogram[:-1]) == null_count:
        return ""
    return f"null_count is {null_count}, the definition levels in size_statistics have {sum(histogram[:-1])} nulls"


def older_bounds_problem(leaf: Leaf, statistics: Struct) -> str:
    """Return why bounds contradict those of the older kind beside them; empty if they do not.

    Only signed integers are compared: of other types some writers compare the older kind in another order.
    """
    if leaf.physical not in ("INT32", "INT64") or not leaf.annotation.signed:
        return ""
    for older, present, name in ((1, 5, "max"), (2, 6, "min")):
        found = [statistics.fields.get(field_id, (0, None))[1] for field_id in (older, present)]
        if None not in found and found[0] != found[1]:
            return f"{name} and {name}_value differ"
    return ""


def is_bounded(statistics: Struct) -> bool:
    """Return whether the statistics of a chunk have a bound, of the older or the present kind."""
    return any(field_id in statistics.fields for field_id in _BOUND_FIELDS)


def shown_bits(leaf: Leaf) -> int:
    """Return how many bits of a stored integer readers show: 8 or 16 of 32 by the annotation; 0 if they show all."""
    annotation = leaf.annotation
    return annotation.bits if annotation.kind == "INTEGER" and annotation.bits in (8, 16) and leaf.width == 4 else 0


def as_shown(data: npt.NDArray[np.uint8], leaf: Leaf) -> npt.NDArray[np.uint8]:
    """Return PLAIN values as readers show them: of annotated 8- and 16-bit integers only those bits count."""
    bits = shown_bits(leaf)
    if not bits:
        return data
    kind = "i" if leaf.annotation.signed else "u"
    stored = data[: len(data) // 4 * 4].view("<i4")
    return stored.astype(f"<{kind}{bits // 8}").astype(f"<{kind}4").view(np.uint8)


def beyond_annotation(leaf: Leaf, value: object) -> bool:
    """Return whether an integer does not fit the leaf's annotation, so that readers show another number."""
    bits = shown_bits(leaf)
    if not bits or not isinstance(value, int):
        return False
    least = -(1 << (bits - 1)) if leaf.annotation.signed else 0
    return not least <= value < least + (1 << bits)


def may_show_other_values(leaf: Leaf, statistics: Struct | None) -> bool:
    """Return whether the bounds of a chunk do not rule out integers that do not fit the leaf's annotation."""
    if not shown_bits(leaf):
        return False
    fields = {} if statistics is None else statistics.fields
    bounds = [fields[field_id][1] for field_id in _BOUND_FIELDS if field_id in fields]
    if not all(isinstance(bound, bytes) for bound in bounds):
        return True
    numbers = [int.from_bytes(bound, "little", signed=leaf.annotation.signed) for bound in bounds]
    return len(numbers) < 2 or any(beyond_annotation(leaf, number) for number in numbers)
