"""Reads the values that ``find`` looks for from ``COLUMN=VALUE`` texts, or from a file of values."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from sidecar.errors import UsageError, first_line, located


def conditions_from(texts: Sequence[str], values_file: str | None = None) -> dict[str, list[str]]:
    """Return the values by column that ``COLUMN=VALUE`` texts name.

    With ``values_file`` and the name of one column, each line of the file is a value. Without a name, the file is CSV,
    and its first line names the columns. Empty values are skipped. Raises :class:`UsageError` for a text without ``=``
    and for a file that cannot be read or is empty.
    """
    if values_file is None and not texts:
        raise UsageError("no value was given", hint="Write COLUMN=VALUE, or --values FILE.")
    if values_file is None:
        found: dict[str, list[str]] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise UsageError("a condition is not COLUMN=VALUE", found=text)
            found.setdefault(name, []).append(value)
        return found
    if len(texts) > 1:
        raise UsageError("with a file of values, at most the name of one column is given", found=" ".join(texts))
    try:
        text = Path(values_file).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read the file of values", file=values_file, found=first_line(error)) from error
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    with located(values_file):
        columns = {texts[0]: lines} if texts else _columns_of(text)
    found = {name: [value for value in values if value] for name, values in columns.items()}
    if not any(found.values()):
        raise UsageError("the file of values is empty", file=values_file)
    return {name: values for name, values in found.items() if values}


def _columns_of(text: str) -> dict[str, list[str]]:
    """Return the values by column of a CSV file, whose first line names the columns.

    Blanks belong to a value (RFC 4180). A quote that is not closed would make one value of all lines after it, and one
    after a blank would be part of the value: no row has such values, so both are errors.
    """
    lines = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        header, *rows = list(lines) or [[]]
    except csv.Error as error:
        raise UsageError(f"line {lines.line_num} is no CSV", found=first_line(error)) from error
    names = [name.strip() for name in header]
    for number, row in enumerate([header, *rows], 1):
        for value in row:
            if value[:1].isspace() and value.lstrip().startswith('"'):
                hint = "Take the blank away. A value that begins so is asked for as COLUMN=VALUE."
                raise UsageError(f"line {number} has a blank before a quote", found=value, hint=hint)
    if not all(names) or len(set(names)) != len(names):
        raise UsageError("the first line of a file of values names each column once", found=",".join(header))
    for number, row in enumerate(rows, 2):
        if row and len(row) != len(names):
            raise UsageError(f"line {number} has not the fields of the first one", expected=len(names), found=len(row))
    return {name: [row[at] for row in rows if row] for at, name in enumerate(names)}
