"""The figures in docs/figures are those of their texts, and say what the code says."""

import pytest

from claimlib.runs import Phase
from tests.diagrams import FOLDER, draw, read_graph, sources
from tests.modules import files_of, imported_of_claimlib, table_of_modules

MODULES = {module for row in table_of_modules()[0] for module in row}


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.stem)
def test_a_figure_is_the_drawing_of_its_text(source):
    assert source.with_suffix(".svg").read_text(encoding="utf-8") == draw(source), "make figures"


def test_each_figure_has_a_text():
    drawings = {path.stem for path in FOLDER.glob("*.svg")}
    assert {path.stem for path in sources()} == {"packages", "run"}
    assert drawings == {"packages", "run", "maintenance"}
    assert {path.stem for path in FOLDER.glob("*.json")} == {"maintenance"}


def test_the_packages_of_the_figure_are_the_rows_of_the_table():
    nodes = read_graph(FOLDER / "packages.dot").nodes
    assert {name for name, shape in nodes.items() if shape == "box"} == MODULES


def test_the_arrows_of_the_figure_are_the_imports_that_do_not_follow_from_others():
    edges = read_graph(FOLDER / "packages.dot").edges
    arrows = {edge for edge, style in edges.items() if style == "solid"}
    assert arrows == without_implied(imports())


def test_the_phases_of_a_run_are_in_its_figure():
    nodes = read_graph(FOLDER / "run.dot").nodes
    assert set(nodes) >= set(Phase)


def imports():
    """Return the modules that each module imports."""
    return {module: imports_of(module) & (MODULES - {module}) for module in MODULES}


def imports_of(module):
    names = set().union(*map(imported_of_claimlib, files_of(module)))
    return {name.partition(".")[0] for name in names}


def without_implied(graph):
    """Return the edges of a graph without cycles, except those that a longer path implies."""
    return {
        (tail, head)
        for tail, heads in graph.items()
        for head in heads
        if not any(head in reachable(other, graph) for other in heads - {head})
    }


def reachable(start, graph):
    """Return the nodes that paths lead to from a node."""
    return set().union(graph[start], *(reachable(head, graph) for head in graph[start]))


def test_an_edge_that_a_longer_path_implies_is_left_out():
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert without_implied(graph) == {("a", "b"), ("b", "c"), ("c", "d")}
