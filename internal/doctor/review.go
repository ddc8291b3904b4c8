package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A Review collects the keys of a walk. Not safe for concurrent use.
type Review struct {
	User    string // account in Redis, for fixes; "": the default one
	NoNames bool   // show no names of keys, nor of families that the map does not name

	names   []invalidation.MapName
	matcher *keyspace.Matcher
	present map[string]bool // globs of names with keys, also if these are filed by reads
	reads   byReads
	filed   map[familyID]*Family
	unknown tree      // of names that no entity of the map reaches
	largest []KeySize // the largest first
	broken  breaches
	noMap   error // why there is no map; nil: there is a map
}

// ours are the prefixes of the names that unstale and its readers use: of tag versions, leases,
// tombstones, beacons, sets that are taken apart, where workers write, the status of workers,
// databases, reports and shadow reads of readers.
var ours = []string{
	protocol.StampPrefix, protocol.LeasePrefix, protocol.HoldPrefix, protocol.BeaconPrefix, protocol.SetPrefix,
	protocol.AlivePrefix, string(keyspace.WorkersHash), string(keyspace.SourcesHash), protocol.ReportKey, protocol.ShadowKey,
}

// NewReview returns an empty review. Without a map, noMap is the reason, and the reached keys are
// unknown.
func NewReview(m *invalidation.Map, noMap error) *Review {
	r := &Review{present: map[string]bool{}, filed: map[familyID]*Family{}, unknown: tree{root: newNode()}}
	if m != nil {
		r.names, r.reads = m.Names(), newByReads(m)
	} else {
		r.noMap = cmp.Or(noMap, errors.New("there is no map"))
	}
	globs := make([]string, len(r.names))
	for i, n := range r.names {
		globs[i] = n.Glob
	}
	r.matcher = keyspace.NewMatcher(globs, func(int, error) {}) // Names returns only valid globs
	return r
}

// A KeySize is a key and its size in memory.
type KeySize struct {
	Name  KeyName `json:"name"`
	Bytes int64   `json:"bytes"`
}

// mostLargest is how many single keys a report lists.
const mostLargest = 10

// size files a key among the largest. A walk may see a key twice.
func (r *Review) size(k *keyspace.KeyInfo) {
	full := len(r.largest) == mostLargest
	if k.Bytes < 0 || full && k.Bytes <= r.largest[mostLargest-1].Bytes {
		return
	}
	if slices.ContainsFunc(r.largest, func(o KeySize) bool { return string(o.Name) == k.Name }) {
		return
	}
	at, _ := slices.BinarySearchFunc(r.largest, k.Bytes, func(o KeySize, bytes int64) int { return cmp.Compare(bytes, o.Bytes) })
	r.largest = slices.Insert(r.largest, at, KeySize{KeyName(k.Name), k.Bytes})
	r.largest = r.largest[:min(len(r.largest), mostLargest)]
}

// Note adds keys.
func (r *Review) Note(keys []keyspace.KeyInfo) {
	for i := range keys {
		k := &keys[i]
		r.size(k)
		at, entity := r.matcher.First(k.Name), ""
		if at >= 0 {
			r.present[r.names[at].Glob], entity = true, r.names[at].Entity // also by a tag version
		}
		if own := slices.IndexFunc(ours, func(prefix string) bool { return strings.HasPrefix(k.Name, prefix) }); own >= 0 {
			r.family(familyID{own: ours[own]}, Family{Name: KeyName(ours[own] + anyPart), Own: true}).addKey(k, marks{})
			continue
		}
		r.broken.countBreaches(k.Name)
		read, unnamed := r.reads.readOf(k.Name)
		switch {
		case read.Read != "":
			family := Family{Name: KeyName(read.Text), Entity: entity, Read: read.Read, Kind: string(read.Kind)}
			r.family(familyID{read: read}, family).addKey(k, marks{longest: r.reads.longest(read)})
		case at >= 0:
			family := Family{Name: KeyName(r.names[at].Text), Entity: entity, Kind: string(r.names[at].Kind)}
			r.family(familyID{name: at}, family).addKey(k, marks{unnamed: unnamed})
		default:
			r.unknown.file(k.Name).addKey(k, marks{unnamed: unnamed})
		}
	}
}

