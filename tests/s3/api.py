"""An S3 API on 127.0.0.1 (moto, a process of its own), and what can fail on the way to it."""

import http.client
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from claimlib.testing.server_process import free_port

HOST = "127.0.0.1"
MOTO = Path(__file__).parents[2] / ".venv-s3" / "bin" / "moto_server"
_START_TIMEOUT_S = 60
# moto takes the service from a request's signature, and checks no more of it until told to.
_SIGNED_FOR_IAM = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/iam/aws4_request,"
    " SignedHeaders=host, Signature=any",
    "Content-Type": "application/x-www-form-urlencoded",
}
_READS_ONLY = (
    '{"Version": "2012-10-17", "Statement":'
    ' [{"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": "*"}]}'
)


class Api:
    """A running S3 API."""

    def __init__(self, port):
        self.port = port
        self.url = f"http://{HOST}:{port}"

    def make_bucket(self, name):
        self._call("PUT", f"/{name}")

    def reader(self):
        """The key, and its secret, of a new user who may read and not write."""
        self._iam("CreateUser", UserName="reader")
        policy = {"PolicyName": "reads", "PolicyDocument": _READS_ONLY}
        self._iam("PutUserPolicy", UserName="reader", **policy)
        made = ET.fromstring(self._iam("CreateAccessKey", UserName="reader"))
        return tuple(
            made.findtext(f".//{{*}}{name}") for name in ("AccessKeyId", "SecretAccessKey")
        )

    @contextmanager
    def checking_who_asks(self):
        """From now on signatures are checked, and users may do what their policies say."""
        self._call("POST", "/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
        try:
            yield
        finally:
            self._call("POST", "/moto-api/reset-auth", b"inf", {"Content-Type": "text/plain"})

    def _iam(self, action, **parameters):
        body = urlencode({"Action": action, "Version": "2010-05-08", **parameters})
        return self._call("POST", "/", body.encode(), _SIGNED_FOR_IAM)

    def _call(self, method, path, body=b"", headers=None):
        status, _, said = answer_of(self.port, method, path, body, headers or {})
        assert status == 200, said
        return said


def answer_of(port, method, path, body, headers):
    """What the server on a port answers: status, headers, body."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


@contextmanager
def s3_api(log):
    """Starts an S3 API that keeps everything in memory, and ends it; `log` is where it writes."""
    port = free_port()
    with log.open("wb") as out:
        words = [MOTO, "-H", HOST, "-p", str(port)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            _wait_for(process, port, log)
            yield Api(port)
        finally:
            process.terminate()
            process.wait()


def _wait_for(process, port, log):
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            answer_of(port, "GET", "/moto-api/", b"", {})
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"moto did not start: {log.read_text(errors='replace')}")


# --------------------------------------------------------------- on the way to it


class Way(ThreadingHTTPServer):
    """Hands each request on to an API, but for those to which it is told to answer 503.

    Attributes:
        fails: whether a request, by its method and path, is answered with 503.
        failed: how many have been.
    """

    daemon_threads = True

    def __init__(self, api):
        super().__init__((HOST, 0), _Handler)
        self.api = api
        self.url = f"http://{HOST}:{self.server_port}"
        self.fails = lambda _method, _path: False
        self.failed = 0
        self._lock = threading.Lock()

    def has_failed(self, method, path):
        with self._lock:
            fails = self.fails(method, path)
            self.failed += fails
        return fails


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.has_failed(self.command, self.path):
            self._send(503, [], b"<Error><Code>SlowDown</Code></Error>")
        else:
            headers = dict(self.headers.items())
            self._send(*answer_of(self.server.api.port, self.command, self.path, body, headers))

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815 - http.server's

    def _send(self, status, headers, body):
        is_head = self.command == "HEAD"
        ours = {"connection", "transfer-encoding"} | (set() if is_head else {"content-length"})
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ours:
                self.send_header(name, value)
        if not is_head:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_words):
        """Nothing: what is answered is what the tests say."""


@contextmanager
def way_to(api):
    """Starts a `Way`, in a thread, and ends it."""
    with Way(api) as way:
        thread = threading.Thread(target=way.serve_forever)
        thread.start()
        try:
            yield way
        finally:
            way.shutdown()
            thread.join()
