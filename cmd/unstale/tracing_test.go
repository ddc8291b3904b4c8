package main

import (
	"compress/gzip"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A collector accepts spans over HTTP, as the OpenTelemetry Collector does.
type collector struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex
	taken []*tracepb.ResourceSpans
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() { c.Close() })
	return c
}

// again serves at the same address, after Close.
func (c *collector) again() {
	c.t.Helper()
	var listener net.Listener
	// a process that starts may have a copy of the listener
	testenv.Eventually(c.t, "the address", func() (free bool) {
		var err error
		listener, err = net.Listen("tcp", c.Listener.Addr().String())
		return err == nil
	})
	next := httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	_ = next.Listener.Close() // replaced
	next.Listener = listener
	next.Start()
	c.Server = next
}

func (c *collector) serve(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = unpacked
	}
	text, err := io.ReadAll(body)
	if err != nil {
		c.t.Error(err)
		return
	}
	if at := r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type"); at != "POST /v1/traces application/x-protobuf" {
		c.t.Errorf("got %s", at)
	}
	var request collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(text, &request); err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = append(c.taken, request.GetResourceSpans()...)
}

// A received span is one with the resource and the scope that it came with.
type received struct {
	*tracepb.Span
	resource map[string]string
	scope    string
}

// spans returns what was received since the last call.
func (c *collector) spans() (list []received) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range c.taken {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				list = append(list, received{span, texts(resource.GetResource().GetAttributes()), scope.GetScope().GetName()})
			}
		}
	}
	c.taken = nil
	return list
}

