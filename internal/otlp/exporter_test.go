package otlp

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// A collector answers each request as the test says, and counts spans by the name that the test gives them.
type collector struct {
	*httptest.Server
	requests atomic.Int64
	spans    atomic.Int64 // that it has said to have taken
	header   atomic.Pointer[http.Header]
}

// answering makes a collector; nil takes everything. What answer writes ends the request.
func answering(t *testing.T, answer func(n int64, w http.ResponseWriter, r *http.Request) (taken bool)) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.header.Store(&r.Header)
		if n := c.requests.Add(1); answer == nil || answer(n, w, r) {
			c.spans.Add(int64(bytes.Count(body, []byte(`"name":"work"`))))
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// A sender is an exporter with what it says.
type sender struct {
	*Exporter
	sent, dropped atomic.Int64
	log           safeLog
}

func (c *collector) sender(change ...func(*Config)) *sender {
	s := &sender{}
	cfg := Config{
		Endpoint: c.URL + "/v1/traces", Timeout: 10 * time.Second, Scope: "test", Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Sent: func(n int) { s.sent.Add(int64(n)) }, Dropped: func(n int) { s.dropped.Add(int64(n)) },
		Interval: time.Millisecond, Backoff: time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	s.Exporter = Start(cfg)
	return s
}

func (s *sender) add(n int) {
	for range n {
		s.Add(Span{Name: "work"})
	}
}

// ends closes the exporter, and compares what became of spans: each is sent or dropped.
func (s *sender) ends(t *testing.T, sent, dropped int64) {
	t.Helper()
	s.Close(10 * time.Second)
	if s.sent.Load() != sent || s.dropped.Load() != dropped {
		t.Errorf("%d sent and %d dropped, wanted %d and %d; the log:\n%s", s.sent.Load(), s.dropped.Load(), sent, dropped, s.log.text())
	}
}

// What waits when the exporter is closed is sent, in requests of 128.
func TestClose(t *testing.T) {
	t.Parallel()
	c := answering(t, nil)
	s := c.sender(func(cfg *Config) { cfg.Interval = time.Hour })
	s.add(300)
	s.ends(t, 300, 0)
	if c.spans.Load() != 300 || c.requests.Load() != 3 {
		t.Errorf("%d spans in %d requests", c.spans.Load(), c.requests.Load())
	}
	if s.log.text() != "" {
		t.Errorf("it says %s", s.log.text())
	}
}

// What passes is tried again: no spans are lost, and the log tells once of the trouble and once of its end.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	c := answering(t, func(n int64, w http.ResponseWriter, _ *http.Request) bool {
		if status := map[int64]int{1: 429, 2: 502, 3: 503, 4: 504}[n]; status != 0 {
			w.WriteHeader(status)
			return false
		}
		return true
	})
	s := c.sender()
	s.add(1)
	testenv.Eventually(t, "it is sent", func() bool { return s.sent.Load() == 1 })
	s.ends(t, 1, 0)
	if c.requests.Load() != 5 || s.log.count("does not take spans") != 1 || s.log.count("takes spans again") != 1 || s.log.count("429") != 1 {
		t.Errorf("%d requests; the log:\n%s", c.requests.Load(), s.log.text())
	}
}

// Retry-After is obeyed, as seconds and as a date. What no try will cure is dropped at once, a redirect among it, which
// would take the headers elsewhere. What goes on is given up.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 307, 400, 401, 404, 413, 500} {
		c := answering(t, func(_ int64, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Location", r.URL.Path)
			w.WriteHeader(status)
			return false
		})
		s := c.sender()
		s.add(1)
		testenv.Eventually(t, fmt.Sprint(status), func() bool { return s.dropped.Load() == 1 })
		s.ends(t, 0, 1)
		if n := c.requests.Load(); n != 1 {
			t.Errorf("%d: %d requests", status, n)
		}
	}
	c := answering(t, func(_ int64, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return false })
	s := c.sender()
	s.add(1)
	testenv.Eventually(t, "it gives up", func() bool { return s.dropped.Load() == 1 })
	s.ends(t, 0, 1)
	if n := c.requests.Load(); n != mostTries {
		t.Errorf("gave up after %d requests", n)
	}
	if got := retryAfter("7"); got != 7*time.Second {
		t.Errorf("Retry-After: 7 is %s", got)
	}
	if got := retryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)); got < 50*time.Second || got > time.Minute {
		t.Errorf("Retry-After of a date is %s", got)
	}
	for _, text := range []string{"", "-1", "soon", "Sun, 06 Nov 1994 08:49:37 GMT"} {
		if got := retryAfter(text); got != 0 {
			t.Errorf("Retry-After %q is %s", text, got)
		}
	}
}

// A collector that asks for a rest gets it.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	var first time.Time
	c := answering(t, func(n int64, w http.ResponseWriter, _ *http.Request) bool {
		if n > 1 {
			return true
		}
		first = time.Now()
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(429)
		return false
	})
	s := c.sender()
	s.add(1)
	testenv.Eventually(t, "it is sent", func() bool { return s.sent.Load() == 1 })
	if rest := time.Since(first); rest < time.Second {
		t.Errorf("it came again after %s", rest)
	}
	s.ends(t, 1, 0)
}

