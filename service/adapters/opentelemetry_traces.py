"""Traces by OpenTelemetry, sent over OTLP; imported only where the settings ask for it."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.tracing import NOTHING, Attributes, Role, Span

EXPORT_S = 5.0
"""How long one export may take, and so how long the end of a process waits for the last one."""
LONGEST_TEXT = 1000
_HEADER = "traceparent"
_KINDS = {
    Role.SERVER: trace.SpanKind.SERVER,
    Role.CONSUMER: trace.SpanKind.CONSUMER,
    Role.PART: trace.SpanKind.INTERNAL,
}
_propagator = TraceContextTextMapPropagator()


class OpenTelemetrySpan:
    """Implements `service.tracing.Span`."""

    def __init__(self, inner: trace.Span) -> None:
        self.inner = inner

    @property
    def traceparent(self) -> str | None:
        """See Span."""
        return _traceparent(trace.set_span_in_context(self.inner, Context()))

    @property
    def trace_id(self) -> str | None:
        """See Span."""
        return trace.format_trace_id(self.inner.get_span_context().trace_id)

    def note(self, attributes: Attributes) -> None:
        """See Span."""
        self.inner.set_attributes(_cut(attributes))

    def rename(self, name: str) -> None:
        """See Span."""
        self.inner.update_name(name)

    def remark(self, text: str) -> None:
        """See Span."""
        self.inner.add_event(text[:LONGEST_TEXT])

    def fail(self, reason: str) -> None:
        """See Span."""
        self.inner.set_attribute("error.type", reason)
        self.inner.set_status(trace.StatusCode.ERROR, reason)

    def end(self, end_time: float | None = None) -> None:
        """See Span."""
        self.inner.end(_nanoseconds(end_time))


class OpenTelemetryTracer:
    """Implements `service.tracing.Tracer`: one process's spans, handed to `processor`.

    ratio: the part of all traces that are kept. It depends on the trace's id alone, so that the
    processes of one service agree.
    """

    enabled = True

    def __init__(self, service: str, instance: str, ratio: float, processor: SpanProcessor) -> None:
        sampler = TraceIdRatioBased(ratio)
        self._provider = TracerProvider(
            # A client's `traceparent` may exclude its trace, and not force it on us.
            sampler=ParentBased(sampler, remote_parent_sampled=sampler),
            resource=Resource.create({SERVICE_NAME: service, SERVICE_INSTANCE_ID: instance}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("relaxd")

    def begin(
        self,
        name: str,
        attributes: Attributes = NOTHING,
        *,
        parent: str | None = None,
        role: Role = Role.PART,
        start: float | None = None,
    ) -> Span:
        """See Tracer."""
        inner = self._tracer.start_span(
            name,
            None if parent is None else _propagator.extract({_HEADER: parent}, Context()),
            _KINDS[role],
            _cut(attributes),
            start_time=_nanoseconds(start),
        )
        return OpenTelemetrySpan(inner)

    @contextmanager
    def active(self, span: Span) -> Iterator[None]:
        """See Tracer."""
        if not isinstance(span, OpenTelemetrySpan):
            yield
            return
        with trace.use_span(span.inner, record_exception=False, set_status_on_exception=False):
            yield

    def current(self) -> str | None:
        """See Tracer."""
        return _traceparent(get_current())

    def close(self) -> None:
        """See Tracer."""
        self._provider.shutdown()


def otlp_tracer(url: str, service: str, instance: str, ratio: float) -> OpenTelemetryTracer:
    """A tracer that sends to an OTLP/HTTP endpoint in the background; what that does not take in
    time is dropped. OTEL_EXPORTER_OTLP_HEADERS may bring credentials.
    """
    exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_S)
    return OpenTelemetryTracer(service, instance, ratio, BatchSpanProcessor(exporter))


def _traceparent(context: Context) -> str | None:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context)
    return carrier.get(_HEADER)


def _cut(attributes: Attributes) -> Attributes:
    return {
        key: value[:LONGEST_TEXT] if isinstance(value, str) else value
        for key, value in attributes.items()
    }


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
