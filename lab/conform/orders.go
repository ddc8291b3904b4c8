package conform

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A schedule is one order of steps. Its name repeats it.
type schedule struct {
	name  string
	play  func(*player)
	needs func(ready Line) bool // what of the client; nil: nothing
}

// The steps of one reader. Its commands until the load are one step, as are those of its fill.
const (
	stepAsk = iota
	stepLoad
	stepFill
	stepTake // it gets the reply to its fill
	readerSteps
)

// Events are what a schedule of one reader may have in addition.
var Events = []string{"unlink", "tombstone", "eviction", "cut", "copy", "clock"}

// clockStep is by how much the event "clock" moves the clock of Redis, forward or back.
const clockStep = time.Minute

// orders returns all orders of the steps of several actors, each of whom makes so many, as the
// numbers of the actors.
func orders(so []int, left ...int) (found [][]int) {
	for actor, n := range left {
		if n > 0 {
			next := slices.Clone(left)
			next[actor]--
			found = append(found, orders(append(slices.Clone(so), actor), next...)...)
		}
	}
	if found == nil {
		return [][]int{so}
	}
	return found
}

// orderSchedules returns the schedules of one reader: each order with the invalidation of its key
// and of its tag, alone and with one event before each step and at the end.
func orderSchedules(withClock bool) (plain, eventful []schedule) {
	for i, order := range orders(nil, readerSteps, writerSteps) {
		for _, kind := range []string{"key", "tag"} {
			o := orderPlay{order: order, tagged: kind == "tag"}
			name := fmt.Sprintf("order/%02d/%s", i, kind)
			plain = append(plain, schedule{name: name, play: o.play})
			for _, o.event = range Events {
				if o.event == "clock" && !withClock {
					continue
				}
				for o.at = range len(order) + 1 {
					o.variant = i + o.at
					eventful = append(eventful, schedule{name: fmt.Sprintf("%s/%s/%d", name, o.event, o.at), play: o.play})
				}
			}
		}
	}
	return plain, eventful
}

// An orderPlay is a schedule of one reader.
type orderPlay struct {
	order   []int // 0 is the reader, 1 the writer
	tagged  bool
	event   string // empty: none
	at      int    // the step before which the event comes
	variant int    // of the event
}

func (o orderPlay) play(p *player) {
	s := p.open(o.tagged)
	var r *call
	made := [2]int{}
	for i := range len(o.order) + 1 {
		if i == o.at {
			s.insert(o.event, o.variant, made[0])
		}
		switch {
		case i == len(o.order):
			continue
		case o.order[i] == 1:
			s.write(made[1])
		case made[0] == stepAsk:
			r = s.ask(p.clients[0])
			fallthrough
		default:
			s.readerStep(r, made[0])
		}
		made[o.order[i]]++
	}
	s.end(r)
	if o.event == "clock" {
		p.world.step(0)
	}
}

// readerStep lets the reader make a step. A client that needs fewer has ended, or waits.
func (s *scene) readerStep(r *call, step int) {
	comes, pass := func() bool { return false }, all
	switch step {
	case stepAsk:
		filling := func(t *trip) bool { return t.kind == fills }
		comes = func() bool { return len(s.p.loads) > 0 || slices.ContainsFunc(s.p.held, filling) }
		pass = func(t *trip) bool { return !filling(t) }
	case stepLoad:
		if len(s.p.loads) == 0 {
			return
		}
		s.p.answer(s.p.loads[0], "")
		comes, pass = func() bool { return len(s.p.held) > 0 }, none
	case stepFill:
		comes = func() bool { return slices.ContainsFunc(s.p.held, (*trip).stores) }
		pass = func(t *trip) bool { return !t.stores() }
	}
	s.p.until(func() bool { return !r.runs() || comes() }, pass)
}

// insert is one event. done is how many steps the reader has made.
func (s *scene) insert(what string, variant, done int) {
	switch what {
	case "unlink", "tombstone":
		s.p.world.invalidate(s.name, what == "tombstone")
	case "eviction":
		lease, _ := protocol.LeaseKey(s.key)
		names := []string{lease, s.key, s.name}
		must(s.p.world.admin.Del(s.p.world.ctx, names[variant%3]).Err())
	case "cut":
		s.tainted = true
		for len(s.p.held) > 0 {
			s.p.release(s.p.held[0], false)
		}
		s.p.clients[0].proxy.cut(idle)
		if done == stepAsk { // the request for the lease, or its reply, is lost
			s.p.cuts = leaseCut(variant % 3)
		}
	case "copy":
		s.copied = true
		s.sendAgain()
	case "clock":
		s.p.world.step([]time.Duration{clockStep, -clockStep}[variant%2])
	}
}

