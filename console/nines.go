package console

import (
	"fmt"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

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
