"""A stand-in for a collector of spans: OTLP over HTTP on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What came, and where it listens."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.services: set[str] = set()
        self.spans: dict[str, Any] = {}  # by name

    def take(self, path: str, body: bytes) -> None:
        self.paths.append(path)
        for whole in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services.add(attributes(whole.resource)["service.name"])
            self.spans |= {span.name: span for part in whole.scope_spans for span in part.spans}


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in of.attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    found = Collector()

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taker) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join(10)
