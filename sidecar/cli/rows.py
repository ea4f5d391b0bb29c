"""Rows that leave by ``sidecar scan``: a file by its extension, JSON lines, or a table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecar.cli import humane
from sidecar.cli.output import table, to_json
from sidecar.errors import StorageError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

SHOWN_ROWS = 20
"""Rows that a person is shown; JSON and files get all."""


def check_output(path: Path) -> None:
    """Refuse a file name that :func:`write_rows` could not serve, before any work is done."""
    if path.suffix not in WRITERS:
        raise UsageError(
            f"cannot tell the format of '{path}' from its extension", hint=f"Known are {', '.join(WRITERS)}."
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(f"the folder of '{path}' does not exist")


def write_rows(rows: pa.Table, path: Path) -> None:
    """Write all rows in the format of the file's extension."""
    try:
        WRITERS[path.suffix](rows, path)
    except OSError as error:
        raise StorageError(f"cannot write: {error.strerror or error}", file=str(path)) from error


def json_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """One dictionary a row, batch by batch."""
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def draw_rows(to: Console, rows: pa.Table) -> None:
    """The first rows, and how many there are."""
    drawn = table(*rows.column_names, right=_numbers(rows.schema))
    for row in rows.slice(0, SHOWN_ROWS).to_pylist():
        drawn.add_row(*(_text(value) for value in row.values()))
    if rows.num_rows:
        to.print(drawn, markup=False)
    shown = f", the first {SHOWN_ROWS} shown" if rows.num_rows > SHOWN_ROWS else ""
    to.print(f"{humane.count(rows.num_rows)} {'row' if rows.num_rows == 1 else 'rows'}{shown}")


def _numbers(schema: pa.Schema) -> list[int]:
    import pyarrow.types as t

    kinds = (t.is_integer, t.is_floating, t.is_decimal)
    return [i for i, field in enumerate(schema) if any(kind(field.type) for kind in kinds)]


def _text(value: Any) -> Any:
    from rich.text import Text

    if value is None:
        return Text("null", style="dim")
    return Text(value.hex() if isinstance(value, bytes) else str(value))


def _write_arrow(rows: pa.Table, path: Path) -> None:
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)


def _write_csv(rows: pa.Table, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv

    try:
        pyarrow.csv.write_csv(rows, path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(
            "CSV cannot hold nested or binary columns", hint="Choose --columns, or write .arrow or .parquet."
        ) from error


def _write_jsonl(rows: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as sink:
        for row in json_rows(rows):
            sink.write(to_json(row) + "\n")


def _write_parquet(rows: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(rows, path)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".arrow": _write_arrow,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
