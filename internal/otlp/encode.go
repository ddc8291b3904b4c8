package otlp

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// The message ExportTraceServiceRequest as JSON: ids are hexadecimal, numbers of 64 bits are text, and what an
// enumeration means is its number.
type (
	traces struct {
		ResourceSpans [1]resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource      `json:"resource"`
		ScopeSpans [1]scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	span struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		Flags        uint32      `json:"flags"`
		Name         string      `json:"name"`
		Kind         int         `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []attribute `json:"attributes,omitempty"`
		Links        []link      `json:"links,omitempty"`
		DroppedLinks int         `json:"droppedLinksCount,omitempty"`
		Status       status      `json:"status"`
	}
	link struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
		Flags   uint32 `json:"flags"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *string `json:"intValue,omitempty"`
	}
)

// Flags of spans and links: what W3C calls sampled, and whether what is pointed to is of another process.
const (
	flagSampled   = 0x001
	flagKnowsHome = 0x100
	flagRemote    = 0x200
)

const (
	kindConsumer = 5
	statusError  = 2
)

// mostMessage is how many bytes of a status' message are sent.
const mostMessage = 1024

// encode writes the body of one request.
func encode(scopeName string, about []Attribute, spans []Span) ([]byte, error) {
	var t traces
	r := &t.ResourceSpans[0]
	r.Resource.Attributes = attributes(about)
	s := &r.ScopeSpans[0]
	s.Scope.Name = scopeName
	s.Spans = make([]span, len(spans))
	for i := range spans {
		s.Spans[i] = spans[i].encode()
	}
	return json.Marshal(t)
}

func (s *Span) encode() span {
	e := span{
		TraceID: randomID(16), SpanID: randomID(8), Flags: flagSampled | flagKnowsHome,
		Name: s.Name, Kind: kindConsumer, Start: nanos(s.Start), End: nanos(s.End), Attributes: attributes(s.Attributes),
		DroppedLinks: s.Links.Len() - len(s.Links.list),
	}
	for _, l := range s.Links.list {
		e.Links = append(e.Links, link{hex.EncodeToString(l.TraceID[:]), hex.EncodeToString(l.SpanID[:]), flagSampled | flagKnowsHome | flagRemote})
	}
	if s.Error != "" {
		e.Status = status{statusError, strings.ToValidUTF8(s.Error[:min(len(s.Error), mostMessage)], "")}
	}
	return e
}

func attributes(list []Attribute) []attribute {
	encoded := make([]attribute, len(list))
	for i, a := range list {
		encoded[i].Key = a.Name
		if a.isN {
			number := strconv.FormatInt(a.n, 10)
			encoded[i].Value.Number = &number
		} else {
			encoded[i].Value.Text = &list[i].text
		}
	}
	return encoded
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// randomID is one of n bytes, 8 or 16. Zeros alone would name nothing.
func randomID(n int) string {
	id := make([]byte, 0, n)
	for len(id) < n {
		id = binary.BigEndian.AppendUint64(id, max(rand.Uint64(), 1))
	}
	return hex.EncodeToString(id)
}
