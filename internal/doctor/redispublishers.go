package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisPublishers finds the users of Redis, other than the worker's, that may publish messages to
// readers.
func redisPublishers(ctx context.Context, e *Exam) (all []Finding, err error) {
	channel, worker := e.Map.Channel(), cmp.Or(e.RedisUser, "default")
	all, err = onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) ([]Finding, error) {
		users, err := publishersAt(ctx, c, channel, worker)
		if err != nil {
			return []Finding{unseen(addr+": who may publish on "+channel, err, "grant the account of --audit-redis-url +acl|users, +acl|getuser and +acl|dryrun")}, nil
		}
		if len(users) == 0 {
			return nil, nil
		}
		return []Finding{found(Warning, "readers trust messages that other users than the worker's may publish",
			fmt.Sprintf("%s: on %s publish also %s", addr, channel, listed(users)), noPublishing(users, channel))}, nil
	})
	if err == nil && len(all) == 0 {
		all = append(all, well("only %s may publish on %s", worker, channel))
	}
	return all, err
}

// publishersAt returns the enabled users, except one, that may publish on a channel. It publishes
// nothing.
func publishersAt(ctx context.Context, c *redis.Client, channel, but string) (users []string, err error) {
	known, err := c.Do(ctx, "acl", "users").StringSlice()
	if err != nil {
		return nil, fmt.Errorf("ask for the users: %w", err)
	}
	for _, user := range known {
		if user == but {
			continue
		}
		may := false
		for _, command := range []string{"publish", "spublish"} {
			answer, err := c.Do(ctx, "acl", "dryrun", user, command, channel, "x").Text()
			if err != nil {
				return nil, fmt.Errorf("try PUBLISH of %s with ACL DRYRUN: %w", user, err)
			}
			may = may || answer == "OK"
		}
		if !may {
			continue
		}
		rules, err := c.Do(ctx, "acl", "getuser", user).Result()
		if err != nil {
			return nil, fmt.Errorf("read the flags of %s: %w", user, err)
		}
		if holds(pairs(rules)["flags"], "on") {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	return users, nil
}

// noPublishing returns the ACL lines of docs/accounts.md that keep users from publishing.
func noPublishing(users []string, channel string) string {
	var lines []string
	for _, user := range users[:min(len(users), mostExcess)] {
		if user != "default" {
			lines = append(lines, "ACL SETUSER "+user+" resetchannels &"+channel+" -publish -spublish")
		}
	}
	if slices.Contains(users, "default") {
		lines = append(lines, "ACL SETUSER default off", "(when no client needs it; until then: ACL SETUSER default -publish -spublish)")
	}
	return strings.Join(append(lines, "docs/accounts.md#who-may-publish has the line that keeps wake-ups"), "\n")
}
