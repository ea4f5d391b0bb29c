"""README, ARCHITECTURE.md and the guides: short, true to the code, and with examples that work when pasted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from scripts.documents import pages as site
from scripts.documents import pictures, reference
from tests.guide_examples import (
    GUIDE,
    PAGES,
    ROOT,
    Example,
    Session,
    commands,
    examples,
    values_that_nobody_checks,
)
from tests.guide_lakes import PREPARED

PACKAGE = ROOT / "sidecar"
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DESIGN = sorted((ROOT / ".github" / "design").glob("*.md"))
"""Pages for developers, which are not in the wheel."""
GUIDES = {
    "tables", "files", "plan-and-scan", "embedding", "orc", "conversions", "encryption", "spark", "python",
    "limits", "schedule", "upkeep", "advise", "find", "serve", "trust", "catalogs", "statistics",
}  # fmt: skip
CHANGING = {
    "files",
    "statistics",
    "embedding",
    "encryption",
    "plan-and-scan",
    "tables",
}
"""Pages whose examples change the table: each has a table of its own."""
MOST_LINES = {"README": 130, "ARCHITECTURE": 160, "decisions": 360, "torture": 310}
LONGEST_GUIDE = 255
ALL_GUIDES = 3_500
"""Lines of all guides, the generated one left out: somebody with one task reads one guide in ten minutes."""
LONGEST_LINE = 120


def make_table(session: Session) -> None:
    """Run the first two examples of the guide to tables: they make the table, index it and scan it."""
    session.run(examples(GUIDE / "tables.md")[:2])


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    return Session(monkeypatch)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table of the guides, for pages that only read it."""
    folder = tmp_path_factory.mktemp("guides")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_table(Session(patch))
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_work_when_pasted(
    page: Path, session: Session, request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.stem in PREPARED:
        monkeypatch.chdir(tmp_path)
        PREPARED[page.stem]()
    elif page.stem in CHANGING:
        monkeypatch.chdir(tmp_path)
        if page.stem != "tables":
            make_table(Session(monkeypatch))
    else:
        monkeypatch.chdir(request.getfixturevalue("shared_folder"))
    session.export("PYICEBERG_CATALOG__DEMO__URI=sqlite:///demo.db")
    session.run(examples(page))


def unrun() -> list[Example]:
    return [block for page in PAGES for block in examples(page) if block.needs and block.file is None]


@pytest.mark.jvm
def test_examples_of_spark(spark: Any, catalog: Any, catalog_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide calls the catalog ``demo``; the shared session calls it ``cat``, and its workers know no catalog."""
    session = Session(monkeypatch)
    monkeypatch.chdir(catalog_dir)
    setup = examples(GUIDE / "tables.md")[0].text.replace("db.readings", "db.guide_readings")
    for of_demo, of_cat in {
        'load_catalog("demo", uri="sqlite:///demo.db", warehouse=Path("warehouse").absolute().as_uri())': "shared",
        'catalog.create_namespace("db")\n': "",
    }.items():
        assert of_demo in setup
        setup = setup.replace(of_demo, of_cat)
    session.names |= {"shared": catalog, "spark": spark}
    exec(setup, session.names)
    uri = f"sqlite:///{catalog_dir}/cat.db"
    session.export(f"PYICEBERG_CATALOG__CAT__URI={uri}")
    blocks = [block for block in examples(GUIDE / "spark.md") if block.needs == "spark"]
    assert blocks
    for block in blocks:
        text = block.text.replace("demo.db.readings", "cat.db.guide_readings")
        text = text.replace("db.readings", "db.guide_readings")
        text = text.replace('.option("catalog", "demo")', f'.option("catalog", "cat").option("catalog.uri", "{uri}")')
        text = text.replace('"demo"', '"cat"')
        printed = session.python(block._replace(text=text))
    assert "4242" in printed or session.names["frame"].count() == 1


@pytest.mark.parametrize("block", unrun(), ids=lambda block: block.name)
def test_examples_that_do_not_run_here_at_least_compile(block: Example) -> None:
    import sidecar

    assert block.needs in ("spark", "server", "services", "quoted")
    if block.language == "python":
        ast.parse(block.text)
        for name in re.findall(r"sidecar\.(\w+)", block.text):
            assert name in sidecar.__all__ or find_spec(f"sidecar.{name}"), f"{block.name}: no sidecar.{name}"


def test_every_value_beside_an_expression_is_one_that_examples_check() -> None:
    blocks = [block for page in PAGES for block in examples(page) if block.language == "python"]
    assert len(blocks) > 30
    assert {block.name: lines for block in blocks if (lines := values_that_nobody_checks(block))} == {}


def test_the_pictures_of_readme_show_what_the_demo_printed() -> None:
    """``python -m scripts.documents.pictures`` draws them."""
    alone, _, _ = pictures.OUTPUT.read_text("utf-8").partition("\n\n")
    assert f"```\n{alone}\n```" in README.read_text("utf-8")
    for path, text in pictures.drawn().items():
        assert path.read_text("utf-8") == text, f"{path.name} is not what the demo printed"
        assert len(text) < 10_000


def test_all_guides_are_there_and_open_with_a_task_and_an_example() -> None:
    pages = {page.stem: page.read_text("utf-8") for page in PAGES if page.stem != "README"}
    assert set(pages) == GUIDES
    assert sum(text.count("\n") for text in pages.values()) <= ALL_GUIDES
    for name, text in pages.items():
        title, task, *_ = [line for line in text.splitlines() if line]
        assert title.startswith("# "), name
        assert task.startswith("**The task:**"), name
        first = text.index("```")
        assert text.count("\n", 0, first) < 20, f"{name} has no example in its first lines"
        assert "\n## " not in text[:first], f"{name} opens with a section, not with an example"


@pytest.mark.parametrize("page", [*PAGES, ARCHITECTURE, *DESIGN], ids=lambda page: page.stem)
def test_pages_are_short(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert len(lines) <= MOST_LINES.get(page.stem, LONGEST_GUIDE)
    wide = [line for line in lines if len(line) > LONGEST_LINE]
    assert [line for line in wide if page == ARCHITECTURE or not line.startswith("|")] == []


def test_links_lead_to_pages_of_the_site_and_to_headings() -> None:
    """``scripts/docs`` builds the site of these pages, and is as strict."""
    places = site.pages()
    for source in (source for source, place in places.items() if place.endswith(".md")):
        page = ROOT / source
        site.text_of(source, places)
        for target, anchor in re.findall(r"\]\(([\w/.-]*)#([\w-]+)\)", page.read_text("utf-8")):
            linked = page.parent / target if target else page
            headings = re.findall(r"^#+ (.*)$", linked.read_text("utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, f"{source} links to {target}#{anchor}"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    places, pages = site.pages(), list(reference.reference_pages())
    groups = [pages for group in site.navigation(places, pages) for pages in group.values()]
    listed = re.findall(r"[\w/.-]+\.md", str(groups))
    assert sorted(listed) == sorted([*(page for page in places.values() if page.endswith(".md")), *pages])


def test_every_public_name_has_a_docstring() -> None:
    import sidecar

    assert reference.undocumented() == []
    names = reference.public_names()
    assert {*names["sidecar"], "errors", "results"} == set(sidecar.__all__)
    assert set(names["sidecar.results"]) == set(sidecar.results.__all__)


def test_a_broken_link_and_a_name_without_a_docstring_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(site, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("see [it](nowhere.md)\n```text quoted\n[no](link.md)\n```\n")
    with pytest.raises(site.BrokenLink, match=r"README\.md links to nowhere\.md"):
        site.text_of("README.md", {"README.md": "index.md"})
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    (tmp_path / "bare.py").write_text('def told(): "It is."\ndef silent(): ...\nKnown = int\n"""A number."""\n')
    assert reference._docstrings("bare") == {"told": "It is.", "silent": None, "Known": "A number."}


def test_commands_of_examples_are_commands() -> None:
    from sidecar.cli.app import Parsers

    known = set(Parsers())
    for page in PAGES:
        for block in examples(page):
            if block.language == "console" and not block.needs:
                for command, _ in commands(block):
                    for name in re.findall(r"(?:^|[|;&] ?|=\S+ )sidecar (\S+)", command):
                        assert name in known or name == "--version", command


def rooms() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        if path.name == "__init__.py" and path.parent != PACKAGE:
            yield f"{path.parent.relative_to(PACKAGE)}/"
        elif path.parent == PACKAGE and path.name != "__init__.py":
            yield path.stem


def test_the_map_has_every_room() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    table = text[text.index("| room |") :].split("\n\n")[0]
    listed = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(rooms())


def test_the_layers_of_the_map_are_those_of_the_rules() -> None:
    from tests.test_layers import LAYERS

    (drawn,) = [block.text for block in examples(ARCHITECTURE) if "<-" in block.text]
    assert [set(re.findall(r"\w+", layer)) for layer in drawn.split("<-")] == LAYERS


def steps(title: str) -> str:
    text = ARCHITECTURE.read_text("utf-8")
    return text[text.index(f"## {title}") :].split("\n## ")[0]


@pytest.mark.parametrize("title", ["A plan in ten steps", "A build in ten steps"])
def test_the_steps_name_functions_that_are_there(title: str) -> None:
    text = steps(title)
    assert re.findall(r"^(\d+)\. ", text, re.MULTILINE) == [str(number) for number in range(1, 11)]
    named = re.findall(r"`((?:\w+\.)+\w+)`", text)
    assert len(named) >= 10
    for name in named:
        assert resolved(name) is not None


@pytest.mark.parametrize("page", ["decisions", "internals"])
def test_modules_that_pages_for_developers_name_are_there(page: str) -> None:
    rooms_named = {room.rstrip("/").partition("/")[0] for room in rooms()}
    text = (ROOT / ".github" / "design" / f"{page}.md").read_text("utf-8")
    named = [n for n in re.findall(r"`((?:\w+\.)+\w+)`", text) if n.partition(".")[0] in rooms_named]
    assert named
    for name in named:
        if not name.endswith(".py"):
            assert resolved(name) is not None


def resolved(name: str) -> Any:
    """What a dotted name means: a module of the package, and names in it."""
    parts = name.split(".")
    length = max(n for n in range(1, len(parts) + 1) if is_module(parts[:n]))
    found: Any = import_module("sidecar." + ".".join(parts[:length]))
    for part in parts[length:]:
        found = getattr(found, part)
    return found


def is_module(parts: list[str]) -> bool:
    path = PACKAGE.joinpath(*parts)
    return path.with_suffix(".py").is_file() or path.is_dir()


def test_the_rules_name_tests_that_are_there() -> None:
    for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", ARCHITECTURE.read_text("utf-8")):
        assert (ROOT / path).exists(), path
