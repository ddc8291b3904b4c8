//go:build soak

package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

// A play is one key, with a row, its copies in Redis and in an L1, and the variables of the actors.
type play struct {
	t        *testing.T
	ctx      context.Context
	client   *redis.Client
	names    names
	memory   *memory
	row      string
	unlinked bool // by the worker, after the commit
	told     bool // L1 has received the message
	trace    []string
}

// An actor's step. Steps of one actor come in their order, those of several in any.
type step struct {
	name string
	do   func(p *play)
}

// A reader runs the steps of Fetch one by one, and keeps its state between them.
type reader struct {
	id     string
	late   bool // it began after the UNLINK
	ended  bool
	lease  string
	loaded string
	since  mark
	filled bool
}

// served checks what a reader gives to its caller.
func (p *play) served(r *reader, value string) {
	r.ended = true
	if r.late && value != "new" {
		p.t.Errorf("reader %s came after the UNLINK and got %q: %v", r.id, value, p.trace)
	}
}

func (p *play) run(script *redis.Script, keys []string, args ...any) any {
	got, err := script.Run(p.ctx, p.client, keys, args...).Result()
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

func (p *play) takeLease(r *reader) {
	r.since = p.memory.mark()
	got := p.run(leaseScript, []string{p.names.lease, p.names.hold, p.names.value}, r.id, 60_000, "").([]any)
	switch text, _ := got[1].(string); got[0] {
	case "lease":
		r.lease = text
	case "value":
		p.memory.put(p.names.value, text, nil, r.since, time.Hour, 0, nil)
		p.served(r, text)
	}
}

func (p *play) fill(r *reader) {
	r.since = p.memory.mark()
	r.filled = p.run(fillScript, []string{p.names.lease, p.names.hold, p.names.value}, r.lease, r.loaded, 60_000) == int64(1)
}

// steps returns the steps of the reader: L1 and Redis, lease, load, fill, L1. A reader whose lease
// is taken loads and stores nothing, as it would after its wait.
func (r *reader) steps() []step {
	unlessEnded := func(name string, f func(p *play)) step {
		return step{r.id + " " + name, func(p *play) {
			if !r.ended {
				f(p)
			}
		}}
	}
	return []step{
		unlessEnded("asks", func(p *play) {
			r.late = p.unlinked
			if value, ok := p.memory.get(p.names.value, nil); ok {
				r.late = p.told // L1 may lag behind the UNLINK until the message arrives
				p.served(r, value.value.(string))
				return
			}
			p.takeLease(r)
		}),
		unlessEnded("loads", func(p *play) { r.loaded = p.row }),
		unlessEnded("fills", func(p *play) {
			if r.lease != "" {
				p.fill(r)
			}
		}),
		unlessEnded("remembers", func(p *play) {
			if r.filled {
				p.memory.put(p.names.value, r.loaded, nil, r.since, time.Hour, 0, nil)
			}
			p.served(r, r.loaded)
		}),
	}
}

// change returns the writer's commit, the worker's UNLINK, and the message's delivery.
func change() []step {
	return []step{
		{"commit", func(p *play) { p.row = "new" }},
		{"UNLINK", func(p *play) {
			if err := p.client.Unlink(p.ctx, p.names.lease, p.names.value).Err(); err != nil {
				p.t.Fatal(err)
			}
			p.unlinked = true
		}},
		{"deliver", func(p *play) { p.memory.evictAndLog([]string{p.names.value}, nil); p.told = true }},
	}
}

// orders returns all orders of the steps of several actors, each of whom takes so many, as the
// numbers of the actors.
func orders(so []int, left ...int) (all [][]int) {
	rest := false
	for actor, n := range left {
		if n == 0 {
			continue
		}
		rest = true
		next := slices.Clone(left)
		next[actor]--
		all = append(all, orders(append(slices.Clone(so), actor), next...)...)
	}
	if !rest {
		return [][]int{so}
	}
	return all
}

// All orders of one or two readers with a writer, the worker and the delivery, on the real scripts
// and the real L1. Callers that ask after the UNLINK get the new row, and in the end no old value
// is left. The orders of one reader also run with one event inserted anywhere: a lease that
// expires, a late copy of a command, a lost message, an empty Redis.
func TestAllOrders(t *testing.T) {
	t.Parallel()
	stage := newStage(t)
	plain, inserted := 0, 0
	for _, order := range orders(nil, 4, 3) {
		stage.play(t, order, 1, -1, "")
		plain++
		for _, event := range []string{"lease expires", "late lease", "late fill", "message lost", "Redis is empty", "value expires"} {
			for at := range len(order) + 1 {
				stage.play(t, order, 1, at, event)
				inserted++
			}
		}
	}
	two := orders(nil, 4, 4, 3)
	for _, order := range two {
		stage.play(t, order, 2, -1, "")
		if t.Failed() {
			break
		}
	}
	t.Logf("%d orders of one reader, %d with an event, %d of two readers", plain, inserted, len(two))
	if plain != 35 || len(two) != 11550 {
		t.Errorf("%d and %d orders, wanted 35 and 11550", plain, len(two))
	}
}

// A stage is the state that all plays share.
type stage struct {
	client *redis.Client
	memory *memory
	played int
}

func newStage(t *testing.T) *stage {
	config := Config{Memory: Memory{Size: 100_000}}.WithDefaults()
	m := newMemory(config)
	t.Cleanup(m.close)
	m.obey(verdict{open: true})
	return &stage{client: testenv.Redis(t).Client, memory: m}
}

// play runs one order: its numbers are readers, the last one the change. The event comes before
// step at.
func (s *stage) play(t *testing.T, order []int, readers, at int, event string) {
	t.Helper()
	s.played++
	p := &play{t: t, ctx: t.Context(), client: s.client, memory: s.memory, names: namesOf(fmt.Sprint("k", s.played)), row: "old"}
	var actors [][]step
	var all []*reader
	for i := range readers {
		r := &reader{id: string(rune('a' + i))}
		all, actors = append(all, r), append(actors, r.steps())
	}
	actors = append(actors, change())
	for i, actor := range order {
		if i == at {
			p.insert(event, all[0])
		}
		next := actors[actor][0]
		actors[actor] = actors[actor][1:]
		if event == "message lost" && next.name == "deliver" {
			next = step{"doubt", func(p *play) { // the subscription has detected a possible gap
				p.memory.obey(verdict{empty: true, why: errors.New("lost")})
				p.memory.obey(verdict{open: true})
				p.told = true
			}}
		}
		p.trace = append(p.trace, next.name)
		next.do(p)
	}
	if at == len(order) {
		p.insert(event, all[0])
	}
	if value, ok := p.memory.get(p.names.value, nil); ok && value.value != "new" {
		t.Errorf("memory holds %v: %v", value.value, p.trace)
	}
	if value := s.client.Get(t.Context(), p.names.value).Val(); value == "old" {
		t.Errorf("Redis holds %q: %v", value, p.trace)
	}
	s.client.Del(t.Context(), p.names.value, p.names.lease)
}

// insert is one event. Copies are of commands that were sent.
func (p *play) insert(event string, r *reader) {
	p.trace = append(p.trace, event)
	switch event {
	case "lease expires":
		p.client.Del(p.ctx, p.names.lease)
	case "value expires":
		p.client.Del(p.ctx, p.names.value)
	case "Redis is empty":
		p.client.Del(p.ctx, p.names.lease, p.names.value)
	case "late lease":
		if r.lease != "" {
			p.run(leaseScript, []string{p.names.lease, p.names.hold, p.names.value}, r.id, 60_000, "")
		}
	case "late fill":
		if r.lease != "" && r.loaded != "" {
			p.run(fillScript, []string{p.names.lease, p.names.hold, p.names.value}, r.lease, r.loaded, 60_000)
		}
	}
}
