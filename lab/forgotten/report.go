package forgotten

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unstale/unstale/cache"
)

// A Report is the result of a run.
type Report struct {
	Seed    uint64                 `json:"seed"`
	Servers string                 `json:"servers"`
	Reads   int64                  `json:"reads"`  // without a forgotten write
	Writes  int64                  `json:"writes"` // with their rows, meanwhile
	Shadow  cache.ShadowStatistics `json:"shadow"` // of these reads
	False   []string               `json:"false"`  // keys that were confirmed and should not be
	Found   []Found                `json:"found"`  // by path
	Took    time.Duration          `json:"took"`
}

// A Found is how a path was found.
type Found struct {
	Path    string        `json:"path"`
	Key     string        `json:"key"`
	Outcome string        `json:"outcome"` // empty: it was not found
	Reads   int64         `json:"reads"`   // of the key, until the load that differed
	Took    time.Duration `json:"took"`    // until a worker had confirmed it
}

// Missed returns how many paths were not found.
func (r *Report) Missed() (n int) {
	for _, f := range r.Found {
		if f.Outcome == "" {
			n++
		}
	}
	return n
}

// String returns the tables of the report.
func (r *Report) String() string {
	var b strings.Builder
	s := r.Shadow
	fmt.Fprintf(&b, "seed %d, %s, %s\n\n", r.Seed, r.Servers, r.Took.Round(time.Second))
	fmt.Fprintf(&b, "without a forgotten write: %d reads, %d writes, %d shadow reads (%d equal, %d gone, %d differ, %d not deterministic, %d unknown), %d confirmed\n\n",
		r.Reads, r.Writes, s.Equal+s.Gone+s.Differs+s.NotDeterministic+s.Unknown, s.Equal, s.Gone, s.Differs, s.NotDeterministic, s.Unknown, len(r.False))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "forgotten write\tkey\toutcome\treads of the key\tconfirmed after")
	for _, f := range r.Found {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", f.Path, f.Key, f.Outcome, f.Reads, f.Took.Round(100*time.Millisecond))
	}
	_ = w.Flush() // into memory
	return b.String()
}
