"""Each page in a browser (`make test-browser`).

No test_ in this file's name: `make test` leaves it out, because it needs Chromium and an
environment with playwright.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from urllib.parse import urlencode

import pytest

from claimlib.commands.report_period import period_report
from claimlib.commands.report_run import run_report
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import pending_entries, read_store
from claimlib.demo.demo_series import write_series
from claimlib.report.run_report_html import as_html, period_as_html
from claimlib.semantics.model import AutoclaimRequest
from tests.edge.processes import ROOT, started_claimlib

NOW_MS = 1_767_268_800_000
PYTHON = ROOT / ".venv-browser/bin/python"
PICTURES = ROOT / "build/pages"


@pytest.fixture(scope="module")
def addresses(empty_store, open_store, tmp_path_factory):
    """The addresses of all pages, by name, while a process serves them."""
    folder = tmp_path_factory.mktemp("pages")
    store = open_store(shutil.copytree(empty_store, folder / "store"))
    write_series(store, NOW_MS)
    xautoclaim(store, SweepRequest(AutoclaimRequest(b"reclaimer", 900_000)), run_id="nightly")
    (folder / "report.html").write_text(as_html(run_report(store)), encoding="utf-8")
    (folder / "period.html").write_text(period_as_html(period_report(store, 0)), encoding="utf-8")
    entry = pending_entries(read_store(store)).rows.order_by("id_ms").first()
    assert entry is not None
    key = {"stream": entry["stream"], "group": entry["consumer_group"]}
    dry_run = {"consumer": "c", "min_idle": "0s"}
    of_entry = {**key, "id": f"{entry['id_ms']}-{entry['id_seq']}"}
    pages = ("groups", "entries", "runs", "run", "advice", "dry-run", f"group?{urlencode(key)}")
    pages += (f"dry-run?{urlencode(dry_run)}", f"entry?{urlencode(of_entry)}", "none")
    with started_claimlib("serve", store.where) as process:
        url = process.stdout.readline().strip()
        yield {
            "fleet": url,
            **{page.replace("?", "-of-")[:30]: f"{url}stores/0/{page}" for page in pages},
            **{name: (folder / f"{name}.html").as_uri() for name in ("report", "period")},
        }


@pytest.fixture(scope="module")
def observed(addresses):
    """Return what Chromium finds in each page, on a phone and on a desktop."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "install Chromium: apt-get install chromium"
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    words = (PYTHON, "-m", "tests.browser.look", chromium, json.dumps(addresses), PICTURES)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_page_is_opened_in_each_view(observed, addresses):
    assert {(of["page"], of["view"]) for of in observed} == {
        (page, view) for page in addresses for view in ("phone", "desktop")
    }
    assert len(list(PICTURES.glob("*.png"))) == 2 * len(addresses)


def test_no_page_has_an_error_loads_anything_or_scrolls_sideways(observed):
    for of in observed:
        missing = of["page"] == "none"  # a page that does not exist is shown as an error
        assert len(of["console"]) == missing, of
        assert [url for url in of["requests"] if not url.endswith("/favicon.ico")] == [], of
        assert not of["wide"], of


def test_axe_core_finds_nothing(observed):
    assert [of for of in observed if of["violations"]] == []