// Spans that a collector rejects are dropped, the others are sent; it counts as text or as a number, and cannot reject more
// than it was given. A reply that nobody can read is one that rejects nothing.
func TestPartialSuccess(t *testing.T) {
	t.Parallel()
	for reply, rejected := range map[string]int64{
		`{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}`: 2,
		`{"partialSuccess":{"rejectedSpans":2}}`:                            2,
		`{"partialSuccess":{"rejectedSpans":"99"}}`:                         3,
		`{"partialSuccess":{"errorMessage":"a warning"}}`:                   0,
		`{"partialSuccess":null}`:                                           0,
		"\x0a\x00":                                                          0,
		strings.Repeat(" ", 2*mostReply):                                    0,
	} {
		c := answering(t, func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
			_, _ = io.WriteString(w, reply)
			return true
		})
		s := c.sender(func(cfg *Config) { cfg.Interval = time.Hour })
		s.add(3)
		s.ends(t, 3-rejected, rejected)
	}
}

// A collector that takes requests and never answers makes nobody wait: what finds no room is dropped, and the end comes
// within its limit.
func TestHangingCollector(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	c := answering(t, func(_ int64, _ http.ResponseWriter, _ *http.Request) bool { <-hang; return false })
	defer close(hang)
	s := c.sender()
	s.add(1)
	testenv.Eventually(t, "the request is there", func() bool { return c.requests.Load() == 1 })
	s.add(queueSize + 500)
	if got := s.dropped.Load(); got != 500 {
		t.Errorf("%d dropped at once", got)
	}
	if s.log.count("more spans wait than there is room for") != 1 {
		t.Errorf("the log:\n%s", s.log.text())
	}
	began := time.Now()
	s.Close(50 * time.Millisecond)
	if took := time.Since(began); took > 5*time.Second { // it would be 10 s, of each request
		t.Errorf("closed after %s", took)
	}
	if got := s.dropped.Load(); got != queueSize+501 {
		t.Errorf("%d dropped in the end", got)
	}
}

// Headers reach the collector. Neither they nor the rest of the endpoint are in the log, whatever goes wrong.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for trouble, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"EOF": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"it answers 401 Unauthorized": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "bad key "+r.Header.Get("Api-Key"), http.StatusUnauthorized)
		},
		"has rejected some": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"partialSuccess":{"rejectedSpans":1,"errorMessage":"%s"}}`, r.Header.Get("Api-Key"))
		},
	} {
		c := answering(t, func(_ int64, w http.ResponseWriter, r *http.Request) bool { answer(w, r); return false })
		s := c.sender(func(cfg *Config) {
			cfg.Endpoint = strings.Replace(c.URL, "//", "//user:secret@", 1) + "/secret?token=secret"
			cfg.Headers = map[string]string{"Api-Key": "secret", "content-type": "text/secret"}
		})
		s.add(1)
		testenv.Eventually(t, trouble, func() bool { return s.dropped.Load() == 1 })
		s.ends(t, 0, 1)
		if h := *c.header.Load(); h.Get("Api-Key") != "secret" || h.Get("Content-Type") != "application/json" || h.Get("Authorization") == "" {
			t.Errorf("headers %v", h)
		}
		if s.log.count("secret") != 0 || s.log.count(trouble) != 1 || s.log.count("endpoint="+c.URL) != 1 {
			t.Errorf("the log of %s:\n%s", trouble, s.log.text())
		}
	}
}

// A collector that takes every other request is told of once, not at each.
func TestTeller(t *testing.T) {
	t.Parallel()
	var log safeLog
	tell := teller{log: slog.New(slog.NewTextHandler(&log, nil)), endpoint: "here"}
	for range 10 {
		tell.trouble(1, errRejected)
		tell.well()
	}
	if log.count("does not take spans") != 1 || log.count("takes spans again") != 1 || log.count("dropped=1") != 1 {
		t.Errorf("the log:\n%s", log.text())
	}
}

// What may not be used as an endpoint or a header is refused, and not shown.
func TestCheck(t *testing.T) {
	t.Parallel()
	for endpoint, good := range map[string]bool{
		"http://127.0.0.1:4318/v1/traces": true, "https://user:secret@collector/secret?key=secret": true,
		"collector:4318": false, "secret": false, "ftp://secret": false, "http:///secret": false, "http://user:pa:secret/word@host": false,
		"http://secret\x7f": false, "http://collector/#secret": false, "unix:///secret": false,
	} {
		if err := CheckEndpoint(endpoint); (err == nil) != good || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for name, value := range map[string]string{"": "secret", "a b": "secret", "näme": "secret", "a": "secret\r\nB: c", "b": "\x00secret"} {
		if err := CheckHeader(name, value); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := CheckHeader("x-key", "Bearer a=b, \té"); err != nil {
		t.Error(err)
	}
}

// A safeLog is what was logged.
type safeLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *safeLog) count(part string) int { return strings.Count(l.text(), part) }
