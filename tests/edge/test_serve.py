"""`claimlib serve`: its pages, and who may read them."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from html.parser import HTMLParser
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urljoin, urlsplit
from urllib.request import Request, urlopen

import pytest
import uvicorn

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import pending_entries, read_store
from claimlib.demo.demo_series import write_series
from claimlib.report.text import visible
from claimlib.semantics.model import AutoclaimRequest
from claimlib.semantics.names import spell
from claimlib.testing.keyspace_rows import write_keyspace
from claimlib.web.views import PAGES, ServedStore, fleet
from claimlib.web.web_app import app_of
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.edge.processes import run_claimlib, started_claimlib
from tests.edge.test_run_report import HOSTILE

TOKEN = "secret-of-this-test"


class Seen(HTMLParser):
    """Parse a page as a browser does: its links, tags, texts and form."""

    def __init__(self, text):
        super().__init__()
        self.links, self.tags, self.loaded, self.texts = [], [], [], []
        self.verdict, self.form, self.values, self.in_verdict = "", None, {}, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        of = dict(attrs)
        self.tags.append(tag)
        if tag == "a":
            self.links.append(of["href"])
        if tag == "form":
            self.form = of["action"]
        if tag == "input":
            # As a browser does it with the value of a field.
            self.values[of["name"]] = of["value"].replace("\x00", "").replace("\n", "")
        self.in_verdict = of.get("class") == "verdict"
        self.loaded += [of[name] for name in ("src", "data", "action") if name in of]

    def handle_data(self, data):
        self.texts.append(data.strip())
        if self.in_verdict:
            self.verdict += data


@pytest.fixture(scope="module")
def stores(empty_store, open_store, tmp_path_factory):
    """A store with the sample series, and one with hostile names and a run."""
    folder = tmp_path_factory.mktemp("served")
    series, hostile = (
        open_store(shutil.copytree(empty_store, folder / name)) for name in ("series", "hostile")
    )
    write_series(series, NOW_MS)
    write_keyspace(hostile, keyspace(*HOSTILE), NOW_MS)
    xautoclaim(hostile, SweepRequest(REQUEST), run_id="r")
    return [ServedStore(store.where, store) for store in (series, hostile)]


@pytest.fixture(scope="module")
def url(stores):
    """The address of the pages of both stores."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # a request waits until the server takes it
        server = uvicorn.Server(uvicorn.Config(app_of(stores, TOKEN), log_level="warning"))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/{TOKEN}/"
        server.should_exit = True
        thread.join()


def get(url, **headers):
    """Return the status, the headers and the text of an answer."""
    try:
        with urlopen(Request(url, headers=headers)) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def test_each_link_of_each_page_leads_to_a_page_and_nothing_is_written(url, stores):
    before = [served.store.pin().versions for served in stores]
    waiting, seen, per_page = [url], {}, dict.fromkeys(PAGES, 0)
    while waiting:
        address = waiting.pop()
        name = urlsplit(address).path.rpartition("/")[2]
        if address in seen or per_page.get(name, 0) >= 12:  # a page has up to 100 entries
            continue
        status, _, text = get(address)
        has_series = not address.endswith("1/advice")  # that store has no snapshot
        assert status == (200 if has_series else 400), address
        assert has_series or "run claimlib snapshot regularly" in text
        seen[address] = page = Seen(text)
        if name in per_page:
            per_page[name] += 1
        assert {"script", "img", "iframe", "object"}.isdisjoint(page.tags)
        assert page.loaded == [] or set(page.loaded) <= set(PAGES)
        for link in page.links:
            target = urljoin(address, link)
            assert target.startswith(url), link
            waiting.append(target)
        if page.form is not None:
            waiting.append(f"{urljoin(address, page.form)}?{urlencode(page.values)}")
    assert all(per_page.values()), per_page
    shown = {text for page in seen.values() for text in page.texts}
    assert {visible(spell(name)) for name in HOSTILE[:7]} <= shown
    assert [served.store.pin().versions for served in stores] == before


