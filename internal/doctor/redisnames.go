package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

// foreignName is a name of a key or channel that no map creates.
const foreignName = "unstale-doctor:of-somebody-else"

// namesOf returns the key and channel patterns of a user, as ACL GETUSER writes them, including its
// selectors.
func namesOf(ctx context.Context, c *redis.Client, user string) (patterns []string, err error) {
	answer, err := c.Do(ctx, "acl", "getuser", user).Result()
	if err != nil {
		return nil, fmt.Errorf("ask for the rules of %s: %w", user, err)
	}
	var read func(rules any)
	read = func(rules any) {
		for name, value := range pairs(rules) {
			switch text, _ := value.(string); name {
			case "keys", "channels":
				patterns = append(patterns, strings.Fields(text)...)
			case "selectors":
				list, _ := value.([]any)
				for _, one := range list {
					read(one)
				}
			}
		}
	}
	read(answer)
	slices.Sort(patterns)
	return slices.Compact(patterns), nil
}

// pairs converts a flat list of names and values, as in RESP2.
func pairs(answer any) map[any]any {
	if m, ok := answer.(map[any]any); ok {
		return m
	}
	m := map[any]any{}
	list, _ := answer.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// usedNames are key and channel names that a worker uses, one for each pattern of the map.
type usedNames struct{ keys, channels []string }

func needed(e *Exam) (u usedNames) {
	const text = "made-up"
	for _, n := range e.Map.Names() {
		name := keyspace.TrialKey(n.Glob, text).Name
		u.keys = append(u.keys, name)
	}
	for _, prefix := range append([]string{protocol.StampPrefix, protocol.LeasePrefix, protocol.HoldPrefix}, keyspace.OwnPrefixes...) {
		u.keys = append(u.keys, prefix, prefix+text)
	}
	u.channels = []string{e.Map.Channel(), e.Wake}
	return u
}

// beyond returns the rules that give a user names that no worker uses, or all names, and rules that
// are not understood.
func (u usedNames) beyond(rules []string) (wide, unclear []string) {
	for _, rule := range rules {
		used, pattern := u.keys, rule
		switch {
		case strings.HasPrefix(rule, "&"):
			used, pattern = u.channels, rule[1:]
		case strings.HasPrefix(rule, "%"):
			_, pattern, _ = strings.Cut(rule, "~")
		default:
			pattern = strings.TrimPrefix(rule, "~")
		}
		glob, err := protocol.CompileGlob(pattern)
		switch {
		case err != nil:
			unclear = append(unclear, quoted(rule))
		case glob.Match(foreignName), !slices.ContainsFunc(used, glob.Match):
			wide = append(wide, rule)
		}
	}
	return wide, unclear
}
