package cache

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Unfetched returns the entries of the map's section reads that are in none of the statistics, in
// the order of the map. After a typical day of a process, these reads are not used or are fetched
// by hand: see Statistics.OtherKeys.
//
//	slog.Info("reads", "unfetched", shopcache.Map.Unfetched(c.Statistics()))
func (m *ReadMap) Unfetched(all ...Statistics) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.entries), func(name string) bool {
		return slices.ContainsFunc(all, func(s Statistics) bool { _, fetched := s.Reads[name]; return fetched })
	})
}

const (
	mostOtherKeys = 20
	mostOtherKey  = 128 // bytes
)

// otherKeys are the forms of keys that were fetched without a generated function. They are noted
// once a generated function was used, because an application without any has only other keys.
type otherKeys struct {
	on, full atomic.Bool
	mu       sync.Mutex
	forms    map[string]struct{}
}

func (o *otherKeys) note(prefix, key string) {
	if !o.on.Load() || o.full.Load() {
		return
	}
	var buf [mostOtherKey]byte
	form := appendForm(appendForm(buf[:0], prefix), key)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.forms[string(form)]; known || len(o.forms) == mostOtherKeys {
		return
	}
	if o.forms == nil {
		o.forms = map[string]struct{}{}
	}
	o.forms[string(form)] = struct{}{}
	o.full.Store(len(o.forms) == mostOtherKeys)
}

// appendForm appends a key up to the capacity of form. Parts between colons that have a digit
// become #.
func appendForm(form []byte, key string) []byte {
	for part := range strings.SplitAfterSeq(key, ":") {
		if strings.ContainsAny(part, "0123456789") {
			part = "#" + part[len(strings.TrimSuffix(part, ":")):]
		}
		form = append(form, part[:min(len(part), cap(form)-len(form))]...)
	}
	return form
}

// list returns the forms in sorted order.
func (o *otherKeys) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.forms))
}
