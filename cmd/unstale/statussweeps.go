package main

import (
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A sweepScan is a scan of the keyspace that is under way, in JSON.
type sweepScan struct {
	Worker      string   `json:"worker"`
	Patterns    int      `json:"patterns"`
	Scanned     int64    `json:"scanned"`
	Total       *int64   `json:"total"` // null: not known
	Unlinked    int64    `json:"unlinked"`
	ForSeconds  float64  `json:"for_seconds"`
	LeftSeconds *float64 `json:"left_seconds"` // null: not known
}

func sweepScanObject(p *store.SweepProgress) *sweepScan {
	if p == nil {
		return nil
	}
	out := &sweepScan{Worker: p.Worker, Patterns: p.Patterns, Scanned: p.Scanned, Unlinked: p.Unlinked, ForSeconds: p.For().Seconds()}
	if p.Total > 0 {
		out.Total = &p.Total
	}
	out.LeftSeconds = leftSeconds(p)
	return out
}

func leftSeconds(p *store.SweepProgress) *float64 {
	left, ok := p.Left()
	if !ok {
		return nil
	}
	seconds := left.Seconds()
	return &seconds
}

// sweepSets are index sets that are being taken, in JSON.
type sweepSets struct {
	Worker      string   `json:"worker"`
	Taken       int64    `json:"taken"`
	Total       int64    `json:"total"`    // taken and waiting; 0: not known
	Unlinked    int64    `json:"unlinked"` // members
	ForSeconds  float64  `json:"for_seconds"`
	LeftSeconds *float64 `json:"left_seconds"` // null: not known
}

func sweepSetsObject(p *store.SweepProgress) *sweepSets {
	if p == nil {
		return nil
	}
	return &sweepSets{
		Worker: p.Worker, Taken: p.Scanned, Total: p.Total, Unlinked: p.Unlinked,
		ForSeconds: p.For().Seconds(), LeftSeconds: leftSeconds(p),
	}
}

// sweepScanText says the same in a line.
func sweepScanText(p *store.SweepProgress) string {
	text := count(p.Scanned, "name") + " scanned"
	if p.Total > 0 {
		text = fmt.Sprintf("%d of %s scanned", p.Scanned, count(p.Total, "name"))
	}
	text += fmt.Sprintf(" for %s in %s, %d unlinked", count(p.Patterns, "pattern"), p.For().Round(time.Second), p.Unlinked)
	if p.Kind == store.SweepSet {
		text = count(p.Scanned, "index set") + " taken"
		if p.Total > 0 {
			text = fmt.Sprintf("%d of %s taken", p.Scanned, count(p.Total, "index set"))
		}
		text += fmt.Sprintf(" in %s, %s unlinked", p.For().Round(time.Second), count(p.Unlinked, "member"))
	}
	if left, ok := p.Left(); ok {
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	return text + ", by worker " + p.Worker
}
