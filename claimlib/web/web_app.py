"""Serve the pages of stores to a browser of this machine.

Each address begins with a token that only the user of the process has.  The server listens on the
loopback interface.  It answers only requests whose Host header names this machine, so a page of
another site cannot read its answers.
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

from claimlib import terminal
from claimlib.errors import ClaimlibError, RequestError
from claimlib.process import translated
from claimlib.report.page import Link, Page, render
from claimlib.web.views import PAGES, Query, ServedStore, fleet

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
    by_number = {str(number): served for number, served in enumerate(stores)}
    one_at_a_time = Lock()  # each page uses all cores, so two pages at once would be slower

    def fleet_page(_: Request) -> Response:
        with one_at_a_time:
            return _answer(lambda: fleet(stores), "./")

    def store_page(request: Request) -> Response:
        served = by_number.get(request.path_params["number"])
        page_of: Callable[[ServedStore, Query], Page] | None = PAGES.get(
            request.path_params["name"]
        )
        if served is None or page_of is None:
            return _refused("There is no such page", 404, "../../")
        with one_at_a_time:
            return _answer(lambda: page_of(served, dict(request.query_params)), "groups")

    pages = [Route("/", fleet_page), Route("/stores/{number}/{name}", store_page)]
    # A browser requests the icon by itself, and would report an error if there were no answer.
    icon = Route("/favicon.ico", lambda _: Response(status_code=204))
    return Starlette(
        routes=[Mount(f"/{token}", routes=pages), icon],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))],
    )


def _answer(page_of: Callable[[], Page], back: str) -> Response:
    """Return a response with a page, or with the error that `page_of` raises.

    Args:
        back: the address to which the link of an error page leads.
    """
    try:
        page = page_of()
    except Exception as error:  # noqa: BLE001 - an error must not end the server
        known = translated(error)
        if not isinstance(known, ClaimlibError):
            terminal.say(f"{type(error).__name__}: {error}")
            return _refused("This page cannot be shown: the server has printed why", 500, back)
        return _refused(str(known), 400 if isinstance(known, RequestError) else 503, back)
    return HTMLResponse(render(page), headers=_HEADERS)


def _refused(text: str, status: int, back: str) -> Response:
    page = Page("claimlib", text, links=[Link("Back", back)])
    return HTMLResponse(render(page), status, headers=_HEADERS)
