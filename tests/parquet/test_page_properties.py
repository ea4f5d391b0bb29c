"""Random tables, flat, nullable and nested: what is built says nothing that the rows deny."""

from __future__ import annotations

import decimal
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex, read_page_indexes
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.source import BytesSource
from tests.parquet.page_files import check_index, write

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "string": (pa.string(), st.text(max_size=40)),
    "long strings": (pa.string(), st.text(alphabet="a\x7f€\U0010ffff", min_size=10, max_size=120)),
    "binary": (pa.binary(), st.binary(max_size=100)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "decimal": (
        pa.decimal128(25, 3),
        st.integers(-(10**24), 10**24).map(lambda n: decimal.Context(prec=40).scaleb(decimal.Decimal(n), -3)),
    ),
}


@st.composite
def leaf_columns(draw: st.DrawFn) -> tuple[pa.Field[Any], list[Any]]:
    """A column of one leaf: a scalar, nullable or not, perhaps in lists; runs make null pages likely."""
    kind, values = SCALARS[draw(st.sampled_from(sorted(SCALARS)))]
    nullable = draw(st.booleans())
    entry = st.one_of(st.none(), values) if nullable else values
    if draw(st.booleans()):
        rows = st.lists(entry, min_size=1, max_size=40)
        field = pa.field("c", kind, nullable)
    else:
        inner = pa.field("element", kind, nullable)
        rows = st.lists(
            st.one_of(st.none(), st.lists(entry, max_size=5)) if nullable else st.lists(entry, max_size=5),
            min_size=1,
            max_size=40,
        )
        field = pa.field("c", pa.list_(inner), nullable)
    drawn = draw(rows)
    if nullable and draw(st.booleans()):
        drawn = drawn[: len(drawn) // 2] + [None] * 60 + drawn[len(drawn) // 2 :]
    return field, drawn


@FEW
@given(
    column=leaf_columns(),
    version=st.sampled_from(["1.0", "2.0"]),
    dictionary=st.booleans(),
    rows_a_page=st.sampled_from([1, 3, 16, 1000]),
    groups=st.sampled_from([7, 1000]),
    codec=st.sampled_from(["none", "snappy", "zstd"]),
)
def test_no_value_lies_outside_its_page(
    column: tuple[pa.Field[Any], list[Any]],
    version: str,
    dictionary: bool,
    rows_a_page: int,
    groups: int,
    codec: str,
) -> None:
    field, rows = column
    table = pa.table([pa.array(rows, field.type)], schema=pa.schema([field]))
    data = write(
        table,
        data_page_version=version,
        use_dictionary=dictionary,
        max_rows_per_page=rows_a_page,
        write_batch_size=rows_a_page,
        row_group_size=groups,
        compression=codec,
        store_decimal_as_integer=len(rows) % 2 == 0,
        write_page_checksum=True,
    )
    source = BytesSource(data)
    footer = read_footer(source)
    read = pq.read_table(io.BytesIO(data)).column(0).to_pylist()
    for group in footer.row_groups:
        built = check_index(source, footer, group.columns[0], read[group.first_row : group.first_row + group.num_rows])
        named = any(cause in built.reason for cause in ("NaN", "an empty data page"))
        assert built.column_index is not None or named


STRUCTS = st.fixed_dictionaries(
    {
        "a": st.one_of(st.none(), st.integers(0, 9)),
        "b": st.one_of(
            st.none(),
            st.lists(
                st.one_of(st.none(), st.fixed_dictionaries({"c": st.one_of(st.none(), st.text(max_size=3))})),
                max_size=3,
            ),
        ),
        "m": st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=2), st.integers(0, 5)), max_size=3)),
    }
)
NESTED = pa.struct(
    [
        pa.field("a", pa.int32()),
        pa.field("b", pa.list_(pa.struct([pa.field("c", pa.string())]))),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
    ]
)


@FEW
@given(
    rows=st.lists(st.one_of(st.none(), STRUCTS), min_size=1, max_size=40),
    version=st.sampled_from(["1.0", "2.0"]),
    dictionary=st.booleans(),
    rows_a_page=st.sampled_from([1, 4, 1000]),
)
def test_nested_columns_equal_what_arrow_builds(
    rows: list[Any], version: str, dictionary: bool, rows_a_page: int
) -> None:
    """Levels, rows and bounds beside Arrow C++'s own index of the same pages; and verify finds nothing."""
    table = pa.table({"n": pa.array(rows, NESTED)})
    data = write(
        table,
        data_page_version=version,
        use_dictionary=dictionary,
        max_rows_per_page=rows_a_page,
        write_batch_size=rows_a_page,
        write_page_index=True,
    )
    source = BytesSource(data)
    footer = read_footer(source)
    problems = verify_file(source)
    for group in footer.row_groups:
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            named = [p for p in problems if (p.unit, p.column) == (group.ordinal, chunk.leaf.path)]
            if any(page.is_data and not page.num_values for page in walk_pages(source, chunk)):
                # Arrow lists an empty page, which begins at the row of the next one
                assert any("first_row_index does not increase" in p.problem for p in named)
                continue
            assert named == []
            built = built_index(source, footer, chunk)
            assert isinstance(offset, OffsetIndex)
            assert built[1].first_row_indexes.tolist() == offset.first_row_indexes.tolist()
            assert built[1].offsets.tolist() == offset.offsets.tolist()
            if isinstance(column, ColumnIndex):
                for name in (
                    "null_pages",
                    "null_counts",
                    "min_values",
                    "max_values",
                    "repetition_level_histograms",
                    "definition_level_histograms",
                ):
                    mine, theirs = getattr(built[0], name), getattr(column, name)
                    assert mine == theirs or mine is None, name


def built_index(source: BytesSource, footer: Footer, chunk: ColumnChunk) -> tuple[ColumnIndex, OffsetIndex]:
    built = build_page_index(source, footer, chunk)
    assert built.column_index is not None
    assert built.offset_index is not None
    return built.column_index, built.offset_index
