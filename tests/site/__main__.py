"""Builds the documentation site into build/site, to be read offline: `make docs`.

The pages are README.md, the other documents beside it and those in docs/, and one page each for the
public functions, values and errors, from their docstrings.  Their order follows from the README: a
new page needs no entry in a list.
"""

from __future__ import annotations

import ast
import logging
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.commands.build import build
from mkdocs.config import load_config

import claimlib
from tests.edge.documents import ALL_DOCUMENTS, ROOT, is_relative, links, section
from tests.unit.public_api import MADE, VALUES

SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
HOME, CHANGES = "README.md", "CHANGELOG.md"
_API = {
    "functions": "The functions that users call, in the order of the alphabet.",
    "values": "The requests, replies and other values that functions take and return.",
    "errors": "Every error that claimlib raises on purpose. `claimlib.errors` shows the tree.",
}
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*\bhref=["']?(?:https?:)?//[^>]*>"""
    r"""|\burl\(["']?(?:https?:)?//[^)]*\)|@import\s+["'](?:https?:)?//[^"']*""",
    re.IGNORECASE,
)


def main() -> int:
    """Build the site; the exit code."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in ALL_DOCUMENTS:
        for file in (page, *_linked_files(page)):
            _copy(file)
    (SOURCE / "assets").mkdir()
    for name in ("iframe-worker.js", "wide.css"):
        shutil.copy(Path(__file__).with_name(name), SOURCE / "assets")
    api = _write_api()
    config: Any = load_config(
        str(Path(__file__).with_name("mkdocs.yml")),
        docs_dir=str(SOURCE),
        site_dir=str(SITE),
        nav=[*_navigation(), {"Python API": api}, {"Project": _project()}],
        strict=True,
    )
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    loaded = sorted(_loaded_from_elsewhere())
    print(*loaded, sep="\n", file=sys.stderr)
    print(f"{SITE / 'index.html'}: {len(list(SITE.rglob('*.html')))} pages")
    return int(bool(loaded))


def _linked_files(page: str) -> Iterator[str]:
    """Yield the files that a page links to and that are no pages."""
    for link in filter(is_relative, links(page)):
        name = link.partition("#")[0]
        if name and not name.endswith(".md"):
            yield ((ROOT / page).parent / name).resolve().relative_to(ROOT).as_posix()


def _copy(file: str) -> None:
    target = SOURCE / file
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / file, target)


# ------------------------------------------------------------------- the order of the pages


def _navigation() -> list[Any]:
    """Return the pages of docs/ as the README lists them, then the folders in docs/."""
    listed = re.findall(r"\]\((docs/[^)#]+\.md)", section(HOME, "## Read on"))
    first = [page for page in dict.fromkeys(listed) if page in ALL_DOCUMENTS]
    folders: dict[str, list[str]] = defaultdict(list)
    for page in ALL_DOCUMENTS:
        if page.startswith("docs/") and page not in first:
            folders[page.rpartition("/")[0]].append(page)
    others = folders.pop("docs", [])
    titled = [{_title(folder): pages} for folder, pages in sorted(folders.items())]
    return [{"Home": HOME}, *first, *others, *titled]


def _project() -> list[str]:
    """Return the documents that are neither the README nor in docs/, the changelog last."""
    others = {HOME, CHANGES}
    return [
        *(page for page in ALL_DOCUMENTS if page not in others and not page.startswith("docs/")),
        CHANGES,
    ]


def _title(folder: str) -> str:
    return folder.rpartition("/")[2].replace("-", " ").capitalize()


# ------------------------------------------------------------------- the public names


def _write_api() -> list[Any]:
    """Write a page for each kind of public names, and return the pages with their titles."""
    pages = defaultdict(list)
    for name, module in sorted(claimlib._HOMES.items()):
        pages[_kind(name, module)].append(_entry(name, module))
    folder = SOURCE / "api"
    folder.mkdir()
    for kind, about in _API.items():
        text = "\n".join([f"# {kind.capitalize()}\n", f"{about}\n", *pages[kind]])
        (folder / f"{kind}.md").write_text(text, encoding="utf-8")
    return [{kind.capitalize(): f"api/{kind}.md"} for kind in _API]


def _kind(name: str, module: str) -> str:
    if name.endswith("Error"):
        return "errors"
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    defined = ast.parse(file.read_text(encoding="utf-8")).body
    is_function = any(isinstance(node, ast.FunctionDef) and node.name == name for node in defined)
    return "functions" if is_function else "values"


def _entry(name: str, module: str) -> str:
    if name in MADE:
        chosen = f"['!.', '^({'|'.join(MADE[name])})$']"
        options = [f"filters: {chosen}", "inherited_members: true", "show_bases: false"]
        options += ["merge_init_into_class: false"]
    else:
        options = ["members: false"] if name in VALUES else []
    lines = [f"::: {module}.{name}", "    options:", f"      heading: {name}"]
    return "\n".join([*lines, *(f"      {option}" for option in options), ""])


# ------------------------------------------------------------------- offline


def _loaded_from_elsewhere() -> Iterator[str]:
    """Yield what pages and styles would load from another host."""
    for file in SITE.rglob("*"):
        if file.suffix in {".html", ".css"}:
            for match in _LOADED.finditer(file.read_text(encoding="utf-8")):
                yield f"{file.relative_to(SITE)}: {match[0]}"


if __name__ == "__main__":
    sys.exit(main())
