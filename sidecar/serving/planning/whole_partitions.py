"""Refuses the few filters for which a plan cannot tell the partitions that they select.

Spark does not look at rows again for a part of a filter that selects whole partitions (``p = 1`` of a table that is
divided by ``p``): it takes all rows of the files that it gets, and counts them by their record counts. One file too
many is then wrong rows, and an UPDATE changes them. A plan drops all files of other partitions, if it has understood
the filter, and if it knows which columns its names mean. Where it has not, and the part may select whole partitions,
the request is refused.

pyiceberg compares all rows, so nothing is refused for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform

from sidecar.serving.planning.scan_binding import ScanBinding
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.protocol.filters import PredicateForm, fields_of, forms_of
from sidecar.serving.protocol.requests import PlanRequest

_EQUALITIES = {"eq", "not-eq", "in", "not-in"}
"""Only the partition value itself decides these, not a truncated one."""
_RANGES = {"lt", "lt-eq", "gt", "gt-eq", "starts-with", "not-starts-with", "is-nan", "not-nan"}
"""No bucket decides these, but a truncated value does at times."""


def refuse_unsure_partitions(
    table: Table, spec_ids: Collection[int], question: PlanRequest, bindings: Sequence[ScanBinding]
) -> None:
    """Raise :class:`RefusedRequestError` if a plan may have files of partitions that a filter does not select.

    ``spec_ids`` are those of the snapshot's files, ``bindings`` the meanings of the request.
    """
    unsure = {form: "is not understood exactly" for binding in bindings for form in binding.filter.inexact}
    if len(bindings) > 1:
        meant = [name for name, _ in frozenset.union(*(binding.filter.fields for binding in bindings))]
        for form in forms_of(question.filter):
            if form.name is not None and meant.count(form.name) > 1:
                unsure[form] = "means several columns, of several schemas of the table"
    specs = [table.specs()[spec_id] for spec_id in spec_ids]
    names = {form.name for form in unsure if form.name is not None}
    ids_of: dict[str, set[int | None]] = {name: set() for name in names}
    for schema in table.schemas().values():
        for name, field_id in fields_of(names, schema, question.case_sensitive):
            ids_of[name] |= {field_id} - {None}
    for form in sorted(unsure, key=repr):
        ids = ids_of.get(form.name or "") or {None}
        if specs and all(_may_select(spec, form, ids) for spec in specs):
            raise RefusedRequestError(
                f"the server cannot tell which partitions the filter selects: {_text(form)} {unsure[form]}. Set "
                "scan-planning-mode to client for the catalog, or the table property sidecar.serve to false",
                ErrorType.UNSUPPORTED,
            )


def _may_select(spec: PartitionSpec, form: PredicateForm, ids: set[int | None]) -> bool:
    """Return whether Spark may take a predicate as one that selects whole partitions of a spec."""
    return any(_decides(field, form) for field in spec.fields if None in ids or field.source_id in ids)


def _decides(field: PartitionField, form: PredicateForm) -> bool:
    if isinstance(field.transform, VoidTransform):
        return False
    if form.transform is not None:
        return str(field.transform).lower() == form.transform.lower()
    if isinstance(field.transform, IdentityTransform):
        return True
    undecided = _RANGES | _EQUALITIES if isinstance(field.transform, BucketTransform) else _EQUALITIES
    return form.kind not in undecided


def _text(form: PredicateForm) -> str:
    if form.name is None:
        return "a predicate of an unknown form"
    compared = f"{form.transform}({form.name})" if form.transform else form.name
    return f"the predicate {form.kind or 'of an unknown kind'} on {compared}"
