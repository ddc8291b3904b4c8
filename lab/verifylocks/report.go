package verifylocks

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A Report is the result of a run.
type Report struct {
	Seed         uint64        `json:"seed"`
	Took         time.Duration `json:"took_ns"`
	Servers      string        `json:"servers"`
	HolderClocks bool          `json:"holder_clocks"` // could be set, besides the clocks of servers
	Plant        string        `json:"plant,omitempty"`
	Interrupted  bool          `json:"interrupted"`
	Phases       []*Result     `json:"phases"`
}

// A Result is the result of one phase, over all its turns.
type Result struct {
	Phase    string   `json:"phase"`
	Turns    int      `json:"turns"`
	Broken   int      `json:"broken"` // how often
	Lanes    []Lane   `json:"lanes"`  // that run in it
	Wrong    int      `json:"wrong"`  // counters and processes whose sections do not add up
	Findings []string `json:"findings,omitempty"`
}

// A Lane is the sections of one sort.
type Lane struct {
	Backend  string `json:"backend"`
	Guarded  bool   `json:"guarded"`
	Sections int64  `json:"sections"` // committed, by the ledger
	Lost     int64  `json:"lost"`     // sections that another one has overwritten
	Refused  int    `json:"refused"`  // the lock was lost before the commit
	Unknown  int    `json:"unknown"`  // COMMIT got no answer
	Failed   int    `json:"failed"`   // a server was unavailable
	Error    string `json:"an_error,omitempty"`
}

func (l Lane) String() string { return lane{backend: l.Backend, guarded: l.Guarded}.String() }

// find counts and describes what does not add up.
func (r *Result) find(format string, args ...any) {
	if r.Wrong++; len(r.Findings) < mostFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// result returns the result of a phase, and adds it if it is new.
func (r *Report) result(p Phase, backends []string) *Result {
	for _, known := range r.Phases {
		if known.Phase == p.Name {
			return known
		}
	}
	made := &Result{Phase: p.Name}
	for _, l := range lanes {
		if slices.Contains(backends, l.backend) {
			made.Lanes = append(made.Lanes, Lane{Backend: l.backend, Guarded: l.guarded})
		}
	}
	r.Phases = append(r.Phases, made)
	return made
}

// lane returns the lane with a number, or nil if it does not run in the phase.
func (r *Result) lane(number int) *Lane {
	for i := range r.Lanes {
		if r.Lanes[i].String() == lanes[number].String() {
			return &r.Lanes[i]
		}
	}
	return nil
}

// played reports whether each of the phases has had a turn.
func (r *Report) played(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(r.Phases, func(p *Result) bool { return p.Phase == name && p.Turns > 0 })
	})
}

// Totals returns the lanes that run, over all phases.
func (r *Report) Totals() (all []Lane) {
	for i, l := range lanes {
		sum, runs := Lane{Backend: l.backend, Guarded: l.guarded}, false
		for _, p := range r.Phases {
			if lane := p.lane(i); lane != nil {
				runs = true
				sum.Sections += lane.Sections
				sum.Lost += lane.Lost
				sum.Refused += lane.Refused
				sum.Unknown += lane.Unknown
				sum.Failed += lane.Failed
			}
		}
		if runs {
			all = append(all, sum)
		}
	}
	return all
}

// Guarded returns how many guarded sections were committed.
func (r *Report) Guarded() (n int64) {
	for _, l := range r.Totals() {
		if l.Guarded {
			n += l.Sections
		}
	}
	return n
}

// Wrong returns how many counters and processes do not add up.
func (r *Report) Wrong() (n int) {
	for _, p := range r.Phases {
		n += p.Wrong
	}
	return n
}

// Blind names the backends whose bare sections have lost nothing, although leases were lost on
// purpose: their runs prove nothing.
func (r *Report) Blind() (backends []string) {
	for i, l := range lanes {
		tried, lost := false, int64(0)
		for _, p := range r.Phases {
			if lane := p.lane(i); lane != nil {
				tried = tried || slices.ContainsFunc(phases, func(ph Phase) bool { return ph.Name == p.Phase && ph.loses(l.backend) })
				lost += lane.Lost
			}
		}
		if !l.guarded && tried && lost == 0 {
			backends = append(backends, l.backend)
		}
	}
	return backends
}

// since returns the figures that a turn has added, as text.
func (r *Result) since(before []Lane) string {
	var parts []string
	for i, l := range r.Lanes {
		parts = append(parts, fmt.Sprintf("%s: %d sections, %d lost", l, l.Sections-before[i].Sections, l.Lost-before[i].Lost))
	}
	return strings.Join(parts, "; ")
}

// String returns the report for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s, %s\n", r.Seed, r.Servers, r.Took.Round(time.Second))
	if r.Plant != "" {
		fmt.Fprintf(&b, "planted: %s\n", r.Plant)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "phase\tturns\tbroken\tlock\tsections\tlost lock\tunknown\tfailed\tlost updates\t")
	line := func(phase, turns, broken string, l Lane) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t\n", phase, turns, broken, l, l.Sections, l.Refused, l.Unknown, l.Failed, l.Lost)
	}
	for _, p := range r.Phases {
		for i, l := range p.Lanes {
			if i == 0 {
				line(p.Phase, fmt.Sprint(p.Turns), fmt.Sprint(p.Broken), l)
			} else {
				line("", "", "", l)
			}
		}
	}
	for _, l := range r.Totals() {
		line("together", "", "", l)
	}
	_ = w.Flush() // into memory
	for _, p := range r.Phases {
		for _, l := range p.Lanes {
			if l.Error != "" {
				fmt.Fprintf(&b, "%s, %s, an error: %s\n", p.Phase, l, l.Error)
			}
		}
		for _, f := range p.Findings {
			fmt.Fprintf(&b, "WRONG, %s: %s\n", p.Phase, f)
		}
	}
	if !r.HolderClocks {
		b.WriteString("holders had the true clock; scripts/verify-locks builds a program that can change it\n")
	}
	for _, backend := range r.Blind() {
		fmt.Fprintf(&b, "bare sections of %s have lost nothing: this run proves nothing about it\n", backend)
	}
	return b.String()
}
