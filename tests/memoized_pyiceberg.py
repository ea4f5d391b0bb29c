"""Keeps results of functions without side effects: tests open few schemas and footers thousands of times.

Some tests run without it, and all do in ``scripts/test --plain``: users have pyiceberg as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

MOST = 500
"""Results of a function that are kept; the oldest goes first."""
MOST_METADATA = 16
"""The same for metadata of tables, which is large."""
PLAIN = (
    "tests/iceberg/",
    "tests/planning/files/",
    "tests/planning/test_listed_files",
    "tests/planning/test_plan.py",
    "tests/planning/test_task",
)
"""Tests that run on pyiceberg as users have it. ``scripts/test --plain`` runs all of them so."""
is_plain = False
"""Whether functions are called each time, whatever they gave before."""


def spare_pyiceberg() -> None:
    """Have pyiceberg convert and prune each schema of a manifest, a manifest list and a data file once.

    A transaction's metadata is made once after each of its updates, not at each look, and shares its parts with the
    metadata before. The functions have no side effects, and nobody changes their results. pyiceberg still reads every
    file.
    """
    from pyiceberg import table
    from pyiceberg.avro import file as avro
    from pyiceberg.io import pyarrow
    from pyiceberg.table import metadata

    replaced: Any = avro.AvroFileHeader
    replaced.get_schema = memoized(replaced.get_schema, _text_of)
    for module, name, key in (
        (avro, "construct_reader", _reader_key),
        (avro, "resolve_reader", _reader_key),
        (pyarrow, "pyarrow_to_schema", _arrow_key),
        (pyarrow, "prune_columns", _pruned_key),
    ):
        setattr(module, name, memoized(getattr(module, name), key))
    transactions: Any = table
    made = transactions.update_table_metadata
    transactions.update_table_metadata = memoized(made, _metadata_key, MOST_METADATA)
    for kind in (metadata.TableMetadataV1, metadata.TableMetadataV2, metadata.TableMetadataV3):
        setattr(kind, "__deepcopy__", _shallow_copy)  # noqa: B010


def spare_typer() -> None:
    """Have ``CliRunner`` make the commands of an app once: that takes 20 ms, and running a command changes none."""
    from typer import testing

    runner: Any = testing
    runner._get_command = memoized(runner._get_command, id)


def memoized(function: Callable[..., Any], key: Callable[..., Any], most: int = MOST) -> Callable[..., Any]:
    """``function`` with its results kept by ``key`` of its arguments. Errors are not kept.

    A key may have ids of arguments: the arguments are kept as well, so that no later object gets the same id.
    """
    if hasattr(function, "__wrapped__"):
        return function
    known: dict[Any, tuple[Any, Any]] = {}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if is_plain:
            return function(*args, **options)
        at = key(*args, **options)
        found = known.get(at)
        if found is None:
            found = known[at] = function(*args, **options), args
            for oldest in list(known)[:-most]:
                known.pop(oldest, None)
        return found[0]

    return call


def _shallow_copy(metadata: Any, memo: Any = None) -> Any:
    return super(type(metadata), metadata).__deepcopy__(memo) if is_plain else metadata.model_copy()


def _text_of(header: Any) -> str | None:
    text: str | None = header.meta.get("avro.schema")
    return text


def _reader_key(*args: Any) -> Any:
    return tuple(tuple(arg.items()) if isinstance(arg, Mapping) else id(arg) for arg in args)


def _pruned_key(schema: Any, field_ids: Iterable[int], select_full_types: bool = True) -> Any:
    return id(schema), frozenset(field_ids), select_full_types


def _metadata_key(metadata: Any, updates: Iterable[Any]) -> Any:
    return id(metadata), tuple(map(id, updates))


def _arrow_key(schema: Any, name_mapping: Any = None, *args: Any, **options: Any) -> Any:
    names = None if name_mapping is None else name_mapping.model_dump_json()
    return schema.serialize().to_pybytes(), names, args, tuple(options.items())


def spare_py4j() -> None:
    """Have py4j look each Java package and class up once.

    For ``jvm.org.apache`` it asks the JVM twice, each time, and the JVM searches all jars for a class ``org``. After
    each loop over a Java list, PySpark does so for 13 names of errors.
    """
    from py4j.java_gateway import JavaPackage, JVMView

    for kind in (JVMView, JavaPackage):
        kind.__getattr__ = _kept_as_attribute(kind.__getattr__)


def _kept_as_attribute(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    if hasattr(look_up, "__wrapped__"):
        return look_up

    @wraps(look_up)
    def find(place: Any, name: str) -> Any:
        found = look_up(place, name)
        vars(place)[name] = found
        return found

    return find
