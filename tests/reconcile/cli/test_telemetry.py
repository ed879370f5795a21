"""Spans and metrics, as a receiver of OTLP's own messages gets them over HTTP and over gRPC."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

from tests.simulation.bookie_dir import BookieDir, make_bookie
from tests.support.command import Done, environment, process

pytestmark = pytest.mark.long

TRACE = "0af7651916cd43dd8448eb211c80319c"
ABOVE = "b7ad6b7169203331"


class Receiver:
    """What came, and where it listens."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.points: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        self.address = ""

    def take_spans(self, request: trace_pb2.ExportTraceServiceRequest) -> None:
        """Keep spans."""
        for of_resource in request.resource_spans:
            self.resources.append(read_attributes(of_resource.resource.attributes))
            self.spans += [span for scope in of_resource.scope_spans for span in scope.spans]

    def take_metrics(self, request: metrics_pb2.ExportMetricsServiceRequest) -> None:
        """Keep points of metrics, by name."""
        for of_resource in request.resource_metrics:
            for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
                points = getattr(metric, str(metric.WhichOneof("data"))).data_points
                self.points[metric.name] = [(read_attributes(point.attributes), point) for point in points]

    def find(self, name: str) -> Any:
        """Return the one span of a name."""
        [span] = [span for span in self.spans if span.name == name]
        return span


