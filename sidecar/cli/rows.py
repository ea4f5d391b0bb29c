"""The output of ``sidecar scan``: a file by its extension, JSON lines, or a table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from sidecar.cli import humanize
from sidecar.cli.output import SHOWN, table
from sidecar.cli.shell.forms import ResultRows
from sidecar.cli.shell.json_text import to_json
from sidecar.errors import StorageError, UsageError, visible
from sidecar.storage.target import Target, create_or_replace

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console


JSON_ROWS = 10_000
"""How many rows are Python objects at a time."""

_FAR = 30_000 * 366 * 86_400
"""Seconds from 1970 beyond which Arrow's text of a time is wrong."""

ROW_GROUP_BYTES = 64 << 20
"""Bytes of Arrow data that make a row group of the Parquet file."""


def check_output(path: Path) -> None:
    """Raise :class:`UsageError` if :func:`write_rows` cannot write this file, before any work is done."""
    if path.suffix not in WRITERS:
        raise UsageError(
            f"cannot tell the format of '{path}' from its extension", hint=f"Use one of {', '.join(WRITERS)}."
        )
    if not path.absolute().parent.is_dir():
        is_url = path.parts[0].endswith(":")
        hint = "Rows go to local files only: name one." if is_url else f"Make it first: mkdir -p {path.parent}"
        raise UsageError(f"the folder of '{path}' does not exist", hint=hint)


def write_rows(rows: pa.RecordBatchReader, path: Path) -> int:
    """Write all rows in the format of the file's extension, batch by batch, and return how many there were.

    The file gets its name when it is complete; until then an older file of that name stays.
    """
    try:
        with create_or_replace(str(path)) as target:
            return WRITERS[path.suffix](rows, _Sink(target))
    except OSError as error:
        raise StorageError(f"cannot write: {error.strerror or error}", file=str(path)) from error


def read_rows(rows: pa.RecordBatchReader) -> None:
    """Read all rows and keep none of them."""
    for _ in rows:
        pass


def json_rows(rows: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """One dictionary for each row; at most :data:`JSON_ROWS` are in memory."""
    for batch in rows:
        for start in range(0, batch.num_rows, JSON_ROWS):
            yield from _plain_rows(batch.slice(start, JSON_ROWS))


def _plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dictionary for each row.

    Times that Python does not have, beyond the year 9999 say, are texts. In text that is no UTF-8, as a damaged page
    may have it, bytes are escaped.
    """
    try:
        return batch.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_plain(value) for value in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        import pyarrow as pa

        if isinstance(value, pa.StructScalar):
            return {name: _plain(one) for name, one in value.items()}
        if isinstance(value, pa.MapScalar):
            return [(_plain(entry[0]), _plain(entry[1])) for entry in value.values or ()]
        if isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
            return [_plain(element) for element in value.values or ()]
        if isinstance(value, pa.StringScalar | pa.LargeStringScalar):
            return value.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
        return _time_text(value)


def _time_text(value: Any) -> str:
    """A time as Arrow writes it; in years of more than five digits, which Arrow gets wrong, the number and its type."""
    import pyarrow as pa

    seconds = value.value * 86_400 if pa.types.is_date32(value.type) else _seconds(value)
    return f"{value.value} ({value.type})" if abs(seconds) > _FAR else str(value.cast(pa.string()).as_py())


def _seconds(value: Any) -> int:
    unit = getattr(value.type, "unit", "ms")  # date64 has none
    return int(value.value) // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]


def result_rows(rows: pa.RecordBatchReader) -> ResultRows:
    """All rows for a form of text; at most :data:`JSON_ROWS` are in memory."""
    return ResultRows(rows.schema.names, (list(row.values()) for row in json_rows(rows)))


def draw_rows(to: Console, rows: pa.RecordBatchReader) -> None:
    """Draw the first rows, and how many there are."""
    drawn, count = table(*map(visible, rows.schema.names), right=_numbers(rows.schema)), 0
    for batch in rows:
        for row in _plain_rows(batch.slice(0, max(0, SHOWN - count))):
            drawn.add_row(*(_text(value) for value in row.values()))
        count += batch.num_rows
    if count:
        to.print(drawn, markup=False)
    shown = f", the first {SHOWN} shown" if count > SHOWN else ""
    to.print(f"{humanize.count(count)} {'row' if count == 1 else 'rows'}{shown}")


def _numbers(schema: pa.Schema) -> list[int]:
    import pyarrow.types as t

    kinds = (t.is_integer, t.is_floating, t.is_decimal)
    return [i for i, field in enumerate(schema) if any(kind(field.type) for kind in kinds)]


def _text(value: object) -> Any:
    from rich.text import Text

    if value is None:
        return Text("null", style="dim")
    return Text(value.hex() if isinstance(value, bytes) else visible(str(value)))


class _Sink(RawIOBase):
    """A new file, for libraries that write to Python's file objects."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._target.write(view)
        return view.nbytes


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...


def _write_all(rows: pa.RecordBatchReader, writer: _Writer) -> int:
    count = 0
    for batch in rows:
        writer.write_batch(batch)
        count += batch.num_rows
    return count


def _write_arrow(rows: pa.RecordBatchReader, sink: _Sink) -> int:
    import pyarrow as pa

    with pa.ipc.new_file(sink, rows.schema) as writer:
        return _write_all(rows, writer)


def _write_csv(rows: pa.RecordBatchReader, sink: _Sink) -> int:
    import pyarrow as pa
    import pyarrow.csv

    try:
        with pyarrow.csv.CSVWriter(cast("IO[bytes]", sink), rows.schema) as writer:
            return _write_all(rows, writer)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(
            "CSV cannot hold nested or binary columns", hint="Choose --columns, or write .arrow or .parquet."
        ) from error


def _write_jsonl(rows: pa.RecordBatchReader, sink: _Sink) -> int:
    count = 0
    with TextIOWrapper(BufferedWriter(sink), encoding="utf-8") as text:
        for row in json_rows(rows):
            text.write(to_json(row) + "\n")
            count += 1
    return count


def _row_group_tables(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Tables of :data:`ROW_GROUP_BYTES`, because a row group for each small batch would make many small ones."""
    import pyarrow as pa

    batches, size = list[pa.RecordBatch](), 0
    for batch in rows:
        batches.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _write_parquet(rows: pa.RecordBatchReader, sink: _Sink) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(cast("IO[bytes]", sink), rows.schema) as writer:
        count = 0
        for group in _row_group_tables(rows):
            writer.write_table(group)
            count += group.num_rows
        return count


WRITERS: dict[str, Callable[[pa.RecordBatchReader, _Sink], int]] = {
    ".arrow": _write_arrow,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
