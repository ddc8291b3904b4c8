package conform

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"
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
		for _, tagged := range []bool{false, true} {
			kind := map[bool]string{false: "key", true: "tag"}[tagged]
			name := fmt.Sprintf("order/%02d/%s", i, kind)
			plain = append(plain, schedule{name: name, play: func(p *player) error { return p.order(order, tagged, -1, "", 0) }})
			for _, what := range Events {
				if what == "clock" && !withClock {
					continue
				}
				for at := range len(order) + 1 {
					play := func(p *player) error { return p.order(order, tagged, at, what, i+at) }
					eventful = append(eventful, schedule{name: fmt.Sprintf("%s/%s/%d", name, what, at), play: play})
				}
			}
		}
	}
	return plain, eventful
}

// order plays an order: 0 is the reader, 1 the writer. The event comes before step at.
func (p *player) order(order []int, tagged bool, at int, what string, variant int) (err error) {
	s := p.open(tagged)
	var r *read
	made := [2]int{}
	for i, actor := range append(order, -1) {
		if i == at {
			if err := s.insert(what, variant, made[0]); err != nil {
				return err
			}
		}
		switch actor {
		case 0:
			if made[0] == stepAsk {
				if r, err = p.ask(p.clients[0], s, s.key); err != nil {
					return err
				}
			}
			err = s.readerStep(r, made[0])
		case 1:
			err = s.write(made[1])
		default:
			continue
		}
		if err != nil {
			return err
		}
		made[actor]++
	}
	if err := s.end(r); err != nil || what != "clock" {
		return err
	}
	return p.world.step(p.ctx, 0)
}

// readerStep lets the reader make a step. A client that needs fewer has ended, or waits.
func (s *scene) readerStep(r *read, step int) error {
	p := s.p
	ended := func() bool { return r.result != nil }
	stored := func() bool { return slices.ContainsFunc(p.held, (*trip).stores) }
	switch step {
	case stepAsk:
		filling := func() bool { return slices.ContainsFunc(p.held, func(t *trip) bool { return t.kind == fills }) }
		return p.until(func() bool { return ended() || len(p.loads) > 0 || filling() }, unlessFill)
	case stepLoad:
		if len(p.loads) == 0 {
			return nil
		}
		if err := p.answer(p.loads[0], ""); err != nil {
			return err
		}
		return p.until(func() bool { return ended() || len(p.held) > 0 })
	case stepFill:
		return p.until(func() bool { return ended() || stored() }, func(t *trip) bool { return !t.stores() })
	default:
		return p.until(ended, all)
	}
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
		names := []string{"lock:fill:{" + s.key + "}", s.key, s.name}
		return p.world.admin.Del(p.ctx, names[variant%3]).Err()
	case "cut":
		s.tainted = true
		for _, t := range slices.Clone(p.held) {
			p.release(t, false)
		}
		p.clients[0].proxy.cut(p.clients[0].proxy.commands)
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
	if len(s.p.sent) == 0 {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(s.p.ctx, "tcp", s.p.world.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	chosen := command{raw: fmt.Appendf(nil, "SELECT %d\r\n", s.p.world.number)}
	for _, c := range append([]command{chosen}, s.p.sent...) {
		if _, err := conn.Write(c.raw); err != nil {
			return err
		}
		if _, err := readReply(answers, new(bytes.Buffer)); err != nil {
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

// A pairPlay is a schedule of two readers.
type pairPlay struct {
	*scene
	dice    *rand.Rand
	begins  []*client // whose read has not begun
	reads   []*read
	written int
}

// pair plays two reads of one key, in one process or in two, and a writer. In a quarter of the
// schedules Redis has the old value already.
func (p *player) pair(dice *rand.Rand) error {
	s := &pairPlay{scene: p.open(dice.IntN(2) == 0), dice: dice}
	p.early = dice.IntN(2) == 0
	s.begins = []*client{p.clients[0], p.clients[dice.IntN(len(p.clients))]}
	if dice.IntN(4) == 0 {
		r, err := p.ask(p.clients[dice.IntN(len(p.clients))], s.scene, s.key)
		if err == nil {
			err = p.complete(r)
		}
		if err != nil {
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
	end := time.Now().Add(patience)
	for step := 0; time.Now().Before(end); step++ {
		if err := p.quiet(s.reads); err != nil {
			return err
		}
		next := s.possible()
		writes, begins := s.written < writerSteps, len(s.begins) > 0
		var err error
		switch {
		case writes && (due[s.written] <= step || len(next) == 0 && !begins):
			err = s.write(s.written)
			s.written++
		case len(s.begins) == 2, begins && (due[writerSteps] <= step || len(next) == 0):
			var r *read
			r, err = p.ask(s.begins[0], s.scene, s.key)
			s.begins, s.reads = s.begins[1:], append(s.reads, r)
		case len(next) > 0:
			err = next[dice.IntN(len(next))](writes || begins || len(next) > 1)
		case !slices.ContainsFunc(s.reads, func(r *read) bool { return r.result == nil }):
			return s.end(s.reads...)
		}
		if err != nil {
			return err
		}
	}
	return errStuck
}

// possible returns what can go on in the clients, in their order. Loads are slow: they often let
// other steps come first, if there are any.
func (s *pairPlay) possible() (next []func(others bool) error) {
	for _, c := range s.p.clients {
		for _, t := range s.p.held {
			if t.client == c {
				next = append(next, func(bool) error { s.p.release(t, true); return nil })
			}
		}
		for _, l := range s.p.loads {
			if l.client == c {
				next = append(next, func(others bool) error {
					if others && s.dice.IntN(4) > 0 {
						return nil
					}
					return s.p.answer(l, "")
				})
			}
		}
	}
	return next
}

// quiet waits until each client that reads is held, or waits for another read of its process.
func (p *player) quiet(reads []*read) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		unknown, lost := 0, false
		for _, c := range p.clients {
			running, seen := 0, 0
			for _, r := range reads {
				if r.client == c && r.result == nil {
					running++
				}
			}
			for _, t := range p.held {
				if t.client == c {
					seen++
				}
			}
			for _, l := range p.loads {
				if l.client == c {
					seen++
				}
			}
			unknown += max(running-seen, 0)
			lost = lost || running > 0 && seen == 0
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
