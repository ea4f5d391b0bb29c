"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.errors import UsageError

if TYPE_CHECKING:
    from sidecar.crypto.keys import EncryptionKeys

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as namespace.table.")]
Target = Annotated[
    str, typer.Argument(metavar="PATH|TABLE", help="A Parquet, ORC or Puffin file (path or URL), or a table.")
]
Predicate = Annotated[
    str, typer.Argument(metavar="PREDICATE", help='Which rows, such as "l_partkey = 42 and l_tax > 0.07".')
]
Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Name of a catalog in pyiceberg's configuration [pyiceberg's default].",
    ),
]
Snapshot = Annotated[
    int | None,
    typer.Option("--snapshot", metavar="ID", help="Id of a snapshot of the table [the current one]."),
]
Ref = Annotated[
    str | None,
    typer.Option("--ref", metavar="NAME", help="Branch or tag of the table, instead of --snapshot."),
]
KeyPlace = Annotated[
    str | None,
    typer.Option(
        "--encryption-keys",
        metavar="FILE|env:NAME",
        help="Keys of encrypted files: JSON in a file or in an environment variable.",
    ),
]
AllowPlaintext = Annotated[
    bool,
    typer.Option(
        "--allow-plaintext",
        help="Write indexes of encrypted columns in plaintext; whoever reads them learns about the values.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.")]


def is_path(target: str) -> bool:
    """Whether a target names a file: one that exists, or anything with a slash or ``://``."""
    return "/" in target or "://" in target or Path(target).is_file()


def encryption_keys(place: str | None) -> EncryptionKeys | None:
    """The keys that ``--encryption-keys`` names."""
    if place is None:
        return None
    from sidecar.crypto.keys import encryption_keys_from

    return encryption_keys_from(place)


def refuse_table_options(catalog: str | None, snapshot: int | None, ref: str | None) -> None:
    """Raise :class:`UsageError` if an option for tables comes with the path of a file."""
    if catalog is not None or snapshot is not None or ref is not None:
        raise UsageError(
            "--catalog, --snapshot and --ref are for tables, but a path was given",
            hint="A slash, '://' or an existing file of that name makes the argument a path.",
        )


def names(text: str) -> list[str]:
    """The names in a comma-separated list, in order and without repeats."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise UsageError("the list of names is empty", found=repr(text))
    return found


def choice(name: str, values: type[Enum], text: str) -> Any:
    """An option with the values of an enumeration; its help shows them as ``good|always|never``."""
    return typer.Option(name, metavar="|".join(value.value for value in values), help=text)


def rate(text: str) -> float | str:
    """``auto``, or a rate as :func:`fixed_rate` reads it."""
    return text if text == "auto" else fixed_rate(text, "'auto' or ")


def fixed_rate(text: str, otherwise: str = "") -> float:
    """A false-positive rate, written as ``0.01`` or ``1%``."""
    match = re.fullmatch(r"(\d*\.?\d+(?:[eE]-?\d+)?)(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0.0 < value < 1.0:
        raise UsageError(f"--fpp is {otherwise}a rate between 0 and 1, not '{text}'")
    return value
