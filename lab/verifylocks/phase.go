package verifylocks

import (
	"context"
	"slices"
)

// A Phase is a kind of fault that occurs while sections run.
type Phase struct {
	Name, What string
	// play breaks something, keeps it broken and repairs it. Nil: nothing breaks.
	play func(ctx context.Context, t *turn) error
	// of names the backend whose sections run. Empty: those of all run.
	of string
	// through makes holders reach Redis over a link that can lead to another server.
	through bool
	// cut makes the first holder reach ZooKeeper over links that can be cut.
	cut bool
	// jumps reports whether the clocks of servers and, if this program supports it, of holders are
	// set.
	jumps bool
	// keeps reports that no lease is lost on purpose: bare sections may lose nothing.
	keeps bool
}

// phases are all of them, in the order of a round.
var phases = []Phase{
	{Name: "calm", What: "nothing breaks", keeps: true},
	{Name: "holder frozen", What: "SIGSTOP for one to three TTL", play: freezeHolder},
	{Name: "holder killed", What: "SIGKILL, and another one is started", play: killHolder, keeps: true},
	{Name: "redis empty", What: "Redis is killed, and back without data", play: emptyRedis, of: oneRedis},
	{Name: "failover", What: "a replica that lags behind becomes the master", play: failOver, of: oneRedis, through: true},
	{Name: "redis frozen", What: "SIGSTOP for Redis, for up to two TTL", play: freezeRedis, of: oneRedis, keeps: true},
	{Name: "one instance empty", What: "one instance of the Redlock is killed, and back without data", play: emptyInstance, of: redlock, keeps: true},
	{Name: "most instances empty", What: "three to five of five are killed together and return without data, or lose it while they run", play: emptyInstances, of: redlock},
	{Name: "instances frozen", What: "SIGSTOP for one to five of them, for up to two TTL", play: freezeInstances, of: redlock, keeps: true},
	{Name: "zookeeper killed", What: "the leader or another server is killed, and back with its data", play: killZooKeeper, of: zookeeper, keeps: true},
	{Name: "zookeeper frozen", What: "SIGSTOP for the leader or another server, for up to three TTL", play: freezeZooKeeper, of: zookeeper, keeps: true},
	{Name: "sessions expired", What: "a holder is cut off from ZooKeeper until its session has expired", play: expireSessions, of: zookeeper, cut: true, keeps: true},
	{Name: "nodes removed", What: "the nodes of held locks are removed", play: removeNodes, of: zookeeper},
	{Name: "clocks set", What: "the clock of a server or of a holder jumps, by up to an hour", play: setClock, jumps: true},
	{Name: "mysql killed", What: "MySQL is killed, and returns with all commits", play: killMySQL, keeps: true},
}

// PhaseNames returns the names of all phases.
func PhaseNames() (names []string) {
	for _, p := range phases {
		names = append(names, p.Name)
	}
	return names
}

// Phases returns all of them.
func Phases() []Phase { return slices.Clone(phases) }

// loses reports whether bare sections of a backend are to lose updates in the phase. No clock ends
// a session of ZooKeeper.
func (p Phase) loses(backend string) bool { return !p.keeps && !(p.jumps && backend == zookeeper) }

// in returns those of the backends that run in the phase.
func (p Phase) in(backends []string) []string {
	if p.of == "" {
		return backends
	}
	return slices.DeleteFunc(slices.Clone(backends), func(b string) bool { return b != p.of })
}

// played returns the phases of a run.
func (c Config) played() []Phase {
	return slices.DeleteFunc(Phases(), func(p Phase) bool { return !slices.Contains(c.Phases, p.Name) })
}
