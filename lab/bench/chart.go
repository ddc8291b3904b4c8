package bench

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

// A chartRow is a figure of a Report that the chart shows: its main one, or one of its Details.
type chartRow struct{ mode, detail, label string }

var chartRows = []chartRow{
	{"cache", "memory_hit", "a hit in memory"},
	{"cache", "redis_hit", "a hit in Redis"},
	{"cache", "redis_hit_with_tag", "the same with a tag"},
	{"cache", "miss", "a miss"},
	{"cache", "miss_with_tag", "the same with a tag"},
	{"cache", "warm_up", "warm-up, per key"},
	{"drain", "", "drain, per row"},
	{"unlink", "", "UNLINK, per key"},
	{"sets", "", "an index set"},
	{"sweep", "", "a scan for 1,000 patterns"},
	{"enqueue", "", "a transaction with Enqueue"},
	{"latency", "", "commit to UNLINK, p99"},
	{"head", "", "a poll while rows are not purged"},
}

// Chart draws the ratios of Reports, which are JSON, as an SVG: to the floor, and to the correct
// floor where there is one. Rows without a Report are left out; no row at all is an error.
func Chart(w io.Writer, reports [][]byte) error {
	of := map[chartRow]pair{}
	for _, text := range reports {
		var r struct {
			Report
			Details map[string]json.RawMessage `json:"details"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("read report: %w", err)
		}
		for _, row := range chartRows {
			text, detailed := r.Details[row.detail]
			if row.mode != r.Mode || detailed != (row.detail != "") {
				continue
			}
			p := pair{Ratio: r.Ratio, Unit: r.Unit}
			if detailed {
				if err := json.Unmarshal(text, &p); err != nil {
					return fmt.Errorf("read %s of mode %s: %w", row.detail, r.Mode, err)
				}
			}
			if p.Ratio > 0 {
				of[row] = p.asTimes()
			}
		}
	}
	if len(of) == 0 {
		return fmt.Errorf("none of %d reports has a figure of the chart", len(reports))
	}
	// in pixels, but most: the longest bar, in multiples of the floor
	const left, unit, height, most = 240, 160, 34, 8
	var b strings.Builder
	y := 40
	bar := func(y int, ratio float64, color string) {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.0f" height="11" fill="%s"/><text x="%.0f" y="%d">%.2f</text>`+"\n",
			left, y, unit*min(ratio, most), color, left+unit*min(ratio, most)+6, y+10, ratio)
	}
	widest := 1.0
	for _, row := range chartRows {
		f, ok := of[row]
		if !ok {
			continue
		}
		widest = max(widest, min(f.Ratio, most), f.CorrectRatio)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y+14, html.EscapeString(row.label))
		if f.CorrectRatio > 0 {
			bar(y, f.Ratio, "#9bb7d4")
			bar(y+12, f.CorrectRatio, "#1f5f99")
		} else {
			bar(y+6, f.Ratio, "#9bb7d4")
		}
		y += height
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="sans-serif" font-size="12">
<title>Time of unstale as a multiple of each floor</title>
<rect width="100%%" height="100%%" fill="white"/>
<text x="10" y="20">Time as a multiple of the floor (light) and of the correct floor (dark); 1 is the line</text>
%s<line x1="%d" x2="%d" y1="30" y2="%d" stroke="#444"/>
</svg>
`, left+unit*widest+60, y+10, b.String(), left+unit, left+unit, y)
	return err
}

// asTimes inverts the ratios of rates, so that more than 1 is slower.
func (p pair) asTimes() pair {
	if strings.HasSuffix(p.Unit, "/s") {
		p.Ratio = 1 / p.Ratio
		if p.CorrectRatio > 0 {
			p.CorrectRatio = 1 / p.CorrectRatio
		}
	}
	return p
}
