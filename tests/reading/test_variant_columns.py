"""Predicates on columns that are decoded whole, such as the VARIANT of DuckDB 2: an answer, or an error of ours."""

from __future__ import annotations

import pytest

import sidecar
from sidecar.errors import UnsupportedFeatureError
from tests.parquet.false_statements import WRONG

FILE = WRONG / "variant.parquet"


def test_nulls_of_a_variant_are_found() -> None:
    everything = sidecar.scan(FILE, "true")
    nulls = everything["v"].null_count
    assert sidecar.scan(FILE, "v is null").num_rows == nulls
    assert sidecar.scan(FILE, "v is not null").num_rows == len(everything) - nulls
    assert sidecar.scan(FILE, "id = 1 and v is not null", ["id"])["id"].to_pylist() == [1]


@pytest.mark.parametrize("predicate", ["v.metadata = '0x00'", "v.value is not null", "v.typed_value = 'a'"])
def test_what_is_in_a_variant_cannot_be_compared(predicate: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"a field inside this column.*{predicate.split()[0]}"):
        sidecar.scan(FILE, predicate)


def test_other_columns_of_the_file_are_scanned() -> None:
    assert sidecar.scan(FILE, "id = 2").num_rows == 1
