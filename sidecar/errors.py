"""All errors that sidecar raises, grouped by what the caller can do about them.

    SidecarError
    ├── DamagedFileError         the file is broken: replace it, or rebuild the index
    │   └── WrongChecksumError   the bytes of a page are broken: no other way of reading has its rows
    ├── UnsupportedFeatureError  the file is sound, but sidecar does not know a feature of it: use another tool
    ├── UsageError               the call is wrong: change the call (CLI exit code 2)
    ├── StorageError             storage failed: try again, check credentials and paths
    └── CommitConflictError      another commit was faster: look at the table, then try again

Messages name the place and the numbers: file, column, offset, expected, found, and what to do next.
A message never holds a secret, a key or the properties of a catalog.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from sidecar.results.base import Result

_JOINERS = "\u200c\u200d"
"""Format characters that scripts and emoji need. They do not change how a terminal shows other text."""


_LACKS = re.compile(
    r"not (yet |currently )?(supported|implemented)|unsupported|unknown encoding|would (lose|result)", re.IGNORECASE
)

CATALOG_VARIABLE = "SIDECAR_CATALOG"
"""The variable with the catalog of commands without ``--catalog``; commands in hints need not name that catalog."""


def without_credentials(url: str) -> str:
    """Return a URL without its password and its query, which may be a signature; a local path is returned as it is."""
    if "://" not in url or url[:5].lower() == "file:":
        return url
    return re.sub("(?<=://)[^@/]*@", "", url.partition("?")[0])


def visible(text: str) -> str:
    """Return ``text`` with control characters, line breaks and direction marks as escapes such as ``\\x1b``.

    Names and values come out of files and may hold what a terminal obeys.
    """
    if text.isprintable():
        return text
    return "".join(_escape(one) if is_hidden(one) else one for one in text)


def is_hidden(character: str) -> bool:
    """Whether a character is invisible but has an effect: control (C0, C1), direction, line end or surrogate."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class SidecarError(Exception):
    """Root of all errors of sidecar.

    ``what`` is one sentence; the keyword parts are optional, kept as attributes, and appended to the
    message in a fixed order, so that programs can read them and people see them.
    """

    kind: ClassVar[str] = "error"
    """The class in one word, as JSON names it."""

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
                parts.append(f"{name} {without_credentials(value) if name == 'file' else value}")
        text = "; ".join(parts)
        return visible(f"{text}. {self.hint}" if self.hint else text)

    def to_dict(self) -> dict[str, Any]:
        """Return ``kind``, ``message`` (the sentence alone) and the parts that are known, for JSON."""
        parts = ("file", "column", "offset", "expected", "found", "hint")
        known = {name: _plain(getattr(self, name)) for name in parts if getattr(self, name) is not None}
        if self.file is not None:
            known["file"] = without_credentials(self.file)
        return {"kind": self.kind, "message": self.what, **known}

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword parts when the error crosses a process (Spark workers, pools)."""
        return _rebuild, (type(self), self.what, {k: v for k, v in vars(self).items() if k != "what"})


def _plain(part: object) -> object:
    """Return a part of an error as JSON knows it: bytes as hexadecimal digits, other objects as text."""
    if isinstance(part, bytes):
        return part.hex()
    return part if isinstance(part, bool | int | str) else str(part)


def _rebuild(cls: type[SidecarError], what: str, parts: dict[str, object]) -> SidecarError:
    error = cls(what)
    vars(error).update(parts)
    return error


class DamagedFileError(SidecarError):
    """Bytes contradict the format: truncated, bit-flipped, foreign, wrong checksum."""

    kind = "damaged-file"


class WrongChecksumError(DamagedFileError):
    """The bytes of a Parquet page differ from those that its checksum was computed from."""


class UnsupportedFeatureError(SidecarError):
    """A feature, version, codec or encoding that sidecar does not know."""

    kind = "unsupported"


class UsageError(SidecarError):
    """The call is wrong: an unknown column, a literal that does not fit, a missing table."""

    kind = "usage"


class StorageError(SidecarError):
    """The storage failed: missing file, no permission, network."""

    kind = "storage"


class CommitConflictError(SidecarError):
    """Another commit was faster, and a new attempt did not help."""

    kind = "conflict"


@contextmanager
def located(file: str | None, column: str | None = None, offset: int | None = None) -> Iterator[None]:
    """Add file, column and offset to errors raised inside the block, where an error does not name them itself."""
    try:
        yield
    except SidecarError as error:
        error.file = error.file or file
        error.column = error.column or column
        error.offset = offset if error.offset is None else error.offset
        raise


def refuse_text(**lists: object) -> None:
    """Raise :class:`UsageError` for each text where a list of texts belongs: its characters would be taken for names.

    The keywords are the parameters of the caller.
    """
    for name, value in lists.items():
        if isinstance(value, str):
            parts = [value] if "/" in value else [part.strip() for part in value.split(",")]
            raise UsageError(f"{name} is a list of texts, not one text", hint=f"Write {name}={parts!r}.")


@dataclass(frozen=True, slots=True)
class Problem(Result):
    """A defect that ``verify`` finds."""

    file: str | None
    """The file with the defect; ``None`` if it is missing."""
    unit: int | None
    """The row group, in ORC files counted over the whole file; ``None`` for more than one."""
    column: str | None
    """The dotted path of the column; ``None`` for more than one."""
    problem: str
    """The defect in words."""


def problem_in(file: str | None, text: str, column: str | None = None, unit: int | None = None) -> Problem:
    """The defect that ``text`` describes."""
    return Problem(file, unit, column, text)


def reason_of(error: SidecarError) -> str:
    """Return an error as one line, without file and column, which the answer names elsewhere."""
    parts = (("expected", error.expected), ("found", error.found))
    return "; ".join([error.what, *(f"{name} {value}" for name, value in parts if value is not None)])


def reason_at(error: SidecarError | None) -> str:
    """Return an error as one line with its offset, so that all checks use the same words; empty without an error."""
    where = "" if error is None or error.offset is None else f" (offset {error.offset})"
    return "" if error is None else reason_of(error) + where


def column_hint(name: str, paths: Sequence[str]) -> str:
    """Return a hint for the unknown column ``name``: the leaves below it or with similar paths, else all ``paths``."""
    import difflib

    near = [path for path in paths if path.startswith(f"{name}.")] or difflib.get_close_matches(name, paths)
    return f"Did you mean {' or '.join(near[:5])}?" if near else f"It has: {', '.join(paths[:20])}."


def undecodable(what: str, error: Exception, **place: Any) -> SidecarError:
    """Return the error for what a library cannot decode; ``place`` has the parts of the error.

    The file is not damaged if the library says that it lacks something.
    """
    text = without_user_info(first_line(error))
    lacks = isinstance(error, NotImplementedError) or _LACKS.search(text)
    return (UnsupportedFeatureError if lacks else DamagedFileError)(f"{what}: {text}", **place)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, cut to 200 characters."""
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return text[:200]


