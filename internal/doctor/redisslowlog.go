package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slowEntries = 128
	slowSince   = time.Hour
)

// redisSlowLog reports only the names of commands, because their arguments are data.
func redisSlowLog(ctx context.Context, e *Exam) ([]Finding, error) {
	return onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) (all []Finding, err error) {
		slow, err := slowFrom(ctx, c)
		if err != nil {
			all = append(all, unseen(addr+": what was slow", err, "set slowlog-log-slower-than 10000 and slowlog-max-len 128 in its configuration"))
		}
		entries, err := c.SlowLogGet(ctx, slowEntries).Result()
		if err != nil {
			return all, fmt.Errorf("read the slow log: %w", err)
		}
		read := len(entries)
		entries = slices.DeleteFunc(entries, func(s redis.SlowLog) bool { return time.Since(s.Time) > slowSince })
		if len(entries) == 0 && slow > 0 {
			all = append(all, well("%s: nothing took longer than %s in the last %s", addr, slow, slowSince))
		}
		if len(entries) == 0 {
			return all, nil
		}
		if len(entries) == read && read >= slowEntries {
			all = append(all, unseen(addr+": what else was slow in the last "+slowSince.String(), fmt.Errorf("the newest %d entries, which were looked at, are all younger", read),
				"raise slowlog-log-slower-than if that is usual here, or slowlog-max-len, and see SLOWLOG GET -1"))
		}
		worst := slices.MaxFunc(entries, func(a, b redis.SlowLog) int { return cmp.Compare(a.Duration, b.Duration) })
		name := "?"
		if len(worst.Args) > 0 {
			name = strings.ToUpper(worst.Args[0])
		}
		all = append(all, found(Warning, "commands were slow, and everybody waited for them", fmt.Sprintf("%s: %s in the last %s, the slowest %s with %s, by %s",
			addr, count(len(entries), "entry", "entries"), slowSince, name, worst.Duration, cmp.Or(worst.ClientName, worst.ClientAddr)),
			"SLOWLOG GET tells whose they are; look for KEYS, large values and large sets"))
		return all, nil
	})
}

// slowFrom returns how long a command must take to be in the slow log. An error means that the log
// is off, or that the setting is unknown.
func slowFrom(ctx context.Context, c *redis.Client) (time.Duration, error) {
	settings, err := c.ConfigGet(ctx, "slowlog-*").Result()
	if err != nil {
		return 0, fmt.Errorf("ask from when on a command is slow: %w", err)
	}
	from, err := strconv.ParseInt(settings["slowlog-log-slower-than"], 10, 64)
	switch {
	case err != nil:
		return 0, errors.New("it does not tell from when on a command is slow")
	case from < 0 || settings["slowlog-max-len"] == "0":
		return 0, errors.New("the slow log is off")
	}
	return max(time.Duration(from)*time.Microsecond, time.Microsecond), nil
}
