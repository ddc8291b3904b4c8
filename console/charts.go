package console

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

const (
	chartsEvery = 15 * time.Second
	chartBars   = 60
	barMinutes  = 3
	// The size of a chart, in units of its viewBox.
	chartWidth, chartHeight, chartLeft, chartFoot = 720, 150, 46, 20
	sparkHeight                                   = 24
	// shownEntities is how many entities are listed.
	shownEntities = 12
)

// readCharts reads what happened in the last three hours.
func (c *Console) readCharts(ctx context.Context) (any, error) {
	points, err := store.Series(ctx, c.db, chartBars, barMinutes)
	if err != nil {
		return nil, err
	}
	return charts(points), nil
}

// A layer is one part of each bar.
type layer struct {
	Name, Class string
	value       func(*store.Point) uint64
}

// A chart is a diagram of stacked bars.
type chart struct {
	ID, Title, Says string
	Layers          []layer
	SVG             template.HTML
	Unknown         bool // at some time

	shares    bool                 // bars are all of one height
	perMinute bool                 // the height is the value per minute
	queue     bool                 // unknown without a look
	least     float64              // top of the axis
	label     func(float64) string // of a value
}

// A historyCharts is the data of the panels "charts" and "entities".
type historyCharts struct {
	Charts   []chart
	Entities []entityChart
	Others   int // entities that are not in the list
}

// An entityChart is one line of the table by entity.
type entityChart struct {
	Name   string // "": those that workers do not note by name
	Rows   uint64
	Within store.Share   // 1 s
	SVG    template.HTML // rows per minute
}

func charts(points []store.Point) historyCharts {
	if points = slices.Clone(points); len(points) > 0 {
		points[len(points)-1].Looked = true // or a look is due, since this bar has only begun
	}
	rows, dead, late, waiting, oldest, unknown := uint64(0), uint64(0), uint64(0), uint64(0), time.Duration(0), 0
	for i := range points {
		p := &points[i]
		rows, dead, late = rows+p.Rows, dead+p.Dead, late+p.Rows-p.Within1s
		if waiting, oldest = max(waiting, p.Waiting), max(oldest, p.Oldest); !p.Looked {
			unknown++
		}
	}
	whole := func(v float64) string {
		if v != float64(int64(v)) {
			return fmt.Sprintf("%.1f", v)
		}
		return output.Count(int64(v))
	}
	seen, most := "at most %s", output.Count(waiting)
	if waiting >= store.MaxExactCount {
		most += " or more"
	}
	if unknown > 0 {
		seen += fmt.Sprintf("; unknown for %d min while no worker looked", unknown*barMinutes)
	}
	list := []chart{
		{
			ID: "throughput", Title: "Rows per minute", perMinute: true, label: whole, Layers: []layer{
				{"invalidated", "series", func(p *store.Point) uint64 { return p.Rows }},
				{"dead letters", "bad", func(p *store.Point) uint64 { return p.Dead }},
			},
			Says: fmt.Sprintf("%s rows invalidated and %s dead letters in three hours", output.Count(rows), output.Count(dead)),
		}, {
			ID: "latency", Title: "From visible to unlinked, share of rows", shares: true, label: func(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) },
			Layers: []layer{
				{"within 100 ms", "good", func(p *store.Point) uint64 { return p.Within100ms }},
				{"1 s", "series", func(p *store.Point) uint64 { return p.Within1s - min(p.Within100ms, p.Within1s) }},
				{"10 s", "warn", func(p *store.Point) uint64 { return p.Within10s - min(p.Within1s, p.Within10s) }},
				{"later or dead", "bad", func(p *store.Point) uint64 { return p.Rows - min(p.Within10s, p.Rows) + p.Dead }},
			},
			Says: fmt.Sprintf("%s of %s rows took longer than 1 s", output.Count(late), output.Count(rows)),
		}, {
			ID: "backlog", Title: "Rows that wait, at most", queue: true, label: whole,
			Layers: []layer{{"waiting", "series", func(p *store.Point) uint64 { return p.Waiting }}},
			Says:   fmt.Sprintf(seen, most), Unknown: unknown > 0,
		}, {
			ID: "age", Title: "The oldest row waits, at most", queue: true, least: 1000, label: func(ms float64) string {
				if ms == 0 {
					return "0"
				}
				return output.Span(time.Duration(ms) * time.Millisecond)
			},
			Layers: []layer{{"oldest", "warn", func(p *store.Point) uint64 { return uint64(p.Oldest.Milliseconds()) }}},
			Says:   fmt.Sprintf(seen, output.Span(oldest)), Unknown: unknown > 0,
		},
	}
	for i := range list {
		list[i].SVG = list[i].draw(points)
	}
	h := historyCharts{Charts: list, Entities: byEntity(points)}
	if more := len(h.Entities) - shownEntities; more > 0 {
		h.Entities, h.Others = h.Entities[:shownEntities], more
	}
	return h
}

// byEntity returns all entities, those with the most rows first.
func byEntity(points []store.Point) (list []entityChart) {
	sums := store.Entities{}
	for i := range points {
		sums.Merge(points[i].Entities)
	}
	for _, name := range sums.Sorted() {
		n := sums[name]
		list = append(list, entityChart{name, n.Rows, store.Share{In: n.Within1s, All: n.Rows}, spark(points, name)})
	}
	return list
}

