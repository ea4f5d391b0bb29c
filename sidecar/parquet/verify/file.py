"""Verifies a Parquet file and reports every defect with its place.

Filters of floats are always compared with the values, because readers look up some floats in other bytes than are
stored. All other filters are compared on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from sidecar.errors import Problem, SidecarError, located, problem_in, reason_at, reason_of
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.chunk_statistics import footer_findings
from sidecar.parquet.encrypted.body import IN_CLEAR, has_plain_filter
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.pages import DICTIONARY_PAGE, ChunkReader, ends_at_data
from sidecar.parquet.verify.filters import FLOATS, value_problems
from sidecar.parquet.verify.page_index import verify_page_index
from sidecar.parquet.verify.statistics import value_statistics_problems
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.source import Source

_WINDOW = 4 << 20


def verify_file(source: Source, values: ValueCheck | None = None) -> list[Problem]:
    """Return every defect of footer, filters, page indexes and pages, checksums included.

    With ``values``, every value of the row groups that it chooses is looked up in its filter and compared with the
    statistics of its chunk. Reads the whole file, one column chunk at a time. Defects of the file never raise. For an
    encrypted file, ``source`` is the plaintext view; a column whose key is missing is a problem, too.
    """
    try:
        footer = read_footer(source)
    except SidecarError as error:
        return [problem_in(source.name, reason_of(error))]
    chosen = set() if values is None else values.choose(len(footer.row_groups))
    compared = bool(chosen) and len(chosen) == len(footer.row_groups)
    problems = [*footer_findings(footer, compared=compared), *_chunk_problems(source, footer)]
    if values is not None:
        values.indexes += sum(map(_is_compared, (chunk for group in footer.row_groups for chunk in group.columns)))
    for found in (
        verify_page_index(source, footer, chosen),
        _value_problems(source, footer, values, chosen),
        _statistics_problems(source, footer, chosen),
    ):
        known = {_key(problem) for problem in problems}
        problems += [problem for problem in found if _key(problem) not in known]
    return problems


def _key(problem: Problem) -> tuple[object, ...]:
    return problem.unit, problem.column, problem.problem


def _of_chunk(footer: Footer, chunk: ColumnChunk, texts: Iterable[str]) -> Iterator[Problem]:
    return (problem_in(footer.name, text, chunk.leaf.path, chunk.row_group) for text in texts)


def _chunk_problems(source: Source, footer: Footer) -> Iterator[Problem]:
    taken: list[tuple[int, int, str]] = []
    for group in footer.row_groups:
        for chunk in group.columns.locked:
            yield from _of_chunk(footer, chunk, _locked_problems(source, chunk))
        for chunk, found in read_bloom_filters(source, group.columns):
            yield from _of_chunk(footer, chunk, _filter_problems(found))
            yield from _of_chunk(footer, chunk, _index_problems(chunk, footer.offset))
            yield from _of_chunk(footer, chunk, _page_problems(source, chunk))
            if isinstance(found, FoundFilter):
                taken.append((found.offset, found.offset + found.length, chunk.leaf.path))
    yield from _overlaps(footer.name, sorted(taken))


def _value_problems(source: Source, footer: Footer, values: ValueCheck | None, chosen: set[int]) -> Iterator[Problem]:
    for group in footer.row_groups:
        asked = [c for c in group.columns if group.ordinal in chosen or c.leaf.encoding.name in FLOATS]
        for chunk, found in read_bloom_filters(source, asked):
            if isinstance(found, FoundFilter) and not found.defect:
                yield from _of_chunk(footer, chunk, value_problems(source, footer, chunk, found.filter, values))


def _is_compared(chunk: ColumnChunk) -> bool:
    """Return whether a chunk has a page index that can be compared with its pages."""
    return bool(chunk.column_index_offset or chunk.offset_index_offset)


def _statistics_problems(source: Source, footer: Footer, chosen: set[int]) -> Iterator[Problem]:
    for ordinal in sorted(chosen):
        for chunk in footer.row_groups[ordinal].columns:
            yield from _of_chunk(footer, chunk, value_statistics_problems(source, footer, chunk))


def _locked_problems(source: Source, chunk: ColumnChunk) -> Iterator[str]:
    yield "the column is encrypted and cannot be checked: its key is missing"
    if has_plain_filter(source, chunk):
        yield f"Bloom filter: {IN_CLEAR}"


def _filter_problems(found: FoundFilter | SidecarError | None) -> Iterator[str]:
    if isinstance(found, SidecarError):
        yield f"Bloom filter: {reason_of(found)}"
    elif found is not None and found.defect:
        yield f"Bloom filter: {found.defect}"


def _index_problems(chunk: ColumnChunk, end: int) -> Iterator[str]:
    for name, offset, length in (
        ("column index", chunk.column_index_offset, chunk.column_index_length),
        ("offset index", chunk.offset_index_offset, chunk.offset_index_length),
    ):
        if (offset is None) != (length is None):
            yield f"{name}: only one of offset and length is set"
        elif offset is not None and length is not None and not (0 < offset <= offset + length <= end):
            yield f"{name}: {length} bytes from {offset} are outside the file's body of {end} bytes"


def _page_problems(source: Source, chunk: ColumnChunk) -> Iterator[str]:
    values = 0
    stated = {e.encoding for e in chunk.encoding_stats or () if e.count and e.page_type != DICTIONARY_PAGE}
    unnamed: set[int] = set()
    try:
        with located(source.name, chunk.leaf.path):
            reader = ChunkReader(source, chunk, _WINDOW)
            for number, page in enumerate(reader.pages()):
                if page.is_data and stated and page.encoding not in stated | unnamed:
                    unnamed.add(page.encoding)
                    yield f"encoding_stats lack the encoding {page.encoding} of the page at {page.offset}"
                if page.type == DICTIONARY_PAGE and number:
                    yield f"the dictionary page at {page.offset} is not the chunk's first page"
                elif page.type == DICTIONARY_PAGE and not ends_at_data(chunk, page):
                    yield f"the dictionary page ends at {page.end}, data_page_offset is {chunk.data_page_offset}"
                reader.body(page)
                values += page.num_values if page.is_data else 0
    except SidecarError as error:
        yield reason_at(error)
        return
    if values != chunk.num_values:
        yield f"num_values is {chunk.num_values}, the pages have {values} values"


def _overlaps(file: str, taken: list[tuple[int, int, str]]) -> Iterator[Problem]:
    """Yield filters that share bytes with the filter before them. At least one of the two offsets is wrong."""
    for (_, end, first), (start, _, second) in pairwise(taken):
        if start < end:
            yield problem_in(file, f"Bloom filter: it overlaps the filter of {first}", second)
