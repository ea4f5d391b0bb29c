"""Arguments and options that several commands share."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from sidecar.cli.output import output
from sidecar.cli.shell.choices import choice
from sidecar.errors import UsageError
from sidecar.results.choices import BuildEngine
from sidecar.storage.locations import local_path
from sidecar.storage.stores import store_io, store_setting_names, store_settings

if TYPE_CHECKING:
    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.iceberg.engine_catalog import EngineCatalog
    from sidecar.results import ConvertReport, EmbedTableReport, ExtractReport, Verification, WrittenFiles

RanSomewhere: TypeAlias = "ConvertReport | EmbedTableReport | ExtractReport | Verification | WrittenFiles"
"""A result that says where the work ran, and why there."""

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as namespace.table; a part with a dot in backticks.")
]
Predicate = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PREDICATE",
        help='Which rows, in quotes, such as "l_partkey = 42 and l_tax > 0.07". Required.',
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="SNAPSHOT", help="A branch, a tag or the id of a snapshot [the current snapshot]."),
]
KeyPlace = Annotated[
    str | None,
    typer.Option(
        "--encryption-keys",
        metavar="FILE|env:NAME",
        help="Keys of encrypted files: JSON in a file or in an environment variable.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be read and written, and write nothing.")]
AllowPlaintext = Annotated[
    bool,
    typer.Option(
        "--allow-plaintext",
        help="Write indexes of encrypted columns in plaintext; whoever reads them learns about the values.",
    ),
]
_PATHS = (
    "Leave the option out. A slash, '://', an ending such as .parquet, or a file of that name makes the argument a "
    "path; a table is namespace.table, a part with such a sign in backticks."
)
QUOTES = '`"'
"""Around a part of a table's name that has a dot or another character with a meaning."""


EngineOption = Annotated[
    BuildEngine | None,
    choice(
        "--engine",
        BuildEngine,
        "Where data files are read [auto]: on Spark; in this process if there is little to read or Java is missing.",
        variable="SIDECAR_ENGINE",
    ),
]


def not_on_spark(chosen: BuildEngine | None, result: RanSomewhere) -> list[str]:
    """The warning of a command that was to run on Spark and did not."""
    if chosen != "spark" or result.engine in ("spark", None):
        return []
    return [f"it ran in this process, not on Spark: {result.engine_reason}"]


def engine_fact(result: RanSomewhere) -> list[tuple[str, str]]:
    """The line that names Spark, for what ran there."""
    return [("engine", f"spark ({result.engine_reason})")] if result.engine == "spark" else []


def is_path(target: str) -> bool:
    """Whether a target names a file or folder: it has a slash or ``://``, is there, or ends as data files do.

    With ``--catalog`` or ``--spark-catalog``, a name such as ``db.stats`` is a table unless such a file is there. So is
    a name with a part in quotes (``db.`stats```), whatever is in the quotes.
    """
    if os.path.exists(target):
        return True
    if any(quote in target for quote in QUOTES):
        from sidecar.iceberg.table_names import is_quoted_name

        if is_quoted_name(target):
            return False
    if "/" in target:
        return True
    from sidecar.many_files.find import has_data_ending

    choices = output().choices
    return choices.catalog is None and choices.spark_catalog is None and has_data_ending(target)


def encryption_keys(place: str | None) -> EncryptionKeys | None:
    """The keys that ``--encryption-keys`` names."""
    if place is None:
        return None
    from sidecar.crypto.keys import encryption_keys_from

    return encryption_keys_from(place)


def opened_table(name: str) -> Any:
    """The table of that name, in the catalog of ``--catalog`` or of ``--spark-catalog``."""
    from sidecar import open_table

    return open_table(name, chosen_catalog(), **storage_options(output().choices.storage))


