package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// mostExcess is the number of commands that are listed by name.
const mostExcess = 20

// redisExcess asks Redis for each of its commands whether the worker's account may run it, and
// reads the account's key patterns.
func redisExcess(ctx context.Context, e *Exam) (all []Finding, err error) {
	user := cmp.Or(e.RedisUser, "default")
	all, err = onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) ([]Finding, error) {
		return excessAt(ctx, e, c, addr, user)
	})
	if err == nil && len(all) == 0 {
		all = append(all, well("%s may run no command, touch no name and use no channel that a worker does not", user))
	}
	return all, err
}

func excessAt(ctx context.Context, e *Exam, c *redis.Client, addr, user string) (all []Finding, err error) {
	anew := "run the line that `unstale acl worker --user " + user + "` prints: it takes all else"
	commands, err := commandsOf(ctx, c)
	if err != nil {
		return []Finding{unseen(addr+": which commands "+user+" may run", err, "grant the account of --audit-redis-url +command and +acl|dryrun")}, nil
	}
	may, err := allowed(ctx, c, user, commands)
	if err != nil {
		return nil, err
	}
	if len(may) > 0 {
		all = append(all, found(Warning, "the worker's Redis account may run what no worker runs", addr+": "+user+" may "+listed(may), anew))
	}
	names, err := namesOf(ctx, c, user)
	if err != nil {
		return append(all, unseen(addr+": which names and channels "+user+" may use", err, "grant the account of --audit-redis-url +acl|getuser")), nil
	}
	if e.Map == nil {
		return append(all, unseen(addr+": whether "+user+" may use names and channels that no worker does", errNotGiven, flags[aMap])), nil
	}
	wide, unclear := needed(e).beyond(names)
	if len(wide) > 0 {
		all = append(all, found(Warning, "the worker's Redis account may use names or channels that no worker does", addr+": "+user+" has "+listed(wide), anew))
	}
	if len(unclear) > 0 {
		all = append(all, unseen(addr+": whether "+user+" needs its names", fmt.Errorf("these are patterns that nobody can compare with the map: %s", listed(unclear)), anew))
	}
	return all, nil
}

// listed lists some items, and the number of the others.
func listed(all []string) string {
	text := strings.Join(all[:min(len(all), mostExcess)], ", ")
	if more := len(all) - mostExcess; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// A command is a command that a Redis knows.
type command struct {
	name      string // with a subcommand after |
	arity     int    // words, including the name; negative: or more
	dangerous bool   // of @dangerous
	always    bool   // no account needs a permission for it
}

// commandsOf lists the commands of a Redis, with those of its modules, the dangerous ones first.
func commandsOf(ctx context.Context, c *redis.Client) (all []command, err error) {
	answer, err := c.Do(ctx, "command").Slice()
	if err != nil {
		return nil, fmt.Errorf("ask for the commands: %w", err)
	}
	var read func(list []any)
	read = func(list []any) {
		for _, one := range list {
			fields, _ := one.([]any)
			if len(fields) < 10 {
				err = errors.New("this Redis does not tell of its commands what Redis 7 tells")
				continue
			}
			if below, _ := fields[9].([]any); len(below) > 0 {
				read(below) // each is granted separately
				continue
			}
			name, _ := fields[0].(string)
			arity, _ := fields[1].(int64)
			all = append(all, command{name, int(arity), holds(fields[6], "@dangerous"), holds(fields[2], "no_auth")})
		}
	}
	read(answer)
	slices.SortFunc(all, func(a, b command) int {
		if a.dangerous != b.dangerous {
			return cmp.Compare(b2i(b.dangerous), b2i(a.dangerous))
		}
		return strings.Compare(a.name, b.name)
	})
	return all, err
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func holds(list any, text string) bool {
	texts, _ := list.([]any)
	return slices.Contains(texts, any(text))
}

// allowed returns the commands that a user may run and no worker runs. ACL DRYRUN runs nothing; a
// refusal of only the tried name means that the command is allowed.
func allowed(ctx context.Context, c *redis.Client, user string, commands []command) (may []string, err error) {
	pipe := c.Pipeline()
	var asked []*redis.Cmd
	var names []string
	for _, one := range commands {
		if one.always || slices.Contains(WorkerCommands, one.name) {
			continue
		}
		args := []any{"acl", "dryrun", user}
		for word := range strings.SplitSeq(one.name, "|") {
			args = append(args, word)
		}
		words := one.arity
		if words < 0 {
			words = -words
		}
		for len(args)-3 < words {
			args = append(args, "1")
		}
		asked, names = append(asked, pipe.Do(ctx, args...)), append(names, one.name)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	for i, one := range asked {
		answer, err := one.Text()
		if err != nil {
			return nil, fmt.Errorf("ask whether %s may run %s: %w", user, names[i], err)
		}
		if !strings.Contains(answer, "permissions to run") {
			may = append(may, strings.ToUpper(names[i]))
		}
	}
	return may, nil
}
