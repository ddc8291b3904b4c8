package doctor

import (
	"cmp"
	"errors"
	"slices"
	"strings"

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
	mapped  []Figures // of names
	present []bool    // names with keys, also if these are filed by reads
	reads   byReads
	unknown tree      // of names that no entity of the map reaches
	largest []KeySize // the largest first
	own     []Figures // of unstale's names
	broken  breaches
	noMap   error // why there is no map; nil: there is a map
}

// ours are the names that unstale and its readers use: a description and the prefix.
var ours = []struct{ what, prefix string }{
	{"tag versions", protocol.StampPrefix}, {"leases", protocol.LeasePrefix}, {"tombstones", protocol.HoldPrefix}, {"beacons", protocol.BeaconPrefix}, {"sets that are taken apart", protocol.SetPrefix},
	{"where workers write", protocol.AlivePrefix}, {"status of workers", string(keyspace.WorkersPage)}, {"databases", string(keyspace.SourcesPage)},
	{"reports of readers", protocol.ReportKey}, {"shadow reads of readers", protocol.ShadowKey},
}

// NewReview returns an empty review. Without a map, noMap is the reason, and the reached keys are
// unknown.
func NewReview(m *invalidation.Map, noMap error) *Review {
	r := &Review{own: make([]Figures, len(ours))}
	switch {
	case m != nil:
		r.names, r.reads = m.Names(), newByReads(m)
	case noMap == nil:
		r.noMap = errors.New("there is no map")
	default:
		r.noMap = noMap
	}
	globs := make([]string, len(r.names))
	for i, n := range r.names {
		globs[i] = n.Glob
	}
	r.matcher = keyspace.NewMatcher(globs, func(int, error) {}) // Names returns only valid globs
	r.mapped, r.present = make([]Figures, len(r.names)), make([]bool, len(r.names))
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
			r.present[at], entity = true, r.names[at].Entity // also by a tag version
		}
		if own := slices.IndexFunc(ours, func(o struct{ what, prefix string }) bool { return strings.HasPrefix(k.Name, o.prefix) }); own >= 0 {
			r.own[own].note(k, marks{})
			continue
		}
		r.broken.note(k.Name)
		named, unnamed := r.reads.note(k, entity)
		switch m := (marks{unnamed: unnamed}); {
		case named:
		case at >= 0:
			r.mapped[at].note(k, m)
		default:
			r.unknown.file(k.Name).note(k, m)
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

// families returns all families, the biggest first.
func (r *Review) families() (all []Family) {
	for i, f := range r.mapped {
		if f.Keys > 0 {
			all = append(all, Family{Name: KeyName(r.names[i].Text), Entity: r.names[i].Entity, Kind: string(r.names[i].Kind), Figures: f})
		}
	}
	all = append(all, r.reads.families()...)
	r.unknown.each(func(name string, f *Figures) { all = append(all, Family{Name: KeyName(name), Figures: *f}) })
	for i, f := range r.own {
		if f.Keys > 0 {
			all = append(all, Family{Name: KeyName(ours[i].prefix + anyPart), Own: true, Figures: f})
		}
	}
	slices.SortFunc(all, func(a, b Family) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// absent returns the entities without a key.
func (r *Review) absent() (entities []string) {
	// by glob: if several entities share a glob, a key counts for the first of them
	there := map[string]bool{}
	for i, n := range r.names {
		there[n.Glob] = there[n.Glob] || r.present[i]
	}
	seen := map[string]bool{}
	for _, n := range r.names {
		seen[n.Entity] = seen[n.Entity] || there[n.Glob]
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
