"""The report's page over HTTP on this machine, kept up to date while ``opsmith conform`` writes results.

Listens on the loopback address only, and answers only those who ask for that name, so that no other site in
the browser can read the page.  A results file that is not whole yet is read again at the next request.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from opsmith.errors import OpsmithError, PortTaken
from opsmith.report.gathering import Gathering
from opsmith.report.page import render
from opsmith.report.report_data import ReportData

HOST = "127.0.0.1"
_CHANGES = "changes"


class Snapshots:
    """The latest document, gathered again where the results file is another than before."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._lock = threading.Lock()
        self._document: ReportData | None = None
        self._token = ""
        self._problem = ""

    def latest(self) -> tuple[ReportData, str, str]:
        """The document, a token that changes with it, and what is wrong with the results, if anything.

        Raises the first time what gathering raises; later, the last good document stays.
        """
        with self._lock:
            token = self._gathering.state
            if self._document is None or token != self._token:
                try:
                    self._document = self._gathering.document()
                    self._problem = ""
                except OpsmithError as error:
                    if self._document is None:
                        raise
                    self._problem = error.message
                self._token = token
            return self._document, self._token, self._problem


def changes(document: ReportData, token: str, problem: str, known: str) -> bytes:
    """The answer to a page that knows the state ``known``: nothing but the token, or what may differ."""
    changed = (
        None
        if token == known
        else {
            "conformance": document.conformance,
            "coverage": document.coverage,
            "trend": document.trend,
            "warnings": document.warnings,
        }
    )
    return msgspec.json.encode({"token": token, "problem": problem, "changed": changed})


@contextmanager
def serving(snapshots: Snapshots, port: int) -> Iterator[str]:
    """Serves the report in threads of its own while the block runs; gives the address.

    ``port`` 0 takes a free one.  Raises :class:`~opsmith.errors.PortTaken`.
    """

    class Handler(_Handler):
        latest = staticmethod(snapshots.latest)

    try:
        server = _Server((HOST, port), Handler)
    except OSError as error:
        raise PortTaken(
            f"port {port} of {HOST} cannot be listened on: {error.strerror}",
            remedy="name another with --port, or --port 0 for a free one",
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A second server on the port is refused, also where the first one runs.
    allow_reuse_port = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Passes over a browser that went away before it had its answer; else as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    latest: Callable[[], tuple[ReportData, str, str]]

    def do_GET(self) -> None:
        try:
            asked = urlsplit(self.path)
        except ValueError:  # such as http://[::1
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", b"that is no address\n")
            return
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in {HOST, "localhost"}:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"opsmith serves this machine only\n")
        elif asked.path == "/":
            self._answer(HTTPStatus.OK, "text/html", self._page())
        elif asked.path == f"/{_CHANGES}":
            known = parse_qs(asked.query).get("after", [""])[0]
            self._answer(HTTPStatus.OK, "application/json", changes(*self.latest(), known))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"the report is at /\n")

    def _page(self) -> bytes:
        document, _, _ = self.latest()
        return render(document, live=_CHANGES).encode()

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: the page asks every second."""
