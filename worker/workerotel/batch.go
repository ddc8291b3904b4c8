// Package workerotel makes an OpenTelemetry span of each batch that a worker processes, with links
// to the spans of the requests that wrote the rows.
//
//	worker.New(worker.Config{Hooks: workerotel.Hooks(otel.Tracer("shop"))})
//
// The span is called "unstale batch" and has the kind CONSUMER. It begins a new trace, because a
// batch has rows of many traces. A batch makes a span only if the trace of at least one row is a
// W3C traceparent with the sampled flag. The package links the API of OpenTelemetry, not its SDK.
package workerotel

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/unstale/unstale/worker"
)

// Hooks returns hooks for [worker.Config] that create spans with tracer. docs/observability.md
// lists their attributes.
func Hooks(tracer trace.Tracer) worker.Hooks {
	return worker.Hooks{Batch: func(r worker.BatchReport) {
		links := sampledLinks(r.Traces)
		if len(links) == 0 {
			return
		}
		_, span := tracer.Start(context.Background(), "unstale batch", trace.WithNewRoot(), trace.WithTimestamp(r.Start),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...))
		span.SetAttributes(attributes(r)...)
		if r.Err != nil {
			span.SetStatus(codes.Error, r.Err.Error())
		}
		span.End(trace.WithTimestamp(r.End))
	}}
}

// sampledLinks returns a link to each sampled span that traces name. Other texts are ignored.
func sampledLinks(traces []string) (links []trace.Link) {
	for _, text := range traces {
		carrier := propagation.MapCarrier{"traceparent": text}
		ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
		if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
			links = append(links, trace.Link{SpanContext: span})
		}
	}
	return links
}

func attributes(r worker.BatchReport) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("messaging.system", "unstale"),
		attribute.String("messaging.operation.type", "process"),
		attribute.Int("messaging.batch.message_count", r.Rows),
	}
	if r.LastID != 0 { // as text, because an ID can exceed the range of an attribute's number
		list = append(list, attribute.String("unstale.first_id", strconv.FormatUint(r.FirstID, 10)),
			attribute.String("unstale.last_id", strconv.FormatUint(r.LastID, 10)))
	}
	if r.Err != nil {
		return append(list, attribute.String("unstale.outcome", "failed"), attribute.String("error.type", r.Outage))
	}
	return append(list, attribute.String("unstale.outcome", "settled"),
		attribute.Int("unstale.rows.unlinked", r.Result.Unlinked), attribute.Int("unstale.rows.delayed", r.Result.Delayed),
		attribute.Int("unstale.rows.dead", r.Result.Dead), attribute.Int("unstale.keys", r.Result.Keys),
		attribute.Int("unstale.sweeps", r.Result.Sweeps), attribute.Int("unstale.receivers", r.Receivers))
}
