package keyspace

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// BenchmarkCommands makes the UNLINKs of 1,000 keys and their leases, without sending them.
func BenchmarkCommands(b *testing.B) {
	for name, nodes := range map[string]*Nodes{"one server": {}, "cluster": {cluster: &redis.ClusterClient{}}} {
		b.Run(name, func(b *testing.B) {
			u, keys := &Unlinker{nodes: nodes}, couponKeys(1000)
			b.ReportAllocs()
			for b.Loop() {
				u.commandsOf(b, keys)
			}
		})
	}
}

// commandsOf makes the UNLINKs for keys.
func (u *Unlinker) commandsOf(t testing.TB, keys []string) []redis.Cmder {
	units := make([]unit, len(keys))
	for i, key := range keys {
		units[i] = newUnit(i, key)
	}
	var commands []redis.Cmder
	for _, c := range u.chunks(units) {
		commands = append(commands, c.command(t.Context()))
	}
	return commands
}

func couponKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("zahraah:prod:coupon:code-%d", i)
	}
	return keys
}
