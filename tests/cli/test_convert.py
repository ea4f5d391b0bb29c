"""``sidecar convert`` of a historical filter, and what inspect, probe and verify say of files that are one filter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.filters.encoding import Encoding
from sidecar.filters.historical import HistoricalBloomFilter
from tests.cli.running import answer, run
from tests.filters.made_filters import historical_filter, historical_header

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
OLD, NEW = str(DATA / "apache_bloom_filter.bin"), str(DATA / "apache_bloom_filter.xxhash.bin")
STORED = ["hello", "parquet", "bloom", "filter"]


def column_file(path: Path, values: Any, **options: Any) -> str:
    pq.write_table(pa.table({"s": values}), path, **options)
    return str(path)


def maybe(path: str, kind: str, value: str) -> Any:
    return answer("probe", path, kind, value)["files"][0]["units"][0]["might_contain"]


@pytest.mark.parametrize(("use_dictionary", "way"), [(True, "dictionary"), (False, "values")])
def test_a_historical_filter_is_rebuilt_from_its_column(use_dictionary: bool, way: str, tmp_path: Path) -> None:
    column = column_file(tmp_path / "v.parquet", pa.array([*STORED, None, "bloom"]), use_dictionary=use_dictionary)
    target = str(tmp_path / "new.bin")
    report = answer("convert", OLD, target, "--onto", column, "--column", "s")
    (unit,) = report["units"]
    assert unit["way"] == way
    assert unit["rate_before"] < 1e-10
    assert unit["rate_after"] <= 0.01
    assert report["conversion"] == "MurmurHash3 filter to XXH64 filter"
    assert "XXH64" in answer("inspect", target)["files"][0]["form"]
    assert [maybe(target, "string", value) for value in STORED] == [True] * 4
    assert maybe(target, "string", "absent") is False
    assert run("verify", target).exit_code == 0


def test_the_text_says_that_it_was_a_rebuild_and_by_which_way(tmp_path: Path) -> None:
    numbers = pa.array(range(0, 3000, 11), pa.int64())
    column = column_file(tmp_path / "v.parquet", numbers, use_dictionary=False)
    old = historical_filter(numbers, Encoding.parse("int64"))
    (tmp_path / "old.bin").write_bytes(historical_header(old.num_bytes) + old.to_bytes())
    result = run(
        "convert", str(tmp_path / "old.bin"), str(tmp_path / "new.bin"), "--onto", column, "--column", "s", code=0
    )
    assert "rebuilt from" in result.stdout
    assert "values" in result.stdout
    assert all(maybe(str(tmp_path / "new.bin"), "long", str(number)) for number in range(0, 3000, 330))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], "can only be rebuilt"),
        (["--column", "s"], "--onto FILE --column NAME"),
        (["--onto", "{file}"], "--onto FILE --column NAME"),
        (["--onto", "{file}", "--column", "t"], "the file has no column 't'"),
        (["--onto", "{few}", "--column", "s"], "holds values that the column does not have"),
    ],
)
def test_without_all_values_there_is_no_conversion(values: list[str], sentence: str, tmp_path: Path) -> None:
    column_file(tmp_path / "v.parquet", pa.array(STORED))
    column_file(tmp_path / "few.parquet", pa.array(STORED[:3]))
    named = [word.format(file=tmp_path / "v.parquet", few=tmp_path / "few.parquet") for word in values]
    result = run("convert", OLD, str(tmp_path / "new.bin"), *named, code=2)
    assert sentence in result.stderr
    assert not (tmp_path / "new.bin").exists()


def old_filter(path: Path, values: pa.Array, z: int | None = None, kind: str = "int64") -> str:
    encoding = Encoding.parse(kind)
    old = historical_filter(values, encoding) if z is None else HistoricalBloomFilter.empty(z)
    old.insert_arrow(values, encoding)
    path.write_bytes(historical_header(old.num_bytes) + old.to_bytes())
    return str(path)


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("spread", [1, 1_000_003], ids=["a small domain", "a large domain"])
def test_a_wrong_column_that_covers_the_bits_by_chance_is_refused(
    use_dictionary: bool, spread: int, tmp_path: Path
) -> None:
    """50,000 values set every bit of a filter of 20 values of another column."""
    old = old_filter(tmp_path / "old.bin", pa.array(range(-20, 0), pa.int64()), 8)
    wrong = pa.array([n * spread for n in range(50_000)], pa.int64())
    column = column_file(tmp_path / "v.parquet", wrong, use_dictionary=use_dictionary)
    result = run("convert", old, str(tmp_path / "new.bin"), "--onto", column, "--column", "s", code=2)
    assert "denies values of the column" in result.stderr
    assert re.search(r"\d+ denied among the first 32768 values", result.stderr)
    assert not (tmp_path / "new.bin").exists()


def test_integers_between_the_bounds_do_not_explain_bits(tmp_path: Path) -> None:
    """The column's bounds are admitted, and the numbers that the filter holds lie between them, but not in it."""
    old = old_filter(tmp_path / "old.bin", pa.array(range(0, 3000, 3), pa.int64()), 4096)
    column = column_file(tmp_path / "v.parquet", pa.array([0, 2997], pa.int64()), use_dictionary=False)
    result = run("convert", old, str(tmp_path / "new.bin"), "--onto", column, "--column", "s", code=2)
    assert "holds values that the column does not have" in result.stderr


