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
    Bug(
        "an integer of Thrift may have a bit too many",
        "sidecar/parquet/thrift.py",
        "if raw >> _BITS[kind]:",
        "if raw >> _BITS[kind] + 1:",
        (
            "tests/parquet/test_thrift.py",
            "tests/parquet",
        ),
    ),
    Bug(
        "a negative null count is believed",
        "sidecar/parquet/trust.py",
        "if not 0 <= null_count <= num_values:",
        "if null_count > num_values:",
        (
            "tests/parquet",
            "tests/reading",
        ),
    ),
    Bug(
        "one bound alone shows that no value is beyond the annotation",
        "sidecar/parquet/trust.py",
        "return len(numbers) < 2 or any(",
        "return len(numbers) < 1 or any(",
        (
            "tests/parquet",
            "tests/reading",
        ),
    ),
    Bug(
        "a raised character may be the first surrogate",
        "sidecar/parquet/bounds.py",
        "code = 0xE000 if 0xD800 <= code < 0xE000 else code",
        "code = 0xE000 if 0xD800 < code < 0xE000 else code",
        ("tests/parquet",),
    ),
    Bug(
        "the first member of a column order counts",
        "sidecar/parquet/bounds.py",
        "return fields[0] if len(fields) == 1 else Unknown(",
        "return fields[0] if fields else Unknown(",
        ("tests/parquet",),
    ),
    Bug(
        "levels may be longer than the page's stated size",
        "sidecar/parquet/levels.py",
        "if length > len(body) or length > page.uncompressed_size:",
        "if length > len(body) and length > page.uncompressed_size:",
        ("tests/parquet",),
    ),
    Bug(
        "the first writer version with a fault is right",
        "sidecar/orc/trust.py",
        "return writer in self.writers and self.first <= version and",
        "return writer in self.writers and self.first < version and",
        ("tests/orc",),
    ),
    Bug(
        "a C++ writer without a version is new",
        "sidecar/orc/trust.py",
        "return tuple(map(int, match.groups())) if match else (0, 0, 0)",
        "return tuple(map(int, match.groups())) if match else (9, 0, 0)",
        ("tests/orc",),
    ),
    Bug(
        "an absent hasNull is no NULL",
        "sidecar/orc/statistics/column_statistics.py",
        "has_null = bool(message.varint(10, 1))",
        "has_null = bool(message.varint(10))",
        ("tests/orc",),
    ),
    Bug(
        "an empty upper bound that was cut is believed",
        "sidecar/orc/statistics/column_statistics.py",
        'if high is not None and high[-1:] in ("?", "\\ufffd", ""):',
        'if high is not None and high[-1:] in ("?", "\\ufffd"):',
        ("tests/orc",),
    ),
    Bug(
        "a timestamp within a second before 1970 is not rounded up",
        "sidecar/orc/statistics/column_statistics.py",
        "if low < 0 and high > -1000:",
        "if low < 0 and high >= 0:",
        (
            "tests/orc",
            "tests/planning/test_orc_bounds.py",
        ),
    ),
    Bug(
        "the first of two alike protobuf fields counts",
        "sidecar/orc/protobuf.py",
        "for field, found, value in reversed(self.fields):",
        "for field, found, value in self.fields:",
        ("tests/orc",),
    ),
    Bug(
        "the first of two sections counts",
        "sidecar/bundle/units/reader.py",
        "if section is None or section.count != 1:",
        "if section is None or section.count < 1:",
        ("tests/bundle",),
    ),
    Bug(
        "later batches are compared with fingerprints of the first",
        "sidecar/bundle/units/reader.py",
        "fingerprints[batch * FILES_PER_BATCH :])",
        "fingerprints[batch:])",
        ("tests/bundle",),
    ),
    Bug(
        "an older file without a count takes a count away",
        "sidecar/bundle/merging/merged_units.py",
        "decides = coverage.indexed | ~counted",
        "decides = coverage.indexed | counted",
        (
            "tests/bundle/merging",
            "tests/maintenance",
        ),
    ),
    Bug(
        "the last of two rates is that of a field",
        "sidecar/bundle/merging/source_segment.py",
        "found[field_id] = blob.toc.fpp if found.get(field_id, blob.toc.fpp) == blob.toc.fpp else None",
        "found[field_id] = blob.toc.fpp",
        (
            "tests/bundle/merging",
            "tests/maintenance",
        ),
    ),
    Bug(
        "only marks of both are lower bounds",
        "sidecar/bundle/sketches/count_marks.py",
        "known.lower | marks.lower)",
        "known.lower & marks.lower)",
        (
            "tests/indexing/test_count_marks.py",
            "tests/iceberg",
            "tests/bundle",
        ),
    ),
    Bug(
        "a unit that is asked for no key is denied",
        "sidecar/bundle/filters/key_lookup.py",
        "return _Group(group, lookups, first, end, (at_first < at_end) | (first >= end))",
        "return _Group(group, lookups, first, end, at_first < at_end)",
        (
            "tests/planning/test_key_set_pruning.py",
            "tests/bundle",
        ),
    ),
    Bug(
        "an unknown count of NULL is none",
        "sidecar/questions/conditions.py",
        "return bounds.null_counts[at] != 0 or bounds.may_have_nan[at]",
        "return bool(bounds.null_counts[at]) or bounds.may_have_nan[at]",
        (
            "tests/questions",
            "tests/reading",
        ),
    ),
    Bug(
        "milliseconds of the next value are not above",
        "sidecar/questions/literal_spans.py",
        "return value // 1000, -(-value // 1000)",
        "return value // 1000, value // 1000",
        (
            "tests/questions",
            "tests/reading",
            "tests/planning",
        ),
    ),
    Bug(
        "a bound of too few bytes is a number",
        "sidecar/planning/file_bounds.py",
        'if len(raw) != encoding.width and (encoding.name, len(raw)) != ("int64", 4):',
        "if len(raw) > encoding.width:",
        ("tests/planning",),
    ),
    Bug(
        "an absent count of NaN is none",
        "sidecar/planning/file_bounds.py",
        "_count(data.nan_value_counts, field_id) != 0 and not all_null",
        "_count(data.nan_value_counts, field_id) and not all_null",
        (
            "tests/planning",
            "tests/iceberg",
        ),
    ),
    Bug(
        "bounds that contradict each other rule keys out",
        "sidecar/planning/keys/key_pruning.py",
        "if lower is not None and upper is not None and (doubtful or lower > upper):",
        "if lower is not None and upper is not None and doubtful:",
        ("tests/planning/test_key_set_pruning.py",),
    ),
    Bug(
        "a file that is listed twice has the places of its first line",
        "sidecar/planning/files/by_row_groups.py",
        "often[t.file.file_path] == 1",
        "often[t.file.file_path] >= 1",
        ("tests/planning",),
    ),
    Bug(
        "the damage of the last blob is that of an index",
        "sidecar/indexing/previous/damage.py",
        "own |= flags",
        "own[:] = flags",
        (
            "tests/indexing",
            "tests/maintenance",
        ),
    ),
    Bug(
        "a file that could not be read is not tried again",
        "sidecar/indexing/previous/earlier.py",
        "is_read = ~has_rows | (",
        "is_read = has_rows | (",
        (
            "tests/indexing",
            "tests/maintenance",
        ),
    ),
    Bug(
        "a blob without a lock has the key",
        "sidecar/indexing/previous/earlier.py",
        "if lock is None or lock.key_metadata != named[field_id]:",
        "if lock is not None and lock.key_metadata != named[field_id]:",
        (
            "tests/indexing",
            "tests/maintenance/test_refresh_keys.py",
            "tests/embedding/test_encrypted_tables.py",
        ),
    ),
    Bug(
        "partition statistics are not named by the metadata",
        "sidecar/maintenance/garbage.py",
        "(*metadata.statistics, *metadata.partition_statistics)]",
        "metadata.statistics]",
        ("tests/maintenance",),
    ),
    Bug(
        "a file of two tables is ours",
        "sidecar/maintenance/garbage.py",
        "return by_us and uuids == {str(table.metadata.table_uuid)}",
        "return by_us and str(table.metadata.table_uuid) in uuids",
        ("tests/maintenance",),
    ),
    Bug(
        "a NaN partition equals none",
        "sidecar/iceberg/deletes/delete_files.py",
        'return "NaN" if isinstance(value, float) and math.isnan(value) else value',
        "return value",
        (
            "tests/iceberg",
            "tests/planning/test_equality_deletes.py",
            "tests/serving/planning/test_delete_files.py",
        ),
    ),
    Bug(
        "the first of two deletion vectors applies",
        "sidecar/iceberg/deletes/delete_files.py",
        "return [max(vectors, key=lambda one: one.sequence_number)]",
        "return vectors[:1]",
        (
            "tests/iceberg/test_delete_files.py",
            "tests/serving/planning/test_delete_files.py",
        ),
    ),
    Bug(
        "a cut path ends a delete file's range",
        "sidecar/iceberg/deletes/delete_files.py",
        "path <= upper or path.startswith(upper))",
        "path <= upper)",
        (
            "tests/iceberg/test_delete_files.py",
            "tests/serving/planning/test_delete_files.py",
        ),
    ),
    Bug(
        "a delete file with too few rows is whole",
        "sidecar/iceberg/deletes/delete_index.py",
        "if len(paths) != file.record_count or paths.null_count:",
        "if len(paths) > file.record_count or paths.null_count:",
        (
            "tests/iceberg",
            "tests/embedding/test_table.py",
        ),
    ),
    Bug(
        "two spellings of a file give its first ordinal",
        "sidecar/iceberg/statistics_files/sidecar_files.py",
        "if len(ordinals) == 1:  #",
        "if ordinals:  #",
        (
            "tests/iceberg",
            "tests/planning/test_relocated.py",
        ),
    ),
    Bug(
        "a sidecar that a tag needs is superseded",
        "sidecar/iceberg/statistics_files/superseding.py",
        "            if ancestor == new:\n                break\n",
        "            if ancestor == new:\n                return False\n",
        (
            "tests/iceberg",
            "tests/maintenance",
        ),
    ),
    Bug(
        "an entry of two fields is our sketch",
        "sidecar/iceberg/statistics_files/merge.py",
        "return blob.type == THETA and len(blob.fields) == 1 and MARK in",
        "return blob.type == THETA and MARK in",
        (
            "tests/iceberg/test_merge.py",
            "tests/maintenance",
        ),
    ),
    Bug(
        "NOT IN of zero is true of NULL",
        "sidecar/reading/residual.py",
        "found = And(found, _not_null(expression.term))",
        "found = Or(found, AlwaysFalse())",
        ("tests/reading",),
    ),
    Bug(
        "the first of two leaves with an id has the page index",
        "sidecar/reading/page_request.py",
        "return found[0] if len(found) == 1 else None",
        "return found[0] if found else None",
        ("tests/reading",),
    ),
    Bug(
        "a sketch of several fields has the value",
        "sidecar/reports/finding/sidecars.py",
        "if blob.type != THETA or blob.fields != (question.field_id,):",
        "if blob.type != THETA or question.field_id not in blob.fields:",
        ("tests/reports",),
    ),
    Bug(
        "the least int is in no sketch of ints",
        "sidecar/reports/finding/sidecars.py",
        'if kinds == ["long"] and -_INT_LIMIT <= value < _INT_LIMIT:',
        'if kinds == ["long"] and -_INT_LIMIT < value < _INT_LIMIT:',
        (
            "tests/reports/test_finding.py",
            "tests/reports/test_finding_values.py",
            "tests/reports/test_finding_evidence.py",
        ),
    ),
    Bug(
        "a damaged index covers its files",
        "sidecar/reports/status/coverage.py",
        "sound = states.indexed if damaged is None else states.indexed & ~damaged",
        "sound = states.indexed",
        (
            "tests/reports/test_status.py",
            "tests/maintenance/test_refresh_claims.py",
        ),
    ),
    Bug(
        "two tokens of which the first is right are known",
        "sidecar/serving/guards.py",
        "if len(given) != 1:\n            return False",
        "if not given:\n            return False",
        ("tests/serving/test_guards.py",),
    ),
    Bug(
        "a control character that is quoted passes",
        "sidecar/serving/guards.py",
        "_CONTROL.search(unquote_to_bytes(raw_path)) is not None",
        "_CONTROL.search(raw_path) is not None",
        ("tests/serving/test_guards.py",),
    ),
    Bug(
        "a header with underscores passes the front",
        "sidecar/serving/proxy/headers.py",
        'if not _OF_A_FRONT.fullmatch(name.lower().replace(b"_", b"-"))]',
        "if not _OF_A_FRONT.fullmatch(name.lower())]",
        ("tests/serving/proxy",),
    ),
    Bug(
        "a folder beside the server's own is its own",
        "sidecar/serving/proxy/storage.py",
        '[one.rstrip("/") + "/" for location',
        '[one.rstrip("/") for location',
        (
            "tests/serving/proxy/test_storage.py",
            "tests/serving/proxy",
        ),
    ),
    Bug(
        "the shortest prefix gives the credentials",
        "sidecar/serving/proxy/storage.py",
        "key=lambda one: len(one[0]), reverse=True)",
        "key=lambda one: len(one[0]))",
        (
            "tests/serving/proxy/test_storage.py",
            "tests/serving/proxy",
        ),
    ),
    Bug(
        "a tag that a client made up goes to the upstream",
        "sidecar/serving/proxy/etags.py",
        "if _TAG.fullmatch(upstream):  #",
        "if upstream:  #",
        ("tests/serving/proxy",),
    ),
    Bug(
        "the upstream may sign by its default",
        "sidecar/serving/proxy/config_answer.py",
        'return _part(document, "overrides").get(name, _part(document, "defaults").get(name))',
        'return _part(document, "overrides").get(name)',
        ("tests/serving/proxy",),
    ),
    Bug(
        "a list of values that are not understood is left out",
        "sidecar/serving/protocol/filters.py",
        "if not all(found) or (not is_exact and make is NotIn):",
        "if not any(found) or (not is_exact and make is NotIn):",
        ("tests/serving/protocol/test_filters.py",),
    ),
    Bug(
        "a check that was not whole finds no misplaced page",
        "sidecar/conversion/matching/witness.py",
        "check.contradiction or check.misplaced",
        "check.contradiction",
        (
            "tests/conversion",
            "tests/embedding",
        ),
    ),
    Bug(
        "the first of two leaves with an id has the filter",
        "sidecar/conversion/restore.py",
        "if resolution == BY_ID:\n        found = [leaf for leaf in leaves if leaf.field_id == field_id]",
        "if resolution == BY_ID:\n        found = [leaf for leaf in leaves if leaf.field_id == field_id][:1]",
        (
            "tests/conversion",
            "tests/embedding",
        ),
    ),
    Bug(
        "a file that may exist is deleted",
        "sidecar/embedding/rewritten_files.py",
        "        return True",
        "        return False",
        ("tests/embedding",),
    ),
    Bug(
        "internal storage that is absent is outside",
        "sidecar/embedding/key_files.py",
        'return value.get("internalStorage") is False',
        'return not value.get("internalStorage")',
        ("tests/embedding",),
    ),
    Bug(
        "a date of an old calendar has one key",
        "sidecar/embedding/orc_filters.py",
        'if encoding.family == "date" and self._tail.calendar != "proleptic_gregorian":',
        'if encoding.family == "date" and self._tail.calendar == "julian_gregorian":',
        ("tests/embedding",),
    ),
    Bug(
        "a double wrapping that is absent is one",
        "sidecar/crypto/key_material.py",
        'if material.get("doubleWrapping") is not True:',
        'if material.get("doubleWrapping") is False:',
        ("tests/crypto",),
    ),
    Bug(
        "keys of another file's material are remembered",
        "sidecar/crypto/key_material.py",
        "return replace(self, _file=file, _materials={})",
        "return replace(self, _file=file)",
        (
            "tests/crypto",
            "tests/parquet/test_encryption.py",
        ),
    ),
    Bug(
        "keys of files alone do not doubt plain indexes",
        "sidecar/crypto/keys.py",
        "return are_of_files or (may_be and not self.bundle_keys)",
        "return are_of_files and (may_be and not self.bundle_keys)",
        (
            "tests/crypto",
            "tests/embedding/test_encrypted.py",
        ),
    ),
    Bug(
        "a range may end a byte behind its blob",
        "sidecar/puffin/reader.py",
        "if offset < 0 or length < 0 or offset + length > blob.length:",
        "if offset < 0 or length < 0 or offset + length > blob.length + 1:",
        ("tests/puffin",),
    ),
    Bug(
        "a true is a number of the footer",
        "sidecar/puffin/metadata.py",
        "if type(value) is not int or not bounds",
        "if not isinstance(value, int) or not bounds",
        ("tests/puffin",),
    ),
    Bug(
        "bytes behind a frame are left",
        "sidecar/puffin/codecs.py",
        "if at != len(data):",
        "if at > len(data):",
        ("tests/puffin",),
    ),
)
