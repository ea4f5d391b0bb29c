"""Sorts out files that cannot be read, before a command makes one result of many files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.files import check_readable
from sidecar.many_files.each import each_file
from sidecar.many_files.find import ENDINGS, FoundFiles, Paths, find_files

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys


def readable_files(
    paths: Paths,
    io: FileIO | None = None,
    *,
    endings: Sequence[str] = ENDINGS,
    encryption_keys: EncryptionKeys | None = None,
) -> FoundFiles:
    """Do :func:`find_files`, and move files among many whose footer cannot be read to ``failed``.

    Encrypted footers need ``encryption_keys``. Raises the error of the first file if none can be read.
    """
    found = find_files(paths, io, endings=endings)
    if found.is_one:
        return found

    def check(file: str, file_io: FileIO | None) -> str:
        check_readable(file, file_io, encryption_keys)
        return file

    good, failed = each_file(check, found, io)
    if not good:
        raise next(iter(failed.values()))
    roots = dict(zip(found.files, found.roots, strict=True))
    return replace(found, files=good, roots=tuple(roots[file] for file in good), failed=failed)