def test_only_who_has_the_token_and_names_this_machine_reads_a_page(url):
    status, headers, _ = get(url)
    assert status == 200
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    for other in (url.replace(TOKEN, "guessed"), url.replace(f"{TOKEN}/", "")):
        assert get(other)[0] == 404
    # A page of another site whose name leads to this machine.
    assert get(url, Host="evil.example")[0] == 400


def test_a_group_shows_its_owners_and_its_entries_the_longest_idle_first(url, stores):
    status, _, text = get(f"{url}stores/0/group?stream=orders&group=billing")
    assert status == 200
    at = read_store(stores[0].store)
    entries = [
        row
        for row in pending_entries(at).rows.collect()
        if (row["stream"], row["consumer_group"]) == ("orders", "billing")
    ]
    ids = [
        f"{row['id_ms']}-{row['id_seq']}" for row in sorted(entries, key=lambda r: -r["idle_ms"])
    ]
    texts = Seen(text).texts
    assert next(cell for cell in texts if re.fullmatch(r"\d{13}-\d+", cell)) == ids[0]
    assert {cell for cell in texts if cell in ids} == set(ids)
    for owner in {row["consumer"] for row in entries}:
        own = get(f"{url}stores/0/group?stream=orders&group=billing&consumer={quote(owner)}")[2]
        of_owner = [row for row in entries if row["consumer"] == owner]
        assert sum(cell in ids for cell in Seen(own).texts) == len(of_owner)


def test_a_dry_run_shows_what_other_settings_would_do(url, stores):
    form = get(f"{url}stores/1/dry-run")[2]
    assert "A dry run changes nothing" in form
    text = get(f"{url}stores/1/dry-run?consumer=c&min_idle=15m")[2]
    request = SweepRequest(AutoclaimRequest(b"c", 900_000))
    counts = xautoclaim(stores[1].store, request, dry_run=True).counts
    verdict = Seen(text).verdict
    assert verdict.startswith("Dry run of xautoclaim, which changed nothing: ")
    assert f"{counts['claimed']:,} entries claimed, {counts['deleted']:,} deleted" in verdict
    assert 'value="15m"' in text


def test_a_store_that_cannot_be_read_is_named_and_the_others_are_shown(
    stores, tmp_path, open_store
):
    where = shutil.copytree(stores[0].name, tmp_path / "damaged")
    damaged = ServedStore(str(where), open_store(where))
    shutil.rmtree(where / "pending")
    (section,) = fleet([damaged, stores[0]]).sections
    broken, whole = section.table.rows
    assert broken[0].startswith(f"{where}: ")
    assert broken[1] is None
    assert (whole[0], whole[1]) == (stores[0].name, 2)


@pytest.mark.parametrize(
    ("page", "status", "text"),
    [
        ("group?stream=orders&group=none", 400, "consumer group 'none'"),
        ("group", 400, "name a group"),
        ("entry?stream=orders", 400, "name an entry"),
        ("entry?stream=orders&id=x", 400, "'x'"),
        ("dry-run?consumer=c&min_idle=soon", 400, "'soon'"),
        ("run?run=99", 400, "no finished run 99"),
        ("nothing", 404, "no such page"),
        ("../9/groups", 404, "no such page"),
        (f"../{'9' * 5000}/groups", 404, "no such page"),
    ],
)
def test_what_is_not_there_is_named(url, page, status, text):
    answer = get(urljoin(f"{url}stores/0/", page))
    assert answer[0] == status
    assert text in Seen(answer[2]).verdict


def test_the_command_prints_the_address_and_ends_by_ctrl_c(stores):
    words = ("serve", *(served.name for served in stores))
    with started_claimlib(*words, JAVA_HOME="/nowhere") as process:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        texts = Seen(get(address)[2]).texts
        assert {served.name for served in stores} <= set(texts)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert address.split("/")[3] not in err


def test_a_port_that_is_taken_and_a_store_that_is_none_are_refused(stores, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_claimlib("serve", stores[0].name, "--port", port)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--port {port}: the port cannot be used" in done.stderr
    done = run_claimlib("serve", tmp_path / "none")
    assert (done.returncode, done.stdout) == (4, "")
