package doctor

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
)

// A ReviewReport is the result of a review.
type ReviewReport struct {
	Walked   Walked    `json:"walked"`
	Findings []Finding `json:"findings"`
	Names    []Breach  `json:"names"` // that break the grammar
	// families by memory, or by keys if memory is unknown
	Biggest []Family `json:"biggest"`
	// by their most used key; empty if unknown
	Hottest  []Family `json:"hottest"`
	Families int      `json:"families"` // that there are
	// the largest keys; empty if sizes are unknown or names hidden
	Largest []KeySize `json:"largest"`
}

// Walked describes the walk of a Report.
type Walked struct {
	Keys    int64  `json:"keys"`
	Total   int64  `json:"total"` // 0: not known
	All     bool   `json:"all"`
	Stopped string `json:"stopped,omitempty"` // why it ended early
}

// mostFamilies is the maximum length of a list of families.
const mostFamilies = 15

// ReviewReport returns the results. err is the reason why the walk ended early.
func (r *Review) Report(w keyspace.Walked, err error) *ReviewReport {
	families := r.families()
	if r.NoNames {
		for i := range families {
			f := &families[i]
			f.LargestKey, f.EternalKey, f.HottestKey, f.LateKey, f.UnnamedKey, f.LongKey = "", "", "", "", "", ""
			if f.Entity == "" && f.Read == "" && !f.Own { // its name is made of those of its keys
				f.Name = anyPart
			}
		}
	}
	out := &ReviewReport{
		Walked: Walked{Keys: w.Seen, Total: w.Total, All: w.All}, Names: r.broken.found(), Families: len(families),
		Biggest: append([]Family{}, families[:min(len(families), mostFamilies)]...), Hottest: []Family{}, Largest: []KeySize{},
	}
	if !r.NoNames {
		out.Largest = append(out.Largest, r.largest...)
	}
	for i := range out.Names {
		if r.NoNames {
			out.Names[i].Example = ""
		}
	}
	if err != nil {
		out.Walked.Stopped = err.Error()
	}
	hot := slices.Clone(families)
	slices.SortStableFunc(hot, func(a, b Family) int { return cmp.Compare(b.Hottest, a.Hottest) })
	for _, f := range hot[:min(len(hot), mostFamilies)] {
		if f.Hottest >= 0 {
			out.Hottest = append(out.Hottest, f)
		}
	}
	for _, check := range []func(keyspace.Walked, []Family) []Finding{r.coverage, r.eternal, r.large, r.lifetimes, r.unreached, r.withoutKeys, r.unnamed, r.unused, r.database, r.grammar} {
		out.Findings = append(out.Findings, check(w, families)...)
	}
	for i := range out.Findings {
		if f := &out.Findings[i]; !w.All && f.Severity == OK { // other keys were not seen
			f.Severity, f.Title = Unknown, "of the keys that were looked at: "+f.Title
		}
	}
	Sort(out.Findings)
	return out
}

func finding(check string, s Severity, title, evidence, cure string) []Finding {
	return []Finding{{Check: check, Severity: s, Title: title, Evidence: evidence, Cure: cure}}
}

// coverage reports the data that the account and Redis did not show.
func (r *Review) coverage(w keyspace.Walked, _ []Family) (all []Finding) {
	if len(w.Denied) > 0 {
		all = append(all, finding("seen", Unknown, "some properties of keys", r.denied(w),
			r.grant(w))...)
	}
	if r.unknown.full {
		all = append(all, finding("families", Unknown, "the families of names that came late", fmt.Sprintf("there are more than %d parts of names, and further ones stand together as %s", maxNodes, anyPart),
			"put the kind of a value before its id in names, and name in the map what belongs together")...)
	}
	if w.NoLFU {
		all = append(all, finding("hottest", Unknown, "which keys are used most", "maxmemory-policy is not one of -lfu, so Redis does not count", "set allkeys-lfu, if you want to know")...)
	} else if lacks(w, "+object|freq") {
		all = append(all, finding("hottest", Unknown, "which keys are used most", r.denied(w), r.grant(w))...)
	}
	if len(w.Away) > 0 {
		all = append(all, finding("seen", Unknown, "keys of masters that do not answer", strings.Join(w.Away, ", "), "bring them back, then repeat the review")...)
	}
	if !w.All {
		all = append(all, finding("seen", Unknown, "the keys that were not looked at", fmt.Sprintf("%d of %s were", w.Seen, total(w.Total)), "raise --sample, and let it end")...)
	}
	return all
}

// lacks reports whether the walk could not read a detail.
func lacks(w keyspace.Walked, rule string) bool { return slices.Contains(w.Untold, rule) }

// denied returns the missing permissions of the account, for evidence.
func (r *Review) denied(w keyspace.Walked) string {
	text := "the account lacks " + strings.Join(w.Denied, " ")
	if w.Hidden > 0 {
		text += fmt.Sprintf(": it may not read %d of %d keys%s", w.Hidden, w.Seen, r.suchAs(quotedName(KeyName(w.HiddenName))))
	}
	return text
}

