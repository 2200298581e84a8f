"""Stores are created, opened and upgraded by their location: with Spark, or without."""

import threading

import pytest

from claimlib import StoreExistsError, StoreNotFoundError, init, open_store, upgrade
from claimlib.commands import stores


@pytest.fixture
def without_spark(monkeypatch):
    """No session is there, and none can be started."""

    def refuse():
        raise AssertionError("Spark is not needed")

    monkeypatch.setattr(stores, "reads_paths_as_local_folders", lambda *_: True)
    monkeypatch.setattr(stores, "open_session", refuse)


@pytest.mark.usefixtures("without_spark")
def test_a_store_in_a_folder_needs_no_spark(tmp_path):
    where = str(tmp_path / "store")
    with pytest.raises(StoreNotFoundError, match="no store at"):
        open_store(where)
    with pytest.raises(StoreNotFoundError, match="no store at"):
        upgrade(where)
    created = init(where, buckets=2, source="lake")
    assert (created.buckets, created.declared_source) == (2, "lake")
    assert init(where).buckets == 2
    with pytest.raises(StoreExistsError, match="2 buckets"):
        init(where, buckets=3)
    opened = open_store(where)
    assert (opened.is_embedded, opened.table_ids) == (True, created.table_ids)
    assert upgrade(where).tables == ()


@pytest.mark.usefixtures("without_spark")
def test_a_store_is_opened_in_the_session_that_is_passed(spark, store_path):
    where = str(store_path)
    assert not open_store(where, spark=spark).is_embedded
    assert open_store(where, spark=spark).spark is spark
    assert not init(where, spark=spark).is_embedded
    assert upgrade(where, spark=spark).tables == ()


def test_threads_that_need_a_session_start_one(monkeypatch):
    started, lock = [], threading.Lock()

    def open_session():
        assert lock.acquire(blocking=False), "two threads start a session at once"
        started.append("session")
        lock.release()
        return started[0]

    monkeypatch.setattr(stores, "open_session", open_session)
    results = []
    threads = [threading.Thread(target=lambda: results.append(stores._session())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["session"] * 4
