package conform

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unstale/unstale/internal/output"
)

// A Report is the result of a run, for the README of a client.
type Report struct {
	Client    string        `json:"client"`
	Command   string        `json:"command"`
	Memory    bool          `json:"memory"`   // it has an in-process cache
	Protocol  string        `json:"protocol"` // the beginning of the SHA-1 of the scripts
	Driver    int           `json:"driver"`   // DriverVersion
	Redis     string        `json:"redis"`    // its version
	Seed      uint64        `json:"seed"`     // of the schedules of two readers
	Rules     []Rule        `json:"rules"`    // that were checked
	Kinds     []Played      `json:"kinds"`
	NotPlayed []string      `json:"not_played"`
	Breaches  []Breach      `json:"breaches"` // in the order in which they were found
	Took      time.Duration `json:"took"`
}

// A Played counts schedules of a kind.
type Played struct {
	Kind      string        `json:"kind"`
	Schedules int           `json:"schedules"`
	Took      time.Duration `json:"took"`
}

// Rejected reports whether the client has broken a rule.
func (r *Report) Rejected() bool { return len(r.Breaches) > 0 }

// Broken returns the names of the rules that the client has broken.
func (r *Report) Broken() string {
	names := make([]string, len(r.Breaches))
	for i, b := range r.Breaches {
		names[i] = b.Rule
	}
	return strings.Join(names, ", ")
}

// Schedules returns how many were played.
func (r *Report) Schedules() (n int) {
	for _, k := range r.Kinds {
		n += k.Schedules
	}
	return n
}

// String returns the report as Markdown.
func (r *Report) String() string {
	var b strings.Builder
	verdict := "accepted"
	if r.Rejected() {
		verdict = "**rejected**: " + r.Broken()
	}
	memory := map[bool]string{true: "with an in-process cache", false: "without an in-process cache"}[r.Memory]
	fmt.Fprintf(&b, "%s, %s: %s by `unstale-lab conform` in %s\n\n", r.Client, memory, verdict, r.Took.Round(time.Second/10))
	fmt.Fprintf(&b, "protocol 1, scripts %s, driver protocol %d, Redis %s, seed %d, %s checked, %s played:\n\n",
		r.Protocol, r.Driver, r.Redis, r.Seed, output.Things(len(r.Rules), "rule"), output.Things(r.Schedules(), "schedule"))
	for _, k := range r.Kinds {
		fmt.Fprintf(&b, "- %s: %d\n", k.Kind, k.Schedules)
	}
	for _, what := range r.NotPlayed {
		fmt.Fprintf(&b, "- not played: %s\n", what)
	}
	if !r.Rejected() {
		return b.String()
	}
	b.WriteString("\nbroken rules, in docs/protocol.md:\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, broken := range r.Breaches {
		fmt.Fprintf(w, "- %s\t%s\ttimes %d\t--only %s\n", broken.Rule, broken.Section, broken.Times, broken.Schedule)
	}
	_ = w.Flush() // into memory
	for _, broken := range r.Breaches {
		fmt.Fprintf(&b, "\n%s: %s\n", broken.Rule, broken.Found)
	}
	return b.String()
}

// add records what a run has found.
func (r *Report) add(p *player, took time.Duration) {
	r.Driver, r.Took, r.Breaches = DriverVersion, took, p.ledger.breaches
	if r.Breaches == nil {
		r.Breaches = []Breach{}
	}
	texts := ""
	for _, script := range scripts {
		texts += script.text
	}
	r.Protocol = digestOf(texts)[:12]
	if len(p.clients) > 0 {
		r.Client, r.Memory = p.clients[0].ready.Name, p.clients[0].ready.L1
	}
	for _, rule := range Rules {
		if r.Memory || !rule.memory {
			r.Rules = append(r.Rules, rule)
		}
	}
}
