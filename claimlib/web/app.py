"""Serve the pages of stores to a browser of this machine.

Each address begins with a token that only the user of the process has.  The server listens on the
loopback interface, and answers only requests that name it, so no page of another site can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route

from claimlib.errors import ClaimlibError, RequestError
from claimlib.report.page import Link, Page, render
from claimlib.web.pages import PAGES, Query, ServedStore, fleet

HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def app_of(stores: Sequence[ServedStore], token: str) -> Starlette:
    """Return the application that serves the pages of stores under a token."""
    one_at_a_time = Lock()  # a page reads with all cores; two at once would both be slower

    def fleet_page(_: Request) -> Response:
        with one_at_a_time:
            return _answer(lambda: fleet(stores))

    def store_page(request: Request) -> Response:
        number, name = request.path_params["number"], request.path_params["name"]
        if number >= len(stores) or name not in PAGES:
            return _refused("There is no such page", 404)
        page_of: Callable[[ServedStore, Query], Page] = PAGES[name]
        with one_at_a_time:
            return _answer(lambda: page_of(stores[number], dict(request.query_params)))

    pages = [Route("/", fleet_page), Route("/stores/{number:int}/{name}", store_page)]
    # A browser asks for it by itself, and would report an error.
    icon = Route("/favicon.ico", lambda _: Response(status_code=204))
    return Starlette(
        routes=[Mount(f"/{token}", routes=pages), icon],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))],
    )


def _answer(page_of: Callable[[], Page]) -> Response:
    try:
        page = page_of()
    except RequestError as error:
        return _refused(str(error), 400)
    except ClaimlibError as error:
        return _refused(str(error), 503)
    return HTMLResponse(render(page), headers=_HEADERS)


def _refused(text: str, status: int) -> Response:
    page = Page("claimlib", text, links=[Link("Back to the groups", "groups")])
    return HTMLResponse(render(page), status, headers=_HEADERS)
