"""Places of tables and stores that have a secret in them, and those that look as if they had."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from claimlib.errors import RequestError, StorageError
from claimlib.places import (
    check_no_secret,
    check_place,
    check_storage,
    check_writable,
    is_namespace,
    is_url,
    local_folder,
    shown_path,
)

WITH_A_SECRET = [
    "s3a://KEY:sesame@bucket/table",
    "s3a://KEY:ses/ame@bucket/table",
    "s3a://KEY:12/sesame@bucket/table",
    "S3://KEY:sesame@bucket",
    "s3a:/KEY:sesame@bucket",
    " s3a://KEY:sesame@bucket",
    "./s3a://KEY:sesame@bucket",
    "https://sesame@host/table",
    "https://user:sesame@host/table",
    "hdfs://user:sesame@host:8020/table",
    "abfss://container:sesame@account.dfs.core.windows.net/table",
    "abfss://container@account.dfs.core.windows.net/table?sv=1&sig=sesame",
    "https://account.blob.core.windows.net/c/t?sig=sesame",
    "https://host/table?sesame",
    "jdbc:postgresql://host/db?user=u&password=sesame",
    "jdbc:postgresql://u:sesame@host/db",
    "jdbc:sqlserver://host;databaseName=d;Password=sesame",
    "jdbc:oracle:thin:scott/sesame@//host:1521/service",
    "Server=tcp:host;User Id=u;Pwd=sesame;",
    "Password=sesame;Server=host",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=sesame",
    "sc://host:15002/;token=sesame",
    "sc://host:15002/;use_ssl=true;x-api-token=sesame",
]
WITHOUT_ONE = [
    "main.streams.pending",
    "pending",
    "./lake/pending",
    "/data/day=5/token=7/part-0.parquet",
    "/data/what?.parquet",
    "./somebody@host:/table",
    "s3a://bucket/table",
    "s3a://bucket/a@b:c/table",
    "abfss://container@account.dfs.core.windows.net/some@table",
    "ABFS://container@account/table",
    "wasbs://container@account.blob.core.windows.net/table",
    "hdfs://host:8020/user/somebody@host/table",
    "hdfs://[::1]:8020/table",
    "file:///data/what?/some:thing@here",
    "dbfs:/mnt/some@table",
    "dbfs:/some@table",
    "gs://bucket/table",
    "spark://host:7077",
    "k8s://https://host:6443",
    "local[*]",
]


@pytest.mark.parametrize("place", WITH_A_SECRET)
def test_a_place_with_a_secret_is_refused_and_not_repeated(place):
    with pytest.raises(RequestError, match="so remove it, and give it to Spark") as raised:
        check_no_secret(place, "the store's place")
    assert "sesame" not in f"{raised.value!r} {raised.value.fields}"
    assert raised.value.message.startswith("the store's place ")


@pytest.mark.parametrize("place", WITHOUT_ONE)
def test_a_place_without_a_secret_is_taken(place):
    check_no_secret(place, "a table's place")


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("main.streams", "namespace"),
        ("./main.streams", "folder"),
        ("store", "folder"),
        ("/data/store", "folder"),
        ("a.b.c", "folder"),
        ("s3a://bucket/store", "url"),
        ("file:/data/store", "url"),
        ("dbfs:/mnt/store", "url"),
    ],
)
def test_the_place_of_a_store_is_a_schema_a_url_or_a_folder_of_this_machine(place, kind):
    assert (is_namespace(place), is_url(place)) == (kind == "namespace", kind == "url")
    assert local_folder(place) == (Path(place).absolute() if kind == "folder" else None)


@pytest.mark.parametrize("place", ["", " ", "\t"])
def test_a_place_without_a_text_is_refused(place):
    with pytest.raises(RequestError, match="STORE is empty"):
        check_place(place, "STORE")
    check_place("store", "STORE")


def test_a_catalog_without_a_schema_is_no_place():
    with pytest.raises(RequestError, match=r"STORE is lake\., which has no schema: .* \./lake\."):
        check_place("lake.", "STORE")
    for place in ("lake.shop", "./lake.", "/lake.", ".", ".."):
        check_place(place, "STORE")


@pytest.mark.parametrize("scheme", ["http://", "HTTPS://", "redis://", "rediss://"])
def test_the_address_of_a_server_is_no_place_for_tables_and_is_not_repeated(scheme):
    with pytest.raises(RequestError, match=f"STORE begins with {scheme}, but tables cannot be"):
        check_storage(f"{scheme}host/x", "STORE")


@pytest.mark.parametrize(
    "place", ["./http:/host", "s3a://bucket/http://x", "main.http", "ftp://h/x"]
)
def test_all_else_may_be_storage(place):
    check_storage(place, "STORE")


def test_a_place_that_is_not_utf_8_is_refused_and_shown_in_ascii() -> None:
    with pytest.raises(RequestError, match=r"^STORE is 'st.udcffore', which is not valid UTF-8"):
        check_place("st\udcffore", "STORE")
    check_place("störe", "STORE")


def test_a_folder_that_cannot_be_listed_is_left_to_the_reader_of_the_table(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "pending" / "part").mkdir(parents=True)

    def refuse(folder: Path) -> None:
        raise PermissionError(folder)

    monkeypatch.setattr("os.scandir", refuse)
    check_writable(tmp_path, ["pending"])


def test_a_link_is_resolved_only_in_a_path_with_two_dots(tmp_path: Path) -> None:
    (tmp_path / "target" / "deep").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target" / "deep")
    assert shown_path(link) == link
    assert shown_path(link / ".." / "store") == tmp_path / "target" / "store"


@pytest.mark.parametrize("error", [OSError, RuntimeError, ValueError])
def test_a_path_that_cannot_be_resolved_is_shown_as_it_is(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> Path:
        raise error

    monkeypatch.setattr(Path, "resolve", fail)
    assert shown_path(Path("/a/../b")) == Path("/a/../b")


def test_a_store_is_writable_if_its_folder_its_tables_and_their_folders_are(
    tmp_path, monkeypatch
) -> None:
    bucket = tmp_path / "pending" / "bucket=1"
    bucket.mkdir(parents=True)
    (tmp_path / "pending" / "part.parquet").touch()
    (tmp_path / "photos").mkdir()
    tested = []
    monkeypatch.setattr("os.access", lambda path, mode: tested.append((path, mode)) or True)
    check_writable(tmp_path, ["pending", "entries"])
    folders = (tmp_path, tmp_path / "pending", bucket)
    assert tested == [(folder, os.W_OK | os.X_OK) for folder in folders]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (os.ST_RDONLY | os.ST_NOSUID, "the storage of {} is read-only: "),
        (os.ST_NOSUID, "no permission to write to {}: "),
    ],
)
def test_the_nearest_folder_that_exists_is_named_if_it_is_not_writable(
    tmp_path, monkeypatch, flags, message
) -> None:
    storage = {tmp_path: SimpleNamespace(f_flag=flags)}
    monkeypatch.setattr("os.access", lambda path, _mode: path != tmp_path)
    monkeypatch.setattr("os.statvfs", storage.__getitem__)
    with pytest.raises(StorageError) as raised:
        check_writable(tmp_path / "new" / "store", [])
    assert raised.value.message.startswith(message.format(tmp_path))
    assert raised.value.folder == str(tmp_path)
