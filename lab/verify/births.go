package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	birthStep = 10 * time.Second
	// part of the journal that each look reads: reading all of it would slow the measurement
	birthReach  = 3 * time.Second
	birthEnd    = time.Minute // the same at the end of a turn
	birthMargin = time.Second // for the difference of two clocks
)

// A registrar compares the lease times of entries with the journal: if a batch has unlinked a key,
// the entry of the key must not be older. It checks keys that are invalidated by name, since
// entries of tags stay in Redis. It ignores values. It finds a broken rule whether a reader has
// seen it or not.
type registrar struct {
	turn     *turn
	keys     []string             // by name
	unlinked map[string]time.Time // latest time, by the clock of Redis

	mu       sync.Mutex // for all of it
	compared int64
	found    []finding
}

func newRegistrar(t *turn) *registrar {
	r := &registrar{turn: t, unlinked: map[string]time.Time{}}
	for key := range t.spec.Keys {
		if t.spec.kind(key) == item && !t.phase.jumps && t.stage.cluster == nil { // times of one clock
			r.keys = append(r.keys, t.spec.name(key))
		}
	}
	return r
}

// soFar returns the results so far.
func (r *registrar) soFar() (compared int64, found []finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.compared, r.found
}

// watch looks periodically until ctx ends.
func (r *registrar) watch(ctx context.Context) {
	for sleep(ctx, birthStep); ctx.Err() == nil; sleep(ctx, birthStep) {
		_ = r.look(ctx, birthReach) // a server may be unavailable
	}
}

// look reads the last part of the journal and then the entries, which can only be newer.
func (r *registrar) look(ctx context.Context, reach time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) == 0 {
		return nil
	}
	began := now()
	if err := r.read(ctx, reach); err != nil {
		return err
	}
	values, err := r.turn.stage.client.MGet(ctx, r.keys...).Result()
	if err != nil {
		return err
	}
	if r.turn.table.excused(began, now(), r.turn.spec.Grace.Nanoseconds(), everybody) {
		return nil // lost values may be back until they are healed
	}
	for i, value := range values {
		text, _ := value.(string)
		r.compare(r.keys[i], text)
	}
	return nil
}

// read records when keys were unlinked.
func (r *registrar) read(ctx context.Context, reach time.Duration) error {
	out, err := r.turn.stage.fleet.Call(ctx, "history", "--entity", string(item), "--since", reach.String(), "--limit", "1000000", "--json")
	if err != nil {
		return err
	}
	var history struct {
		Found []struct {
			BornAt time.Time `json:"born_at"`
			Keys   []string  `json:"keys"`
		} `json:"found"`
	}
	if err := json.Unmarshal([]byte(out), &history); err != nil {
		return fmt.Errorf("read unlink times of the journal: %w", err)
	}
	for _, row := range history.Found {
		for _, key := range row.Keys {
			if row.BornAt.After(r.unlinked[key]) {
				r.unlinked[key] = row.BornAt
			}
		}
	}
	return nil
}

// compare compares one entry.
func (r *registrar) compare(key, text string) {
	unlinked, known := r.unlinked[key]
	var entry struct {
		Born int64 `json:"b"` // microseconds since 1970
	}
	// In format 2 the value follows.
	if !known || text == "" || json.NewDecoder(strings.NewReader(text)).Decode(&entry) != nil || entry.Born == 0 {
		return
	}
	r.compared++
	if born := time.UnixMicro(entry.Born); born.Add(birthMargin).Before(unlinked) {
		r.found = append(r.found, finding{Key: key, Process: everybody, Began: now(),
			Wrong: fmt.Sprintf("an entry with a lease time %.3f s before its key was unlinked", unlinked.Sub(born).Seconds())})
	}
}
