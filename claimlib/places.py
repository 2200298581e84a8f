"""Check places of tables and stores, as users give them.

Places are kept in the journal and shown, so they must not contain a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from claimlib.errors import RequestError, StorageError

# All text that looks like a URL, wherever it begins, because a typing error before it must not hide
# a secret in it.
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*):(?P<slashes>/{1,3})(?=(?P<host>[^/?#]*)(?P<rest>.*))",
    re.IGNORECASE | re.DOTALL,
)
# In a query, a connection string or the parameters of a Spark Connect address.
_PARAMETER = re.compile(
    r"(?:[;?&]|^(?=[^/]*;))[^;?&=/]*"
    r"(?:password|passwd|pwd|secret|token|sig|credential|(?:access|account|api)[ _-]?key)"
    r"[^;?&=/]*=",
    re.IGNORECASE,
)
_JDBC_LOGIN = re.compile(r"\s*jdbc:[^?]*@", re.IGNORECASE)
_AZURE = {"abfs", "abfss", "wasb", "wasbs"}  # container@account
S3 = {"s3", "s3a", "s3n"}
"""URL schemes of S3."""
_PORT = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::[0-9]*)?")


_NAMESPACE = re.compile(r"[\w-]+\.[\w-]+")
_HALF_A_NAMESPACE = re.compile(r"[\w-]+\.")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://?")


_SERVER = re.compile(r"(?:https?|rediss?)://", re.IGNORECASE)


def is_namespace(where: str) -> bool:
    """Return True if the place of a store is a schema of a catalog: `catalog.schema`."""
    return _NAMESPACE.fullmatch(where) is not None


def is_url(where: str) -> bool:
    """Return True if the place of a store begins with a scheme, as `s3a://` does."""
    return _HAS_SCHEME.match(where) is not None


def local_folder(where: str) -> Path | None:
    """Return the absolute path of a store's folder on this machine, without `..`.

    Return None if the place is a schema or a URL.
    """
    return None if is_namespace(where) or is_url(where) else shown_path(Path(where))


def shown_path(path: Path) -> Path:
    """Return a path as messages show it.

    It is absolute, because a log may be read elsewhere.  Links are resolved only if the path has
    `..`, which is relative to their target.
    """
    path = path.absolute()
    if ".." in path.parts:
        with suppress(OSError, RuntimeError, ValueError):  # the error comes when the path is opened
            return path.resolve()
    return path


def check_writable(folder: Path, tables: Iterable[str]) -> None:
    """Raise StorageError if this user may not write to a store in a folder of this machine.

    A table is written in its folder, in its `_delta_log` and in the folders of its partitions.  A
    folder that does not exist yet is created in its parent folder.

    Args:
        tables: the names of the store's tables.  There may be other folders beside theirs.
    """
    own = [path for path in (folder / table for table in tables) if path.is_dir()]
    for path in (folder, *own, *(part for table in own for part in _folders_in(table))):
        above = next(place for place in (path, *path.parents) if place.exists())
        if not os.access(above, os.W_OK | os.X_OK):
            is_read_only = bool(os.statvfs(above).f_flag & os.ST_RDONLY)
            raise StorageError(
                f"the storage of {above} is read-only: make it writable, or give another location"
                if is_read_only
                else f"no permission to write to {above}: change its permissions, or give another"
                " location",
                folder=str(above),
            )


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except OSError:  # it cannot be read, or was just deleted: a read reports that
        return []


def check_place(place: str, what: str) -> None:
    """Refuse a place that names no folder, URL or schema that Spark can open.

    Raises:
        RequestError: the place is empty, for example because a script's variable is not set.  Or it
            is a catalog without a schema (`catalog.`), or is not UTF-8.
    """
    if not place.strip():
        raise RequestError(f"{what} is empty: give a folder, a URL, or catalog.schema")
    try:
        place.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{what} is {place!a}, which is not valid UTF-8, so that Spark cannot open it:"
            " rename the folder"
        ) from error
    if _HALF_A_NAMESPACE.fullmatch(place):
        raise RequestError(
            f"{what} is {place}, which has no schema: give catalog.schema; a folder of this name is"
            f" written ./{place}"
        )


def check_storage(place: str, what: str) -> None:
    """Refuse the address of a web server or of a Redis server.

    Spark would look for tables there, and fail with an error of its own.  The message does not
    repeat the place, because it may contain a secret.

    Raises:
        RequestError: the place is such an address.
    """
    scheme = _SERVER.match(place)
    if scheme:
        raise RequestError(
            f"{what} begins with {scheme[0]}, but tables cannot be stored there: give a folder, a"
            " URL of storage (s3a://bucket/store), or a name of a catalog"
        )


def check_no_secret(place: str, what: str) -> None:
    """Refuse a place that contains a password, a key or a token.

    Such places are `s3a://KEY:SECRET@bucket`, a URL with a query, and `…;password=…`.
    `abfss://container@account` contains no secret.

    Args:
        what: the name of what is refused, for the message.  The message does not repeat the place.

    Raises:
        RequestError: the place contains a secret, or text that looks like one.
    """
    if _PARAMETER.search(place) or _JDBC_LOGIN.match(place) or any(map(_has_one, _urls(place))):
        raise RequestError(
            f"{what} contains a secret, or something that looks like one (before an @, after a ?,"
            " or in a parameter). Locations are stored and shown, so remove it, and give it to"
            " Spark as a setting (for example spark.hadoop.fs.s3a.secret.key) or through the"
            " machine's identity; a table can also be given by its name in a catalog"
        )


def _urls(text: str) -> list[re.Match[str]]:
    return list(_URL.finditer(text))


def _has_one(url: re.Match[str]) -> bool:
    scheme, has_host = url["scheme"].lower(), url["slashes"] != "/"
    if scheme == "file":
        return False
    user, at, server = url["host"].rpartition("@")
    if at and (":" in user or (has_host and scheme not in _AZURE)):
        return True
    # Text behind a colon that is no port may be a secret that contains a slash.
    is_port = _PORT.fullmatch(server) is not None and not (scheme in S3 and ":" in server)
    return "?" in url["rest"] or not is_port
