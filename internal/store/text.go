package store

import (
	"fmt"
	"strconv"
)

// InTime returns the share within each of Limits, such as "99.9% within 1s". It returns nil without
// invalidations.
func (w *Window) InTime() (list []string) {
	for _, limit := range Limits {
		if share := w.Within(limit); share.All > 0 {
			list = append(list, fmt.Sprintf("%s within %s", share, limit))
		}
	}
	return list
}

// Entries describes what checks of the cache found. It returns "" without a check.
func (w *Window) Entries() string {
	entry, invalidation := w.StalePerEntry(), w.StalePerInvalidation()
	switch {
	case w.Checked == 0:
		return ""
	case w.WithEntry == 0:
		return fmt.Sprintf("no stale entry: %d keys checked, none had an entry", w.Checked)
	case w.Stale == 0:
		return fmt.Sprintf("no stale entry in %d checked (below %s with 95%% confidence)", w.WithEntry, percent(entry.Below))
	}
	return fmt.Sprintf("%d stale of %d entries checked: about %s of entries (below %s with 95%% confidence), %s of invalidations",
		w.Stale, w.WithEntry, percent(entry.Share), percent(entry.Below), percent(invalidation.Share))
}

// percent returns a share with two digits.
func percent(share float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(100*share, 'g', 2, 64), 64) // it is a number
	return strconv.FormatFloat(rounded, 'f', -1, 64) + "%"
}