def test_entries_that_no_row_uses_may_be_in_the_filter_or_not(tmp_path: Path) -> None:
    """pyarrow keeps the unused entries of a dictionary array in the dictionary page."""
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(["a", "b", "c"]))
    column = column_file(tmp_path / "v.parquet", values)
    for number, held in enumerate((["a", "b"], ["a", "b", "c"])):
        old = old_filter(tmp_path / f"{number}.bin", pa.array(held), 64, "byte_array")
        new = str(tmp_path / f"{number}.new")
        assert answer("convert", old, new, "--onto", column, "--column", "s")["units"][0]["way"] == "dictionary"
        assert all(maybe(new, "string", value) for value in held)


def test_entries_that_the_filter_denies_explain_none_of_its_bits(tmp_path: Path) -> None:
    """1,000 entries that no row uses would set every bit of a small filter together."""
    words = ["a", "b", *(f"unused {number}" for number in range(1000))]
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(words))
    column = column_file(tmp_path / "v.parquet", values)
    old = old_filter(tmp_path / "old.bin", pa.array(["a", "b", "a stranger"]), 1, "byte_array")
    result = run("convert", old, str(tmp_path / "new.bin"), "--onto", column, "--column", "s", code=2)
    assert "holds values that the column does not have" in result.stderr
    assert not (tmp_path / "new.bin").exists()


def test_zeros_and_nan_of_a_strict_writer_are_no_other_column(tmp_path: Path) -> None:
    values = pa.array([0.0, float("nan"), 1.5, None])
    old = historical_filter(values, Encoding.parse("double"), 1e-9, strict=True)
    (tmp_path / "old.bin").write_bytes(historical_header(old.num_bytes) + old.to_bytes())
    column = column_file(tmp_path / "v.parquet", values, use_dictionary=False)
    told = answer("convert", str(tmp_path / "old.bin"), str(tmp_path / "new"), "--onto", column, "--column", "s")
    assert told["units"][0]["way"] == "values"


def test_the_present_form_and_an_existing_target_are_refused(tmp_path: Path) -> None:
    column = column_file(tmp_path / "v.parquet", pa.array(STORED))
    assert (
        "already has the present form"
        in run("convert", NEW, str(tmp_path / "n"), "--onto", column, "--column", "s").stderr
    )
    (tmp_path / "there").write_bytes(b"")
    result = run("convert", OLD, str(tmp_path / "there"), "--onto", column, "--column", "s")
    assert (result.exit_code, (tmp_path / "there").read_bytes()) == (2, b"")


def test_inspect_and_verify_of_a_filter_alone() -> None:
    assert "the historical one" in run("inspect", OLD).stdout
    assert "not stored in the file" in run("inspect", NEW).stdout
    assert "fine" in run("verify", OLD).stdout
    assert run("probe", OLD, "nosuch", "x").exit_code == 2