_USER_INFO = re.compile(r"[^\s/:@'\"]*:[^\s/:@'\"]+@")
_URL_USER = re.compile(r"(?<=://)[^@/\s]+@")
_SECRET_KEYS = re.compile(r"secret|token|password|credential|key|signer|auth|uri", re.IGNORECASE)


def without_user_info(text: str) -> str:
    """Return a text of another library without user names that have passwords (``user:password@host``)."""
    return _USER_INFO.sub("***@", text)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what led to it, even if a traceback would hide it. Some libraries' causes are a circle."""
    seen = set[int]()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def redact(text: str, properties: Mapping[str, Any]) -> str:
    """Remove user info in URLs and the values of properties that may be secret from ``text``."""
    for key, value in properties.items():
        if isinstance(value, str) and len(value) > 3 and _SECRET_KEYS.search(key):
            text = text.replace(value, "***")
    return _URL_USER.sub("***@", text)


def foreign_reason(error: BaseException, secrets: Mapping[str, Any] | None = None) -> str:
    """Return the class and the first line of another library's error.

    User names with passwords (``user:password@host``) are removed; so is what :func:`redact` finds of the properties
    ``secrets``, before the line is cut to 200 characters.
    """
    line = next(iter(str(error).splitlines()), "")
    first = without_user_info(line if secrets is None else redact(line, secrets))[:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


reraise_foreign = False
"""Whether :func:`advisory` raises foreign errors again. Tests set it, so that a bug does not pass as a warning."""


def advisory(error: Exception) -> str:
    """The text for a warning that takes the place of an error, because no query may fail for it."""
    if isinstance(error, SidecarError):
        return str(error)
    if reraise_foreign:
        raise error
    return foreign_reason(error)


@contextmanager
def enough_memory() -> Iterator[None]:
    """Turn a MemoryError into an :class:`UnsupportedFeatureError`. Also a decorator for functions that read files."""
    try:
        yield
    except MemoryError as error:
        raise UnsupportedFeatureError(
            "there is not enough memory for what the file asks for",
            hint="Choose fewer columns, or give it more memory.",
        ) from error
