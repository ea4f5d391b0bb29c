"""Bloom filters, page indexes and distinct counts for Iceberg tables and data files: a lookup opens only what it must.

    table = sidecar.open_table("db.lineitem")            # any catalog that pyiceberg knows
    sidecar.build(table, ["l_partkey", "l_comment"])     # index, and register the sidecar
    rows = sidecar.scan(table, "l_partkey = 42")         # an Arrow table

    open_table(name, spark=...)             open a table, of pyiceberg's catalogs or of a Spark session
    find_tables(names)                      name the tables of a glob
    build(table, columns)                   index columns, and register the sidecar
    refresh(table)                          index what is new, drop what is gone
    care(tables)                            a night's work: the steps below, refresh, limits, a page
    repair, expire, gc (table)              mend registrations; remove old ones; delete files that nothing names
    status(table), report(tables, output)   coverage, time behind, what to do; the same as an HTML page
    advise(table)                           which columns deserve which index
    plan(table, predicate)                  which files can hold rows, and why
    scan(source, predicate)                 rows of a table or a file; scan_batches: as a stream
    spark_read(session, name, ...)          rows as a DataFrame
    find(table, values)                     which data files hold a value, with evidence
    serve(...)                              plan the scans of engines, over Iceberg's REST protocol
    inspect(paths), probe(paths, ...)       which indexes files have; ask their filters for a value
    verify(target)                          are the indexes of a table or of files right?
    embed(source, into), strip(...)         write data files again with or without indexes
    extract(paths, target), convert(...)    indexes into a Puffin file; into another form
    open_sidecar(table)                     the Puffin file that is registered
    encryption_keys_from(place)             keys of encrypted files, from a file or a variable
    progress(callback)                      with it, calls say how far they are
    warm_up()                               compile all kernels now

Types of results are in sidecar.results, errors in sidecar.errors. `sidecar guide` lists the guides.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from sidecar import errors as errors
from sidecar import results as results

_HOMES = results.homes_of(__name__)

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = sorted([*_HOMES, "errors", "results"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sidecar' has no attribute '{name}'")
    from sidecar.dependencies.supported import check_pyiceberg
    from sidecar.run import without_search_for_cycles

    check_pyiceberg()
    with without_search_for_cycles(True):
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