// spark returns a small diagram of the rows of an entity.
func spark(points []store.Point, entity string) template.HTML {
	most := uint64(1)
	for i := range points {
		most = max(most, points[i].Entities[entity].Rows)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart spark" viewBox="0 0 %d %d" role="img" aria-label="at most %s rows in %d min"><path class="series" d="`,
		4*len(points), sparkHeight, output.Count(most), barMinutes)
	for i := range points {
		if n := points[i].Entities[entity].Rows; n > 0 {
			fmt.Fprintf(&b, "M%d %dv-%.1fh3V%dz", 4*i, sparkHeight, max(sparkHeight*float64(n)/float64(most), 1), sparkHeight)
		}
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String()) // of numbers and constants
}

// height returns the height of a layer of a bar.
func (c *chart) height(l layer, p *store.Point, all float64) float64 {
	v := float64(l.value(p))
	switch {
	case c.shares && all == 0:
		return 0
	case c.shares:
		return v / all
	case c.perMinute:
		return v / barMinutes
	}
	return v
}

func (c *chart) total(p *store.Point) (n float64) {
	for _, l := range c.Layers {
		n += float64(l.value(p))
	}
	return n
}

// top returns the top of the axis.
func (c *chart) top(points []store.Point) float64 {
	if c.shares {
		return 1
	}
	most := c.least
	for i := range points {
		most = max(most, c.total(&points[i]))
	}
	if c.perMinute {
		most /= barMinutes
	}
	return nice(most)
}

// draw returns the diagram.
func (c *chart) draw(points []store.Point) template.HTML {
	top := c.top(points)
	const high = chartHeight - chartFoot - 8
	width := float64(chartWidth-chartLeft) / float64(len(points))
	y := func(v float64) float64 { return 8 + high*(1-v/top) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-labelledby="chart-%s"><title id="chart-%s">%s: %s</title>`,
		chartWidth, chartHeight, c.ID, c.ID, c.Title, c.Says)
	for _, v := range []float64{0, top / 2, top} {
		fmt.Fprintf(&b, `<path class="rule" d="M%d %.1fH%d"/><text x="%d" y="%.1f" class="end">%s</text>`, chartLeft, y(v), chartWidth, chartLeft-6, y(v)+4, c.label(v))
	}
	for i := range points {
		p := &points[i]
		x := chartLeft + float64(i)*width
		if p.At.Minute() < barMinutes {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`, x, chartHeight-4, p.At.Format("15:04"))
		}
		c.drawBar(&b, p, x, width-1, y)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // of numbers and constants
}

// drawBar draws the bar of a point. y returns the place of a value.
func (c *chart) drawBar(b *strings.Builder, p *store.Point, x, width float64, y func(float64) float64) {
	all := c.total(p)
	if all == 0 && (p.Looked || !c.queue) {
		return
	}
	fmt.Fprintf(b, `<g><title>%s UTC, %d min:`, p.At.Format("15:04"), barMinutes)
	if c.queue && !p.Looked {
		fmt.Fprintf(b, ` unknown, no worker looked</title><path class="none" d="M%.1f %.1fV8h%.1fV%.1fz"/></g>`, x+.5, y(0), width, y(0))
		return
	}
	for _, l := range c.Layers {
		value := output.Count(l.value(p))
		if c.queue {
			value = c.label(float64(l.value(p)))
		}
		fmt.Fprintf(b, " %s %s", value, l.Name)
	}
	b.WriteString("</title>")
	at := 0.0
	for _, l := range c.Layers {
		if v := c.height(l, p, all); v > 0 {
			from, to := y(at), y(at+v)
			fmt.Fprintf(b, `<path class="%s" d="M%.1f %.1fV%.1fh%.1fV%.1fz"/>`, l.Class, x+.5, from, min(to, from-1), width, from)
			at += v
		}
	}
	b.WriteString("</g>")
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

// A nine is one window of the panel "nines".
type nine struct {
	Window string
	All    uint64
	Shares []share // by store.Limits
	Checks string  // of the cache, or ""
}

// A share is how many invalidations were in time.
type share struct {
	store.Share
	Late uint64
}

// Level returns the class of the share: any late one is a warning, and more than a tenth is bad.
func (s share) Level() string {
	switch {
	case s.All == 0:
		return "dim"
	case s.Late == 0:
		return "good"
	case s.Late*10 <= s.All:
		return "warn"
	}
	return "bad"
}

// Nines returns the shares of each window.
func (s state) Nines() (list []nine) {
	if s.Status == nil {
		return nil
	}
	names := []string{"hour", "24 h", "30 d"}
	for i := range s.Status.Figures.Windows {
		w := &s.Status.Figures.Windows[i]
		n := nine{Window: names[i], All: w.Invalidations(), Checks: checks(w)}
		for _, limit := range store.Limits {
			of := w.Within(limit)
			n.Shares = append(n.Shares, share{of, of.All - of.In})
		}
		list = append(list, n)
	}
	return list
}

// checks describes what checks of the cache found.
func checks(w *store.Window) string {
	switch {
	case w.WithEntry == 0:
		return ""
	case w.Stale == 0:
		return fmt.Sprintf("no stale entry in %s checked", output.Count(w.WithEntry))
	}
	return fmt.Sprintf("%s stale of %s entries checked", output.Count(w.Stale), output.Count(w.WithEntry))
}
