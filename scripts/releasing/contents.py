"""What may be in a wheel and an sdist, and what their metadata says."""

from __future__ import annotations

import email
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from pathlib import Path, PurePosixPath

from scripts.releasing.building import ROOT, Built

PAGES_OF_DEVELOPERS = {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SPEC.md", "SECURITY.md"}
URLS = ("Source", "Documentation", "Changelog", "Issues")
IN_SDIST = ("tests/conftest.py", "spec_vectors/SPEC.md", "scripts/release", "CHANGELOG.md")
PYTHON = "Programming Language :: Python :: 3."


def wheel_problems(names: Iterable[str]) -> Iterator[str]:
    """Name what is in a wheel and should not be, and what is missing.

    ``names``: paths in the wheel, without those of ``*.dist-info``.
    """
    found = {PurePosixPath(name) for name in names}
    source = ROOT / "sidecar"
    files = [*source.rglob("*.py"), *source.rglob("*.pyi"), *(source / "guide").glob("*.md"), source / "py.typed"]
    wanted = {PurePosixPath(file.relative_to(ROOT).as_posix()) for file in files}
    developers = PAGES_OF_DEVELOPERS | {page.name for page in (ROOT / ".github" / "design").glob("*.md")}
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - found))
    for name in sorted(found - wanted):
        yield f"the wheel has {name}, which is no module, stub or guide of the package"
    for name in sorted(found):
        if name.name in developers:
            yield f"the wheel has {name}, a page for developers"


def sdist_problems(names: Iterable[str]) -> Iterator[str]:
    """Name what an sdist lacks, or has beside what git tracks; ``names``: paths below its one folder."""
    found = set(names)
    yield from (f"the sdist lacks {name}" for name in IN_SDIST if name not in found)
    for name in sorted(found):
        if re.search(r"__pycache__|\.(pyc|nbi|nbc)$|(^|/)\.(venv|work|git)/", name):
            yield f"the sdist has {name}, which a run left"


def metadata_problems(metadata: Message, version: str) -> Iterator[str]:
    """Say what a reader of the package index would miss."""
    if metadata["Version"] != version:
        yield f"the metadata says version {metadata['Version']}; pyproject.toml says {version}"
    if not version_in_changelog(version):
        yield f"CHANGELOG.md does not begin with the section of {version}"
    minors = {int(line.removeprefix(PYTHON)) for line in metadata.get_all("Classifier", []) if line.startswith(PYTHON)}
    floor = re.fullmatch(r">=3\.(\d+)", metadata["Requires-Python"] or "")
    if not floor or minors != set(range(int(floor[1]), max(minors, default=0) + 1)):
        yield f"classifiers name Python 3.{sorted(minors)}; Requires-Python is {metadata['Requires-Python']}"
    labels = {url.split(",")[0] for url in metadata.get_all("Project-URL", [])}
    yield from (f"no project URL {label}" for label in URLS if label not in labels)
    if metadata["License-Expression"] != "Apache-2.0" or metadata["License-File"] != "LICENSE":
        yield "the licence is not named, or its text is missing"
    if re.search(r"\]\((?!https?:|#)", str(metadata.get_payload())):
        yield "the page of the package index has a link that leads nowhere"


def version_in_changelog(version: str) -> bool:
    """Whether the first section of the changelog is that of this version."""
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    return sections[:1] == [version]


def metadata_of(wheel: Path) -> Message:
    """Return the core metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def problems(built: Built, version: str) -> list[str]:
    """Return all that is wrong with the two files, as sentences."""
    with zipfile.ZipFile(built.wheel) as archive:
        in_wheel = [name for name in archive.namelist() if ".dist-info/" not in name]
    with tarfile.open(built.sdist) as tar:
        in_sdist = [member.name.partition("/")[2] for member in tar if member.isfile()]
    metadata = metadata_of(built.wheel)
    return [*wheel_problems(in_wheel), *sdist_problems(in_sdist), *metadata_problems(metadata, version)]
