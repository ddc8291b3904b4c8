package cache

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/unstale/unstale/protocol"
)

// advisedAfter is how many names without Config.Prefix cause advice if none has it.
const advisedAfter = 2000

// heardNames counts the keys and patterns of messages. Tag versions have no prefix and do not
// count.
type heardNames struct {
	prefix     string // Config.Prefix
	logger     *slog.Logger
	own, other atomic.Uint64 // with and without the prefix
	advised    atomic.Bool
}

// hear counts the names of a message, and logs once that none of very many has the prefix. Healthy
// does not report it: several applications can share a channel, and one of them may seldom write.
func (n *heardNames) hear(a *arrival) {
	count := func(name string, own bool) {
		switch {
		case strings.HasPrefix(name, protocol.StampPrefix) && !strings.HasPrefix(n.prefix, protocol.StampPrefix):
		case own:
			n.own.Add(1)
		default:
			n.other.Add(1)
		}
	}
	for _, key := range a.message.Keys {
		count(key, strings.HasPrefix(key, n.prefix))
	}
	for _, glob := range a.globs {
		literal := glob.Prefix()
		count(literal, strings.HasPrefix(literal, n.prefix) || strings.HasPrefix(n.prefix, literal))
	}
	if n.own.Load() > 0 || n.other.Load() < advisedAfter || n.advised.Swap(true) {
		return
	}
	example := ""
	if keys := a.message.Keys; len(keys) > 0 {
		example = keys[0]
	}
	n.logger.LogAttrs(context.Background(), slog.LevelWarn, "no key of the workers has the prefix",
		slog.String("prefix", n.prefix), slog.Uint64("names", n.other.Load()), slog.String("example", example),
		slog.String("fix", "compare Config.Prefix with the keys in the map"))
}
