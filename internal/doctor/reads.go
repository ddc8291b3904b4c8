package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
)

// byReads files keys by the reads of the map. Without reads, it files none.
type byReads struct {
	section *invalidation.ReadSection
	all     map[string]invalidation.Read
	prefix  string // of the keys of all reads
	files   map[invalidation.ReadName]*readFile
	unsure  int64 // keys without a read that would have one if a value contained a colon
}

// A readFile is the family of one name of a read.
type readFile struct {
	entity  string // that reaches its first key
	longest time.Duration
	figures Figures
}

func newByReads(m *invalidation.Map) byReads {
	b := byReads{section: m.Reads(), prefix: m.Reads().Prefix(), all: map[string]invalidation.Read{}, files: map[invalidation.ReadName]*readFile{}}
	for _, r := range m.Reads().All() {
		b.all[r.Name] = r
	}
	return b
}

// note files a key and reports whether a read names it, or else whether one should, because the
// key begins like the keys of the reads.
func (b *byReads) note(k *keyspace.KeyInfo, entity string) (named, unnamed bool) {
	if len(b.all) == 0 {
		return false, false
	}
	names := b.section.Of(k.Name)
	if len(names) == 0 || names[0].Unsure {
		if unnamed = strings.HasPrefix(k.Name, b.prefix); unnamed && len(names) > 0 {
			b.unsure++
		}
		return false, unnamed
	}
	name := names[0]
	f := b.files[name]
	if f == nil {
		f = &readFile{entity: entity}
		if name.Kind == invalidation.KindKey {
			f.longest = longestLife(b.all[name.Read].Lifetime)
		}
		b.files[name] = f
	}
	f.figures.note(k, marks{late: f.longest > 0 && k.TTL > f.longest, longest: f.longest})
	return true, false
}

// families returns the families of reads, in any order.
func (b *byReads) families() (all []Family) {
	for name, f := range b.files {
		all = append(all, Family{Name: KeyName(name.Text), Entity: f.entity, Read: name.Read, Kind: string(name.Kind), Figures: f.figures})
	}
	return all
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
		if r.reads.files[invalidation.ReadName{Read: read.Name, Kind: invalidation.KindKey, Text: read.Key}] == nil {
			names = append(names, read.Name)
		}
	}
	if len(names) == 0 {
		return finding("reads", OK, "every read of the map has keys", "", "")
	}
	return finding("reads", Info, "reads of the map without a key", strings.Join(names, ", "), "fetch them with the generated functions, or remove them if nothing reads them")
}
