package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// The chart shows times: a rate of half the floor's is a bar of 2. Figures that were not measured
// have no row.
func TestChart(t *testing.T) {
	var b strings.Builder
	if err := Chart(&b, [][]byte{
		[]byte(`{"mode":"drain","ratio":0.5,"unit":"rows/s"}`),
		[]byte(`{"mode":"cache","ratio":9,"unit":"us","details":{"miss":{"ratio":2.25,"correct_ratio":1.03,"unit":"us"},"pinned":"yes"}}`),
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">drain, per row<", ">2.00<", ">a miss<", ">2.25<", ">1.03<"} {
		if strings.Count(b.String(), want) != 1 {
			t.Errorf("%q stands %d times, want once, in\n%s", want, strings.Count(b.String(), want), &b)
		}
	}
	if strings.Contains(b.String(), ">9.00<") || strings.Contains(b.String(), "a hit") {
		t.Errorf("a figure that was not measured:\n%s", &b)
	}
	decoder := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, reports := range [][][]byte{nil, {[]byte(`{"mode":"idle","ratio":1}`)}, {[]byte(`{`)}} {
		if err := Chart(io.Discard, reports); err == nil {
			t.Errorf("%s: no error", reports)
		}
	}
}
