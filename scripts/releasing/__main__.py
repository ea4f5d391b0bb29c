"""The command line of ``scripts/release``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from scripts.releasing.building import ROOT, build, copy_of_tracked_files
from scripts.releasing.contents import problems
from scripts.releasing.trying import try_release


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("scripts/release", description="Build the wheel and the sdist, and check them.")
    parser.add_argument("--check", action="store_true", help="install the wheel and try it too")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder of the two files (dist)")
    parser.add_argument("--python", help="version of Python to try it on; the oldest and the newest there are")
    parser.add_argument("--tag", help="refuse a tag that is not the one of this version")
    given = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    if given.tag not in (None, f"v{project['version']}"):
        parser.error(f"the tag {given.tag} is not v{project['version']}, the version in pyproject.toml")
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary, name) for name in ("sources", "tried")}
        for folder in folders.values():
            folder.mkdir()
        sources = copy_of_tracked_files(folders["sources"], project["urls"]["Source"], project["version"])
        built = build(sources, given.into.absolute())
        for file in built:
            print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB", flush=True)
        if found := problems(built, project["version"]):
            print("\n".join(found), file=sys.stderr)
            return 1
        print("content and metadata are as they should be", flush=True)
        if given.check:
            try_release(built, project["version"], folders["tried"], given.python)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
