package cache

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/maypok86/otter/v2"

	"github.com/unstale/unstale/protocol"
)

// values are the values in memory by key and by tag, and a log of the latest evictions. The caller
// guards insert, evict, tags and the log. The store, and the counters of the log, are safe without
// that.
type values struct {
	prefix string
	store  *otter.Cache[string, *kept] // by key without the prefix
	log    evictionLog
	tags   tagTable
}

// A kept is a value in L1. The cells of its tags show whether a tag was invalidated.
type kept struct {
	value      any
	generation uint64
	life       time.Duration
	fresh      int64 // until when, by the clock of the memory; life may end before
	tags       []*tagCell
	weight     uint32     // see room
	cost       uint32     // of the load, in milliseconds
	read       *readCount // of the entry of reads, or nil
}

func (k *kept) gone() bool {
	for _, tag := range k.tags {
		if tag.gone.Load() {
			return true
		}
	}
	return false
}

// bears reports whether the value was stored with all tags.
func (k *kept) bears(tags []string) bool {
	for _, tag := range tags {
		if !slices.ContainsFunc(k.tags, func(cell *tagCell) bool { return cell.name == tag }) {
			return false
		}
	}
	return true
}

// nameable reports whether messages, which are JSON in UTF-8, can name a key and its tags.
func (v *values) nameable(key string, tags []string) bool {
	unnamed := func(name string) bool { return !utf8.ValidString(name) }
	return !unnamed(v.prefix+key) && !slices.ContainsFunc(tags, unnamed)
}

// insert adds a value, unless an eviction since the mark means it. The log must reach back to the
// mark.
func (v *values) insert(key string, k *kept, tags []string, since mark) bool {
	if v.log.hit(since.at, v.prefix+key) {
		return false
	}
	for _, tag := range tags {
		if v.log.hit(since.at, protocol.StampKey(tag)) {
			return false
		}
	}
	k.tags = v.cells(tags)
	v.store.Set(key, k)
	return true
}

// cells returns the cells of tags, nil for none.
func (v *values) cells(tags []string) []*tagCell {
	if len(tags) == 0 {
		return nil
	}
	cells := make([]*tagCell, len(tags))
	for i, tag := range tags {
		cells[i] = v.tags.cell(tag)
	}
	return cells
}

// reaches reports whether a pattern may match the key or a tag version of a value.
func (v *values) reaches(glob protocol.Glob) bool {
	literal := glob.Prefix()
	return slices.ContainsFunc([]string{v.prefix, protocol.StampPrefix}, func(prefix string) bool {
		return strings.HasPrefix(prefix, literal) || strings.HasPrefix(literal, prefix)
	})
}

// evict evicts exact keys.
func (v *values) evict(keys []string) {
	for _, name := range keys {
		key, isKey := strings.CutPrefix(name, v.prefix)
		tag, isTag := strings.CutPrefix(name, protocol.StampPrefix)
		if isKey || isTag {
			v.log.addKey(name)
		}
		if isKey {
			v.store.Invalidate(key)
		}
		if isTag {
			v.tags.drop(tag)
		}
	}
}
