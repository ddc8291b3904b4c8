package conform

import (
	"fmt"
	"slices"
)

// A Rule is what the judge checks. Its name is stable.
type Rule struct {
	Name    string `json:"name"`
	Section string `json:"section"` // of docs/protocol.md
	What    string `json:"what"`
	memory  bool   // only for clients with an in-process cache
}

// Rules are all rules, in the order of docs/protocol.md.
var Rules = []Rule{
	{Name: "names", Section: "Names", What: "a script gets the lease, the tombstone and the value of one key, or a tag version and its tombstone"},
	{Name: "entry", Section: "Entries", What: "an entry has v and e, b is the time of its lease, and t has every tag that was asked for"},
	{Name: "any-order", Section: "Entries", What: "a field of an entry may come in any place, and an unknown one is ignored"},
	{Name: "unreadable", Section: "Entries", What: "an entry that cannot be read is loaded and replaced"},
	{Name: "foreign", Section: "Entries", What: "an entry of an unknown format or codec, and a key that is not a string, are left alone"},
	{Name: "expired", Section: "Entries", What: "an entry counts until e, even if the TTL of its key is longer"},
	{Name: "scripts", Section: "Scripts", What: "the files are used unchanged, and nothing else writes to Redis"},
	{Name: "hash", Section: "Scripts", What: "lease.lua gets the SHA-1 of the bytes of the value that was read, in lower case"},
	{Name: "tags", Section: "Reading and filling", What: "an entry whose tag has another version, or none, is a miss"},
	{Name: "lease", Section: "Reading and filling", What: "a fill has a lease of its key that Redis granted before the load"},
	{Name: "stamps", Section: "Reading and filling", What: "the tag versions in an entry are from before the load"},
	{Name: "fill", Section: "Reading and filling", What: "only fill.lua stores what was loaded"},
	{Name: "release", Section: "Reading and filling", What: "a load that failed or whose fill was not answered leaves no lease"},
	{Name: "stale-read", Section: "Reading and filling", What: "no reader that began after the UNLINK gets the old value from Redis or from a load, or after the message from memory"},
	{Name: "stale-entry", Section: "Reading and filling", What: "after the schedule, Redis has no usable entry with the old value"},
	{Name: "answers", Section: "Reading and filling", What: "each read ends, and fails only if its load or a connection did"},
	{Name: "value", Section: "Reading and filling", What: "a read gets a value that was loaded"},
	{Name: "stores", Section: "Reading and filling", What: "what may be stored is found by the next read"},
	{Name: "glob", Section: "Messages", What: "a pattern matches bytes: ? is one byte, and a backslash quotes the next one", memory: true},
	{Name: "lease-time", Section: "Where workers write", What: "no value is stored under a longer lease than the map's"},
	{Name: "gap", Section: "In-process caches", What: "a missing number of an epoch empties the cache", memory: true},
	{Name: "lost-subscription", Section: "In-process caches", What: "a lost subscription empties the cache", memory: true},
	{Name: "silence", Section: "In-process caches", What: "without heartbeats for three periods, the cache gives out nothing", memory: true},
	{Name: "opens", Section: "In-process caches", What: "the cache opens while heartbeats arrive, and its values need no round trip", memory: true},
}

// A Breach is a rule that the client broke.
type Breach struct {
	Rule     string `json:"rule"`
	Section  string `json:"section"`
	Times    int    `json:"times"`
	Schedule string `json:"schedule"` // the first one, for Config.Only
	Found    string `json:"found"`    // there
}

// A ledger collects breaches, in the order in which they were found.
type ledger struct {
	schedule string
	breaches []Breach
	found    int // so many times
}

// breach records a broken rule.
func (l *ledger) breach(rule, format string, found ...any) {
	l.found++
	if i := slices.IndexFunc(l.breaches, func(b Breach) bool { return b.Rule == rule }); i >= 0 {
		l.breaches[i].Times++
		return
	}
	i := slices.IndexFunc(Rules, func(r Rule) bool { return r.Name == rule })
	l.breaches = append(l.breaches, Breach{Rule: rule, Section: Rules[i].Section, Times: 1, Schedule: l.schedule, Found: fmt.Sprintf(format, found...)})
}
