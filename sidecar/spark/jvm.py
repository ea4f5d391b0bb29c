"""Calls classes of Iceberg in the JVM of a Spark session, and turns Java's exceptions into those of pyiceberg."""

from __future__ import annotations

import errno
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    UnauthorizedError,
)

from sidecar.dependencies.pyspark import gateway_of, is_classic, java_context_of, java_exception_of, jvm_of
from sidecar.errors import UnsupportedFeatureError, UsageError

ICEBERG = "org.apache.iceberg"
_LONGEST = 2000
"""Characters of a Java message that are shown."""

_KINDS: dict[str, type[Exception]] = {
    "CommitFailedException": CommitFailedException,
    "CommitStateUnknownException": CommitStateUnknownException,
    "NoSuchTableException": NoSuchTableError,
    "NoSuchIcebergTableException": NoSuchIcebergTableError,
    "NoSuchNamespaceException": NoSuchNamespaceError,
    "NotAuthorizedException": UnauthorizedError,
    "ForbiddenException": ForbiddenError,
    "BadRequestException": BadRequestError,
    "UnsupportedOperationException": NotImplementedError,
}
_FILE_KINDS = {
    "FileNotFoundException": (FileNotFoundError, errno.ENOENT),
    "NotFoundException": (FileNotFoundError, errno.ENOENT),
    "AlreadyExistsException": (FileExistsError, errno.EEXIST),
    "FileAlreadyExistsException": (FileExistsError, errno.EEXIST),
    "AccessControlException": (PermissionError, errno.EACCES),
}


@contextmanager
def java_errors(file: str | None = None) -> Iterator[None]:
    """Raise a Java exception of the block as the exception that pyiceberg, or for a ``file`` Python, has for it.

    pyspark makes Python's exceptions of some and leaves others to py4j, so the Java class decides. Exceptions without
    a counterpart become :class:`OSError`, in one line, without Java's stack.
    """
    try:
        yield
    except Exception as error:
        java = java_exception_of(error)
        if java is None:
            raise
        name = java.getClass().getSimpleName()
        message = str(java.getMessage() or name).partition("\n\tat ")[0]
        reason = textwrap.shorten(message, _LONGEST, placeholder=" ...")  # what a REST server sends may have many lines
        if file is not None and name in _FILE_KINDS:
            kind, number = _FILE_KINDS[name]
            raise kind(number, reason, file) from error
        raise _KINDS.get(name, OSError)(reason) from error


def is_remote(spark: Any) -> bool:
    """Return whether a session is one of Spark Connect, without a JVM to reach.

    Raises :class:`UsageError` for an object that is no session, and for a session that was stopped.
    """
    if not hasattr(spark, "sql") or not hasattr(spark, "catalog"):
        raise UsageError("spark is not a session", expected="a SparkSession", found=type(spark).__name__)
    if not is_classic(spark):
        return True
    if java_context_of(spark).sc().isStopped():  # the JVM lives on, and would still open tables
        raise UsageError("the Spark session was stopped", hint="Start a new one.")
    return False


def iceberg_class(spark: Any, name: str) -> Any:
    """Return a class by its name below ``org.apache.iceberg``.

    Raises :class:`UnsupportedFeatureError` without Iceberg's jar: py4j takes an unknown name for a package.
    """
    found = jvm_of(spark)
    for part in f"{ICEBERG}.{name}".split("."):
        found = getattr(found, part)
    if type(found).__name__ != "JavaClass":
        raise UnsupportedFeatureError(
            f"the Spark session has no class {ICEBERG}.{name}",
            hint="Add org.apache.iceberg:iceberg-spark-runtime to spark.jars.packages.",
        )
    return found


def java_texts(spark: Any, texts: Sequence[str]) -> Any:
    """Return an array of Java's strings."""
    array = gateway_of(spark).new_array(jvm_of(spark).java.lang.String, len(texts))
    for place, text in enumerate(texts):
        array[place] = text
    return array
