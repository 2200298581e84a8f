"""Open addresses in headless Chromium, and print what it finds in them as JSON.

Run by the Python of .venv-browser, which has playwright and axe-core: see `make test-browser`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

VIEWS = {
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    "desktop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
}
"""By name, how a page is opened."""


def observations(
    browser: Browser, addresses: Mapping[str, str], folder: Path
) -> Iterator[dict[str, Any]]:
    """Yield what each view finds in each page: `console`, `requests` of other addresses, `wide`
    (True if the page scrolls sideways) and `violations` of axe-core's rules.

    Args:
        addresses: by name of the page.
        folder: where the pictures go.
    """
    for view, options in VIEWS.items():
        for name, address in addresses.items():
            # axe-core is a script, which the policy of the pages forbids.
            context = browser.new_context(bypass_csp=True, **options)
            page = context.new_page()
            console: list[str] = []
            requests: list[str] = []
            page.on("console", lambda message, to=console: to.append(message.text))
            page.on("pageerror", lambda error, to=console: to.append(str(error)))
            page.on("request", lambda request, to=requests: to.append(request.url))
            page.goto(address)
            page.screenshot(path=folder / f"{name}-{view}.png", full_page=True)
            wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
            broken = Axe().run(page).response["violations"]
            yield {
                "page": name,
                "view": view,
                "console": console,
                "requests": [url for url in requests if url != address],
                "wide": wide,
                "violations": [
                    {"id": of["id"], "impact": of["impact"], "html": of["nodes"][0]["html"]}
                    for of in broken
                ],
            }
            context.close()


def main(chromium: str, addresses: str, folder: str) -> None:
    """Print the observations.

    Args:
        chromium: the program.
        addresses: JSON, by name of the page.
        folder: where the pictures go.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        observed = list(observations(browser, json.loads(addresses), Path(folder)))
        browser.close()
    json.dump(observed, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
