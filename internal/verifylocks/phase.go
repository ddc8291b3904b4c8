package verifylocks

import (
	"context"
	"slices"
)

// A Phase is what is broken while sections run.
type Phase struct {
	Name, What string
	// play breaks something, holds it broken and repairs it. Nil: nothing breaks.
	play func(ctx context.Context, t *turn) error
	// through says that holders reach Redis over a link, so that it can be another one.
	through bool
	// jumps says that the clocks of Redis and, if this program can, of holders are set.
	jumps bool
	// keeps says that no lease is lost on purpose: bare sections may lose nothing.
	keeps bool
}

// phases are all of them, in the order of a round.
var phases = []Phase{
	{Name: "calm", What: "nothing breaks", keeps: true},
	{Name: "holder frozen", What: "SIGSTOP for one to three TTL", play: freezeHolder},
	{Name: "holder killed", What: "SIGKILL, and another one is started", play: killHolder, keeps: true},
	{Name: "redis empty", What: "Redis is killed, and back without data", play: emptyRedis},
	{Name: "failover", What: "a replica that has heard nothing for a while becomes the master", play: failOver, through: true},
	{Name: "redis frozen", What: "SIGSTOP for Redis, for up to two TTL", play: freezeRedis, keeps: true},
	{Name: "clocks set", What: "the clock of Redis or of a holder jumps, by up to an hour", play: setClock, jumps: true},
	{Name: "mysql killed", What: "MySQL is killed, and back with what it had committed", play: killMySQL, keeps: true},
}

// PhaseNames are the names of all phases.
func PhaseNames() (names []string) {
	for _, p := range phases {
		names = append(names, p.Name)
	}
	return names
}

// Phases are all of them.
func Phases() []Phase { return slices.Clone(phases) }
