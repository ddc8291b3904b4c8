package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// mostFindings is the number of violations that are described per phase.
const mostFindings = 10

// A Report is the result of a run.
type Report struct {
	Seed        uint64        `json:"seed"`
	Took        time.Duration `json:"took_ns"`
	Servers     string        `json:"servers"`
	Plant       string        `json:"plant,omitempty"`
	Interrupted bool          `json:"interrupted"`
	Phases      []*Result     `json:"phases"`
	// results of the workers' spot checks. Without a plant, a stale entry is a violation.
	SpotChecks rig.SpotChecks `json:"spot_checks"`
	// keys and outcomes of the shadow reads that workers have confirmed. Without a plant, each is a
	// violation.
	Differences []string `json:"differences,omitempty"`
}

// A Result is the result of one phase, over all its turns. Staleness is per invalidation: the time
// from its commit to the start of the last read, in any process, that returned an older version.
type Result struct {
	Phase         string `json:"phase"`
	Bound         string `json:"bound"`
	Turns         int    `json:"turns"`
	Faults        int    `json:"faults"` // times that the fault of the phase was injected
	Invalidations int    `json:"invalidations"`
	Raced         int    `json:"raced"` // against a fill in flight
	Reads         int64  `json:"reads"` // checked
	FromMemory    int64  `json:"reads_from_memory"`
	FromRedis     int64  `json:"reads_from_redis"`
	// reads with the token of a write of another process
	Pairs int64 `json:"pairs"`
	// reads before the write was known to be settled
	Unsettled int64 `json:"pairs_unsettled"`
	Stale     int64 `json:"stale_reads"`     // older than a commit, within the bound
	Excused   int64 `json:"excused_by_heal"` // reads between a loss and the end of healing
	Stalled   int64 `json:"excused_by_stalls"`
	Births    int64 `json:"births"` // of entries, compared with the journal
	// entries with an older lease time, which are also violations
	BirthErrors int64 `json:"birth_violations"`
	// shadow reads that compared, and those of them that differed twice
	Shadows      uint64   `json:"shadow_reads"`
	Differed     uint64   `json:"shadow_reads_differed"`
	Violations   int64    `json:"violations"`
	Errors       int64    `json:"read_errors"`
	WriteErrors  int      `json:"write_errors"`
	P50          float64  `json:"staleness_p50_ms"`
	P99          float64  `json:"staleness_p99_ms"`
	P999         float64  `json:"staleness_p999_ms"`
	Worst        float64  `json:"staleness_worst_ms"`
	LongestStall float64  `json:"longest_stall_ms"` // of a process of the checker
	Error        string   `json:"an_error,omitempty"`
	Findings     []string `json:"findings,omitempty"`
	// the reads of each client; package cache is one
	Clients []*ClientReads `json:"clients"`
	// the violations by the source of the read, and the age of the oldest value, from the commit of
	// its successor
	Sources map[string]int64 `json:"violations_by_source,omitempty"`
	Oldest  float64          `json:"violations_oldest_ms,omitempty"`

	samples []int64 // staleness of each invalidation, in nanoseconds
	took    time.Duration
}

// ClientReads are the reads of one client by source. Those of several keys in one call have none.
type ClientReads struct {
	Client     string  `json:"client"`
	Reads      int64   `json:"reads"` // checked
	FromMemory int64   `json:"reads_from_memory"`
	FromRedis  int64   `json:"reads_from_redis"`
	Stale      int64   `json:"reads_of_stale"` // expired values
	Loaded     int64   `json:"reads_by_load"`
	Wrong      int64   `json:"wrong"` // beyond the bound
	Errors     int64   `json:"read_errors"`
	PerSecond  float64 `json:"reads_per_second"`
}

// addClients adds what each client did in a turn. beyond are the findings by process.
func (r *Result) addClients(t *turn, beyond map[int]int64) {
	for i, p := range t.crowd.processes {
		n := slices.IndexFunc(r.Clients, func(c *ClientReads) bool { return c.Client == p.name })
		if n < 0 {
			n = len(r.Clients)
			r.Clients = append(r.Clients, &ClientReads{Client: p.name})
		}
		c, told := r.Clients[n], t.crowd.each[i]
		c.Reads += told.Reads
		c.FromMemory += told.Memory
		c.FromRedis += told.Redis
		c.Stale += told.Expired
		c.Loaded += told.Loaded
		c.Errors += told.Errors
		c.Wrong += beyond[i] + told.Missed
		c.PerSecond = float64(c.Reads) / r.took.Seconds()
	}
}

// An invalidation is one version of a key.
type invalidation struct {
	key     string
	version uint64
}

