"""Tells files from tables among the arguments of a command, and says what is wrong with those that are neither."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.options import is_path, refuse_at
from sidecar.errors import StorageError, UsageError

if TYPE_CHECKING:
    pass

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...|TABLE...",
        help="Parquet, ORC and Puffin files (paths, URLs, folders, globs), or tables (globs such as db.* too).",
    ),
]
Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...",
        help="Tables as namespace.table (a part with a dot in backticks), or globs: db.*, db.** with namespaces in it.",
    ),
]
FileArguments = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Parquet, ORC and Puffin files (paths, URLs, folders, globs)."),
]
Into = Annotated[
    str | None,
    typer.Option("--into", metavar="PATH", help="The new file, or the folder of several; no file is ever overwritten."),
]

_COMPARISON = re.compile(r"[=<>]|\s(in|is|not|like|between)\b", re.IGNORECASE)
_BARE_NAME = re.compile(r"(?!(?:true|false)$)[\w.]+", re.IGNORECASE)


def are_paths(targets: Sequence[str], at: str | None = None) -> bool:
    """Whether the targets of a command are files; raise :class:`UsageError` for files and tables at once."""
    paths = [target for target in targets if is_path(target)]
    if not paths:
        return False
    if len(paths) < len(targets):
        table = next(target for target in targets if not is_path(target))
        raise UsageError(
            "a command takes files or tables, not both",
            found=f"the file {paths[0]} and the table {table}",
            hint=f"Write ./{table} if it is a file.",
        )
    refuse_at(paths[0], at)
    return True


def check_there(path: str) -> None:
    """Raise :class:`StorageError` for a name without a slash that is a file by its ending only, and is missing."""
    from sidecar.many_files.find import is_glob

    if "/" not in path and not is_glob(path) and not os.path.lexists(path):
        raise StorageError("no such file", file=path, hint="If it is a table, name its catalog: --catalog NAME.")


def refuse_tables(command: str, paths: Sequence[str], hint: str) -> None:
    """Raise :class:`UsageError`, with ``hint``, for names that are tables and no files or globs of files."""
    from sidecar.many_files.find import is_glob

    for path in paths:
        if not is_path(path) and "." in path and not is_glob(path) and not os.path.lexists(path):
            raise UsageError(f"{command} is for files", found=path, hint=hint.format(path))


def are_several_tables(names: Sequence[str]) -> bool:
    """Whether names are more than one plain table, so that the result is one of many."""
    from sidecar.iceberg.table_names import is_table_glob

    return len(names) > 1 or is_table_glob(names[0])


def one_predicate(command: str, target: str, words: Sequence[str] | None) -> str:
    """The predicate of a command line. Raises :class:`UsageError` for one without quotes, with the line to type."""
    given = list(words or ())
    swapped = len(given) == 1 and not _COMPARISON.search(given[0])
    if swapped and _COMPARISON.search(target) and not os.path.exists(target):
        raise UsageError(
            "the table or file comes first, then the predicate",
            hint=f'Write: sidecar {command} {given[0]} "{target}"',
        )
    if not given:
        raise UsageError("no predicate was given", hint=f'Write it in quotes: sidecar {command} {target} "a = 5"')
    if len(given) > 1:
        raise UsageError(
            "a predicate is one argument",
            found=f"{len(given)} arguments",
            hint=f'Write it in quotes: sidecar {command} {target} "{" ".join(given)}"',
        )
    if _BARE_NAME.fullmatch(given[0]):
        raise UsageError(
            f"'{given[0]}' is not a predicate",
            hint=f'Write all of it in quotes, such as "{given[0]} > 5": without quotes a shell takes > and what '
            "follows for a file to write to.",
        )
    return given[0]


def check_order(targets: Sequence[str], column: str, value: str) -> None:
    """Raise :class:`UsageError` for ``COLUMN PATH VALUE`` and the like, with the line to type."""
    words = [*targets, column, value]
    first = words[0]
    if len(words) != 3 or is_path(first):
        return
    place = next((word for word in words[1:] if is_path(word)), None)
    if place is None and "." not in first and "." in column:
        place = column
    if place is not None:
        rest = [word for word in words if word is not place]
        raise UsageError(
            "the file comes first, then the column and the value",
            hint=f"Write: sidecar probe {' '.join([place, *rest])}",
        )