// A Family is the keys whose names differ only in IDs.
type Family struct {
	Name    KeyName `json:"name"`
	Entity  string  `json:"entity,omitempty"` // that reaches it
	Read    string  `json:"read,omitempty"`   // that names it
	Own     bool    `json:"own,omitempty"`    // unstale's
	Kind    string  `json:"kind,omitempty"`   // of the map's name
	Figures `json:"figures"`
}

// A familyID distinguishes families by one of its fields.
type familyID struct {
	own  string // one of ours
	read invalidation.ReadName
	name int // among the names of the map
}

// family returns the figures of a family. A new one is as given: its entity is the one that reaches
// its first key.
func (r *Review) family(id familyID, first Family) *Figures {
	if r.filed[id] == nil {
		r.filed[id] = &first
	}
	return &r.filed[id].Figures
}

// families returns all families, the biggest first.
func (r *Review) families() (all []Family) {
	for _, f := range r.filed {
		all = append(all, *f)
	}
	r.unknown.each(func(name string, f Figures) { all = append(all, Family{Name: KeyName(name), Figures: f}) })
	slices.SortFunc(all, func(a, b Family) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// absent returns the entities without a key.
func (r *Review) absent() (entities []string) {
	seen := map[string]bool{}
	for _, n := range r.names { // by glob: if several entities share one, a key counts for the first of them
		seen[n.Entity] = seen[n.Entity] || r.present[n.Glob]
	}
	for _, n := range r.names {
		if !seen[n.Entity] && !slices.Contains(entities, n.Entity) {
			entities = append(entities, n.Entity)
		}
	}
	return entities
}

// indirect reports whether the map reaches keys that it does not name: members of sets, and keys
// with tags.
func (r *Review) indirect() bool {
	return slices.ContainsFunc(r.names, func(n invalidation.MapName) bool {
		return n.Kind == invalidation.KindSet || n.Kind == invalidation.KindStamp
	})
}

// byReads finds the reads of keys. Without the section reads, no key has one.
type byReads struct {
	section *invalidation.ReadSection
	all     map[string]invalidation.Read
	prefix  string // of the keys of all reads
	unsure  int64  // keys without a read that would have one if a value contained a colon
}

func newByReads(m *invalidation.Map) byReads {
	b := byReads{section: m.Reads(), prefix: m.Reads().Prefix(), all: map[string]invalidation.Read{}}
	for _, r := range m.Reads().All() {
		b.all[r.Name] = r
	}
	return b
}

// readOf returns the name of a read that a key has, or else reports whether one should, because the
// key begins like the keys of the reads.
func (b *byReads) readOf(key string) (read invalidation.ReadName, unnamed bool) {
	if len(b.all) == 0 {
		return read, false
	}
	names := b.section.Of(key)
	if len(names) > 0 && !names[0].Unsure {
		return names[0], false
	}
	if unnamed = strings.HasPrefix(key, b.prefix); unnamed && len(names) > 0 {
		b.unsure++
	}
	return read, unnamed
}

// longest returns the longest TTL that a read allows for a name, or 0 if it does not limit it.
func (b *byReads) longest(n invalidation.ReadName) time.Duration {
	if n.Kind != invalidation.KindKey {
		return 0
	}
	return longestLife(b.all[n.Read].Lifetime)
}

// longestLife returns the longest TTL in Redis of a value of a read. Without a range it has the
// usual jitter.
func longestLife(l invalidation.Lifetime) time.Duration {
	jitter := 0.15
	if l.Most > l.Least {
		jitter = float64(l.Most-l.Least) / float64(l.Most+l.Least)
	}
	more := func(d time.Duration) time.Duration { return d + time.Duration(jitter*float64(d)) }
	if l.SlidingMax > 0 {
		return max(l.SlidingMax, more(l.Negative))
	}
	middle, stale := (l.Least+l.Most)/2, l.Stale
	if stale == 0 {
		stale = middle / 10
	}
	return max(more(middle)+max(stale, l.StaleOnError), more(l.Negative))
}

// lifetimes finds keys whose TTL is outside of the range of their read.
func (r *Review) lifetimes(w keyspace.Walked, families []Family) []Finding {
	if len(r.reads.all) == 0 {
		return nil
	}
	const what = "keys that live longer than their read allows"
	all := r.ofSome(w, "+pttl", what, r.offenders("lifetime", families, func(f *Family) int64 { return f.Late },
		func(f *Family) string {
			return fmt.Sprintf("%s: %s left, at most %s", quotedName(f.LateKey), f.LongestTTL.Round(time.Second), longestLife(r.reads.all[f.Read].Lifetime))
		}, what+": %d", "use the generated function of the read, or correct its ttl in the map", "no key lives longer than its read allows"))
	var short []string
	for _, f := range families {
		// the keys of readers that still store are of all ages
		if least := r.reads.all[f.Read].Lifetime.Least; f.Read != "" && f.Kind == string(invalidation.KindKey) && f.Keys >= 20 && f.LongestTTL > 0 && f.LongestTTL < least/10 {
			short = append(short, fmt.Sprintf("%d of %s: at most %s left of %s", f.Keys, quotedName(f.Name), f.LongestTTL, least))
		}
	}
	if len(short) > 0 {
		all = append(all, finding("lifetime", Info, "all keys of a read end soon: are they stored for less than its ttl?", strings.Join(short, "\n"),
			"compare the readers' TTL with the map's, unless they have stopped")...)
	}
	return all
}

// unnamed finds keys that no read names.
func (r *Review) unnamed(_ keyspace.Walked, families []Family) []Finding {
	if len(r.reads.all) == 0 {
		return nil
	}
	those := r.offenders("unnamed", families, func(f *Family) int64 { return f.Unnamed }, func(f *Family) string { return quotedName(f.UnnamedKey) },
		"keys that no read of the map names: %d", "correct the names that readers use, or add them to reads", "a read of the map names every key with the prefix "+cmp.Or(r.reads.prefix, `""`))
	if r.reads.unsure > 0 {
		those[0].Evidence += fmt.Sprintf("\n%d of them are of a read if a value may contain a colon", r.reads.unsure)
	}
	return those
}

// unused finds reads that have no keys.
func (r *Review) unused(keyspace.Walked, []Family) []Finding {
	var names []string
	if len(r.reads.all) == 0 {
		return nil
	}
	for _, read := range r.reads.section.All() {
		if r.filed[familyID{read: invalidation.ReadName{Read: read.Name, Kind: invalidation.KindKey, Text: read.Key}}] == nil {
			names = append(names, read.Name)
		}
	}
	if len(names) == 0 {
		return finding("reads", OK, "every read of the map has keys", "", "")
	}
	return finding("reads", Info, "reads of the map without a key", strings.Join(names, ", "), "fetch them with the generated functions, or remove them if nothing reads them")
}

const (
	// maxBranches is the number of names that a part may have before it counts as an ID.
	maxBranches = 24
	// maxParts is the number of parts of a name that distinguish families.
	maxParts = 8
	// maxNodes bounds all families together: beyond it, a new part counts as an ID.
	maxNodes = 4096
)

// anyPart represents IDs in the name of a family.
const anyPart = "*"

// A tree files names by their parts, and detects which parts are IDs: parts with a digit or with
// much text, and parts that have many names.
type tree struct {
	root  *node
	nodes int
	full  bool // maxNodes has merged names that are not alike
}

type node struct {
	children map[string]*node
	folded   bool    // all children are merged into one, for IDs
	figures  Figures // without keys: no name ends here
}

func newNode() *node { return &node{children: map[string]*node{}} }

// parts splits a name at colons.
func parts(name string) []string {
	list := strings.SplitN(name, ":", maxParts)
	for i, p := range list {
		if isID(p) || i == maxParts-1 && strings.Contains(p, ":") {
			list[i] = anyPart
		}
	}
	return list
}

// isID reports whether a part looks like an ID: it has a digit, or no readable word.
func isID(part string) bool {
	const longest = 24
	return len(part) > longest || strings.ContainsFunc(part, unicode.IsDigit) || part == anyPart
}

// file returns the figures of a name's family, which may be new.
func (t *tree) file(name string) *Figures {
	n := t.root
	for _, part := range parts(name) {
		n = t.step(n, part)
	}
	return &n.figures
}

// step returns the child for a part. If there are too many children, it merges them into IDs.
func (t *tree) step(n *node, part string) *node {
	if n.folded {
		return n.children[anyPart]
	}
	if c, ok := n.children[part]; ok {
		return c
	}
	t.full = t.full || t.nodes >= maxNodes
	if len(n.children) >= maxBranches || t.nodes >= maxNodes && len(n.children) > 0 {
		t.fold(n)
		return n.children[anyPart]
	}
	if t.nodes >= maxNodes {
		part, n.folded = anyPart, true
	}
	c := newNode()
	n.children[part] = c
	t.nodes++
	return c
}

// fold merges all children into one.
func (t *tree) fold(n *node) {
	all := newNode()
	for _, c := range n.children {
		t.merge(all, c)
	}
	t.nodes -= len(n.children) - 1
	n.children, n.folded = map[string]*node{anyPart: all}, true
}

// merge adds the figures of another node and its descendants.
func (t *tree) merge(into, from *node) {
	if from.figures.Keys > 0 {
		into.figures.merge(&from.figures)
	}
	for part, child := range from.children {
		if have, ok := into.children[part]; ok {
			t.merge(have, child)
			t.nodes--
		} else {
			into.children[part] = child
		}
	}
	if into.folded = into.folded || from.folded; len(into.children) > maxBranches || into.folded && len(into.children) > 1 {
		t.fold(into)
	}
}

// each calls visit with each family, in random order.
func (t *tree) each(visit func(name string, f Figures)) {
	var walk func(n *node, name string)
	walk = func(n *node, name string) {
		if n.figures.Keys > 0 {
			visit(name, n.figures)
		}
		for part, c := range n.children {
			below := part
			if n != t.root {
				below = name + ":" + part
			}
			walk(c, below)
		}
	}
	walk(t.root, "")
}

const (
	// largeValue is the smallest size to report: it takes a millisecond or so on the wire, and all
	// clients wait.
	largeValue = 100 << 10
	// longLife is typical of a database rather than of a cache.
	longLife = 24 * time.Hour
)

// Figures describe the keys of a family.
type Figures struct {
	Keys       int64         `json:"keys"`
	Bytes      int64         `json:"bytes"`
	Largest    int64         `json:"largest_bytes"`
	LargestKey KeyName       `json:"largest_key,omitempty"`
	Large      int64         `json:"large"`       // of more than 100 KiB
	Eternal    int64         `json:"without_ttl"` // keys
	EternalKey KeyName       `json:"without_ttl_key,omitempty"`
	Long       int64         `json:"life_above_a_day"` // keys, by their TTL or since they were last used, unless their read allows more
	LongKey    KeyName       `json:"life_above_a_day_key,omitempty"`
	LongFor    time.Duration `json:"-"` // of LongKey, the longest
	LongestTTL time.Duration `json:"-"`
	Hottest    int64         `json:"hottest_freq"` // 0 to 255, logarithmic; -1: not told
	HottestKey KeyName       `json:"hottest_key,omitempty"`
	Late       int64         `json:"ttl_above_read"` // keys whose read allows less
	LateKey    KeyName       `json:"ttl_above_read_key,omitempty"`
	Unnamed    int64         `json:"unnamed"` // keys that a read of the map should name
	UnnamedKey KeyName       `json:"unnamed_key,omitempty"`
}

// marks are what the reads of the map tell about a key.
type marks struct {
	unnamed bool
	longest time.Duration // that its read allows; 0: it has none
}

// addKey adds a key.
func (f *Figures) addKey(i *keyspace.KeyInfo, m marks) {
	one := Figures{Keys: 1, Bytes: max(i.Bytes, 0), Largest: i.Bytes, LargestKey: KeyName(i.Name), Hottest: i.Freq}
	if i.Freq >= 0 {
		one.HottestKey = KeyName(i.Name)
	}
	if i.Bytes > largeValue {
		one.Large = 1
	}
	if i.TTL == keyspace.NoTTL {
		one.Eternal, one.EternalKey = 1, KeyName(i.Name)
	}
	one.LongestTTL = i.TTL
	if life := max(i.TTL, i.Idle); life > max(longLife, m.longest) {
		one.Long, one.LongFor, one.LongKey = 1, life, KeyName(i.Name)
	}
	if m.longest > 0 && i.TTL > m.longest {
		one.Late, one.LateKey = 1, KeyName(i.Name)
	}
	if m.unnamed {
		one.Unnamed, one.UnnamedKey = 1, KeyName(i.Name)
	}
	f.merge(&one)
}

// merge adds another family.
func (f *Figures) merge(o *Figures) {
	if f.Keys == 0 {
		*f = *o
		return
	}
	f.Keys += o.Keys
	f.Bytes += o.Bytes
	f.Large += o.Large
	f.Eternal += o.Eternal
	f.Long += o.Long
	if o.LongestTTL > f.LongestTTL {
		f.LongestTTL = o.LongestTTL
		if o.Late > 0 {
			f.LateKey = o.LateKey
		}
	}
	if o.LongFor > f.LongFor {
		f.LongFor, f.LongKey = o.LongFor, o.LongKey
	}
	f.Late += o.Late
	f.Unnamed += o.Unnamed
	f.UnnamedKey = cmp.Or(f.UnnamedKey, o.UnnamedKey)
	f.EternalKey = cmp.Or(f.EternalKey, o.EternalKey)
	if o.Largest > f.Largest {
		f.Largest, f.LargestKey = o.Largest, o.LargestKey
	}
	if o.Hottest > f.Hottest {
		f.Hottest, f.HottestKey = o.Hottest, o.HottestKey
	}
}

// advisedBytes is the longest name that the grammar advises.
const advisedBytes = 64

// grammar are the rules of names, which are advice.
var grammar = [...]struct {
	rule   string
	breaks func(name string) bool
}{
	{"upper case", func(n string) bool { return strings.ContainsFunc(n, func(r rune) bool { return r >= 'A' && r <= 'Z' }) }},
	{"a space, a newline or a quote", func(n string) bool { return strings.ContainsAny(n, " \t\r\n'\"`") }},
	{"more than 64 bytes", func(n string) bool { return len(n) > advisedBytes }},
	{"no : or _ between parts", func(n string) bool { return !strings.ContainsAny(n, ":_") }},
}

// A Breach is the number of names that break a rule, with an example.
type Breach struct {
	Rule    string  `json:"rule"`
	Keys    int64   `json:"keys"`
	Example KeyName `json:"example,omitempty"`
}

// breaches counts the names that break each rule of the grammar.
type breaches [len(grammar)]Breach

func (b *breaches) countBreaches(name string) {
	for i, r := range grammar {
		if r.breaks(name) {
			b[i] = Breach{r.rule, b[i].Keys + 1, cmp.Or(b[i].Example, KeyName(name))}
		}
	}
}

// found returns the breaches with at least one name.
func (b *breaches) found() []Breach {
	return slices.DeleteFunc(slices.Clone(b[:]), func(one Breach) bool { return one.Keys == 0 })
}
