"""Bugs of one line each, and the tests that should notice them. The text of a line is in its file once."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """``right`` in ``file`` becomes ``wrong``; ``tests`` are files and folders below the root."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    def planted_in(self, text: str) -> str:
        """The text of the file with the bug. Raises ``ValueError`` if the line is not there once."""
        if text.count(self.right) != 1:
            raise ValueError(f"{self.name}: {self.file} has the line {text.count(self.right)} times")
        return text.replace(self.right, self.wrong)


BUGS = (
    Bug(
        "an encrypted leaf without a field id may be read",
        "sidecar/reading/table_files.py",
        "chunk.leaf.field_id in {None, *field_ids}",
        "chunk.leaf.field_id in field_ids",
        ("tests/reading", "tests/planning/test_encrypted.py"),
    ),
    Bug(
        "a page's request ends at its last line break",
        "sidecar/serving/protocol/page_tokens.py",
        'plain.partition(b"\\n")',
        'plain.rpartition(b"\\n")',
        ("tests/serving/protocol", "tests/serving/planning"),
    ),
    Bug(
        "an entry without blob metadata is ours",
        "sidecar/iceberg/statistics_files/entry_commits.py",
        "(bool(other.blob_metadata) and theirs <= kept)",
        "theirs <= kept",
        ("tests/iceberg", "tests/maintenance"),
    ),
    Bug(
        "a row without counts has only NULL",
        "sidecar/iceberg/listing.py",
        "bounds.value_count is not None and bounds.null_count == bounds.value_count",
        "bounds.null_count == bounds.value_count",
        ("tests/iceberg", "tests/planning"),
    ),
    Bug(
        "an absent count of removed files is none",
        "sidecar/reports/finding/files.py",
        "if line.deleted_files_count == 0:",
        "if not line.deleted_files_count:",
        ("tests/reports",),
    ),
    Bug(
        "the oldest segment counts a file that is in two",
        "sidecar/indexing/previous/carrying.py",
        "for source in reversed(checked):",
        "for source in checked:",
        ("tests/indexing", "tests/maintenance"),
    ),
    Bug(
        "metadata of the very second is old",
        "sidecar/maintenance/metadata_files.py",
        "old = {name for name in self._ancestors & versions.keys() if versions[name].modified < self._young}",
        "old = {name for name in self._ancestors & versions.keys() if versions[name].modified <= self._young}",
        ("tests/maintenance",),
    ),
)
