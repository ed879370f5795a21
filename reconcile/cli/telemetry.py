"""Spans and metrics of a command for OpenTelemetry, where its environment names a collector.

    bkmeta <command>            a span of the whole command, with its exit code
      <what is done>            a span of each step, as progress shows it: the unit, how many were done
        <stage>                 a span of each stage of a step

    bkmeta.command.duration     histogram, s: by command and exit code
    bkmeta.step.duration        histogram, s: by command and step
    bkmeta.step.done            counter: by command, step and unit
    bkmeta.result.count         gauge: each number of a result's counts, by command and name

Without the extra, or without a collector in the environment, nothing of OpenTelemetry is loaded. What is sent names no
store, no place and no ledger. A collector that does not answer changes no result.
"""

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider, Span, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from reconcile.cli.command import TELEMETRY, Exit
from recovery import __version__

if TYPE_CHECKING:
    from reconcile.estimates import EstimatedStep
    from reconcile.jobs.context import Reporter, StageProgress

_LOG: Final = logging.getLogger(__name__)
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS: Final = ("TRACES", "METRICS")
_PROTOCOLS: Final = {"http/protobuf": "http", "grpc": "grpc"}
_PATIENCE_S: Final = 3
"""How long a collector that does not answer is tried: OpenTelemetry's 10 s would delay the end of each command."""
_EXPORTERS: Final = frozenset({"otlp", "none"})


class Telemetry:
    """Records one command: its span, and what its steps and its result say.

    Args:
        tracer: of OpenTelemetry.
        meter: of OpenTelemetry.
        command: its words, without options.
        parent: the context that its span belongs to.
    """

    def __init__(self, tracer: "Tracer", meter: "Meter", command: str, parent: "Context") -> None:
        self._tracer = tracer
        self._command = command
        self.span = tracer.start_span(f"bkmeta {command}", context=parent, attributes={"bkmeta.command": command})
        # Of the steps that are under way, the innermost last.
        self._open: list[Span] = [self.span]
        self._command_s = meter.create_histogram("bkmeta.command.duration", "s", "how long commands took")
        self._step_s = meter.create_histogram("bkmeta.step.duration", "s", "how long steps took")
        self._done = meter.create_counter("bkmeta.step.done", "1", "what steps worked through")
        self._count = meter.create_gauge("bkmeta.result.count", "1", "what results counted")

    @contextmanager
    def record_step(self, title: str, unit: str, show: "StageProgress") -> "Iterator[StageProgress]":
        """Record a span while something is done, and give the function that tells how far it is."""
        begun = monotonic()
        about = {"bkmeta.command": self._command, "bkmeta.step": title}
        span = self._start(title, self._open[-1], {**about, "bkmeta.unit": unit})
        stages = _Stages(lambda stage: self._start(stage, span, about))
        self._open.append(span)

        def tell(done: int, total: int, stage: str = "") -> None:
            stages.tell(done, stage)
            show(done, total, stage)

        try:
            yield tell
        except BaseException as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            self._open.remove(span)
            stages.end()
            span.set_attribute("bkmeta.done", stages.total)
            span.end()
            self._step_s.record(monotonic() - begun, about)
            self._done.add(stages.total, {**about, "bkmeta.unit": unit})

    def _start(self, name: str, parent: "Span", attributes: Mapping[str, str]) -> "Span":
        return self._tracer.start_span(name, context=set_span_in_context(parent), attributes=attributes)

    def trace_steps(self, reporter: "Reporter") -> "TracedReporter":
        """Return a reporter that records each step, and shows what another one shows."""
        return TracedReporter(reporter, self)

    def record_result(self, counts: Mapping[str, object]) -> None:
        """Record the numbers of a result."""
        for name, value in counts.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._count.set(value, {"bkmeta.command": self._command, "bkmeta.name": name})

    def record_end(self, seconds: float, exit_code: int) -> None:
        """Record how the command ended."""
        self._command_s.record(seconds, {"bkmeta.command": self._command, "bkmeta.exit_code": exit_code})


class _Stages:
    """The spans of a step's stages, each until the next begins; told by any thread.

    Args:
        start: begins a span.
    """

    def __init__(self, start: "Callable[[str], Span]") -> None:
        self._start = start
        self._lock = Lock()
        self._done_of: dict[str, int] = {}
        self._stage = ""
        self._span: Span | None = None

    def tell(self, done: int, stage: str) -> None:
        """Take how far a stage is."""
        with self._lock:
            self._done_of[stage] = done
            if stage == self._stage:
                return
            if self._span is not None:
                self._span.end()
            self._stage = stage
            self._span = self._start(stage) if stage else None

    def end(self) -> None:
        """End the last stage."""
        self.tell(self._done_of.get("", 0), "")

    @property
    def total(self) -> int:
        """How many were done, of all stages."""
        return sum(self._done_of.values())