// sendAgain sends all commands that write once more, as a network might that has kept a copy.
func (s *scene) sendAgain() {
	for _, c := range s.p.sent {
		words := []any{c.name}
		for _, arg := range c.args {
			words = append(words, arg)
		}
		var refused redis.Error
		if err := s.p.world.admin.Do(s.p.world.ctx, words...).Err(); !errors.As(err, &refused) {
			must(err)
		}
	}
}

// pairSchedules returns schedules of two readers. Their steps are those of the network: each round
// trip is two of them, the commands and the replies.
func pairSchedules(seed uint64, n int) (pairs []schedule) {
	for i := range n {
		pairs = append(pairs, schedule{name: fmt.Sprintf("pair/%03d", i), play: func(p *player) {
			p.pair(rand.New(rand.NewPCG(seed, uint64(i))))
		}})
	}
	return pairs
}

const (
	// settleTime is how long a read may take to do something that is not seen: to join another one.
	settleTime = 4 * time.Millisecond
	// pairSteps is about how many steps two reads have. The writer's, and the beginning of the second
	// read, come before random ones.
	pairSteps = 18
)

// pair plays two reads of one key, in one process or in two, and a writer. In a quarter of the
// schedules Redis has the old value already.
func (p *player) pair(dice *rand.Rand) {
	s := p.open(dice.IntN(2) == 0)
	p.early = dice.IntN(2) == 0
	waiting := []*client{p.clients[0], p.clients[dice.IntN(len(p.clients))]} // whose read has not begun
	if dice.IntN(4) == 0 {
		s.read(p.clients[dice.IntN(len(p.clients))])
	}
	// when each step of the writer, and then the second read, is due: steps of the writer often
	// follow each other closely, and the second read often follows the UNLINK
	var due [writerSteps + 1]int
	due[stepCommit] = dice.IntN(pairSteps)
	for i := stepUnlink; i < writerSteps; i++ {
		due[i] = due[i-1] + [...]int{0, 0, 0, 1, 2, 6}[dice.IntN(6)]
	}
	if due[writerSteps] = dice.IntN(pairSteps); dice.IntN(2) == 0 {
		due[writerSteps] = due[stepUnlink] + dice.IntN(3)
	}
	var reads []*call
	written := 0
	end := time.Now().Add(patience)
	for step := 0; time.Now().Before(end); step++ {
		p.quiet(reads)
		var next []func(others bool)
		for _, c := range p.clients {
			next = append(next, p.possible(c, dice)...)
		}
		writes, begins := written < writerSteps, len(waiting) > 0
		switch {
		case writes && (due[written] <= step || len(next) == 0 && !begins):
			s.write(written)
			written++
		case len(waiting) == 2, begins && (due[writerSteps] <= step || len(next) == 0):
			reads = append(reads, s.ask(waiting[0]))
			waiting = waiting[1:]
		case len(next) > 0:
			next[dice.IntN(len(next))](writes || begins || len(next) > 1)
		case !slices.ContainsFunc(reads, (*call).runs):
			s.end(reads...)
			return
		}
	}
	must(errStuck)
}

// possible returns what can go on in a client. Loads are slow: they often let other steps come
// first, if there are any.
func (p *player) possible(c *client, dice *rand.Rand) (next []func(others bool)) {
	for _, t := range p.held {
		if t.client == c {
			next = append(next, func(bool) { p.release(t, true) })
		}
	}
	for _, l := range p.loads {
		if l.client == c {
			next = append(next, func(others bool) {
				if !others || dice.IntN(4) == 0 {
					p.answer(l, "")
				}
			})
		}
	}
	return next
}

// quiet waits until each client that reads is held, or waits for another read of its process.
func (p *player) quiet(reads []*call) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		unseen, lost := false, false // lost: the client must do something
		for _, c := range p.clients {
			runs, seen := 0, len(p.possible(c, nil))
			for _, r := range reads {
				if r.client == c && r.runs() {
					runs++
				}
			}
			unseen, lost = unseen || runs > seen, lost || runs > 0 && seen == 0
		}
		if !unseen || !p.absorb(settleTime) && !lost {
			return
		}
	}
	must(errStuck)
}
