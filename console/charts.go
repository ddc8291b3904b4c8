package console

import (
	"context"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/minutes"
)

const (
	chartsEvery = 15 * time.Second
	chartBars   = 60
	barMinutes  = 3
	// The size of a chart, in units of its viewBox.
	chartWidth, chartHeight, chartLeft, chartFoot = 720, 150, 46, 20
)

// chartsSource reads what happened in the last three hours.
func (c *Console) chartsSource() *source {
	return c.reads(chartsEvery, func(ctx context.Context) (any, error) {
		points, err := minutes.Series(ctx, c.db, chartBars, barMinutes)
		if err != nil {
			return nil, err
		}
		return charts(points), nil
	})
}

// A layer is one part of each bar.
type layer struct {
	Name, Class string
	value       func(*minutes.Point) uint64
}

// A chart is a diagram of stacked bars.
type chart struct {
	ID, Title, Says string
	Layers          []layer
	SVG             template.HTML
}

func charts(points []minutes.Point) []chart {
	rows, dead, late := uint64(0), uint64(0), uint64(0)
	for i := range points {
		rows, dead, late = rows+points[i].Rows, dead+points[i].Dead, late+points[i].Rows-points[i].Within1s
	}
	settled := layer{"invalidated", "series", func(p *minutes.Point) uint64 { return p.Rows }}
	died := layer{"dead letters", "bad", func(p *minutes.Point) uint64 { return p.Dead }}
	list := []chart{
		{
			ID: "throughput", Title: "Rows per minute", Layers: []layer{settled, died},
			Says: fmt.Sprintf("%s rows invalidated and %s dead letters in three hours", count(rows), count(dead)),
		},
		{
			ID: "latency", Title: "From visible to unlinked, share of rows", Layers: []layer{
				{"within 100 ms", "good", func(p *minutes.Point) uint64 { return p.Within100ms }},
				{"1 s", "series", func(p *minutes.Point) uint64 { return p.Within1s - min(p.Within100ms, p.Within1s) }},
				{"10 s", "warn", func(p *minutes.Point) uint64 { return p.Within10s - min(p.Within1s, p.Within10s) }},
				{"later or dead", "bad", func(p *minutes.Point) uint64 { return p.Rows - min(p.Within10s, p.Rows) + p.Dead }},
			},
			Says: fmt.Sprintf("%s of %s rows took longer than 1 s", count(late), count(rows)),
		},
	}
	list[0].SVG = list[0].draw(points, false)
	list[1].SVG = list[1].draw(points, true)
	return list
}

// draw returns the diagram. Bars of shares are all of one height.
func (c *chart) draw(points []minutes.Point, shares bool) template.HTML {
	most := 0.0
	total := func(p *minutes.Point) (n float64) {
		for _, l := range c.Layers {
			n += float64(l.value(p))
		}
		return n
	}
	for i := range points {
		most = max(most, total(&points[i])/barMinutes)
	}
	top := nice(most)
	if shares {
		top = 1
	}
	const high = chartHeight - chartFoot - 8
	width := float64(chartWidth-chartLeft) / float64(len(points))
	y := func(v float64) float64 { return 8 + high*(1-v/top) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-labelledby="chart-%s"><title id="chart-%s">%s: %s</title>`,
		chartWidth, chartHeight, c.ID, c.ID, c.Title, c.Says)
	for _, v := range []float64{0, top / 2, top} {
		label := count(int64(v))
		switch {
		case shares:
			label = fmt.Sprintf("%.0f%%", 100*v)
		case v != float64(int64(v)):
			label = fmt.Sprintf("%.1f", v)
		}
		fmt.Fprintf(&b, `<path class="rule" d="M%d %.1fH%d"/><text x="%d" y="%.1f" class="end">%s</text>`, chartLeft, y(v), chartWidth, chartLeft-6, y(v)+4, label)
	}
	for i := range points {
		p := &points[i]
		x := chartLeft + float64(i)*width
		if p.At.Minute() < barMinutes && p.At.Minute()%60 < barMinutes {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, x, chartHeight-4, p.At.Format("15:04"))
		}
		all := total(p)
		if all == 0 {
			continue
		}
		fmt.Fprintf(&b, `<g><title>%s UTC, %d min:`, p.At.Format("15:04"), barMinutes)
		for _, l := range c.Layers {
			fmt.Fprintf(&b, " %s %s", count(l.value(p)), l.Name)
		}
		b.WriteString("</title>")
		at := 0.0
		for _, l := range c.Layers {
			v := float64(l.value(p)) / barMinutes
			if shares {
				v = float64(l.value(p)) / all
			}
			if v == 0 {
				continue
			}
			from, to := y(at), y(at+v)
			fmt.Fprintf(&b, `<path class="%s" d="M%.1f %.1fV%.1fh%.1fV%.1fz"/>`, l.Class, x+.5, from, min(to, from-1), width-1, from)
			at += v
		}
		b.WriteString("</g>")
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // of numbers and constants
}

// nice returns the top of an axis: 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	for top := 1.0; ; top *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if v <= top*m {
				return top * m
			}
		}
	}
}
