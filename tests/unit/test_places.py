"""Places of tables and stores that have a secret in them, and those that look as if they had."""

import pytest

from claimlib.errors import RequestError
from claimlib.places import check_no_secret

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
    "gs://bucket/table",
    "spark://host:7077",
    "k8s://https://host:6443",
    "local[*]",
]


@pytest.mark.parametrize("place", WITH_A_SECRET)
def test_a_place_with_a_secret_is_refused_and_not_repeated(place):
    with pytest.raises(RequestError, match="take it out, and give it to Spark") as raised:
        check_no_secret(place, "the store's place")
    assert "sesame" not in f"{raised.value!r} {raised.value.fields}"
    assert raised.value.message.startswith("the store's place ")


@pytest.mark.parametrize("place", WITHOUT_ONE)
def test_a_place_without_a_secret_is_taken(place):
    check_no_secret(place, "a table's place")
