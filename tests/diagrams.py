"""`python -m tests.diagrams` draws docs/figures/*.svg from the .dot files beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "figures"


@dataclass(frozen=True, slots=True)
class Graph:
    """What a .dot file says.

    Attributes:
        nodes: the shape of each node, by name.
        edges: the style of each edge, by tail and head.
    """

    nodes: dict[str, str]
    edges: dict[tuple[str, str], str]


def sources() -> list[Path]:
    """Return the .dot files."""
    return sorted(FOLDER.glob("*.dot"))


def draw(source: Path, output_format: str = "svg") -> str:
    """Return the drawing of a .dot file in a text format of Graphviz."""
    scripts = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}"
    program = shutil.which("graphviz-pure", path=scripts)
    assert program is not None, "graphviz-pure is missing: run make setup"
    words = [program, f"-T{output_format}", str(source)]
    return subprocess.run(words, check=True, capture_output=True, encoding="utf-8").stdout


def read_graph(source: Path) -> Graph:
    """Return the nodes and edges of a .dot file."""
    graph = json.loads(draw(source, "dot_json"))
    nodes = {node["_gvid"]: node for node in graph["objects"] if "nodes" not in node}
    return Graph(
        nodes={node["name"]: node["shape"] for node in nodes.values()},
        edges={
            (nodes[edge["tail"]]["name"], nodes[edge["head"]]["name"]): edge.get("style", "solid")
            for edge in graph["edges"]
        },
    )


if __name__ == "__main__":
    for dot in sources():
        dot.with_suffix(".svg").write_text(draw(dot), encoding="utf-8")
