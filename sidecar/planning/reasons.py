"""Why a plan keeps a file: the words that stand in its funnel."""

from __future__ import annotations

NOT_ASKED = "no part of the predicate is one that the index can answer"
NO_SIDECAR = "no sidecar"
SOME_GROUPS = "may match in some row groups"
SOME_PAGES = "may match in some pages"
NOT_LISTED = "not listed in the sidecar"
MAY_MATCH = "may match"
DAMAGED = "may match: part of the index cannot be read"
UNREADABLE = "index unreadable"
TOO_MANY = "too many keys within its bounds for filters to help"
