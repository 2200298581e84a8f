"""`python -m tests.plots` draws docs/figures/maintenance.svg from the .json file beside it.

It needs matplotlib, which is in the environment of `make figures` only.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

SOURCE = Path(__file__).parents[1] / "docs" / "figures" / "maintenance.json"
PANELS = (
    ("run_cpu_s", 1, "CPU time of one run (s)"),
    ("files", 1, "files on disk"),
    ("bytes", 1e6, "size on disk (MB)"),
)
"""The name, the unit and the title of each panel."""


def draw(source: Path) -> None:
    """Draw the figures of a file of `tests.bench.maintenance`, one panel for each, as SVG."""
    # The same figures give the same file: no random names, no date.
    mpl.rcParams.update({"svg.hashsalt": "claimlib", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    measured = json.loads(source.read_text(encoding="utf-8"))
    for panel, (name, unit, title) in zip(figure.subplots(1, 3), PANELS, strict=True):
        for (store, points), marker in zip(measured.items(), "os", strict=True):
            runs = [point["runs"] for point in points]
            panel.plot(runs, [point[name] / unit for point in points], marker=marker, label=store)
        panel.set(title=title, xlabel="runs", ylim=(0, None))
        panel.grid(alpha=0.3)
    panel.legend(title="claimlib maintain")
    figure.savefig(source.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    draw(SOURCE)
