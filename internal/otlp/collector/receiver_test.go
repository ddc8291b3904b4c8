package collector

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// A receiver takes spans over HTTP and reads them as the Collector does, with the Collector's own decoder.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex
	taken []ptrace.Traces
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(func() { r.Close() })
	return r
}

// again serves at the same address, after Close.
func (r *receiver) again() {
	r.t.Helper()
	listener, err := net.Listen("tcp", r.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	next := httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	_ = next.Listener.Close() // for the one in its place
	next.Listener = listener
	next.Start()
	r.Server = next
}

func (r *receiver) serve(w http.ResponseWriter, request *http.Request) {
	body := io.Reader(request.Body)
	if request.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			r.t.Error(err)
			return
		}
		body = unpacked
	}
	text, err := io.ReadAll(body)
	if err != nil {
		r.t.Error(err)
		return
	}
	if at := request.Method + " " + request.URL.Path + " " + request.Header.Get("Content-Type"); at != "POST /v1/traces application/json" {
		r.t.Errorf("got %s", at)
	}
	r.read(text)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"partialSuccess":{}}`)
}

// read decodes a request. The decoder passes over what it does not know, so what it has understood is encoded again, by
// the Collector's encoder: that has to be the same.
func (r *receiver) read(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	traces, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(text)
	if err != nil {
		r.t.Errorf("%v in %s", err, text)
		return
	}
	again, err := new(ptrace.JSONMarshaler).MarshalTraces(traces)
	if err != nil {
		r.t.Error(err)
		return
	}
	var sent, understood any
	if err := json.Unmarshal(text, &sent); err != nil {
		r.t.Error(err)
	}
	if err := json.Unmarshal(again, &understood); err != nil {
		r.t.Error(err)
	}
	if !reflect.DeepEqual(sent, understood) {
		r.t.Errorf("sent       %s\nunderstood %s", text, again)
	}
	r.taken = append(r.taken, traces)
}

// A received span is one with what it came with.
type received struct {
	ptrace.Span
	resource map[string]any
	scope    string
}

// spans takes what was received since the last call.
func (r *receiver) spans() (list []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, traces := range r.taken {
		for _, resource := range traces.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					list = append(list, received{span, resource.Resource().Attributes().AsRaw(), scope.Scope().Name()})
				}
			}
		}
	}
	r.taken = nil
	return list
}