def chosen_catalog() -> EngineCatalog | str | None:
    """The catalog of ``--spark-catalog``, opened by a session of Spark's configuration; else the name of another one.

    Raises :class:`UsageError` for both options at once, for settings that are none, and for a catalog that is unknown.
    """
    choices = output().choices
    if choices.spark_catalog is None:
        return choices.catalog_or_variable
    if choices.catalog is not None:
        raise UsageError("--catalog and --spark-catalog are two places for one table", hint="Give one of them.")
    for text in choices.conf:
        if not text.partition("=")[1] or text.startswith("="):
            raise UsageError("--conf is KEY=VALUE", found=text if text.startswith("spark.") else "another text")
    from sidecar.spark.catalog import open_spark_catalog
    from sidecar.spark.session import configured_session

    settings = dict(text.split("=", 1) for text in choices.conf)
    return open_spark_catalog(configured_session(settings), choices.spark_catalog, **storage_options(choices.storage))


def refuse_at(path: str, at: str | None) -> None:
    """Raise :class:`UsageError` if ``--at`` comes with the path of a file."""
    if at is not None:
        raise UsageError("--at is for tables, but a path was given", found=path, hint=_PATHS)


def storage_for(*paths: str | Sequence[str] | None, beside_table: bool = False) -> Any:
    """The FileIO for the URLs among paths, by ``--catalog`` and ``--storage-option``; ``None`` leaves it to variables.

    Raises :class:`UsageError` for a setting that pyiceberg does not have, and for options without a URL that needs
    them, unless there is a table beside the paths.
    """
    choices = output().choices
    every = [one for path in paths if path is not None for one in ([path] if isinstance(path, str) else path)]
    urls = [path for path in every if local_path(path) is None]
    if not urls:
        given = {
            "--catalog": choices.catalog is not None,
            "--storage-option": bool(choices.storage),
            "--spark-catalog": choices.spark_catalog is not None,
        }
        if not beside_table and any(given.values()):
            option = next(name for name, is_given in given.items() if is_given)
            raise UsageError(
                f"{option} is for tables and URLs, but a local path was given", found=every[0], hint=_PATHS
            )
        return None
    catalog = choices.catalog_or_variable
    if catalog is None and not choices.storage:
        return None
    from sidecar.iceberg.catalog import open_catalog

    lent = {} if catalog is None else dict(open_catalog(catalog).properties)
    settings = {**lent, **storage_options(choices.storage)}
    accounts = {store_settings(url, settings).get("adls.account-name") for url in urls} - {None}
    if len(accounts) > 1:  # one client would read the files of the first in place of the others
        raise UsageError("the files are in several accounts", found=", ".join(sorted(map(str, accounts))))
    return store_io(urls[0], settings)


def storage_options(texts: Sequence[str]) -> dict[str, str]:
    """The settings of ``--storage-option``. Errors do not show a value, which may be a secret."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError("--storage-option is KEY=VALUE", found=name if "." in name[:6] else "another text")
        known = store_setting_names()
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "Names are pyiceberg's, such as s3.endpoint."
            raise UsageError(f"there is no storage option '{name}'", hint=hint)
        found[name] = value
    return found


def names(text: str) -> list[str]:
    """The names in a comma-separated list, in order and without repeats; a comma in a name is ``%2C``."""
    from sidecar.iceberg.resolve import listed_names

    found = list(dict.fromkeys(listed_names(text)))
    if not found:
        raise UsageError("the list of names is empty", found=repr(text))
    return found


def rate(text: str) -> float | Literal["auto"]:
    """``auto``, or a rate as :func:`fixed_rate` reads it."""
    return "auto" if text == "auto" else fixed_rate(text, "'auto' or ")


def fixed_rate(text: str, otherwise: str = "") -> float:
    """A false-positive rate, written as ``0.01`` or ``1%``."""
    match = re.fullmatch(r"(\d*\.?\d+(?:[eE]-?\d+)?)(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0.0 < value < 1.0:
        raise UsageError(f"--fpp is {otherwise}a rate between 0 and 1, not '{text}'")
    return value
