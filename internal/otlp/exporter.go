package otlp

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Config says where spans go. All fields but Headers, Gzip and Resource are required.
type Config struct {
	Endpoint string            // the URL of the POST. Its user, password and query are secrets
	Headers  map[string]string // secrets
	Gzip     bool
	Timeout  time.Duration // of one request
	Scope    string        // what makes the spans
	Resource []Attribute   // about who makes them

	Log     *slog.Logger
	Sent    func(spans int) // counts what the collector has taken
	Dropped func(spans int) // counts what nobody has; both may be called at the same time

	Interval time.Duration // between requests, unless mostSpans wait
	Backoff  time.Duration // after a request that failed; doubles up to mostBackoff
}

const (
	queueSize   = 1024             // spans that wait: 5 MB at most, of MaxLinks links each
	mostSpans   = 128              // of one request: 2 MB at most
	mostTries   = 6                // of one request
	mostBackoff = 30 * time.Second // between tries, unless the collector asks for more
	mostPause   = 5 * time.Minute  // that it may ask for
)

// An Exporter sends spans until it is closed. Safe for concurrent use.
type Exporter struct {
	cfg    Config
	client *http.Client
	queue  chan Span
	stop   chan struct{} // closed by Close
	ended  chan struct{} // closed when the sender has ended
	cancel context.CancelFunc
	once   sync.Once
	teller teller

	failed int // requests since the last that was answered; the sender's
}

// Start starts a sender, which Close ends. cfg must be valid: see CheckEndpoint and CheckHeader.
func Start(cfg Config) *Exporter {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Exporter{
		cfg: cfg, client: newClient(cfg.Timeout), queue: make(chan Span, queueSize),
		stop: make(chan struct{}), ended: make(chan struct{}), cancel: cancel,
		teller: teller{log: cfg.Log, endpoint: Redacted(cfg.Endpoint)},
	}
	go e.send(ctx)
	return e
}

// Add takes a span to be sent. It never waits: where too many spans wait already, this one is dropped.
func (e *Exporter) Add(s Span) {
	s.Links.close()
	select {
	case e.queue <- s:
	default:
		e.drop(1, errFull)
	}
}

// Close sends what waits, for as long as limit at most, and drops the rest. Nobody may call Add any more.
// It may be called again; the shortest limit counts.
func (e *Exporter) Close(limit time.Duration) {
	e.once.Do(func() { close(e.stop) })
	timer := time.AfterFunc(limit, e.cancel)
	defer timer.Stop()
	<-e.ended
	e.cancel()
	e.client.CloseIdleConnections()
}

// send is the sender.
func (e *Exporter) send(ctx context.Context) {
	defer close(e.ended)
	for {
		spans, stopped := e.collect()
		if len(spans) > 0 {
			e.deliver(ctx, spans)
		}
		if stopped && len(e.queue) == 0 {
			return
		}
	}
}

// collect waits until the interval is over, or there are spans enough for a request. Once it is stopped it takes what
// waits.
func (e *Exporter) collect() (spans []Span, stopped bool) {
	timer := time.NewTimer(e.cfg.Interval)
	defer timer.Stop()
	for len(spans) < mostSpans {
		select {
		case s := <-e.queue:
			spans = append(spans, s)
		case <-timer.C:
			return spans, false
		case <-e.stop:
			for len(spans) < mostSpans && len(e.queue) > 0 {
				spans = append(spans, <-e.queue)
			}
			return spans, true
		}
	}
	return spans, false
}

// deliver sends spans until they are taken, refused, or were tried often enough.
func (e *Exporter) deliver(ctx context.Context, spans []Span) {
	body, err := encode(e.cfg.Scope, e.cfg.Resource, spans)
	if err != nil {
		e.drop(len(spans), err)
		return
	}
	for try := 1; ; try++ {
		rejected, err := e.post(ctx, body)
		var passing *passingError
		switch {
		case err == nil:
			e.failed = 0
			e.taken(len(spans), min(rejected, len(spans)))
			return
		case !errors.As(err, &passing):
			e.failed = 0
			e.drop(len(spans), err)
			return
		}
		e.failed++
		e.teller.trouble(0, err)
		if try == mostTries || !e.pause(passing.after) {
			e.drop(len(spans), err)
			return
		}
	}
}

func (e *Exporter) taken(all, rejected int) {
	e.cfg.Sent(all - rejected)
	if rejected > 0 {
		e.drop(rejected, errRejected)
		return
	}
	e.teller.well()
}

func (e *Exporter) drop(spans int, why error) {
	e.cfg.Dropped(spans)
	e.teller.trouble(spans, why)
}

// pause waits before the next try, no less than the collector has asked for. A stop cuts it short, for one last try;
// after the stop it reports that there is none.
func (e *Exporter) pause(asked time.Duration) bool {
	select {
	case <-e.stop:
		return false
	default:
	}
	wait := min(e.cfg.Backoff<<min(e.failed-1, 10), mostBackoff)
	wait += rand.N(wait/4 + 1)
	timer := time.NewTimer(max(wait, min(asked, mostPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.stop:
	}
	return true
}
