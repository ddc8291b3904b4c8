package demo

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// Nines are the invalidations of the load, and what spot checks found, from the tables that
// "unstale status" reads.
type Nines struct {
	Invalidations uint64 `json:"invalidations"`
	Within100ms   uint64 `json:"within_100ms"`
	Within1s      uint64 `json:"within_1s"`
	Within10s     uint64 `json:"within_10s"`
	Entries       uint64 `json:"entries"` // that were checked
	Stale         uint64 `json:"stale"`   // of Entries

	inTime []string
	checks string
}

const (
	// wantedEntries is how many checked entries the demo waits for. The worker looks at an entry
	// about a second after it unlinked the key.
	wantedEntries = 20
	checksLimit   = 5 * time.Second
	checksLook    = 50 * time.Millisecond
)

// countNines reads the figures of the load. Nothing else has inserted rows so far. The naive
// readers' values have no lease time, so all checked entries are of package cache.
func (s readerScenes) countNines(ctx context.Context) error {
	return s.p.demo.steps.run("waiting for spot checks of that load", func() (string, error) {
		until := time.Now().Add(checksLimit)
		for {
			figures, err := store.ReadFigures(ctx, s.p.demo.store.Sessions)
			if err != nil {
				return "", err
			}
			w := &figures.Windows[0]
			if w.WithEntry >= wantedEntries || time.Now().After(until) {
				s.p.report.Nines = &Nines{
					w.Invalidations(), w.Within100ms, w.Within1s, w.Within10s, w.WithEntry, w.Stale, w.InTime(), w.Entries(),
				}
				s.judgeNines(w)
				return fmt.Sprintf("%d entries", w.WithEntry), nil
			}
			if err := sleep.For(ctx, checksLook); err != nil {
				return "", err
			}
		}
	})
}

func (s readerScenes) judgeNines(w *store.Window) {
	changes := 0
	for _, r := range s.p.report.Readers {
		changes += r.Changes + 1 // and the arranged one
	}
	if w.Rows != uint64(changes) {
		s.p.fault("%d changes of prices were counted as %d rows", changes, w.Rows)
	}
	if w.Stale > 0 {
		s.p.fault("spot checks found %d stale entries of package cache", w.Stale)
	}
}

func (n *Nines) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nThe worker's figures for both runs, as in \"unstale status\": %d invalidations,\n%s.\nOf the entries of package cache, %s.\nValues of naive readers have no lease time, so they cannot be checked.\n",
		n.Invalidations, strings.Join(n.inTime, ", "), cmp.Or(n.checks, "none was checked"))
}
