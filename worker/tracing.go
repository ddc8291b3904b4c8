package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/otlp"
)

// Tracing says where a worker sends spans, one for each batch that has rows of sampled traces: see docs/tracing.md. The
// zero value sends none. TracingFromEnv reads it from the standard variables.
type Tracing struct {
	// Endpoint is the URL of the POST at a collector that takes OTLP over HTTP as JSON, such as
	// http://127.0.0.1:4318/v1/traces. Empty: there are no spans.
	Endpoint string
	// Headers are sent with each request, such as those that authenticate it. They are not logged.
	Headers map[string]string
	// Gzip compresses the requests.
	Gzip bool
	// Timeout bounds a request. 1 ms to 5 min. Default 10 s.
	Timeout time.Duration
	// Resource are attributes about the process. service.name is "unstale" where it has none, service.instance.id the
	// worker's Name.
	Resource map[string]string
}

// Where spans are sent, and how long it may take. The last of a Run are sent within closeLimit, which fits into the five
// seconds that a stop has, and those of a Drain within drainLimit.
const (
	spanInterval = 5 * time.Second
	spanBackoff  = time.Second
	closeLimit   = time.Second
	drainLimit   = 3 * time.Second

	defaultSpanTimeout = 10 * time.Second
)

// Redacted is the endpoint for a log, without what may be secret: its scheme, host and port. It is "" where there is none.
func (t Tracing) Redacted() string { return otlp.Redacted(t.Endpoint) }

// validate expects the default to be in place. No error shows a header's value, or the endpoint.
func (t Tracing) validate() error {
	if t.Endpoint == "" {
		return nil
	}
	if err := otlp.CheckEndpoint(t.Endpoint); err != nil {
		return fmt.Errorf("tracing endpoint: %w", err)
	}
	if t.Timeout < time.Millisecond || t.Timeout > 5*time.Minute {
		return fmt.Errorf("tracing timeout %s: wanted 1ms to 5m", t.Timeout)
	}
	for name, value := range t.Headers {
		if err := otlp.CheckHeader(name, value); err != nil {
			return fmt.Errorf("tracing headers: %w", err)
		}
	}
	return nil
}

// start starts an exporter, or returns nil where there are no spans.
func (t Tracing) start(name string, log *slog.Logger, m *metrics) *otlp.Exporter {
	if t.Endpoint == "" {
		return nil
	}
	about := maps.Clone(t.Resource)
	if about == nil {
		about = map[string]string{}
	}
	about["service.name"] = cmp.Or(about["service.name"], "unstale")
	about["service.instance.id"] = cmp.Or(about["service.instance.id"], name)
	var resource []otlp.Attribute
	for _, key := range slices.Sorted(maps.Keys(about)) {
		resource = append(resource, otlp.Text(key, about[key]))
	}
	return otlp.Start(otlp.Config{
		Endpoint: t.Endpoint, Headers: maps.Clone(t.Headers), Gzip: t.Gzip, Timeout: t.Timeout,
		Scope: "github.com/unstale/unstale/worker", Resource: resource, Log: log,
		Sent:     func(spans int) { m.spans.WithLabelValues("sent").Add(float64(spans)) },
		Dropped:  func(spans int) { m.spans.WithLabelValues("dropped").Add(float64(spans)) },
		Interval: spanInterval, Backoff: spanBackoff,
	})
}
