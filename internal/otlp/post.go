package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

var (
	errFull     = errors.New("more spans wait than there is room for")
	errRejected = errors.New("the collector has rejected some of the spans that it was sent; its log says why")
)

// A passingError may pass: the same request is worth another try.
type passingError struct {
	err   error
	after time.Duration // that the collector has asked for, or 0
}

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

// newClient follows no redirect: the headers are for the endpoint alone. It has a transport of its own, since a service may
// have put one that makes spans in the place of http.DefaultTransport.
func newClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// mostReply is how many bytes of a reply are read.
const mostReply = 64 << 10

// post sends one request and returns how many of its spans were rejected. No error shows a header, the endpoint's query,
// or what the collector says, which may quote them.
func (e *Exporter) post(ctx context.Context, body []byte) (rejected int, err error) {
	request, err := e.request(ctx, body)
	if err != nil {
		return 0, errors.New("the request cannot be made")
	}
	reply, err := e.client.Do(request)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		return 0, &passingError{err: err}
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(reply.Body, mostReply))
	switch reply.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, &passingError{answerError(reply.StatusCode), retryAfter(reply.Header.Get("Retry-After"))}
	}
	switch {
	case reply.StatusCode < 200 || reply.StatusCode > 299:
		return 0, answerError(reply.StatusCode)
	case err != nil: // it has the spans, and nobody knows what it thinks of them
		return 0, nil
	}
	return rejectedSpans(text), nil
}

func (e *Exporter) request(ctx context.Context, body []byte) (*http.Request, error) {
	if e.cfg.Gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(body)
		if err := errors.Join(err, w.Close()); err != nil {
			return nil, err
		}
		body = packed.Bytes()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.Endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "unstale")
	for name, value := range e.cfg.Headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", "application/json")
	if e.cfg.Gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	return request, nil
}

// answerError shows the number of a status: the text beside it is the server's.
func answerError(status int) error {
	return fmt.Errorf("it answers %d %s", status, http.StatusText(status))
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(seconds, 0), int(mostPause/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, time.Until(at))
}

// rejectedSpans reads the reply to a request that was taken. One that says nothing rejects nothing.
func rejectedSpans(reply []byte) int {
	var r struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"` // a number, mostly as text
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(reply, &r) != nil {
		return 0
	}
	n, err := strconv.Atoi(string(bytes.Trim(r.PartialSuccess.RejectedSpans, `"`)))
	if err != nil {
		return 0
	}
	return max(n, 0)
}
