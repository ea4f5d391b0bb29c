"""Checks that a set of encrypted files is complete: each has the AAD prefix it must have, and none is missing.

The AAD prefix binds modules to their file. But no file shows that another file is gone, or was replaced by a copy of a
third one. A caller who knows which prefixes must exist can find out (Encryption.md, 4.4.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sidecar.access import Access
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, Problem, SidecarError, StorageError, UsageError, problem_in, reason_of
from sidecar.parquet.encrypted.footer import read_declaration
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.storage.source import Source


def verify_file_set(
    paths: Iterable[str],
    prefixes: Sequence[bytes],
    access: Access,
) -> list[Problem]:
    """Return the problems of the set: unexpected files, files with the same prefix, prefixes that no file has.

    Only footers are read, and authenticated. Raises :class:`UsageError` without keys and for a prefix that is
    expected twice, and :class:`StorageError`.
    """
    if access.keys is None:
        raise UsageError("AAD prefixes need encryption keys (--encryption-keys): without keys, files are all alike")
    if len(set(prefixes)) < len(prefixes):
        raise UsageError("an AAD prefix is expected twice")
    owners: dict[bytes, str] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            prefix = _prefix_of(path, [p for p in prefixes if p not in owners], access.keys, access)
            if prefix not in prefixes:
                raise DamagedFileError("its AAD prefix is not among the expected ones")
            if prefix in owners:
                raise DamagedFileError(f"it has the AAD prefix of another file, {owners[prefix]}")
            owners[prefix] = path
        except StorageError:
            raise
        except SidecarError as error:
            problems.append(problem_in(path, reason_of(error)))
    missing = [prefix for prefix in prefixes if prefix not in owners]
    return problems + [
        problem_in(None, f"no file has the AAD prefix {prefix.decode('utf-8', 'replace')!r}") for prefix in missing
    ]


def _prefix_of(path: str, left: Sequence[bytes], keys: EncryptionKeys, access: Access) -> bytes:
    """Return the authenticated prefix of a file. If it is not stored, try those in ``left`` on the footer."""
    source = access.open(path)
    try:
        declared = read_declaration(source)
        if declared is None:
            raise DamagedFileError("the file is not encrypted")
        by_rule = keys.prefix_for(path)
        candidates = left if by_rule is None else [by_rule]
        if declared.aad_prefix is not None or not declared.supply_aad_prefix:
            candidates = [declared.aad_prefix or b""]
        if by_rule is not None and by_rule not in candidates:
            raise DamagedFileError("its AAD prefix is not the one that this path must have")
        for prefix in _opening(source, candidates, keys):
            return prefix
        raise DamagedFileError("none of the remaining AAD prefixes opens its footer")
    finally:
        source.close()


def _opening(source: Source, candidates: Sequence[bytes], keys: EncryptionKeys) -> Iterator[bytes]:
    """Yield the prefixes with which the footer authenticates. If the only candidate fails, raise its error."""
    for prefix in candidates:
        try:
            unlock(source, replace(keys, aad_prefix=prefix))
            yield prefix
        except DamagedFileError:
            if len(candidates) == 1:
                raise
