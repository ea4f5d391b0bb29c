"""Differences that are not sidecar's fault: what they look like, whose fault they are, and by what that is known."""

from __future__ import annotations

import re
from typing import NamedTuple

from scripts.torturing.foreign.differences import Difference


class KnownFault(NamedTuple):
    """Patterns of what it looks like; an empty one fits all. ``said`` is one of the question and of both answers."""

    why: str
    name: str = ""
    said: str = ""
    writer: str = ""


REFUSED = r"^(inspect|verify|rows|scan|strip|embed|sidecar)\b[^|]*\| sidecar: (\w+Error: |\d+ problems: |sidecar: )"
FILES = [
    KnownFault(
        "files that tests of errors have damaged", r"/fuzzing/|/broken/|/bad_data/|/bad_parquet_data/|/afl/", REFUSED
    ),
    KnownFault(
        "files that tests of errors have damaged",
        r"bad_rle_literal_count|bad_column_metadata|nested-unsigned-malformed|alltypes_(empty|invalid)_pages|"
        r"bloom_filter_bad_length|bad_compressed_size|broken_structure|negative_page_size|page_size_corruption",
        REFUSED,
    ),
    KnownFault(
        "Spark has the value of a VARIANT first, and joins what is shredded",
        r"variant|shredded",
        r"^rows .*pyarrow: as sidecar(, (DuckDB|polars): as sidecar)*, parquet-java: ",
    ),
    KnownFault(
        "Spark orders the keys of maps", r"nested_map|nullable\.orc", r"^rows .*pyorc: as sidecar, ORC Java: \["
    ),
    KnownFault("Spark has microseconds", r"timestamp\.desynced", r"pyorc: as sidecar, ORC Java: \d+000$"),
    KnownFault("Spark reads nanoseconds as numbers", said=r"^rows .*parquet-java: '\d+'$"),
    KnownFault("DuckDB and Spark cut nanoseconds", r"timestamp-nanos", r"^rows "),
    KnownFault("Spark moves days of the Julian calendar", r"hive2_pre_gregorian", r"^rows d "),
    KnownFault("pyarrow reads INT96 before 1970 as 1970", r"varbinary_flba", r"^rows int96_field "),
    KnownFault("times outside of a day are not defined", r"out_of_range_time_of_day|dateless_timestamps", r"^rows \w "),
    KnownFault("ARROW-17100: pages of version 2 that do not say that they are compressed", r"ARROW-17100", r"verify"),
    KnownFault(
        "a filter of a writer that was wrong", said=r"verify.*(hash integers wrongly|pre-release form|BOOLEAN hold)"
    ),
    KnownFault(
        "a limit: files of ORC without row index get no filters", said=r"embed \| .*(no row index|have no filters)"
    ),
    KnownFault("a limit: ORC's readers use no filters of that version", said=r"embed \| .*readers use no filters"),
    KnownFault("a limit: pages of more than 32 MiB", r"large_string_map", r"a page is too large"),
    KnownFault("a limit: fields of unions have no indexes", r"testUnionAndTimestamp", r"inside a union"),
    KnownFault("a limit: fields of a VARIANT cannot be asked", said=r"cannot name a field inside this column"),
    KnownFault(
        "a limit: ORC timestamps outside of 1677 to 2262, which Arrow's nanoseconds do not have",
        r"\.orc$",
        r"would result in out of bounds timestamp",
    ),
    KnownFault(
        "pyarrow opens no group of the logical type UNKNOWN", r"create_table_like_parquet", r"Logical type Null"
    ),
    KnownFault(
        "verify names what a writer got wrong, which is not believed",
        said=r"verify.*(not believed|statistics: 0 values in \d+ rows, but no nulls|total_compressed_size is|"
        r"num_rows is 0, the row groups have|offset index: missing, while other columns|"
        r"segmentio/parquet-go (leaves|does not))",
    ),
    KnownFault(
        "ORC C++ counts fields of structs that are NULL", r"variant", r"^convert, verify.*the filter is empty, but"
    ),
    KnownFault("page indexes that parquet.js writes without bounds", r"test-enum-type", r"lacks null_pages"),
    KnownFault(
        "page indexes that parquet-rs 53 placed outside of the file", r"repeated_primitive_no_list", r"column index"
    ),
    KnownFault(
        "polars has no times beyond 64 bits of nanoseconds",
        r"edge_timestamps|DATETIME_TEST2",
        r"^rows .*pyarrow: as sidecar, DuckDB: as sidecar, polars: 9223372036854775807$",
    ),
    KnownFault(
        "polars alone: NULLs in pages of version 2 that parquet-dotnet wrote, and a footer of no rows beside one row",
        r"dates\.v2\.parquet|zero_rows_one_row_group",
        r"^rows .*pyarrow: as sidecar, DuckDB: as sidecar, polars: ",
    ),
    KnownFault(
        "DuckDB takes the only field of a repeated group for the element",
        r"proto-struct-with-array|AvroSingleFieldGroupInList",
        r"^rows .*pyarrow: as sidecar, DuckDB: .*, polars: as sidecar",
    ),
    KnownFault("a null count of -1 by parquet-mr 1.13-SNAPSHOT", r"-checksum\.parquet", r"null_counts? has a negative"),
]
ALIKE = r"pyiceberg: as sidecar"
TABLES: list[KnownFault] = [
    KnownFault(
        "a limit: pyiceberg applies no equality deletes",
        said=r"\| sidecar: UnsupportedFeatureError: equality deletes|PyIceberg does not yet support equality deletes",
    ),
    KnownFault(
        "pyiceberg decodes doubles of partitions as floats",
        r"alltypes_part",
        r"^rows .*pyiceberg: .*2\.2219998836517334",
    ),
    KnownFault(
        "pyiceberg takes a NULL map of an ORC file for an empty one", r"complextypestbl.*orc", r"^rows .*pyiceberg: "
    ),
    KnownFault(
        "pyiceberg's rows too: a NULL of a column that a file lacks meets != and NOT",
        said=rf"^(built, )?scan.*\| sidecar: 0 rows lost.*{ALIKE}",
    ),
    KnownFault("pyiceberg reads the fields of data files by ids alone", said=r"Parquet file does not have field-ids"),
    KnownFault("pyiceberg reads no Avro data files", said=r"Unsupported file format: FileFormat.AVRO"),
    KnownFault(
        "pyiceberg's REST client leaves partitions empty", said=r"^serve.*(IndexError in pyiceberg/typedef|RESTError)"
    ),
    KnownFault(
        "data files of another size than their manifests say are not indexed",
        said=r"^built, verify --data.*no value was",
    ),
    KnownFault(
        "pyiceberg reads no manifests of Dremio's first versions, which lack required fields",
        r"dremio.*/(partitioned)?nation",
        r"Avro|ResolveError|nor any of its ancestors has a sidecar",
    ),
]


def explain_file(name: str, writer: str, difference: Difference) -> str | None:
    """Whose fault a difference is; ``None`` if it may be sidecar's."""
    return explain(FILES, name, writer, difference)


def explain_table(name: str, writer: str, difference: Difference) -> str | None:
    """The same for tables."""
    return explain(TABLES, name, writer, difference)


def explain(faults: list[KnownFault], name: str, writer: str, difference: Difference) -> str | None:
    for fault in faults:
        texts = ((fault.name, name), (fault.said, str(difference)), (fault.writer, writer))
        if all(re.search(pattern, text) for pattern, text in texts):
            return fault.why
    return None