// result returns the result of a phase, and adds it if it is new.
func (r *Report) result(p phase) *Result {
	for _, known := range r.Phases {
		if known.Phase == p.name {
			return known
		}
	}
	r.Phases = append(r.Phases, &Result{Phase: p.name, Bound: p.says})
	return r.Phases[len(r.Phases)-1]
}

// played reports whether each of the phases has had a turn.
func (r *Report) played(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(r.Phases, func(p *Result) bool { return p.Phase == name && p.Turns > 0 })
	})
}

// add adds the figures of a turn that has ended.
func (r *Result) add(t *turn, began, ended moment) {
	told := t.crowd.soFar()
	stalls := append(told.Stalls, t.stalls.take()...)
	r.Turns++
	r.took += time.Duration(ended - began)
	r.Faults += t.faults
	r.Invalidations += t.w.commits
	r.WriteErrors += t.w.failures
	if !t.phase.lossy {
		r.Raced += int(told.Refused)
	}
	r.Reads += told.Reads
	r.FromMemory += told.Memory
	r.FromRedis += told.Redis
	r.Pairs += told.Pairs
	r.Unsettled += int64(told.Unsettled)
	r.Shadows += told.Shadows
	r.Differed += told.Differed
	r.Stale += told.Stale
	r.Excused += told.Excused
	r.Errors += told.Errors
	r.Violations += told.Missed
	if told.Error != "" {
		r.Error = told.Error
	}
	if t.w.failure != nil {
		r.Error = t.w.failure.Error()
	}
	births, wrong := t.births.soFar()
	r.Births += births
	r.BirthErrors += int64(len(wrong))
	t.wrongs = append(t.wrongs, wrong...)
	beyond := r.judge(t, told, stalls, began)
	r.addClients(t, beyond)
	for _, s := range stalls {
		r.LongestStall = max(r.LongestStall, float64(s.To-s.From)/1e6)
	}
	r.samples = append(r.samples, t.w.worst...)
	t.table.remaining(func(worst int64) { r.samples = append(r.samples, worst) })
	slices.Sort(r.samples)
	r.P50, r.P99, r.P999, r.Worst = r.quantile(0.5), r.quantile(0.99), r.quantile(0.999), r.quantile(1)
}

// judge counts and describes the findings of a turn that no stall explains. It returns how many each
// process has.
func (r *Result) judge(t *turn, told tallies, stalls []stall, began moment) (beyond map[int]int64) {
	beyond = map[int]int64{}
	if t.phase.frozen { // the turn stopped the process on purpose
		stalls = slices.DeleteFunc(stalls, func(s stall) bool { return s.To-s.From > time.Second.Nanoseconds() })
	}
	seen := map[invalidation]bool{} // the first read of each is described
	for _, f := range append(told.Found, t.wrongs...) {
		if f.Wrong == "" && f.Began-f.Due <= stalled(stalls, f.At, f.Began) {
			r.Stalled++
			continue
		}
		r.Violations++
		beyond[f.Process]++
		if r.Sources == nil {
			r.Sources = map[string]int64{}
		}
		r.Sources[cmp.Or(f.Source, "Redis")]++
		if f.Wrong == "" {
			r.Oldest = max(r.Oldest, float64(f.Began-f.At)/1e6)
		}
		if which := (invalidation{f.Key, f.Committed}); !seen[which] && len(r.Findings) < mostFindings {
			seen[which] = true
			r.Findings = append(r.Findings, fmt.Sprintf("%s (%.1f s into turn %d%s)", f, float64(f.Began-began)/1e9, r.Turns, t.table.latest(f.Began)))
		}
	}
	return beyond
}

// quantile returns a quantile of the staleness, in milliseconds.
func (r *Result) quantile(q float64) float64 {
	if len(r.samples) == 0 {
		return 0
	}
	return float64(r.samples[max(int(math.Ceil(q*float64(len(r.samples))))-1, 0)]) / 1e6
}

// since returns the figures that a turn has added, as text.
func (r *Result) since(before Result) string {
	return fmt.Sprintf("%d invalidations, %d raced, %d reads, %d violations; staleness of the phase p99 %.1f ms, worst %.1f ms",
		r.Invalidations-before.Invalidations, r.Raced-before.Raced, r.Reads-before.Reads, r.Violations-before.Violations, r.P99, r.Worst)
}

// Violations returns the violations of all phases, and the false alarms of spot checks and of
// shadow reads.
func (r *Report) Violations() int64 {
	n := r.totals().Violations
	if r.Plant == "" {
		n += int64(r.SpotChecks.Stale + len(r.Differences))
	}
	return n
}

