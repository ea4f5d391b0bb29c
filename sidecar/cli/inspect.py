"""``sidecar inspect``: which indexes a file or a table has."""

from __future__ import annotations

from sidecar.cli.options import (
    Catalog,
    Json,
    KeyPlace,
    Ref,
    Snapshot,
    Target,
    encryption_keys,
    is_path,
    refuse_table_options,
)
from sidecar.cli.output import Output
from sidecar.errors import UsageError


def inspect(
    target: Target,
    catalog: Catalog = None,
    snapshot: Snapshot = None,
    ref: Ref = None,
    keys: KeyPlace = None,
    as_json: Json = False,
) -> None:
    """Show which indexes a file or a table has.

    \b
    Examples:
      sidecar inspect db.lineitem
      sidecar inspect ./part-0.parquet
    """
    out = Output(as_json=as_json)
    from sidecar.cli import draw_inspect

    if is_path(target):
        refuse_table_options(catalog, snapshot, ref)
        from sidecar import inspect_file

        data = inspect_file(target, encryption_keys=encryption_keys(keys))
        draw = draw_inspect.drawing_for(data)
    else:
        from sidecar import inspect_table, open_table

        if keys is not None:
            raise UsageError(
                "--encryption-keys is for a path: inspect of a table reads nothing that is encrypted"
            )
        data = inspect_table(open_table(target, catalog), snapshot, ref=ref)
        draw = draw_inspect.table_coverage
    out.warn(data.get("warnings", ()))
    out.result(data, draw)
