"""Commits to tables of a Hadoop catalog on a local disk so that no commit of another process is replaced.

Iceberg looks whether the next version of the metadata is there, and then renames a file to it. In HDFS a rename fails
where the name is taken; on a local disk it replaces, and a version that another process has just put there is lost,
with its rows. A link to a name that is taken fails on both. So the new version gets its name by a link, under the lock
that Iceberg holds against other threads of the same JVM.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from contextlib import suppress
from typing import Any

from pyiceberg.exceptions import CommitFailedException

from sidecar.spark.jvm import ICEBERG, iceberg_class, java_errors
from sidecar.storage.locations import local_path

_VERSION = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)
"""Errors of file systems that have no links."""


def commit_by_link(spark: Any, table: Any, base: Any, updated: Any) -> bool:
    """Commit the next version of a Java table, if it is one of a Hadoop catalog on a local disk; else return ``False``.

    Raises :class:`CommitFailedException` if there is such a version already, or another one has taken its place.
    """
    operations, location = table.operations(), str(base.metadataFileLocation())
    folder, _, name = location.rpartition("/")
    version = _VERSION.fullmatch(name)
    is_hadoop = operations.getClass().getName() == f"{ICEBERG}.hadoop.HadoopTableOperations"
    place = local_path(folder)
    if not is_hadoop or version is None or place is None or updated.location() != base.location():  # Java refuses it
        return False
    parser, number = iceberg_class(spark, "TableMetadataParser"), int(version[1]) + 1
    ending = parser.getFileExtension(updated.property("write.metadata.compression-codec", "none"))
    target, temporary = f"v{number}{ending}", f"{uuid.uuid4()}{ending}"
    locks = iceberg_class(spark, "util.LockManagers").defaultLockManager()
    parser.write(updated, table.io().newOutputFile(f"{folder}/{temporary}"))
    try:
        if not locks.acquire(f"{folder}/{target}", temporary):
            raise CommitFailedException("another thread commits")
        try:
            is_done = _link(f"{place}/{temporary}", f"{place}/{target}")
        finally:
            locks.release(f"{folder}/{target}", temporary)
        is_newest = is_done and _hinted(f"{place}/version-hint.text") < number
        if is_done and not is_newest and not _is_named(operations.refresh(), f"{folder}/{target}"):
            os.unlink(f"{place}/{target}")  # the version is an old one, whose file was deleted after newer commits
            raise CommitFailedException("the table has a newer version")
        if is_newest:
            _write_hint(table, f"{folder}/version-hint.text", number)
        if is_done and not os.path.samefile(f"{place}/{temporary}", f"{place}/{target}"):
            raise CommitFailedException(f"another process has replaced version {number}")
    finally:
        with suppress(Exception):
            table.io().deleteFile(f"{folder}/{temporary}")
    if is_done:
        iceberg_class(spark, "CatalogUtil").deleteRemovedMetadataFiles(table.io(), base, updated)
    return is_done


def _link(written: str, target: str) -> bool:
    try:
        os.link(written, target)
    except FileExistsError as error:
        raise CommitFailedException("the table has a newer version") from error
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


def _is_named(newest: Any, version: str) -> bool:
    """Return whether the newest metadata was made from a version: another process may commit on it before the hint."""
    place = local_path(version)
    return any(local_path(str(entry.file())) == place for entry in newest.previousFiles())


def _hinted(hint: str) -> int:
    """Return the number of the newest version that a commit has left in the hint; 0 without one."""
    try:
        with open(hint, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _write_hint(table: Any, hint: str, number: int) -> None:
    """Write the number for readers that look nowhere else. Iceberg looks for newer versions than that itself."""
    with suppress(Exception), java_errors():
        stream = table.io().newOutputFile(hint).createOrOverwrite()
        try:
            stream.write(bytearray(str(number).encode()))
        finally:
            stream.close()
