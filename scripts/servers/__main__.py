"""The command line of ``scripts/services``."""

from __future__ import annotations

import sys

from scripts.servers.processes import ServerError
from scripts.servers.services import FOLDER, STARTERS, down, running, up

USAGE = "usage: scripts/services up|down|status"


def main(arguments: list[str]) -> int:
    if arguments == ["up"]:
        for service in up().values():
            print(service.what)
        print(f"catalogs rest, postgres, s3 and s3-fsspec: export PYICEBERG_HOME={FOLDER}")
    elif arguments == ["down"]:
        for service in down().values():
            print(f"ended {service.what}")
    elif arguments == ["status"]:
        found = running()
        for name in STARTERS:
            print(found[name].what if name in found else f"{name} does not run")
        return 0 if set(found) == set(STARTERS) else 1
    else:
        print(USAGE, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerError as failed:
        sys.exit(f"scripts/services: {failed}")
    except PermissionError as failed:
        sys.exit(
            f"scripts/services: {failed}: the servers are another user's. Give SIDECAR_SERVICES a folder of yours."
        )
