"""Report one run as an event of OpenLineage, with the tables that the run read and wrote.

Source: the OpenLineage specification.  Its client library writes the facets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.generated.base import DatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.nominal_time_run import NominalTimeRunFacet
from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.storage_dataset import StorageDatasetFacet
from openlineage.client.generated.tags_run import TagsRunFacet, TagsRunFacetFields
from openlineage.client.serde import Serde
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
from openlineage.client.uuid import generate_static_uuid
from requests import RequestException, Session

from claimlib.commands.report_run import RunReport
from claimlib.errors import LineageError, RequestError
from claimlib.places import is_namespace, is_url
from claimlib.runs.rollforward import FinishedRun
from claimlib.schema import TABLES

NAMESPACE = "claimlib"
"""The namespace of the jobs, unless OPENLINEAGE_NAMESPACE names another one."""
PRODUCER = "https://pypi.org/project/claimlib"
_RETRIES = 2


def event_of(report: RunReport) -> RunEvent:
    """Return the event of the end of a run.

    If the event is sent again, it has the same run id.  So a server does not count the run twice.
    The event contains no names of streams, groups or consumers.
    """
    run = report.run
    namespace, prefix = _place(report.where)
    began, ended = _instant(run.began_ms or run.ended_ms), _instant(run.ended_ms)
    return RunEvent(
        eventType=RunState.ABORT if run.is_abandoned else RunState.COMPLETE,
        eventTime=ended.isoformat(),
        producer=PRODUCER,
        run=Run(
            runId=str(generate_static_uuid(began, f"{namespace}{prefix}{run.key}".encode())),
            facets={
                "nominalTime": NominalTimeRunFacet(began.isoformat(), ended.isoformat()),
                "processing_engine": ProcessingEngineRunFacet(
                    run.software_version, f"claimlib {run.engine or ''}".strip()
                ),
                "tags": TagsRunFacet(list(_tags(run))),
            },
        ),
        job=Job(
            namespace=os.environ.get("OPENLINEAGE_NAMESPACE", NAMESPACE),
            name=f"{prefix}{run.command}",
            facets={"jobType": JobTypeJobFacet("BATCH", "CLAIMLIB", "COMMAND")},
        ),
        inputs=[
            *_server_read(run),
            *(
                InputDataset(namespace, f"{prefix}{table}", facets=_facets(table, version))
                for table, version in sorted(run.input_versions.items())
            ),
        ],
        outputs=[
            OutputDataset(namespace, f"{prefix}{table}", facets=_facets(table, version))
            for table, version in sorted(run.output_versions.items())
            if version != run.input_versions.get(table)
        ],
    )


def as_json(report: RunReport) -> str:
    """Return the event of the end of a run as one line of JSON."""
    return Serde.to_json(event_of(report))


def checked_url(url: str) -> str:
    """Return the URL of an OpenLineage server unchanged, if it can be used.

    Raises:
        RequestError: the URL is not http:// or https://, has no host or the port 0, or contains a
            user or a password.
    """
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise RequestError(
            "--openlineage: give the URL of the server, as https://lineage.example:5000, or a file",
            option="openlineage",
        )
    if parts.username is not None or parts.password is not None:
        raise RequestError(
            "--openlineage: the URL contains a user or a password, which others can see: leave them"
            " out, and put the key of the server in OPENLINEAGE_API_KEY",
            option="openlineage",
        )
    return url


def send(report: RunReport, url: str) -> None:
    """Send the event to an OpenLineage server.

    Args:
        url: the URL of the server, without the path of its API.  If the server needs a key, the
            environment variable OPENLINEAGE_API_KEY contains it.

    Raises:
        RequestError: OPENLINEAGE_API_KEY is not ASCII.
        LineageError: the server cannot be reached, or did not accept the event.
    """
    key = os.environ.get("OPENLINEAGE_API_KEY", "")
    if not key.isascii():
        raise RequestError(
            "OPENLINEAGE_API_KEY has characters that no key has: copy the key again",
            option="openlineage",
        )
    session = Session()
    session.max_redirects = 0  # a redirected POST becomes a GET without the event
    config = HttpConfig(f"{url.rstrip('/')}/", session=session)
    retries = {"total": _RETRIES, "connect": _RETRIES, "read": _RETRIES, "status_forcelist": []}
    config.retry = {**config.retry, **retries}
    if key:
        config.auth = ApiKeyTokenProvider({"apiKey": key})
    transport = HttpTransport(config)
    try:
        transport.emit(event_of(report))
    except RequestException as error:
        status = getattr(error.response, "status_code", None)
        failure = "cannot be reached" if status is None else f"answered {status}"
        raise LineageError(
            f"--openlineage: {url} {failure}, so it does not have the event. The run itself is"
            " finished: type the same report again once the server accepts events",
            url=url,
        ) from error
    finally:
        transport.close()


def _tags(run: FinishedRun) -> Iterator[TagsRunFacetFields]:
    """Yield the key of the run and its counts as tags."""
    yield TagsRunFacetFields("claimlib.run", run.key, "CLAIMLIB")
    for name, count in sorted(run.counts.items()):
        yield TagsRunFacetFields(f"claimlib.{name}", str(count), "CLAIMLIB")


def _server_read(run: FinishedRun) -> Iterator[InputDataset]:
    """Yield the server that the run has read, if the run is a snapshot."""
    if run.command == "snapshot" and run.source:
        server, _, database = run.source.rpartition("/")
        yield InputDataset(f"redis://{server}", database)


def _place(where: str) -> tuple[str, str]:
    """Return the namespace of a store's tables, and the prefix of their names.

    Source: the naming conventions of the OpenLineage specification.
    """
    if is_url(where):
        url = urlsplit(where)
        scheme = "s3" if url.scheme.startswith("s3") else url.scheme
        return f"{scheme}://{url.netloc}", f"{url.path.strip('/')}/"
    if is_namespace(where):
        return "catalog", f"{where}."
    return "file", f"{Path(where).resolve()}/"


def _facets(table: str, version: int) -> dict[str, DatasetFacet]:
    columns = TABLES[table].columns
    fields = [SchemaDatasetFacetFields(column.name, column.type) for column in columns]
    return {
        "version": DatasetVersionDatasetFacet(str(version)),
        "storage": StorageDatasetFacet("delta", "parquet"),
        "schema": SchemaDatasetFacet(fields),
    }


def _instant(ms: int | None) -> datetime:
    return datetime.fromtimestamp((ms or 0) / 1000, UTC)
