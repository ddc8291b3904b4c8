package collector

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A service writes below spans of OpenTelemetry, and has a worker.
type service struct {
	t      *testing.T
	db     *sql.DB
	worker *worker.Worker
	log    *strings.Builder
}

// newService is configured by variables, as processes are.
func newService(t *testing.T, redisAddr string, env map[string]string) *service {
	t.Helper()
	shop := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), shop.DB); err != nil {
		t.Fatal(err)
	}
	dsn, err := mysql.ParseDSN(shop.DSN)
	if err != nil {
		t.Fatal(err)
	}
	mapFile := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(mapFile, []byte("version: 1\npublish: {channel: \""+dsn.DBName+"\"}\nentities: {thing: {keys: [\"shop:thing:{id}\"]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tracing, err := worker.TracingFromEnv(func(name string) (string, bool) { value, ok := env[name]; return value, ok })
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, db: shop.DB, log: &strings.Builder{}}
	s.worker, err = worker.New(worker.Config{
		MySQL: dsn, Redis: &redis.UniversalOptions{Addrs: []string{redisAddr}}, MapFile: mapFile, Tracing: tracing, Name: "here",
		Log: slog.New(slog.NewTextHandler(s.log, nil)), RedisTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write enqueues n rows below a span of its own each, or below one span for all.
func (s *service) write(tracer trace.Tracer, n int, each bool) (last trace.SpanContext) {
	s.t.Helper()
	err := outbox.InTx(s.t.Context(), s.db, func(tx *sql.Tx) error {
		ctx, span := tracer.Start(s.t.Context(), "write")
		defer span.End()
		for i := range n {
			if each {
				_, one := tracer.Start(s.t.Context(), "write one")
				ctx = trace.ContextWithSpan(s.t.Context(), one)
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
		s.t.Fatal(err)
	}
	return last
}

// count is the value of unstale_spans_total.
func (s *service) count(outcome string) (n float64) {
	s.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.worker.Metrics())
	families, err := registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "unstale_spans_total" && m.GetLabel()[0].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	s.t.Errorf("there is no unstale_spans_total of outcome %s", outcome)
	return 0
}

func tracers(t *testing.T) (sampled, unsampled trace.Tracer) {
	t.Helper()
	outbox.SetTracer(func(ctx context.Context) string {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		return carrier["traceparent"]
	})
	all, none := sdk.NewTracerProvider(), sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
	t.Cleanup(func() { _ = all.Shutdown(context.Background()); _ = none.Shutdown(context.Background()) })
	return all.Tracer("shop"), none.Tracer("shop")
}

// An application's span is in its row, and the batch's span links to it: what an operator sees of a write is what became of
// it. Rows of traces that nobody samples make no span, and one span has 128 links.
func TestBatches(t *testing.T) {
	collector := newReceiver(t)
	sampled, unsampled := tracers(t)
	s := newService(t, testenv.OwnRedis(t).Addr(), map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"OTEL_SERVICE_NAME": "carrier", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=a%20test",
	})
	began := time.Now()
	s.write(unsampled, 1, false)
	of := s.write(sampled, 2, false) // of one span: one link
	s.carries(3)
	got := collector.spans()
	if len(got) != 1 {
		t.Fatalf("%d spans, wanted 1; the log:\n%s", len(got), s.log)
	}
	span := got[0]
	if span.Links().Len() != 1 || span.DroppedLinksCount() != 0 {
		t.Fatalf("%d links and %d dropped, wanted 1", span.Links().Len(), span.DroppedLinksCount())
	}
	link := span.Links().At(0)
	if trace.TraceID(link.TraceID()) != of.TraceID() || trace.SpanID(link.SpanID()) != of.SpanID() || link.Flags() != 0x301 {
		t.Errorf("it links to %s %s %#x, wanted %s %s", link.TraceID(), link.SpanID(), link.Flags(), of.TraceID(), of.SpanID())
	}
	if span.Name() != "unstale batch" || span.Kind() != ptrace.SpanKindConsumer || span.TraceID().IsEmpty() || span.SpanID().IsEmpty() ||
		!span.ParentSpanID().IsEmpty() || span.TraceID() == link.TraceID() || span.Status().Code() != ptrace.StatusCodeUnset {
		t.Errorf("%q, %v, trace %s, parent %s, %v", span.Name(), span.Kind(), span.TraceID(), span.ParentSpanID(), span.Status().Code())
	}
	if from, to := span.StartTimestamp().AsTime(), span.EndTimestamp().AsTime(); from.Before(began) || to.Before(from) || to.After(time.Now()) {
		t.Errorf("from %s to %s", from, to)
	}
	want := map[string]any{
		"messaging.system": "unstale", "messaging.operation.type": "process", "messaging.batch.message_count": int64(3),
		"unstale.outcome": "settled", "unstale.first_id": "1", "unstale.last_id": "3", "unstale.keys": int64(2),
		"unstale.rows.unlinked": int64(3), "unstale.rows.delayed": int64(0), "unstale.rows.dead": int64(0),
		"unstale.sweeps": int64(0), "unstale.receivers": int64(0),
	}
	if attributes := span.Attributes().AsRaw(); !reflect.DeepEqual(attributes, want) {
		t.Errorf("attributes %v, wanted %v", attributes, want)
	}
	resource := map[string]any{"service.name": "carrier", "service.instance.id": "here", "deployment.environment.name": "a test"}
	if !reflect.DeepEqual(span.resource, resource) || span.scope != "github.com/unstale/unstale/worker" {
		t.Errorf("resource %v, scope %q", span.resource, span.scope)
	}
	s.write(unsampled, 3, true)
	s.carries(3)
	if got := collector.spans(); len(got) != 0 {
		t.Errorf("%d spans of what nobody samples", len(got))
	}
	s.write(sampled, 200, true)
	s.carries(200)
	if got := collector.spans(); len(got) != 1 || got[0].Links().Len() != 128 || got[0].DroppedLinksCount() != 72 {
		t.Errorf("%d spans of 200 rows: %v", len(got), got)
	}
	if sent, dropped := s.count("sent"), s.count("dropped"); sent != 2 || dropped != 0 {
		t.Errorf("counted %v sent, %v dropped", sent, dropped)
	}
}

// A batch that fails has a span that says why; one that a collector cannot be given is counted, costs nothing else, and the
// next one goes when the collector is back.
func TestFailures(t *testing.T) {
	collector := newReceiver(t)
	sampled, _ := tracers(t)
	server := testenv.OwnRedis(t)
	s := newService(t, server.Addr(), map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.URL + "/v1/traces"})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	s.write(sampled, 1, false)
	s.runUntil("the batch fails", func() bool {
		err := s.worker.Ready()
		return err != nil && strings.Contains(err.Error(), "unlink keys")
	})
	spans := collector.spans()
	if len(spans) == 0 {
		t.Fatalf("no span of a batch that failed; the log:\n%s", s.log)
	}
	for _, span := range spans { // it is tried again
		failed := map[string]any{"outcome": span.Attributes().AsRaw()["unstale.outcome"], "type": span.Attributes().AsRaw()["error.type"]}
		if !reflect.DeepEqual(failed, map[string]any{"outcome": "failed", "type": "redis network"}) ||
			span.Status().Code() != ptrace.StatusCodeError || !strings.HasPrefix(span.Status().Message(), "unlink keys: ") || span.Links().Len() != 1 {
			t.Errorf("%v, %v %q, %d links", failed, span.Status().Code(), span.Status().Message(), span.Links().Len())
		}
	}
	sent := s.count("sent")
	if sent != float64(len(spans)) || s.count("dropped") != 0 {
		t.Errorf("counted %v sent, %v dropped, of %d", sent, s.count("dropped"), len(spans))
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	collector.Close()
	s.carries(1)
	if s.count("sent") != sent || s.count("dropped") != 1 {
		t.Errorf("without a collector: %v sent, %v dropped", s.count("sent")-sent, s.count("dropped"))
	}
	if told := strings.Count(s.log.String(), "the collector does not take spans"); told != 1 {
		t.Errorf("told %d times of one collector that is away:\n%s", told, s.log)
	}
	collector.again()
	s.write(sampled, 1, false)
	s.carries(1)
	if got := collector.spans(); len(got) != 1 || s.count("sent") != sent+1 || s.count("dropped") != 1 {
		t.Errorf("the collector is back, and has %d spans", len(got))
	}
}

// carries carries n rows that wait.
func (s *service) carries(n int) {
	s.t.Helper()
	if r, err := s.worker.Drain(s.t.Context()); err != nil || r.Unlinked != n {
		s.t.Errorf("%+v, %v; wanted %d rows", r, err, n)
	}
}

// runUntil runs the worker until a condition is met.
func (s *service) runUntil(what string, condition func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.worker.Run(ctx) }()
	testenv.Eventually(s.t, what, condition)
	cancel()
	if err := <-ended; err != nil {
		s.t.Error(err)
	}
}
