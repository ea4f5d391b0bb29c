"""Rows leave the command line batch by batch, and a file is there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from sidecar.cli import rows
from sidecar.errors import StorageError, UsageError

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.large_string())])
BATCHES, LENGTH = 40, 500
WRITTEN = [".arrow", ".csv", ".jsonl", ".parquet"]


class Stream:
    """Batches of 0.5 MB each, and the most bytes of Arrow's that were held when one was asked for."""

    def __init__(self, broken_at: int = BATCHES) -> None:
        self.broken_at = broken_at
        self.most = 0
        self._before = pa.total_allocated_bytes()

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(SCHEMA, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            self.most = max(self.most, pa.total_allocated_bytes() - self._before)
            if number == self.broken_at:
                raise StorageError("a data file cannot be read")
            keys = range(number * LENGTH, (number + 1) * LENGTH)
            yield pa.record_batch({"k": keys, "text": [f"{key:01000}" for key in keys]}, schema=SCHEMA)


def read_back(path: Path) -> list[int]:
    if path.suffix == ".arrow":
        return pa.ipc.open_file(path).read_all()["k"].to_pylist()
    if path.suffix == ".parquet":
        return pq.read_table(path)["k"].to_pylist()
    if path.suffix == ".csv":
        return pyarrow.csv.read_csv(path)["k"].to_pylist()
    return [int(line.split('"k": ')[1].split(",")[0]) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_file_is_written_in_bounded_memory(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROW_GROUP_BYTES", 2_000_000)
    stream, path = Stream(), tmp_path / f"rows{suffix}"
    assert rows.write_rows(stream.reader(), path) == BATCHES * LENGTH
    assert read_back(path) == list(range(BATCHES * LENGTH))
    assert stream.most < 10_000_000, "half of the 20 MB that all rows take"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    if suffix == ".parquet":
        assert pq.read_metadata(path).num_row_groups == 10, "four batches each"


@pytest.mark.parametrize("suffix", WRITTEN)
def test_an_error_half_way_leaves_what_was_there(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    for before in (None, b"an earlier result"):
        if before is not None:
            path.write_bytes(before)
        with pytest.raises(StorageError, match="a data file cannot be read"):
            rows.write_rows(Stream(broken_at=7).reader(), path)
        assert [entry.read_bytes() for entry in tmp_path.iterdir()] == ([] if before is None else [before])


@pytest.mark.parametrize("suffix", WRITTEN)
def test_no_rows(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    assert rows.write_rows(pa.RecordBatchReader.from_batches(SCHEMA, []), path) == 0
    assert read_back(path) == []


def test_nested_columns_in_csv_leave_no_file(tmp_path: Path) -> None:
    batch = pa.record_batch({"list": [[1, 2]]})
    with pytest.raises(UsageError, match="CSV cannot hold"):
        rows.write_rows(pa.RecordBatchReader.from_batches(batch.schema, [batch]), tmp_path / "rows.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_person_is_shown_the_first_rows_of_all_batches() -> None:
    batches = [pa.record_batch({"k": range(n * 8, n * 8 + 8)}) for n in range(4)]
    to = Console(file=StringIO(), width=80)
    rows.draw_rows(to, pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    drawn = to.file.getvalue().split()
    assert [word for word in drawn if word.isdecimal()][:-2] == [str(n) for n in range(20)]
    assert " ".join(drawn).endswith("32 rows, the first 20 shown")


def test_json_rows_come_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "JSON_ROWS", 3)
    batches = [pa.record_batch({"k": range(7)}), pa.record_batch({"k": range(7, 9)})]
    assert [row["k"] for row in rows.json_rows(batches)] == list(range(9))


def far_times() -> tuple[pa.Schema, pa.RecordBatchReader]:
    """Times before the year 1 and after 9999, as Drill has written them, and usual ones; also in nested columns."""
    days = pa.array([4_881_176, 0, None, -800_000, 2**31 - 1], pa.date32())
    micros = pa.array([253_402_300_800_000_001, 1, None, -(10**17), 2**63 - 1], pa.timestamp("us", "UTC"))
    batch = pa.record_batch(
        {
            "d": days,
            "t": micros,
            "s": pa.StructArray.from_arrays([days, pa.array(range(5))], ["x", "n"]),
            "l": pa.ListArray.from_arrays(range(6), days),
            "m": pa.MapArray.from_arrays(range(6), pa.array(range(5)), days),
            "ns": pa.array([1, 2, None, 3, 4], pa.timestamp("ns")),
        }
    )
    return batch.schema, pa.RecordBatchReader.from_batches(batch.schema, [batch])


def test_times_that_python_does_not_have_are_texts() -> None:
    _, reader = far_times()
    found = list(rows.json_rows(reader))
    texts = ["15334-03-17", "1970-01-01", "None", "-0221-09-04", "2147483647 (date32[day])"]
    assert [str(row["d"]) for row in found] == texts
    assert [str(row["s"]["x"]) for row in found] == texts
    assert [row["s"]["n"] for row in found] == list(range(5))
    assert [[str(one) for one in row["l"]] for row in found] == [[text] for text in texts]
    assert [[(key, str(one)) for key, one in row["m"]] for row in found] == [[pair] for pair in enumerate(texts)]
    assert found[0]["t"] == "10000-01-01 00:00:00.000001Z"
    assert found[4]["t"] == "9223372036854775807 (timestamp[us, tz=UTC])"
    assert str(found[1]["t"]) == "1970-01-01 00:00:00.000001+00:00"


@pytest.mark.parametrize("suffix", WRITTEN)
def test_files_have_such_times(suffix: str, tmp_path: Path) -> None:
    _, reader = far_times()
    chosen = reader.read_all().select(["d", "t"])
    path = tmp_path / f"rows{suffix}"
    assert rows.write_rows(chosen.to_reader(), path) == 5
    to = Console(file=StringIO(), width=200)
    rows.draw_rows(to, chosen.to_reader())
    assert "15334-03-17" in to.file.getvalue()  # type: ignore[attr-defined]


def test_text_that_is_no_utf_8() -> None:
    """A damaged page can hold it: it is shown as far as it is text, also in nested columns."""
    wrong = pa.StringArray.from_buffers(2, pa.array([0, 2, 4], pa.int32()).buffers()[1], pa.py_buffer(b"ok\x80y"))
    batch = pa.record_batch({"s": wrong, "l": pa.ListArray.from_arrays([0, 0, 2], wrong), "n": [1, 2]})
    shown = ["ok", "\\x80y"]
    assert [*rows.json_rows([batch])] == [{"s": "ok", "l": [], "n": 1}, {"s": shown[1], "l": shown, "n": 2}]
