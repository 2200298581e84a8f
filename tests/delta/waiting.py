"""Rows that keep the append which writes them waiting, until somebody else has written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame

from claimlib.engine.relation import External, Relation
from claimlib.engine.spark import frame_of


@dataclass(frozen=True, slots=True)
class Waiting:
    """Where the append and its test see each other: files that come to be in a folder."""

    folder: Path

    def rows(self, rows: Relation) -> Relation:
        """The same rows; who writes them waits for `go_on`."""
        return Relation(rows.engine, External(self.frame(frame_of(rows))))

    def frame(self, rows: DataFrame) -> DataFrame:
        """The same rows; who writes them waits for `go_on`."""
        appending, other_is_done = self._files()

        def wait(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for batch in batches:
                appending.touch()
                while not other_is_done.exists():
                    time.sleep(0.05)  # between two looks at the other writer
                yield batch

        # In one task: others have tasks, too, while this one waits.
        return rows.coalesce(1).mapInPandas(wait, rows.schema)

    def until_appending(self, append: Future[object]) -> None:
        """Return once the append waits."""
        appending, _ = self._files()
        while not appending.exists():
            assert not append.done(), append.exception()
            time.sleep(0.05)  # between two looks at the append

    def go_on(self) -> None:
        """Let the append end."""
        _, other_is_done = self._files()
        other_is_done.touch()

    def _files(self) -> tuple[Path, Path]:
        return self.folder / "appending", self.folder / "other is done"