class TracedReporter:
    """Shows how far a job is by another reporter, and records each step.

    Args:
        inner: the other one.
        telemetry: records.
    """

    def __init__(self, inner: "Reporter", telemetry: Telemetry) -> None:
        self._inner = inner
        self._telemetry = telemetry

    @contextmanager
    def progress(self, title: str, unit: str) -> "Iterator[StageProgress]":
        """Give a function to call with (done, of all) while something is done."""
        with self._inner.progress(title, unit) as show, self._telemetry.record_step(title, unit, show) as tell:
            yield tell

    def expect(self, step: "EstimatedStep", things: int) -> None:
        """Show about how long a step will take."""
        self._inner.expect(step, things)


@contextmanager
def record_command(command: str, meta: dict[str, Any]) -> Iterator[list[int]]:
    """Record a command while it runs, if the environment names a collector; its exit code is put into the list.

    Args:
        command: its words, without options.
        meta: of click's context; it gets what records, as TELEMETRY.
    """
    codes: list[int] = []
    providers = _make_providers()
    if not providers:
        yield codes
        return
    tracers = providers.get("TRACES") or NoOpTracerProvider()
    meters = providers.get("METRICS") or NoOpMeterProvider()
    begun = monotonic()
    telemetry = Telemetry(
        tracers.get_tracer("bkmeta", __version__),
        meters.get_meter("bkmeta", __version__),
        command,
        TraceContextTextMapPropagator().extract({"traceparent": os.environ.get("TRACEPARENT", "")}),
    )
    meta[TELEMETRY] = telemetry
    try:
        yield codes
    finally:
        for code in codes:
            telemetry.span.set_attribute("bkmeta.exit_code", code)
            if code == Exit.FAILED:
                telemetry.span.set_status(StatusCode.ERROR)
            telemetry.record_end(monotonic() - begun, code)
        telemetry.span.end()
        _shut_down(providers)


def _is_wanted(signal: str) -> bool:
    """Whether the environment names a collector for traces, or for metrics."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get(f"OTEL_{signal}_EXPORTER", "")
    named = any(os.environ.get(name) for name in (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
    return exporter != "none" and (named or bool(exporter))


def _choose_protocol(signal: str) -> str:
    """Return the protocol of a signal.

    Raises:
        ValueError: a variable names a protocol or an exporter that is not known.
    """
    exporter = os.environ.get(f"OTEL_{signal}_EXPORTER") or "otlp"
    if exporter not in _EXPORTERS:
        raise ValueError(f"OTEL_{signal}_EXPORTER={exporter}: write otlp or none")
    names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    name = next((name for name in names if os.environ.get(name)), names[-1])
    protocol = os.environ.get(name) or "http/protobuf"
    if protocol not in _PROTOCOLS:
        raise ValueError(f"{name}={protocol}: write {' or '.join(_PROTOCOLS)}")
    return _PROTOCOLS[protocol]


def _make_providers() -> dict[str, Any]:
    """Return what makes the tracers and meters that are wanted; exporters read the standard variables by themselves."""
    signals = [signal for signal in _SIGNALS if _is_wanted(signal)]
    try:
        protocols = {signal: _choose_protocol(signal) for signal in signals}
        names = {} if "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "") else {"service.name": "bkmeta"}
        if os.environ.get("OTEL_SERVICE_NAME"):
            names = {}
        resource = Resource.create({**names, "service.version": __version__})
        return {signal: _MAKERS[signal](protocol, resource) for signal, protocol in protocols.items()}
    except (ValueError, ImportError) as error:
        _LOG.warning("nothing is sent to OpenTelemetry: %s", error)
        return {}


def _shut_down(providers: Mapping[str, Any]) -> None:
    """Send what is left; signals do not wait for each other, where the collector does not answer."""
    threads = [Thread(target=provider.shutdown) for provider in providers.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _limit_patience(signal: str) -> dict[str, int]:
    """Return how long an exporter tries, unless the environment says that."""
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT")
    return {} if any(os.environ.get(name) for name in names) else {"timeout": _PATIENCE_S}


def _make_tracers(protocol: str, resource: Resource) -> TracerProvider:
    exporter = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter")
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter.OTLPSpanExporter(**_limit_patience("TRACES"))))
    return provider


def _make_meters(protocol: str, resource: Resource) -> MeterProvider:
    exporter = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.metric_exporter")
    reader = PeriodicExportingMetricReader(exporter.OTLPMetricExporter(**_limit_patience("METRICS")))
    return MeterProvider([reader], resource=resource, shutdown_on_exit=False)


_MAKERS: Final = {"TRACES": _make_tracers, "METRICS": _make_meters}
