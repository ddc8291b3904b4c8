package upgrade

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// A Phase is the result of one phase.
type Phase struct {
	Name    string        `json:"name"`
	Workers string        `json:"workers"`         // at its end
	Rows    int           `json:"rows"`            // committed
	Lost    int           `json:"lost"`            // of them, the keys are not gone
	Errors  int           `json:"errors"`          // that an operator would be called about
	Longest time.Duration `json:"longest_wait_ns"` // of exact keys
	// of patterns and scheduled rows
	LongestOther time.Duration `json:"longest_wait_of_others_ns"`
}

// A Report is the result of a run.
type Report struct {
	Old     string        `json:"old"` // as the programs print it
	New     string        `json:"new"`
	Schemas [2]int        `json:"schemas"` // before and after "migrate up"
	Servers string        `json:"servers"`
	Took    time.Duration `json:"took_ns"`
	Phases  []Phase       `json:"phases"`
	// Wrong has everything that is not as it must be.
	Wrong []string `json:"wrong"`
}

// String returns the report for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "old: %s, schema %d\nnew: %s, schema %d\n%s, %s\n\n", r.Old, r.Schemas[0], r.New, r.Schemas[1], r.Servers, r.Took.Round(time.Second))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "phase\tworkers\trows\tlost\terrors\tlongest wait\tof patterns and scheduled rows")
	for _, p := range r.Phases {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n",
			p.Name, p.Workers, p.Rows, p.Lost, p.Errors, p.Longest.Round(time.Millisecond), p.LongestOther.Round(time.Millisecond))
	}
	_ = table.Flush() // into memory
	fmt.Fprintf(&b, "\nwrong: %d\n", len(r.Wrong))
	for _, w := range r.Wrong {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	return b.String()
}
