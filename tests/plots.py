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
    ("run_s", "one run (s)"),
    ("xpending_s", "xpending (s)"),
    ("files", "files on disk"),
    ("bytes", "bytes on disk"),
)


def draw(source: Path) -> None:
    """Draw the figures of a file of `tests.bench.maintenance`, one panel for each, as SVG."""
    # The same figures give the same file: no random names, no date.
    mpl.rcParams.update({"svg.hashsalt": "claimlib", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(8, 5), layout="constrained")
    measured = json.loads(source.read_text(encoding="utf-8"))
    for panel, (name, title) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        for (store, points), marker in zip(measured.items(), "os", strict=True):
            runs = [point["runs"] for point in points]
            panel.plot(runs, [point[name] for point in points], marker=marker, label=store)
        panel.set(title=title, xlabel="runs", ylim=(0, None))
        panel.grid(alpha=0.3)
    panel.legend(title="claimlib maintain")
    figure.savefig(source.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    draw(SOURCE)