// grant returns the command that grants the missing permissions.
func (r *Review) grant(w keyspace.Walked) string {
	return "ACL SETUSER " + cmp.Or(r.User, "default") + " " + strings.Join(w.Denied, " ")
}

// suchAs returns an example, unless names must not be shown.
func (r *Review) suchAs(example string) string {
	if r.NoNames {
		return ""
	}
	return ", such as " + example
}

// ofSome adds to found that a property of some keys, or of all, is unknown.
func (r *Review) ofSome(w keyspace.Walked, rule, what string, found []Finding) []Finding {
	if !lacks(w, rule) {
		return found
	}
	rest := finding(found[0].Check, Unknown, what, r.denied(w), r.grant(w))
	if found[0].Severity != OK {
		return append(found, rest...)
	}
	if !slices.Contains(w.Denied, rule) && w.Hidden < w.Seen {
		rest[0].Evidence += "\nof the keys that it may read: " + found[0].Title
	}
	return rest
}

// total formats the number of keys.
func total(n int64) string {
	if n == 0 {
		return "an unknown number"
	}
	return fmt.Sprintf("about %d", n)
}

// eternal finds keys without a time to live.
func (r *Review) eternal(w keyspace.Walked, families []Family) []Finding {
	return r.ofSome(w, "+pttl", "keys without a time to live", r.offenders("ttl", families, func(f *Family) int64 { return f.Eternal }, func(f *Family) string { return quotedName(f.EternalKey) },
		"keys without a time to live: %d. A missed invalidation leaves them stale forever, and memory fills", "set one wherever they are stored, with jitter", "every key has a time to live"))
}

// large finds oversized values.
func (r *Review) large(w keyspace.Walked, families []Family) []Finding {
	return r.ofSome(w, "+memory|usage", "values that are too large", r.offenders("size", families, func(f *Family) int64 { return f.Large }, func(f *Family) string { return fmt.Sprintf("%s, %d bytes", quotedName(f.LargestKey), f.Largest) },
		"values larger than 100 KiB: %d. Each read delays all other clients", "split them, leave out unused fields, or compress them", "no value is larger than 100 KiB"))
}

// offenders returns a warning about the families with some keys of a kind, in descending order of
// their number. title is a format of that number.
func (r *Review) offenders(check string, families []Family, n func(*Family) int64, example func(*Family) string, title, cure, well string) []Finding {
	var those []Family
	total := int64(0)
	for _, f := range families {
		if n(&f) > 0 && !f.Own {
			those = append(those, f)
			total += n(&f)
		}
	}
	if total == 0 {
		return finding(check, OK, well, "", "")
	}
	slices.SortStableFunc(those, func(a, b Family) int { return cmp.Compare(n(&b), n(&a)) })
	var lines []string
	for _, f := range those[:min(len(those), 5)] {
		lines = append(lines, fmt.Sprintf("%d of %s", n(&f), quotedName(f.Name))+r.suchAs(example(&f)))
	}
	if more := len(those) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and of %d more families", more))
	}
	return finding(check, Warning, fmt.Sprintf(title, total), strings.Join(lines, "\n"), cure)
}

// unreached finds keys that no entity of the map can invalidate.
func (r *Review) unreached(w keyspace.Walked, families []Family) []Finding {
	if r.noMap != nil {
		return finding("reach", Unknown, "keys that no entity of the map reaches", r.noMap.Error(), "give --map")
	}
	those := r.offenders("reach", families, func(f *Family) int64 {
		if f.Entity != "" || f.Read != "" { // the map may say that a read only expires
			return 0
		}
		return f.Keys
	}, func(f *Family) string { return quotedName(f.LargestKey) },
		"keys that no entity of the map reaches: %d. A write leaves them stale", "name them in the map, or see that no write concerns them", "every key is reached by an entity of the map")
	if r.indirect() && those[0].Severity == Warning {
		those[0].Severity = Unknown
		those[0].Title += ", unless they are members of index sets or have tags, which their names do not tell"
	}
	return those
}

// withoutKeys finds entities that have no keys.
func (r *Review) withoutKeys(w keyspace.Walked, _ []Family) []Finding {
	absent := r.absent()
	switch {
	case r.noMap != nil:
		return nil
	case len(absent) == 0:
		return finding("entities", OK, "every entity of the map that makes names has keys", "", "")
	case !w.All:
		return finding("entities", Unknown, "whether some entities have keys at all", "none was seen of "+strings.Join(absent, ", "), "raise --sample")
	}
	return finding("entities", Warning, "entities of the map have no keys: do readers call them something else?", strings.Join(absent, ", "),
		"compare the map's names with those that readers use; 'unstale map explain' shows what a row makes")
}

// database finds keys that live long, as in a database.
func (r *Review) database(w keyspace.Walked, families []Family) []Finding {
	const what = "keys that live for more than a day, or were not used for so long"
	rule := "+pttl"
	if !lacks(w, rule) {
		rule = "+object|idletime"
	}
	return r.ofSome(w, rule, what, r.offenders("database", families, func(f *Family) int64 { return f.Long },
		func(f *Family) string {
			return fmt.Sprintf("%s: for %s", quotedName(f.LongKey), f.LongFor.Round(time.Hour))
		}, what+": %d. A cache that is used as a database?",
		"shorten the time to live, give it in the map's reads, or keep them where nothing is evicted", "no key lives for more than a day, unless its read allows it"))
}

