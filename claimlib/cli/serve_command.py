"""Define the command that shows stores in a browser: serve."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Annotated

import typer

from claimlib import terminal
from claimlib.cli.app import command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.config.sections import Option
from claimlib.errors import RequestError


@command("serve ./store ./other-store")
def serve(
    stores: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE...",
            help="Locations of stores: folders, URLs (s3a://…), or catalog.schema.",
            show_default=False,
        ),
    ],
    *,
    port: Annotated[
        int | None,
        Option("The port to listen on.", "PORT", unset="a free one", least=1),
    ] = None,
    common: Common,
) -> None:
    """Show stores in a browser on this machine, until Ctrl-C.

    Prints the address of the page. The address begins with a token, which is new each time. Any
    user of this machine who has the address can read the stores. The server listens on 127.0.0.1.

    The pages show stores and groups, pending entries by age and owner, the history of an entry,
    runs and their reports, and what a dry run would do. Changes nothing.
    """
    import uvicorn

    from claimlib.web.views import ServedStore
    from claimlib.web.web_app import HOSTS, app_of

    settings, token = common.settings(), secrets.token_urlsafe(24)
    with ExitStack() as opened, socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOSTS[0], port or 0))
            listening.listen()
        except (OSError, OverflowError) as error:
            raise RequestError(
                f"--port {port}: the port cannot be used ({error}): name another one, or leave it"
                " out",
                option="port",
            ) from error
        # Otherwise progress would be shown until Ctrl-C.
        silent = replace(common, quiet=True, verbose=False)
        served = [
            ServedStore(where, opened.enter_context(opened_store(where, settings, silent))[0])
            for where in stores
        ]
        config = uvicorn.Config(
            app_of(served, token), log_level="warning", access_log=False, server_header=False
        )
        terminal.out(f"http://{HOSTS[0]}:{listening.getsockname()[1]}/{token}/", at_once=True)
        if not common.quiet:
            terminal.say("open this address in a browser; Ctrl-C ends the server")
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])
