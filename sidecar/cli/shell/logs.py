"""Shows log lines of the package and warnings of libraries on stderr while a command runs."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from sidecar.cli.shell.choices import LOG_LEVEL_VARIABLE, LogLevel, SharedChoices, from_variable
from sidecar.errors import visible, without_user_info

PACKAGE = "sidecar"


def level_of(choices: SharedChoices) -> int:
    """The least level that is printed: as ``--log-level`` says, then ``-v``, then the variable.

    ``--quiet`` leaves errors alone.
    """
    if choices.quiet:
        return logging.ERROR
    if choices.log_level is None and choices.verbose:
        return logging.INFO if choices.verbose == 1 else logging.DEBUG
    level = choices.log_level or from_variable(LOG_LEVEL_VARIABLE, LogLevel) or LogLevel.warning
    return int(getattr(logging, level.value.upper()))


def set_levels(choices: SharedChoices) -> None:
    """Set what is printed. Why the first run takes some seconds longer is said in a pipe too, where no progress is."""
    logging.getLogger(PACKAGE).setLevel(level_of(choices))
    is_told = not choices.quiet and not sys.stderr.isatty()
    logging.getLogger("sidecar.kernels").setLevel(logging.INFO if is_told else logging.NOTSET)


@contextmanager
def printed_logs(warn: Callable[[Iterable[str]], None]) -> Iterator[None]:
    """Print log lines of the package, and hand its warnings and those of libraries to ``warn``, until the end."""
    package, handler = logging.getLogger(PACKAGE), _LogPrinter(warn)
    before = package.level, logging.lastResort, warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Print a library's warning as ours: one line, without the place in its source."""
        if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | ResourceWarning):
            warn([without_user_info(next(iter(str(message).splitlines()), category.__name__))])

    package.addHandler(handler)
    logging.lastResort, warnings.showwarning = _LogPrinter(warn, logging.WARNING), show
    try:
        yield
    finally:
        package.removeHandler(handler)
        level, logging.lastResort, warnings.showwarning = before
        package.setLevel(level)
        logging.getLogger("sidecar.kernels").setLevel(logging.NOTSET)


class _LogPrinter(logging.Handler):
    """Prints records: warnings as the warnings of a command are printed, which prints no text twice."""

    def __init__(self, warn: Callable[[Iterable[str]], None], level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record of the package, or the first line of a library's."""
        text = record.getMessage()
        if record.name.partition(".")[0] != PACKAGE:
            text = without_user_info(next(iter(text.splitlines()), record.name))
        if record.levelno >= logging.WARNING:
            self._warn([text])
        else:
            print(f"{record.levelname.lower()}: {visible(text)}", file=sys.stderr)
