"""A scheduled task: every quarter of an hour a snapshot, then what is stalled is claimed.

For a DAGs folder of Airflow 3 with the Apache Spark provider.  The scheduler's run id is
the run id of both jobs, so a retry finds what was done and changes nothing; runs on one store go
one at a time.  Variables: `claimlib_home` (where this project is), `claimlib_store`,
`claimlib_redis_url` (no password: that is REDIS_PASSWORD of the workers).
"""

from datetime import datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

_HOME = "{{ var.value.claimlib_home }}"
_STORE = "{{ var.value.claimlib_store }}"
_RUN = ["--run-id", "{{ run_id }}"]

with DAG(
    dag_id="claimlib",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it as UTC
    schedule=timedelta(minutes=15),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
):
    snapshot = SparkSubmitOperator(
        task_id="snapshot",
        application=f"{_HOME}/jobs/snapshot.py",
        properties_file=f"{_HOME}/conf/spark-defaults.conf",
        application_args=["{{ var.value.claimlib_redis_url }}", _STORE, *_RUN],
    )
    xautoclaim = SparkSubmitOperator(
        task_id="xautoclaim",
        application=f"{_HOME}/jobs/xautoclaim.py",
        properties_file=f"{_HOME}/conf/spark-defaults.conf",
        application_args=[_STORE, "--policy", f"{_HOME}/conf/policy.toml", *_RUN],
    )
    snapshot >> xautoclaim
