"""``--keys COLUMN=FILE``: the keys of the other side of a join, from the first column of a file.

Parquet and Arrow IPC files must have the type of the column. Keys in CSV files (with a header) and text files (a key a
line) are read like the literals of a predicate. Empty lines are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from sidecar.errors import SidecarError, UsageError, first_line

if TYPE_CHECKING:
    from sidecar.planning.keys.key_sets import Keys

KeyFile = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="COLUMN=FILE",
        help="Only rows with a key in this .parquet, .arrow, .csv (first column) or text file.",
    ),
]


def read_keys(schema: Callable[[], Any], option: str | None) -> dict[str, Keys] | None:
    """The argument ``keys`` of plans and scans.

    ``schema`` returns the schema of the table or file; it is called if the keys are text.

    Raises:
        UsageError: the file or a key in it cannot be read.
    """
    if option is None:
        return None
    column, equals, file = option.partition("=")
    if not (column and equals and file):
        raise UsageError("--keys is COLUMN=FILE", found=repr(option))
    try:
        return {column: _read(schema, column, Path(file))}
    except SidecarError:
        raise
    except (OSError, ValueError, IndexError) as error:  # Arrow's errors are among them
        raise UsageError(f"the keys cannot be read: {first_line(error)}", file=file) from error


def _read(schema: Callable[[], Any], column: str, path: Path) -> Keys:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(path)
        found: Any = parquet.read(columns=[parquet.schema_arrow.names[0]])
        return found.column(0)  # type: ignore[no-any-return]
    if suffix in (".arrow", ".feather", ".ipc"):
        import pyarrow as pa

        with pa.memory_map(str(path)) as source:
            opened: Any = pa.ipc.open_file(source)
            return opened.read_all().column(0)  # type: ignore[no-any-return]
    if suffix == ".csv":
        import csv

        with path.open(newline="", encoding="utf-8") as lines:
            rows = csv.reader(lines)
            next(rows, None)
            return _literals(schema(), column, (row[0] for row in rows if row))
    return _literals(schema(), column, path.read_text(encoding="utf-8").splitlines())


def _literals(schema: Any, name: str, texts: Iterable[str]) -> Keys:
    import pyarrow as pa

    from sidecar.iceberg.predicates.literals import exact_value, find_column
    from sidecar.planning.keys.key_sets import arrow_type

    column = find_column(schema, name)
    kind: Any = arrow_type(column.type)
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    values = [exact_value(text, column) for text in texts if text]
    plain = [value.bytes if isinstance(value, UUID) else value for value in values]
    storage = kind
    if pa.types.is_temporal(kind):
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    keys: Any = pa.array(plain, storage)
    found: Keys = keys.view(kind)
    return found
