package store

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A Share is how many of all were in time.
type Share struct{ In, All uint64 }

// Invalidations returns how many invalidations became visible in the window, except for those that
// still wait: settled rows and dead letters.
func (w *Window) Invalidations() uint64 { return w.Rows + w.Dead }

// Within returns the share of the invalidations whose keys were unlinked within 100 ms, 1 s or 10 s
// of becoming visible. Dead letters were not, and so are waiting rows that are older now.
func (w *Window) Within(limit time.Duration) Share {
	in, late := w.Within10s, w.waiting.Over10s
	switch limit {
	case 100 * time.Millisecond:
		in, late = w.Within100ms, w.waiting.Over100ms
	case time.Second:
		in, late = w.Within1s, w.waiting.Over1s
	}
	return Share{in, w.Invalidations() + late}
}

// Ratio returns the share as a number from 0 to 1. The share of nothing is not a number.
func (s Share) Ratio() float64 { return float64(s.In) / float64(s.All) }

// String returns the share in percent, rounded down to the first digit that is not a nine: 100% if
// none was missed, and never otherwise. It returns "none" for the share of nothing.
func (s Share) String() string {
	switch {
	case s.All == 0:
		return "none"
	case s.In == s.All:
		return "100%"
	}
	missed := float64(s.All-s.In) / float64(s.All) * 100
	digits := max(int(math.Ceil(-math.Log10(missed))), 1)
	scale := math.Pow10(digits)
	// Round the missing part up, except for an error in its last bits.
	missed = math.Ceil(missed*scale*(1-1e-12)) / scale
	text := strings.TrimRight(strconv.FormatFloat(100-missed, 'f', digits, 64), "0")
	if strings.HasSuffix(text, ".") {
		text += "0"
	}
	return text + "%"
}
