"""Changes what an upstream tells clients about itself: its address, what it can do, and who plans scans."""

from __future__ import annotations

from typing import Any

from sidecar.serving.catalog_routes import ENDPOINTS, MODE, PLANNING
from sidecar.serving.protocol.errors import ErrorType
from sidecar.serving.proxy.upstream import UpstreamFailedError

PLAN_ENDPOINTS = tuple(one for one in ENDPOINTS if "{table}/" in one)
"""The plan routes, which the proxy has for each table."""
_TABLE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
_NAMESPACES = "/v1/{prefix}/namespaces"
_TABLES = f"{_NAMESPACES}/{{namespace}}/tables"
_VIEWS = f"{_NAMESPACES}/{{namespace}}/views"
ASSUMED_ENDPOINTS = (
    f"GET {_NAMESPACES}",
    f"GET {_NAMESPACES}/{{namespace}}",
    f"POST {_NAMESPACES}",
    f"POST {_NAMESPACES}/{{namespace}}/properties",
    f"DELETE {_NAMESPACES}/{{namespace}}",
    f"GET {_TABLES}",
    f"GET {_TABLE}",
    f"POST {_TABLES}",
    f"POST {_TABLE}",
    f"DELETE {_TABLE}",
    "POST /v1/{prefix}/tables/rename",
    f"POST {_NAMESPACES}/{{namespace}}/register",
    f"POST {_TABLE}/metrics",
    "POST /v1/{prefix}/transactions/commit",
)
"""The routes that clients assume of a server that lists none. If our answer lists any, they assume nothing."""
ASSUMED_VIEW_ENDPOINTS = (
    f"GET {_VIEWS}",
    f"GET {_VIEWS}/{{view}}",
    f"POST {_VIEWS}",
    f"POST {_VIEWS}/{{view}}",
    f"DELETE {_VIEWS}/{{view}}",
    "POST /v1/{prefix}/views/rename",
)
"""The routes of views that clients assume in addition, if the server has the property ``view-endpoints-supported``."""


def prefix_of(document: dict[str, Any]) -> str:
    """Return the prefix that clients put into all paths."""
    return str(_effective(document, "prefix") or "")


def plans_itself(document: dict[str, Any]) -> bool:
    """Whether the upstream tells clients to let it plan scans."""
    return bool(_effective(document, MODE) == "server")


def rewrite_config(document: dict[str, Any], address: str) -> None:
    """Change a config answer: clients stay with the proxy at ``address``, and let it plan.

    An upstream that plans scans itself keeps them. Names of other services (``oauth2-server-uri``, signers) are kept.
    Raises :class:`UpstreamFailedError` if the upstream asks for signed requests.
    """
    if _is_signed(document):
        raise UpstreamFailedError(
            "the upstream asks for requests that are signed for its own name (SigV4), which a proxy cannot pass on; "
            "describe the catalog in ~/.pyiceberg.yaml and serve it with --catalog",
            ErrorType.UNSUPPORTED,
        )
    defaults, overrides = _part(document, "defaults"), _part(document, "overrides")
    for part in (defaults, overrides):
        if "uri" in part:
            part["uri"] = address
    if MODE not in overrides and not plans_itself(document):
        defaults |= PLANNING
    endpoints = document.get("endpoints") or [
        *ASSUMED_ENDPOINTS,
        *(ASSUMED_VIEW_ENDPOINTS if _effective(document, "view-endpoints-supported") == "true" else ()),
    ]
    if not plans_itself(document):
        endpoints = [*endpoints, *(one for one in PLAN_ENDPOINTS if one not in endpoints)]
    document |= {"defaults": defaults, "overrides": overrides, "endpoints": endpoints}


def _is_signed(document: dict[str, Any]) -> bool:
    signed = str(_effective(document, "rest.sigv4-enabled")).lower() == "true"
    return signed or str(_effective(document, "rest.auth.type")).lower() == "sigv4"


def _effective(document: dict[str, Any], name: str) -> Any:
    return _part(document, "overrides").get(name, _part(document, "defaults").get(name))


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return dict(found) if isinstance(found, dict) else {}
