"""The session and the store of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from claimlib.config import Config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from claimlib.runs import Progress
    from claimlib.store import Store


@contextmanager
def opened_store(store: str, settings: Config, *, debug: bool) -> Iterator[tuple[Store, Progress]]:
    """The store, and the callback that shows a run's progress."""
    from claimlib.cli.progress import shown
    from claimlib.store import Store

    with shown(partial(session_of, settings, debug=debug)) as (spark, progress):
        yield Store.open(spark, store), progress


def session_of(settings: Config, *, debug: bool) -> SparkSession:
    """The session that the settings ask for."""
    from claimlib.session import open_session

    return open_session(**settings.spark.model_dump(), muted=not debug)
