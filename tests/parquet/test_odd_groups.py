"""Schemas that name a column and a group at once, and groups without columns: refused before Arrow sees them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from scripts.fuzzing.parquet_layout import ParquetLayout
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.parquet.footer import read_footer
from sidecar.parquet.thrift import I32, LIST, STRUCT, Items
from sidecar.storage.source import BytesSource


def file_of(table: pa.Table) -> ParquetLayout:
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    return ParquetLayout(sink.getvalue())


@pytest.mark.parametrize("children", [-1, 1, 2])
def test_an_element_with_a_type_and_children_is_damage(children: int) -> None:
    """Arrow takes it for a group without columns."""
    layout = file_of(pa.table({"k": [1, 2]}))
    schema: Any = layout.footer.structs(2)
    schema[1].fields[5] = (I32, children)
    with pytest.raises(DamagedFileError, match="both a type and children"):
        read_footer(BytesSource(layout.file()))


def test_a_list_of_groups_without_columns_is_not_read() -> None:
    """Inside a list that has columns: pyiceberg takes the empty type for a missing one."""
    inner = pa.list_(pa.struct([("x", pa.int64())]))
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", inner)]))
    layout = file_of(pa.table({"m": pa.array([[{"a": 1, "b": [{"x": 1}]}]], kind)}))
    schema: Any = layout.footer.structs(2)
    assert schema[-1].text(4) == "x"
    schema[-2].fields[5] = (I32, 0)
    layout.footer.fields[2] = (LIST, Items(STRUCT, schema[:-1]))
    for group in layout.footer.structs(4) or []:
        group.fields[1] = (LIST, Items(STRUCT, (group.structs(1) or [])[:-1]))
    with pytest.raises(UnsupportedFeatureError, match="a group without columns"):
        sidecar.scan(BytesSource(layout.file()), "true")
