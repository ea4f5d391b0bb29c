"""The options that every command has, before or after the command's name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args

import typer
from typer.models import OptionInfo

from sidecar.errors import CATALOG_VARIABLE, UsageError


class OutputFormat(str, Enum):
    """How a result is printed."""

    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"
    markdown = "markdown"


ROWS_ALONE = (OutputFormat.csv, OutputFormat.markdown)
"""Forms that only commands with rows have."""


class LogLevel(str, Enum):
    """The least level of the log lines that go to stderr."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


_Choice = TypeVar("_Choice", bound=Enum)
FORMAT_VARIABLE, LOG_LEVEL_VARIABLE = "SIDECAR_FORMAT", "SIDECAR_LOG_LEVEL"


@dataclass(frozen=True)
class SharedChoices:
    """What the user gave for the options that every command has; ``None``, false and zero mean: not given."""

    form: OutputFormat | None = None
    quiet: bool = False
    verbose: int = 0
    log_level: LogLevel | None = None
    catalog: str | None = None
    storage: tuple[str, ...] = ()
    """Settings of object stores, each as ``KEY=VALUE``."""
    spark_catalog: str | None = None
    conf: tuple[str, ...] = ()
    """Settings of Spark, each as ``KEY=VALUE``."""

    @property
    def catalog_or_variable(self) -> str | None:
        """The catalog of ``--catalog``, else that of the variable."""
        return os.environ.get(CATALOG_VARIABLE) or None if self.catalog is None else self.catalog

    def over(self, earlier: SharedChoices) -> SharedChoices:
        """Return these choices, and where nothing was given after the command's name, those before it."""
        return SharedChoices(
            self.form or earlier.form,
            self.quiet or earlier.quiet,
            self.verbose or earlier.verbose,
            self.log_level or earlier.log_level,
            earlier.catalog if self.catalog is None else self.catalog,
            self.storage or earlier.storage,
            self.spark_catalog,
            self.conf,
        )


def choice(name: str, values: Any, text: str, variable: str | None = None) -> OptionInfo:
    """An option with the values of a ``Literal`` or an enumeration; its help shows them as ``good|always|never``."""
    known = getattr(values, "__members__", None) or get_args(values)
    info: OptionInfo = typer.Option(name, metavar="|".join(known), help=text, envvar=variable, show_envvar=False)
    return info


def _options(
    form: Annotated[OutputFormat | None, choice("--format", OutputFormat, "How to print the result.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, like --format json.")] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print no progress, warnings and notes on stderr, only errors."),
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Log what is done to stderr; -vv logs the details.",
        ),
    ] = 0,
    log_level: Annotated[LogLevel | None, choice("--log-level", LogLevel, "Log to stderr from this level on.")] = None,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="NAME",
            help="Name of a catalog in pyiceberg's configuration [pyiceberg's default]. URLs are opened as it says.",
        ),
    ] = None,
    storage: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option",
            metavar="KEY=VALUE",
            help="A setting for URLs of object stores, such as s3.endpoint=http://localhost:9000; may be repeated.",
        ),
    ] = None,
    spark_catalog: Annotated[
        str | None,
        typer.Option(
            "--spark-catalog",
            metavar="NAME",
            help="Name of a catalog in Spark's configuration (spark-defaults.conf, --conf), which opens the tables.",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="With --spark-catalog: a setting of Spark; may be repeated."),
    ] = None,
) -> SharedChoices:
    """What the options say together."""
    if as_json and form not in (None, OutputFormat.json):
        raise UsageError("--json is --format json", found=f"--format {form.value}")
    chosen = OutputFormat.json if as_json else form
    if conf and spark_catalog is None:
        raise UsageError("--conf has settings of Spark for --spark-catalog, which is not given")
    return SharedChoices(
        chosen, quiet, verbose, log_level, catalog, tuple(storage or ()), spark_catalog, tuple(conf or ())
    )


def from_variable(variable: str, values: type[_Choice]) -> _Choice | None:
    """Return the value of a variable, ``None`` if it is not set. Raises :class:`UsageError` for an unknown value."""
    text = os.environ.get(variable)
    if text and text not in values.__members__:
        raise UsageError(
            f"the variable {variable} has an unknown value", expected=" or ".join(values.__members__), found=text
        )
    return values(text) if text else None


def form_in(args: list[str]) -> OutputFormat | None:
    """The form that a command line asks for, for errors of a line that cannot be parsed."""
    if "--json" in args:
        return OutputFormat.json
    for option, value in zip(args, [*args[1:], ""], strict=False):
        text = value if option == "--format" else option.removeprefix("--format=")
        if option.startswith("--format") and text in OutputFormat.__members__:
            return OutputFormat(text)
    return None


_PARAMETERS = [
    parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    for parameter in inspect.signature(_options, eval_str=True).parameters.values()
]
_CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def with_shared_options(
    command: Callable[..., Any],
    start: Callable[[typer.Context, SharedChoices, list[str]], object],
    *,
    catalog: bool = False,
) -> Callable[..., Any]:
    """``command`` with the options that every command has, and ``--catalog`` if it takes files or tables.

    ``catalog`` says so of a command whose arguments do not. Commands that take files have ``--storage-option`` too, and
    those that take tables ``--spark-catalog``.

    Before the command runs, ``start`` gets the context, what was chosen, and the files or tables that the arguments
    name.
    """
    # Not by get_type_hints: Python 3.10 puts Optional around an Annotated whose default is None, and hides arguments.
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    metavars = {parameter.name: argument_metavar(parameter.annotation) for parameter in own}
    takes_files = any(word in metavar for metavar in metavars.values() for word in _FILES)
    takes_tables = any("TABLE" in metavar for metavar in metavars.values())
    takes = catalog or takes_files or takes_tables
    taken = {"catalog": takes, "storage": takes_files, "spark_catalog": takes_tables, "conf": takes_tables}
    left_out = {name for name, is_taken in taken.items() if not is_taken}
    shared = [parameter for parameter in _PARAMETERS if parameter.name not in left_out]

    @wraps(command)
    def run(context: typer.Context, **given: Any) -> Any:
        chosen = _options(**{one.name: given.pop(one.name) for one in shared})
        if not takes and context.obj is not None and context.obj.catalog is not None:
            raise UsageError("--catalog is for commands that take files or a TABLE", found=command.__name__)
        start(context, chosen, _targets(given, metavars))
        return command(**given)

    everything = [*own, *shared, _CONTEXT]
    run.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in everything}
    return run


def argument_metavar(hint: Any) -> str:
    """The word for an argument in the help, such as ``PATH|TABLE``; empty for an option."""
    for info in getattr(hint, "__metadata__", ()):
        if isinstance(info, typer.models.ArgumentInfo):
            return str(info.metavar)
    return ""


def _targets(given: dict[str, Any], metavars: dict[str, str]) -> list[str]:
    """The files and tables that a command is about: its first argument, which may be a list."""
    for name, metavar in metavars.items():
        if metavar and not metavar.startswith(_NO_TARGETS):
            value = given[name]
            return [] if value is None else [value] if isinstance(value, str) else list(value)
    return []


_FILES = ("PATH", "FILE", "SRC")
"""Words of arguments that are files."""
_NO_TARGETS = ("NAME",)
"""Arguments that are no file and no table."""