// Beyond describes the violations of each phase, or is empty.
func (r *Report) Beyond() string {
	var all []string
	for _, p := range r.Phases {
		if p.Violations == 0 {
			continue
		}
		var sources []string
		for _, source := range slices.Sorted(maps.Keys(p.Sources)) {
			sources = append(sources, fmt.Sprintf("%d from %s", p.Sources[source], source))
		}
		all = append(all, fmt.Sprintf("%d in the phase %q (%s; the oldest value was old for %.0f ms, the bound is %s)",
			p.Violations, p.Phase, strings.Join(sources, ", "), p.Oldest, p.Bound))
	}
	if n := r.Violations() - r.totals().Violations; n > 0 {
		all = append(all, fmt.Sprintf("%d false alarms of spot checks and shadow reads", n))
	}
	return strings.Join(all, "; ")
}

// Raced returns the number of invalidations that came while a fill of their key was in flight.
func (r *Report) Raced() int { return r.totals().Raced }

// totals returns the counts of all phases.
func (r *Report) totals() (all Result) {
	for _, p := range r.Phases {
		all.Invalidations += p.Invalidations
		all.Raced += p.Raced
		all.Reads += p.Reads
		all.FromMemory += p.FromMemory
		all.Pairs += p.Pairs
		all.Unsettled += p.Unsettled
		all.Births += p.Births
		all.BirthErrors += p.BirthErrors
		all.Shadows += p.Shadows
		all.Differed += p.Differed
		all.Violations += p.Violations
	}
	return all
}

// String returns the report for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s, %s\n", r.Seed, r.Servers, r.Took.Round(time.Second))
	if r.Plant != "" {
		fmt.Fprintf(&b, "planted: %s\n", r.Plant)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "phase\tfaults\tinvalidations\traced\treads\tfrom memory\twith token\tp50\tp99\tp99.9\tworst\tbound\tbeyond it\t")
	for _, p := range r.Phases {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f ms\t%s\t%d\t\n",
			p.Phase, p.Faults, p.Invalidations, p.Raced, p.Reads, p.FromMemory, p.Pairs, p.P50, p.P99, p.P999, p.Worst, p.Bound, p.Violations)
	}
	_ = w.Flush() // into memory
	r.listClients(&b)
	for _, p := range r.Phases {
		if p.Excused+p.Stalled+p.Errors > 0 || p.WriteErrors > 0 || p.LongestStall > 100 {
			fmt.Fprintf(&b, "%s: reads excused while Redis was healed %d, by pauses of the machine %d; longest pause %.0f ms; errors of reads %d, of writes %d %s\n",
				p.Phase, p.Excused, p.Stalled, p.LongestStall, p.Errors, p.WriteErrors, p.Error)
		}
		for _, f := range p.Findings {
			fmt.Fprintf(&b, "VIOLATION, %s: %s\n", p.Phase, f)
		}
	}
	all := r.totals()
	fmt.Fprintf(&b, "%d invalidations, %d of them raced against a fill in flight, %d reads checked, %d violations\n", all.Invalidations, all.Raced, all.Reads, all.Violations)
	fmt.Fprintf(&b, "%d reads showed the token of a write of another process, %d of them before that was settled; the lease times of %d entries were compared with the journal, %d violations\n",
		all.Pairs, all.Unsettled, all.Births, all.BirthErrors)
	fmt.Fprintf(&b, "%s\n", r.SpotChecks)
	fmt.Fprintf(&b, "%d shadow reads, %d of them differed twice, %d confirmed by workers\n", all.Shadows, all.Differed, len(r.Differences))
	for _, line := range r.Differences {
		fmt.Fprintf(&b, "DIFFERS: %s\n", line)
	}
	for _, line := range r.SpotChecks.Found {
		fmt.Fprintf(&b, "STALE ENTRY: %s\n", line)
	}
	if r.Violations() == 0 && all.Invalidations > 0 {
		rate := 3 / float64(all.Invalidations)
		fmt.Fprintf(&b, "with 95 %% confidence fewer than %.2g of the invalidations leave a reader behind beyond the bound: %.1f nines\n", rate, -math.Log10(rate))
	}
	return b.String()
}

// listClients writes a table of the clients.
func (r *Report) listClients(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "phase\tclient\treads\tfrom memory\tfrom Redis\tstale\tloaded\terrors\twrong\treads/s\t")
	for _, p := range r.Phases {
		for _, c := range p.Clients {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t\n",
				p.Phase, c.Client, c.Reads, c.FromMemory, c.FromRedis, c.Stale, c.Loaded, c.Errors, c.Wrong, c.PerSecond)
		}
	}
	_ = w.Flush() // into memory
}
