package main

import (
	"fmt"

	"github.com/unstale/unstale/internal/store"
)

// windowNames are the names of the windows of store.Figures, as text and in JSON.
var windowNames = []struct{ text, json string }{{"last hour", "1h"}, {"last 24 h", "24h"}, {"last 30 d", "30d"}}

// printFigures prints a line for each window.
func printFigures(line func(name string, value any, notes ...string), s store.Status) {
	if err := s.FiguresError; err != nil {
		line(windowNames[0].text, "unknown", printable(err.Error()))
		return
	}
	for i := range s.Figures.Windows {
		w := &s.Figures.Windows[i]
		notes := w.InTime()
		if s.Figures.Waiting.More {
			notes = append(notes, fmt.Sprintf("less in fact: only %d of the rows that wait are counted", store.MaxWaiting))
		}
		if text := w.Entries(); text != "" {
			notes = append(notes, text)
		}
		line(windowNames[i].text, count(int(w.Invalidations()), "invalidation"), notes...)
	}
}

// A figuresObject is a window in JSON. Shares are null if there was nothing.
type figuresObject struct {
	Window        string   `json:"window"`
	Invalidations uint64   `json:"invalidations"` // settled, and dead letters
	Dead          uint64   `json:"dead"`
	Within100ms   *float64 `json:"within_100ms"`
	Within1s      *float64 `json:"within_1s"`
	Within10s     *float64 `json:"within_10s"`
	// rows that were late, dead or wait for longer
	Missed100ms uint64 `json:"missed_100ms"`
	Missed1s    uint64 `json:"missed_1s"`
	Missed10s   uint64 `json:"missed_10s"`

	Batches   uint64 `json:"batches"`
	Sampled   uint64 `json:"batches_sampled"`
	Checked   uint64 `json:"checked"`
	WithEntry uint64 `json:"with_entry"`
	Stale     uint64 `json:"stale"`
	Absent    uint64 `json:"absent"`
	Unknown   uint64 `json:"unknown"`
	Repaired  uint64 `json:"repaired"`

	PerEntry             *float64 `json:"stale_per_entry"`
	PerEntryBelow        float64  `json:"stale_per_entry_below"` // with 95% confidence
	PerInvalidation      *float64 `json:"stale_per_invalidation"`
	PerInvalidationBelow float64  `json:"stale_per_invalidation_below"`

	Shadows   uint64 `json:"shadow_reads"`
	Confirmed uint64 `json:"shadow_reads_confirmed"`
}

// figuresObjects returns the windows, or null if they cannot be read.
func figuresObjects(s store.Status) (list []figuresObject) {
	for i := range s.Figures.Windows {
		w := &s.Figures.Windows[i]
		a, b, c := w.Within(store.Limits[0]), w.Within(store.Limits[1]), w.Within(store.Limits[2])
		entry, invalidation := w.StalePerEntry(), w.StalePerInvalidation()
		list = append(list, figuresObject{
			Window: windowNames[i].json, Invalidations: w.Invalidations(), Dead: w.Dead,
			Within100ms: number(a.Ratio()), Within1s: number(b.Ratio()), Within10s: number(c.Ratio()),
			Missed100ms: a.All - a.In, Missed1s: b.All - b.In, Missed10s: c.All - c.In,
			Batches: w.Batches, Sampled: w.Sampled, Checked: w.Checked, WithEntry: w.WithEntry, Stale: w.Stale,
			Absent: w.Absent, Unknown: w.Unknown, Repaired: w.Repaired,
			PerEntry: number(entry.Share), PerEntryBelow: entry.Below,
			PerInvalidation: number(invalidation.Share), PerInvalidationBelow: invalidation.Below,
			Shadows: w.Shadows, Confirmed: w.Confirmed,
		})
	}
	return list
}

// number returns x, or nil if it is not a number.
func number(x float64) *float64 {
	if x != x {
		return nil
	}
	return &x
}