def read_attributes(attributes: Any) -> dict[str, Any]:
    """Return attributes as Python has them."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


@pytest.fixture
def over_http() -> Iterator[Receiver]:
    """A receiver of OTLP over HTTP."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                receiver.take_spans(trace_pb2.ExportTraceServiceRequest.FromString(body))
            else:
                assert self.path == "/v1/metrics"
                receiver.take_metrics(metrics_pb2.ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.address = f"http://127.0.0.1:{server.server_port}"
    yield receiver
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def over_grpc() -> Iterator[Receiver]:
    """A receiver of OTLP over gRPC."""
    receiver = Receiver()

    class Traces(trace_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002 - its own name
            receiver.take_spans(request)
            return trace_pb2.ExportTraceServiceResponse()

    class Metrics(metrics_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002 - its own name
            receiver.take_metrics(request)
            return metrics_pb2.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    trace_grpc.add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call] # generated
    metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call] # as above
    receiver.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield receiver
    server.stop(0).wait()


@pytest.fixture
def bookie(tmp_path: Path) -> BookieDir:
    """A small bookie's folders."""
    return make_bookie(tmp_path / "bookie", {5: [0, 1, 2], 6: [1, 4, 7]})


def collect(bookie: BookieDir, out: Path, **variables: str | None) -> Done:
    """Collect a bookie, in a process whose environment has these variables."""
    named = [("--ledger-dir", bookie.ledger_dirs), ("--journal-dir", bookie.journal_dirs)]
    folders = [word for option, paths in named for path in paths for word in (option, str(path))]
    return process("collect", *folders, "--out", out, env=environment(**variables))


def test_a_command_its_steps_and_their_stages_are_spans(over_http: Receiver, bookie: BookieDir, tmp_path: Path) -> None:
    """With the parent that the environment names, and with the numbers of the result as metrics."""
    done = collect(
        bookie,
        tmp_path / "i",
        OTEL_EXPORTER_OTLP_ENDPOINT=over_http.address,
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test",
        TRACEPARENT=f"00-{TRACE}-{ABOVE}-01",
    )
    assert (done.code, done.err) == (0, "")
    command, step = over_http.find("bkmeta collect"), over_http.find("collecting")
    assert (command.trace_id.hex(), command.parent_span_id.hex()) == (TRACE, ABOVE)
    assert read_attributes(command.attributes) == {"bkmeta.command": "collect", "bkmeta.exit_code": 0}
    assert (step.trace_id, step.parent_span_id) == (command.trace_id, command.span_id)
    about = read_attributes(step.attributes)
    assert (about["bkmeta.unit"], about["bkmeta.done"] > 0) == ("bytes", True)
    stages = [span for span in over_http.spans if span.parent_span_id == step.span_id]
    assert {"index", "logs", "inventory"} <= {span.name for span in stages}
    assert all(
        step.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= step.end_time_unix_nano
        for span in stages
    )
    resource = over_http.resources[0]
    assert (resource["service.name"], resource["deployment.environment"]) == ("bkmeta", "test")
    [(about, point)] = over_http.points["bkmeta.command.duration"]
    assert (about, point.count) == ({"bkmeta.command": "collect", "bkmeta.exit_code": 0}, 1)
    counts = {about["bkmeta.name"]: point for about, point in over_http.points["bkmeta.result.count"]}
    assert counts["ledgers"].as_int == 2
    steps = {about["bkmeta.step"] for about, _ in over_http.points["bkmeta.step.duration"]}
    assert "collecting" in steps
    sent = b"".join(span.SerializeToString() for span in over_http.spans)
    assert str(tmp_path).encode() not in sent, "no place is sent"


def test_grpc_and_the_other_variables(over_grpc: Receiver, bookie: BookieDir, tmp_path: Path) -> None:
    """Each signal has variables of its own; a command that fails is a span with its exit code."""
    variables = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": over_grpc.address,
        "OTEL_SERVICE_NAME": "bookies",
    }
    assert collect(bookie, tmp_path / "i", **variables).code == 0
    assert over_grpc.find("collecting").name
    assert (over_grpc.resources[0]["service.name"], over_grpc.points) == ("bookies", {})
    over_grpc.spans.clear()
    assert collect(bookie, tmp_path / "i", **variables).code == 2
    assert read_attributes(over_grpc.find("bkmeta collect").attributes)["bkmeta.exit_code"] == 2


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "udp", "OTEL_EXPORTER_OTLP_PROTOCOL=udp: write http/protobuf or grpc"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER=zipkin: write otlp or none"),
    ],
)
def test_a_variable_that_cannot_be_used_is_one_line(
    variable: str, value: str, words: str, over_http: Receiver, bookie: BookieDir, tmp_path: Path
) -> None:
    """And changes no result: nothing is sent."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": over_http.address, variable: value}
    done = collect(bookie, tmp_path / "i", **variables)
    assert (done.code, done.err) == (0, f"bkmeta: nothing is sent to OpenTelemetry: {words}\n")
    assert over_http.spans == []


def test_a_collector_that_does_not_answer_changes_no_result(bookie: BookieDir, tmp_path: Path) -> None:
    """The command ends as without it, and says in a line that spans were lost."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    done = collect(bookie, tmp_path / "i", **variables)
    assert done.code == 0
    assert done.err.splitlines()
    assert all(re.match(r"bkmeta: .*Failed to export", line) for line in done.err.splitlines())


@pytest.mark.parametrize("variables", [{}, {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}])
def test_nothing_is_sent_where_nothing_is_asked_for(variables: dict[str, str]) -> None:
    """Without a variable nothing of OpenTelemetry is loaded; with it and without the extra the command runs."""
    code = (
        "import sys\n"
        "from reconcile.cli.main import main\n"
        "if sys.argv[1] == 'absent':\n"
        "    sys.modules['opentelemetry.context'] = None\n"
        "try:\n"
        "    main(['doctor', '--no-spark', '--short'])\n"
        "except SystemExit as ended:\n"
        "    assert ended.code == 0, ended.code\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.exporter')])\n"
        "assert sys.argv[1] == 'absent' or sys.argv[1] == 'disabled' or 'opentelemetry' not in sys.modules\n"
    )
    for how in ("disabled" if variables else "unset", "absent"):
        env = environment(**variables) | {"PYTHONPATH": os.getcwd()}  # noqa: PTH109 - a text, for a variable
        done = subprocess.run([sys.executable, "-c", code, how], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("[]\n")
