package otlp

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What W3C calls a traceparent, of a sampled span, is read; anything else in the column is somebody's own text.
func TestParseTraceparent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		parent: true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03":      true, // sampled, with a random id
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      true, // of a later version
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": true,
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more":  false,
		parent + "-more": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00": false, // not sampled
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g": false,
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01": false,
		strings.ToUpper(parent):                                   false,
		parent[:54]:                                               false,
		"request-7f3a":                                            false,
		"":                                                        false,
	} {
		link, sampled := ParseTraceparent(text)
		if sampled != want || want && (hex.EncodeToString(link.TraceID[:]) != text[3:35] || hex.EncodeToString(link.SpanID[:]) != text[36:52]) {
			t.Errorf("%q: %v, %x", text, sampled, link)
		}
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add(parent)
	f.Add("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-é")
	f.Fuzz(func(t *testing.T, text string) {
		if l, ok := ParseTraceparent(text); ok && !strings.HasPrefix(text[2:], fmt.Sprintf("-%x-%x-", l.TraceID, l.SpanID)) {
			t.Errorf("%q is %x", text, l)
		}
	})
}

// Each span is linked once, in the order of the rows; what is beyond the limit is counted.
func TestLinks(t *testing.T) {
	t.Parallel()
	var links Links
	for _, round := range []int{1, 2} {
		for n := range 200 {
			links.Add("not a trace")
			links.Add(fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", n+1))
			if round == 2 && n == 100 {
				links.Add("")
			}
		}
	}
	if links.Len() != 200 || len(links.list) != MaxLinks || links.list[127].SpanID != [8]byte{7: 128} {
		t.Errorf("%d links, %d kept", links.Len(), len(links.list))
	}
}

// The links of a batch of 1,000 rows: of 1,000 spans, and of one.
func BenchmarkLinks(b *testing.B) {
	for _, spans := range []int{1000, 1} {
		rows := make([]string, 1000)
		for i := range rows {
			rows[i] = fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", i%spans+1)
		}
		b.Run(fmt.Sprint(spans, " spans"), func(b *testing.B) {
			for b.Loop() {
				var links Links
				for _, row := range rows {
					links.Add(row)
				}
			}
		})
	}
}
