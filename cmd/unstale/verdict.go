package main

import (
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// printVerdict prints whether anything is stale: the first line, and one for each other cause.
func printVerdict(p process, v status.Verdict) {
	fmt.Fprintln(p.Out, printable(v.String()))
	for _, line := range v.Others() {
		fmt.Fprintln(p.Out, printable(line))
	}
}

// shownWorkers is how many workers are listed for people; --json lists all.
const shownWorkers = 10

// printWorkers lists the workers that live.
func printWorkers(line func(name string, value any, notes ...string), all []store.WorkerNote) {
	shown := 0
	for i := range all {
		w := &all[i]
		if !w.Lives() {
			continue
		}
		if shown++; shown > shownWorkers {
			line("worker", "and more; see --json")
			return
		}
		line("worker", printable(w.Name), w.State+" for "+w.For.Round(time.Second).String(), "map "+w.MapVersion, "heard "+w.Silent.Round(100*time.Millisecond).String()+" ago")
	}
}

// A verdictObject is the overall status in JSON.
type verdictObject struct {
	Verdict string        `json:"verdict"` // fresh, stale or unknown
	Says    string        `json:"says"`    // the first line
	At      time.Time     `json:"at"`      // the database's clock
	Causes  []causeObject `json:"causes"`
}

// A causeObject is one cause. Its level is the overall status that it alone would lead to.
type causeObject struct {
	Cause string     `json:"cause"`
	Level string     `json:"level"`
	Since *time.Time `json:"since"` // null: not known
	What  string     `json:"what"`
	Cure  string     `json:"cure"`
}

func newVerdictObject(v status.Verdict) verdictObject {
	out := verdictObject{v.Level.String(), v.String(), v.At, make([]causeObject, len(v.Causes))}
	for i, c := range v.Causes {
		out.Causes[i] = causeObject{Cause: c.Name, Level: c.Level.String(), What: c.What, Cure: c.Cure}
		if !c.Since.IsZero() {
			out.Causes[i].Since = &v.Causes[i].Since
		}
	}
	return out
}

// A workerObject is the status record of a worker of the last day, in JSON.
type workerObject struct {
	Name          string  `json:"name"`
	State         string  `json:"state"`
	Error         string  `json:"error,omitempty"`
	ForSeconds    float64 `json:"for_seconds"`
	SilentSeconds float64 `json:"silent_seconds"`
	// null: it has never found the outbox without rows to claim
	Drained    *float64 `json:"drained_seconds_ago"`
	MapVersion string   `json:"map_version"`
	MapError   string   `json:"map_error,omitempty"`
	MapWarning string   `json:"map_warning,omitempty"`
	// held or behind: why rows make no progress
	Stalled    string   `json:"stalled,omitempty"`
	StallError string   `json:"stall_error,omitempty"`   // which rows, and what to do
	Heavy      *float64 `json:"heavy_seconds,omitempty"` // since it has heavy rows to process
}

func workerObjects(all []store.WorkerNote) []workerObject {
	out := make([]workerObject, len(all))
	for i := range all {
		w := &all[i]
		out[i] = workerObject{w.Name, w.State, w.Error, w.For.Seconds(), w.Silent.Seconds(), nil, w.MapVersion, w.MapError, w.MapWarning, w.Stalled, w.StallError, nil}
		if w.Drained != nil {
			ago := w.Drained.Seconds()
			out[i].Drained = &ago
		}
		if w.Heavy != nil {
			lasts := w.Heavy.Seconds()
			out[i].Heavy = &lasts
		}
	}
	return out
}
