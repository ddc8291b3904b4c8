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
	play  func(*player) error
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
			name, tagged := fmt.Sprintf("order/%02d/%s", i, kind), kind == "tag"
			plain = append(plain, schedule{name: name, play: orderPlay{order: order, tagged: tagged}.play})
			for _, event := range Events {
				if event == "clock" && !withClock {
					continue
				}
				for at := range len(order) + 1 {
					o := orderPlay{order, tagged, event, at, i + at}
					eventful = append(eventful, schedule{name: fmt.Sprintf("%s/%s/%d", name, event, at), play: o.play})
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

func (o orderPlay) play(p *player) error {
	s := p.open(o.tagged)
	var r *read
	made := [2]int{}
	for i := range len(o.order) + 1 {
		if i == o.at {
			if err := s.insert(o.event, o.variant, made[0]); err != nil {
				return err
			}
		}
		if i == len(o.order) {
			break
		}
		var err error
		actor := o.order[i]
		if actor == 0 && made[0] == stepAsk {
			r, err = p.ask(p.clients[0], s)
		}
		switch {
		case err != nil:
		case actor == 0:
			err = s.readerStep(r, made[0])
		default:
			err = s.write(made[1])
		}
		if err != nil {
			return err
		}
		made[actor]++
	}
	if err := s.end(r); err != nil || o.event != "clock" {
		return err
	}
	return p.world.step(p.ctx, 0)
}

// readerStep lets the reader make a step. A client that needs fewer has ended, or waits.
func (s *scene) readerStep(r *read, step int) error {
	p := s.p
	var comes func() bool
	var pass func(*trip) bool
	switch step {
	case stepAsk:
		filling := func(t *trip) bool { return t.kind == fills }
		comes = func() bool { return len(p.loads) > 0 || slices.ContainsFunc(p.held, filling) }
		pass = unlessFill
	case stepLoad:
		if len(p.loads) == 0 {
			return nil
		}
		if err := p.answer(p.loads[0], ""); err != nil {
			return err
		}
		comes = func() bool { return len(p.held) > 0 }
	case stepFill:
		comes = func() bool { return slices.ContainsFunc(p.held, (*trip).stores) }
		pass = func(t *trip) bool { return !t.stores() }
	default:
		comes = func() bool { return false }
		pass = all
	}
	return p.until(func() bool { return !r.runs() || comes() }, pass)
}

// insert is one event. done is how many steps the reader has made.
func (s *scene) insert(what string, variant, done int) error {
	p := s.p
	switch what {
	case "unlink":
		return p.world.invalidate(p.ctx, s.name, false)
	case "tombstone":
		return p.world.invalidate(p.ctx, s.name, true)
	case "eviction":
		lease, _ := protocol.LeaseKey(s.key)
		names := []string{lease, s.key, s.name}
		return p.world.admin.Del(p.ctx, names[variant%3]).Err()
	case "cut":
		s.tainted = true
		for _, t := range slices.Clone(p.held) {
			p.release(t, false)
		}
		p.clients[0].proxy.cut(idle)
		if done == stepAsk { // the request for the lease, or its reply, is lost
			p.cuts = leaseCut(variant % 3)
		}
	case "copy":
		s.copied = true
		return s.sendAgain()
	case "clock":
		return p.world.step(p.ctx, map[bool]time.Duration{true: clockStep, false: -clockStep}[variant%2 == 0])
	}
	return nil
}

// sendAgain sends all commands that write once more, as a network might that has kept a copy.
func (s *scene) sendAgain() error {
	conn := s.p.world.admin.(*redis.Client).Conn() // MULTI and EXEC need the same one
	defer conn.Close()
	for _, c := range s.p.sent {
		words := []any{c.name}
		for _, arg := range c.args {
			words = append(words, arg)
		}
		var refused redis.Error
		if err := conn.Process(s.p.ctx, redis.NewCmd(s.p.ctx, words...)); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}

// pairSchedules returns schedules of two readers. Their steps are those of the network: each round
// trip is two of them, the commands and the replies.
func pairSchedules(seed uint64, n int) (pairs []schedule) {
	for i := range n {
		pairs = append(pairs, schedule{name: fmt.Sprintf("pair/%03d", i), play: func(p *player) error {
			return p.pair(rand.New(rand.NewPCG(seed, uint64(i))))
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
func (p *player) pair(dice *rand.Rand) error {
	s := p.open(dice.IntN(2) == 0)
	p.early = dice.IntN(2) == 0
	waiting := []*client{p.clients[0], p.clients[dice.IntN(len(p.clients))]} // whose read has not begun
	if dice.IntN(4) == 0 {
		if _, err := p.read(p.clients[dice.IntN(len(p.clients))], s); err != nil {
			return err
		}
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
	var reads []*read
	written := 0
	end := time.Now().Add(patience)
	for step := 0; time.Now().Before(end); step++ {
		if err := p.quiet(reads); err != nil {
			return err
		}
		next := p.possible(dice)
		writes, begins := written < writerSteps, len(waiting) > 0
		var err error
		switch {
		case writes && (due[written] <= step || len(next) == 0 && !begins):
			err = s.write(written)
			written++
		case len(waiting) == 2, begins && (due[writerSteps] <= step || len(next) == 0):
			var r *read
			r, err = p.ask(waiting[0], s)
			waiting, reads = waiting[1:], append(reads, r)
		case len(next) > 0:
			err = next[dice.IntN(len(next))](writes || begins || len(next) > 1)
		case !slices.ContainsFunc(reads, (*read).runs):
			return s.end(reads...)
		}
		if err != nil {
			return err
		}
	}
	return errStuck
}

// possible returns what can go on in the clients, in their order. Loads are slow: they often let
// other steps come first, if there are any.
func (p *player) possible(dice *rand.Rand) (next []func(others bool) error) {
	for _, c := range p.clients {
		for _, t := range p.held {
			if t.client == c {
				next = append(next, func(bool) error { p.release(t, true); return nil })
			}
		}
		for _, l := range p.loads {
			if l.client == c {
				next = append(next, func(others bool) error {
					if others && dice.IntN(4) > 0 {
						return nil
					}
					return p.answer(l, "")
				})
			}
		}
	}
	return next
}

// quiet waits until each client that reads is held, or waits for another read of its process.
func (p *player) quiet(reads []*read) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		running, seen := map[*client]int{}, map[*client]int{}
		for _, r := range reads {
			if r.runs() {
				running[r.client]++
			}
		}
		for _, t := range p.held {
			seen[t.client]++
		}
		for _, l := range p.loads {
			seen[l.client]++
		}
		unknown, lost := 0, false
		for c, n := range running {
			unknown += max(n-seen[c], 0)
			lost = lost || seen[c] == 0
		}
		if unknown == 0 {
			return nil
		}
		limit := settleTime
		if lost { // it must do something
			limit = time.Until(end)
		}
		came, err := p.absorb(limit)
		if err != nil || !came && !lost {
			return err
		}
	}
	return errStuck
}
