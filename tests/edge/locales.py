"""A locale with an 8-bit encoding: made by localedef, of Debian's package `locales` if need be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

NAME = "de_DE.ISO-8859-1"


class NoLocaleError(Exception):
    """Raised if the locale cannot be made; the message says what to do."""


def eight_bit_locale(folder: Path) -> dict[str, str]:
    """Return the environment variables of a process in that locale."""
    if shutil.which("localedef") is None:
        raise NoLocaleError("localedef is missing: install a glibc with its programs (libc-bin)")
    sources = Path("/usr/share/i18n")
    if not (sources / "charmaps").is_dir():
        sources = _unpacked(folder) / "usr/share/i18n"
    made = folder / "locales" / NAME
    made.parent.mkdir()
    command = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(made)]
    subprocess.run(command, env={"I18NPATH": str(sources), "PATH": "/usr/bin:/bin"}, check=True)
    return {"LOCPATH": str(made.parent), "LC_ALL": NAME}


def _unpacked(folder: Path) -> Path:
    if shutil.which("apt-get") is None:
        raise NoLocaleError("the sources of locales are missing: install the package locales")
    download = ["apt-get", "download", "-q", "locales"]
    if subprocess.run(download, cwd=folder, check=False).returncode:
        subprocess.run(["apt-get", "update", "-q"], cwd=folder, check=True)
        subprocess.run(download, cwd=folder, check=True)
    (package,) = folder.glob("locales_*.deb")
    subprocess.run(["dpkg", "-x", package, folder], check=True)
    return folder
