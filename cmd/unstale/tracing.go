package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/unstale/unstale/worker"
	"github.com/unstale/unstale/worker/workerotel"
)

// tracingEndpoint returns the collector's endpoint, "" if spans are switched off. The OpenTelemetry
// SDK reads all other variables by itself.
func tracingEndpoint(p process) (string, error) {
	env := func(name string) string {
		value, _ := p.Env(name)
		return strings.TrimSpace(value)
	}
	endpoint := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" {
		return "", nil
	}
	if exporter := env("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return "", usageError{fmt.Errorf("variable OTEL_TRACES_EXPORTER %q: must be otlp or none", exporter)}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := env(name); protocol {
		case "":
			continue
		case "http/protobuf", "http/json":
		default:
			return "", usageError{fmt.Errorf("variable %s %q: must be http/protobuf or http/json; "+
				"set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf, with an endpoint that accepts it, often on port 4318", name, protocol)}
		}
		break
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", usageError{errors.New("variable OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: " +
			"must be a URL with http or https and a host, for example http://127.0.0.1:4318")} // it may hold a secret
	}
	return endpoint, nil
}

// spans sends a span for each batch to an OpenTelemetry collector.
type spans struct {
	provider *sdktrace.TracerProvider // nil: no spans are made
	counts   *prometheus.CounterVec   // by outcome
}

// newSpans starts the SDK if endpoint is not empty. Only hooks makes spans. The SDK's batch processor
// never blocks the worker: it buffers 2,048 spans, and drops more without a count.
func newSpans(ctx context.Context, endpoint, workerName string, log *slog.Logger) (spans, error) {
	s := spans{counts: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "unstale_spans_total", Help: "Spans of batches, by outcome: sent, dropped.",
	}, []string{"outcome"})}
	for _, outcome := range []string{"sent", "dropped"} {
		s.counts.WithLabelValues(outcome)
	}
	if endpoint == "" {
		return s, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("tracing", "error", withoutPaths(err)) }))
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		return s, fmt.Errorf("start tracing: %w", withoutPaths(err))
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "unstale"), attribute.String("service.version", versionText()),
			attribute.String("service.instance.id", workerName)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return s, fmt.Errorf("start tracing: %w", err)
	}
	counted := &countedExporter{SpanExporter: client, counts: s.counts, log: log, endpoint: redactedURL(endpoint)}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(counted))
	return s, nil
}

// hooks returns hooks that make spans, or none.
func (s spans) hooks() worker.Hooks {
	if s.provider == nil {
		return worker.Hooks{}
	}
	return workerotel.Hooks(s.provider.Tracer("github.com/unstale/unstale/worker"))
}

// close sends the spans that wait, for at most limit, and drops the others.
func (s spans) close(limit time.Duration) {
	if s.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // the exporter has logged its error
}

// logAgain is the shortest time between two warnings about a collector that fails now and then.
const logAgain = 10 * time.Minute

// A countedExporter counts the spans that the collector accepted or refused, and logs the first
// failure and the recovery. The batch processor makes one call at a time.
type countedExporter struct {
	sdktrace.SpanExporter
	counts   *prometheus.CounterVec
	log      *slog.Logger
	endpoint string
	failing  bool
	logged   time.Time
	dropped  int // since the last warning
}

// ExportSpans implements [sdktrace.SpanExporter]. It returns nil: errors are counted and logged here.
func (e *countedExporter) ExportSpans(ctx context.Context, list []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, list); err != nil {
		e.counts.WithLabelValues("dropped").Add(float64(len(list)))
		e.dropped += len(list)
		if !e.failing && (e.logged.IsZero() || time.Since(e.logged) >= logAgain) {
			e.failing, e.logged, e.dropped = true, time.Now(), len(list)
			e.log.Warn("the collector does not accept spans; dropping them", "endpoint", e.endpoint,
				"error", withoutPaths(err), "effect", "rows are processed as usual")
		}
		return nil
	}
	e.counts.WithLabelValues("sent").Add(float64(len(list)))
	if e.failing {
		e.failing = false
		e.log.Info("the collector accepts spans again", "endpoint", e.endpoint, "dropped", e.dropped)
	}
	return nil
}

var urls = regexp.MustCompile(`https?://[^\s"]+`)

// withoutPaths returns err without the secrets that the URL of a collector may hold.
func withoutPaths(err error) error {
	return errors.New(urls.ReplaceAllStringFunc(err.Error(), redactedURL))
}

// redactedURL returns the scheme, host and port of a URL.
func redactedURL(text string) string {
	u, err := url.Parse(strings.TrimRight(text, ":"))
	if err != nil {
		return "the collector"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}