// grammar returns advice.
func (r *Review) grammar(keyspace.Walked, []Family) []Finding {
	list := r.broken.found()
	if len(list) == 0 {
		return finding("names", OK, "all names follow the grammar", "", "")
	}
	var lines []string
	for _, b := range list {
		lines = append(lines, fmt.Sprintf("%d with %s", b.Keys, b.Rule)+r.suchAs(quotedName(b.Example)))
	}
	return finding("names", Info, "some names do not follow the grammar: lower case, : or _ between parts, at most 64 bytes", strings.Join(lines, "\n"), "advice: name new ones so")
}

// Text writes a report for a terminal.
func (r *ReviewReport) Text(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintln(w, r.head())
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-8s  %-9s %s\n", f.Severity, f.Check, output.Data(f.Title))
		f.WriteDetails(w, output.Data)
	}
	for _, table := range r.tables() {
		fmt.Fprintf(w, "\n%s\n", table.title)
		tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{table.columns}, table.rows...) {
			fmt.Fprintln(tabs, strings.Join(row, "\t"))
		}
		_ = tabs.Flush() // its error is w's
	}
	return written(w)
}

func written(w *bufio.Writer) error {
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the review: %w", err)
	}
	return nil
}

// Markdown writes a report as a page.
func (r *ReviewReport) Markdown(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "# Review of keys\n\n%s\n\n| severity | check | finding | seen | cure |\n|---|---|---|---|---|\n", inMarkdown.Replace(r.head()))
	for _, f := range r.Findings {
		fmt.Fprintln(w, cells(string(f.Severity), f.Check, f.Title, f.Evidence, f.Cure))
	}
	for _, table := range r.tables() {
		fmt.Fprintf(w, "\n## %s\n\n%s\n|%s\n", table.title, cells(table.columns...), strings.Repeat("---|", len(table.columns)))
		for _, row := range table.rows {
			fmt.Fprintln(w, cells(row...))
		}
	}
	return written(w)
}

// inMarkdown escapes everything that Markdown or HTML would interpret: names are data.
var inMarkdown = strings.NewReplacer("\\", `\\`, "~", `\~`, "://", "&#58;//", "www.", "www&#46;", "@", "&#64;", "|", `\|`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`)

func cells(texts ...string) string {
	out := make([]string, len(texts))
	for i, text := range texts {
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = inMarkdown.Replace(output.Data(lines[i]))
		}
		out[i] = strings.Join(lines, "<br>")
	}
	return "| " + strings.Join(out, " | ") + " |"
}

// head returns a summary of the walk.
func (r *ReviewReport) head() string {
	text := fmt.Sprintf("keys looked at: %d, families: %d", r.Walked.Keys, r.Families)
	if !r.Walked.All {
		text += ", keys in all: " + total(r.Walked.Total)
	}
	if r.Walked.Stopped != "" {
		text += "; stopped: " + strings.ReplaceAll(r.Walked.Stopped, "\n", "; ")
	}
	return output.Data(text)
}

// A table is a list of families.
type table struct {
	title   string
	columns []string
	rows    [][]string
}

func (r *ReviewReport) tables() (all []table) {
	biggest := table{"Biggest families", []string{"family", "reached by", "keys", "bytes", "largest", "without ttl"}, nil}
	for _, f := range r.Biggest {
		biggest.rows = append(biggest.rows, []string{quotedName(f.Name), f.by(), fmt.Sprint(f.Keys), fmt.Sprint(f.Bytes), fmt.Sprint(max(f.Largest, 0)), fmt.Sprint(f.Eternal)})
	}
	hottest := table{"Hottest families", []string{"family", "reached by", "keys", "hottest key", "its frequency, 0 to 255"}, nil}
	for _, f := range r.Hottest {
		hottest.rows = append(hottest.rows, []string{quotedName(f.Name), f.by(), fmt.Sprint(f.Keys), hottestKey(f.HottestKey), fmt.Sprint(f.Hottest)})
	}
	largest := table{"Largest keys", []string{"key", "bytes"}, nil}
	for _, k := range r.Largest {
		largest.rows = append(largest.rows, []string{quotedName(k.Name), fmt.Sprint(k.Bytes)})
	}
	for _, t := range []table{biggest, largest, hottest} {
		if len(t.rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// hottestKey formats a name, or returns "-" if names are hidden.
func hottestKey(n KeyName) string {
	if n == "" {
		return "-"
	}
	return quotedName(n)
}

// by returns the part of the map that names or reaches a family.
func (f *Family) by() string {
	if f.Own {
		return "unstale"
	}
	if f.Read != "" {
		return strings.TrimSuffix("read "+f.Read+", "+f.Entity, ", ")
	}
	return cmp.Or(f.Entity, "-")
}
