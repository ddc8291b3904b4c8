package otlp

import "encoding/hex"

// A Link names a span of somebody else, which is sampled.
type Link struct {
	TraceID [16]byte
	SpanID  [8]byte
}

// ParseTraceparent reads a W3C traceparent. It reports false for any other text, for a span that is not sampled, and for
// ids of zeros, which name nothing. Of a version that it does not know it reads what every version begins with.
func ParseTraceparent(text string) (l Link, sampled bool) {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(text) < size || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Link{}, false
	}
	if len(text) > size && (text[:2] == "00" || text[size] != '-') {
		return Link{}, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		into []byte
		text string
	}{{version[:], text[:2]}, {l.TraceID[:], text[3:35]}, {l.SpanID[:], text[36:52]}, {flags[:], text[53:55]}} {
		if !lowerHex(part.into, part.text) {
			return Link{}, false
		}
	}
	if version[0] == 0xff || l.TraceID == [16]byte{} || l.SpanID == [8]byte{} || flags[0]&1 == 0 {
		return Link{}, false
	}
	return l, true
}

// lowerHex decodes text, which must have lower case alone.
func lowerHex(into []byte, text string) bool {
	for _, c := range []byte(text) {
		if c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(text))
	return err == nil
}

// MaxLinks is how many links one span has, which is also the limit of OpenTelemetry's SDKs.
const MaxLinks = 128

// Links are the different spans that texts name, in their order. The zero value has none. Not safe for concurrent use.
type Links struct {
	list []Link
	n    int
	seen map[Link]struct{}
	last string // text that was added last: rows of one write come together
}

// Add adds the span that a traceparent names, if it is sampled. Any other text names none.
func (l *Links) Add(text string) {
	if text == "" || text == l.last {
		return
	}
	l.last = text
	link, sampled := ParseTraceparent(text)
	if _, known := l.seen[link]; known || !sampled {
		return
	}
	if l.seen == nil {
		l.seen = map[Link]struct{}{}
	}
	l.seen[link] = struct{}{}
	l.n++
	if len(l.list) < MaxLinks {
		l.list = append(l.list, link)
	}
}

// Len is how many different spans were added, those beyond MaxLinks among them.
func (l *Links) Len() int { return l.n }

// close lets go of what only Add needs: spans wait in numbers.
func (l *Links) close() { l.seen, l.last = nil, "" }