func texts(attributes []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range attributes {
		if text, ok := a.GetValue().GetValue().(*commonpb.AnyValue_StringValue); ok {
			m[a.GetKey()] = text.StringValue
		} else {
			m[a.GetKey()] = fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return m
}

// A traced worker has an application that writes below spans of OpenTelemetry.
type traced struct {
	t      *testing.T
	db     *sql.DB
	worker *worker.Worker
	sent   spans
	log    *strings.Builder
}

// newTraced is configured by the variables of the process.
func newTraced(t *testing.T, redisAddr string) *traced {
	t.Helper()
	shop := testenv.MySQL(t)
	schematest.Up(t, shop.DB)
	dsn, err := mysql.ParseDSN(shop.DSN)
	if err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse("mapping.yaml", []byte("version: 1\npublish: {channel: \""+dsn.DBName+"\"}\nentities: {thing: {keys: [\"shop:thing:{id}\"]}}\n"), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	w := &traced{t: t, db: shop.DB, log: &strings.Builder{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	endpoint, err := tracingEndpoint(process{Env: os.LookupEnv})
	if err != nil {
		t.Fatal(err)
	}
	if w.sent, err = newSpans(t.Context(), endpoint, "here", log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.sent.close(time.Second) })
	w.worker, err = worker.New(worker.Config{
		MySQL: dsn, Redis: &redis.UniversalOptions{Addrs: []string{redisAddr}}, Map: m, Name: "here",
		Hooks: w.sent.hooks(), Logger: log, RedisTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// write enqueues n rows, each below a separate span or all below one.
func (w *traced) write(tracer trace.Tracer, n int, each bool) (last trace.SpanContext) {
	w.t.Helper()
	err := outbox.InTx(w.t.Context(), w.db, func(tx *sql.Tx) error {
		ctx, span := tracer.Start(w.t.Context(), "write")
		defer span.End()
		for i := range n {
			if each {
				_, one := tracer.Start(w.t.Context(), "write one")
				ctx = trace.ContextWithSpan(w.t.Context(), one)
				one.End()
			}
			last = trace.SpanContextFromContext(ctx)
			if err := outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "thing", ID: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return last
}

func (w *traced) count(outcome string) float64 {
	return testutil.ToFloat64(w.sent.counts.WithLabelValues(outcome))
}

// flush waits until the SDK has sent or dropped all spans.
func (w *traced) flush() {
	w.t.Helper()
	if err := w.sent.provider.ForceFlush(w.t.Context()); err != nil {
		w.t.Error(err)
	}
}

// processes processes the n rows that wait.
func (w *traced) processes(n int) {
	w.t.Helper()
	if r, err := w.worker.Drain(w.t.Context()); err != nil || r.Unlinked != n {
		w.t.Errorf("%+v, %v; wanted %d rows", r, err, n)
	}
	w.flush()
}

// runUntil runs the worker until a condition is met.
func (w *traced) runUntil(what string, condition func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.worker.Run(ctx) }()
	testenv.Eventually(w.t, what, condition)
	cancel()
	if err := <-ended; err != nil {
		w.t.Error(err)
	}
	w.flush()
}

func tracers(t *testing.T) (sampled, unsampled trace.Tracer) {
	t.Helper()
	outbox.SetTracer(func(ctx context.Context) string {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		return carrier["traceparent"]
	})
	t.Cleanup(func() { outbox.SetTracer(nil) })
	all, none := sdktrace.NewTracerProvider(), sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	t.Cleanup(func() { _ = all.Shutdown(context.Background()); _ = none.Shutdown(context.Background()) })
	return all.Tracer("shop"), none.Tracer("shop")
}

// A span of the application is in its row, and the span of the batch links to it. Rows of traces
// that are not sampled make no span, and a span has 128 links.
func TestBatchSpans(t *testing.T) {
	collector := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_SERVICE_NAME", "carrier")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a%20test")
	sampled, unsampled := tracers(t)
	w := newTraced(t, testenv.OwnRedis(t).Addr())
	began := time.Now()
	w.write(unsampled, 1, false)
	of := w.write(sampled, 2, false) // of one span: one link
	w.processes(3)
	got := collector.spans()
	if len(got) != 1 {
		t.Fatalf("%d spans, wanted 1; the log:\n%s", len(got), w.log)
	}
	span := got[0]
	if len(span.GetLinks()) != 1 || span.GetDroppedLinksCount() != 0 {
		t.Fatalf("%d links and %d dropped, wanted 1", len(span.GetLinks()), span.GetDroppedLinksCount())
	}
	link := span.GetLinks()[0]
	if trace.TraceID(link.GetTraceId()) != of.TraceID() || trace.SpanID(link.GetSpanId()) != of.SpanID() {
		t.Errorf("it links to %x %x, wanted %s %s", link.GetTraceId(), link.GetSpanId(), of.TraceID(), of.SpanID())
	}
	if span.GetName() != "unstale batch" || span.GetKind() != tracepb.Span_SPAN_KIND_CONSUMER || len(span.GetParentSpanId()) != 0 ||
		trace.TraceID(span.GetTraceId()) == of.TraceID() || span.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("unexpected span %v", span.Span)
	}
	if from, to := time.Unix(0, int64(span.GetStartTimeUnixNano())), time.Unix(0, int64(span.GetEndTimeUnixNano())); from.Before(began) || to.Before(from) || to.After(time.Now()) {
		t.Errorf("from %s to %s", from, to)
	}
	want := map[string]string{
		"messaging.system": "unstale", "messaging.operation.type": "process", "messaging.batch.message_count": "3",
		"unstale.outcome": "settled", "unstale.first_id": "1", "unstale.last_id": "3", "unstale.keys": "2",
		"unstale.rows.unlinked": "3", "unstale.rows.delayed": "0", "unstale.rows.dead": "0",
		"unstale.sweeps": "0", "unstale.receivers": "0",
	}
	if attributes := texts(span.GetAttributes()); !reflect.DeepEqual(attributes, want) {
		t.Errorf("attributes %v, wanted %v", attributes, want)
	}
	for name, value := range map[string]string{
		"service.name": "carrier", "service.instance.id": "here", "deployment.environment.name": "a test", "telemetry.sdk.language": "go",
	} {
		if span.resource[name] != value {
			t.Errorf("resource %v, wanted %s = %q", span.resource, name, value)
		}
	}
	if span.scope != "github.com/unstale/unstale/worker" {
		t.Errorf("scope %q", span.scope)
	}
	w.write(unsampled, 3, true)
	w.processes(3)
	if got := collector.spans(); len(got) != 0 {
		t.Errorf("%d spans of traces that are not sampled", len(got))
	}
	w.write(sampled, 200, true)
	w.processes(200)
	if got := collector.spans(); len(got) != 1 || len(got[0].GetLinks()) != 128 || got[0].GetDroppedLinksCount() != 72 {
		t.Errorf("%d spans of 200 rows: %v", len(got), got)
	}
	if sent, dropped := w.count("sent"), w.count("dropped"); sent != 2 || dropped != 0 {
		t.Errorf("counted %v sent, %v dropped", sent, dropped)
	}
}

// A batch that fails has a span with the reason. Spans that the collector does not accept are
// counted and logged once; rows are processed all the same.
func TestFailedSpans(t *testing.T) {
	collector := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/v1/traces")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1") // so that the SDK gives up soon
	sampled, _ := tracers(t)
	server := testenv.OwnRedis(t)
	collector.Close()
	w := newTraced(t, server.Addr())
	w.write(sampled, 1, false)
	w.processes(1)
	if w.count("sent") != 0 || w.count("dropped") != 1 {
		t.Errorf("without a collector: %v sent, %v dropped", w.count("sent"), w.count("dropped"))
	}
	if warned := strings.Count(w.log.String(), "the collector does not accept spans"); warned != 1 || strings.Contains(w.log.String(), "/v1/traces") {
		t.Errorf("warned %d times, or with a path:\n%s", warned, w.log)
	}
	collector.again()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10000")
	w = newTraced(t, server.Addr())
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	w.write(sampled, 1, false)
	w.runUntil("the batch fails", func() bool {
		err := w.worker.Ready()
		return err != nil && strings.Contains(err.Error(), "unlink keys")
	})
	spans := collector.spans()
	if len(spans) == 0 {
		t.Fatalf("no span of a batch that failed; the log:\n%s", w.log)
	}
	for _, span := range spans { // it is tried again
		attributes := texts(span.GetAttributes())
		if attributes["unstale.outcome"] != "failed" || attributes["error.type"] != "redis network" || len(span.GetLinks()) != 1 ||
			span.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || !strings.HasPrefix(span.GetStatus().GetMessage(), "unlink keys: ") {
			t.Errorf("unexpected span %v", span.Span)
		}
	}
	if sent := w.count("sent"); sent != float64(len(spans)) || w.count("dropped") != 0 {
		t.Errorf("counted %v sent, %v dropped, of %d", sent, w.count("dropped"), len(spans))
	}
}

func TestTracingEndpoint(t *testing.T) {
	t.Parallel()
	const base = "OTEL_EXPORTER_OTLP_"
	for _, row := range []struct{ env, endpoint, problem string }{
		{env: ""},
		{env: base + "PROTOCOL=grpc"},
		{env: base + "ENDPOINT=http://here:4318", endpoint: "http://here:4318"},
		{env: base + "ENDPOINT=http://here:4318 OTEL_SDK_DISABLED=TRUE"},
		{env: base + "ENDPOINT=http://here:4318 OTEL_TRACES_EXPORTER=none"},
		{env: base + "ENDPOINT=http://here:4318 " + base + "PROTOCOL=grpc " + base + "TRACES_PROTOCOL=http/json", endpoint: "http://here:4318"},
		{env: base + "ENDPOINT=http://a " + base + "TRACES_ENDPOINT=https://b/x", endpoint: "https://b/x"},
		{env: base + "ENDPOINT=http://here:4318 " + base + "PROTOCOL=grpc", problem: `variable OTEL_EXPORTER_OTLP_PROTOCOL "grpc": must be http/protobuf or http/json; ` +
			"set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf, with an endpoint that accepts it, often on port 4318"},
		{env: base + "ENDPOINT=http://here:4318 OTEL_TRACES_EXPORTER=zipkin", problem: `variable OTEL_TRACES_EXPORTER "zipkin": must be otlp or none`},
		{env: base + "ENDPOINT=secret:4318", problem: "variable OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: " +
			"must be a URL with http or https and a host, for example http://127.0.0.1:4318"},
	} {
		endpoint, err := tracingEndpoint(process{Env: func(name string) (string, bool) {
			for _, pair := range strings.Fields(row.env) {
				if key, value, _ := strings.Cut(pair, "="); key == name {
					return value, true
				}
			}
			return "", false
		}})
		if problem := fmt.Sprint(err); endpoint != row.endpoint || err == nil != (row.problem == "") || err != nil && problem != row.problem {
			t.Errorf("%s: %q, %v; wanted %q, %s", row.env, endpoint, err, row.endpoint, row.problem)
		}
	}
}

// URLs in errors of the SDK are shown without user, path and query, which may be secrets.
func TestWithoutPaths(t *testing.T) {
	t.Parallel()
	err := withoutPaths(fmt.Errorf(`failed to send to https://user:pw@here:4318/v1/secret?key=x: 401; Post "http://u@there/path": refused`))
	if want := `failed to send to https://here:4318 401; Post "http://there": refused`; err.Error() != want {
		t.Errorf("%v, wanted %s", err, want)
	}
}

// docs/observability.md lists the variables that the program reads itself, and no other.
func TestTracingVariables(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "| variable | effect |\n|---|---|\n")
	rows, _, _ = strings.Cut(rows, "\n\n")
	listed := map[string]bool{}
	for row := range strings.Lines(rows) {
		for _, name := range strings.Split(strings.Split(row, "|")[1], ",") {
			listed[strings.Trim(name, " `")] = true
		}
	}
	read := map[string]bool{}
	if _, err := tracingEndpoint(process{Env: func(name string) (string, bool) {
		read[name] = true
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://here"}[name], true
	}}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, listed) {
		t.Errorf("read   %v\nlisted %v", read, listed)
	}
}
