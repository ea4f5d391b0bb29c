"""Every error that sidecar raises, by whose move is next.

    SidecarError
    ├── DamagedFileError         the file is broken: replace it, or rebuild the index
    │   └── WrongChecksumError   the bytes of a page are broken: no other way of reading has its rows
    ├── UnsupportedFeatureError  the file is sound, but uses what sidecar does not know: use another tool
    ├── UsageError               the call is wrong: change the call (CLI exit code 2)
    ├── StorageError             storage failed: try again, check credentials and paths
    └── CommitConflictError      another commit came between: look at the table, then try again

A message has place and numbers: file, column, offset, expected, found, and what to do now.
No message ever holds a secret, a key or the properties of a catalog.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypedDict

_JOINERS = "\u200c\u200d"
"""Format characters that scripts and emoji need, and that move nothing."""


def visible(text: str) -> str:
    """``text`` with control characters, line breaks and marks of direction written as escapes such as ``\\x1b``.

    Names and values come out of files and may hold what a terminal obeys.
    """
    if text.isprintable():
        return text
    return "".join(_escape(one) if is_hidden(one) else one for one in text)


def is_hidden(character: str) -> bool:
    """Whether a character is not shown but does something: controls (C0, C1), directions, line ends, surrogates."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class SidecarError(Exception):
    """Root of all errors of sidecar.

    ``what`` is one sentence; the keyword parts are optional, kept as attributes, and appended to the
    message in a fixed order, so that programs can read them and people see them.
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        column: str | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.what = what
        self.file = file
        self.column = column
        self.offset = offset
        self.expected = expected
        self.found = found
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        for name in ("file", "column", "offset", "expected", "found"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name} {value}")
        text = "; ".join(parts)
        return visible(f"{text}. {self.hint}" if self.hint else text)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword parts when the error crosses a process (Spark workers, pools)."""
        return _rebuild, (type(self), self.what, {k: v for k, v in vars(self).items() if k != "what"})


def _rebuild(cls: type[SidecarError], what: str, parts: dict[str, object]) -> SidecarError:
    error = cls(what)
    vars(error).update(parts)
    return error


class DamagedFileError(SidecarError):
    """Bytes contradict the format: truncated, bit-flipped, foreign, wrong checksum."""


class WrongChecksumError(DamagedFileError):
    """The bytes of a Parquet page differ from those that its checksum was computed from."""


class UnsupportedFeatureError(SidecarError):
    """A feature, version, codec or encoding that sidecar does not know."""


class UsageError(SidecarError):
    """A wrong call: no such column, a literal that does not fit, a missing table."""


class StorageError(SidecarError):
    """The storage below failed: missing file, no permission, network."""


class CommitConflictError(SidecarError):
    """Another commit came between and trying again did not help."""


@contextmanager
def located(file: str, column: str | None = None, offset: int | None = None) -> Iterator[None]:
    """Give errors raised inside the file, column and offset that they do not have yet."""
    try:
        yield
    except SidecarError as error:
        error.file = error.file or file
        error.column = error.column or column
        error.offset = offset if error.offset is None else error.offset
        raise


class Problem(TypedDict):
    """A defect that ``verify`` finds, as it reports it.

    ``unit`` is the row group (of ORC counted over the whole file). ``None`` stands for more than one row group or
    column, and for a file that is missing.
    """

    file: str | None
    unit: int | None
    column: str | None
    problem: str


def problem_in(file: str | None, text: str, column: str | None = None, unit: int | None = None) -> Problem:
    """The defect that ``text`` describes."""
    return {"file": file, "unit": unit, "column": column, "problem": text}


def first_line(error: BaseException) -> str:
    """First line of a foreign error, cut to a length that fits into a report."""
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return text[:200]


def foreign_reason(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """The kind and first line of a foreign error: enough to act on, and short.

    ``clean`` takes secrets out of the line, before it is cut.
    """
    first = clean(next(iter(str(error).splitlines()), ""))[:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


reraise_foreign = False
"""Whether :func:`advisory` raises foreign errors again. Tests set it, so that a bug does not pass as a warning."""


def advisory(error: Exception) -> str:
    """The text for a warning or a doubt that takes the place of an error, because no query may fail for it."""
    if isinstance(error, SidecarError):
        return str(error)
    if reraise_foreign:
        raise error
    return foreign_reason(error)


@contextmanager
def enough_memory() -> Iterator[None]:
    """Turn a lack of memory into an :class:`UnsupportedFeatureError`; also a decorator of functions that read files."""
    try:
        yield
    except MemoryError as error:
        raise UnsupportedFeatureError(
            "there is not enough memory for what the file asks for",
            hint="Choose fewer columns, or give it more memory.",
        ) from error
