package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// An info is the INFO reply of one master.
type info struct {
	addr   string
	client *redis.Client
	values map[string]string
	// requested fields that are missing: a provider of Redis may hide some
	untold []string
}

// read adds the answer for a section.
func (i *info) read(section, text string) {
	maps.Copy(i.values, redisclient.Facts(text))
	isTitle := func(line string) bool { return strings.EqualFold(strings.TrimSpace(line), "# "+section) }
	if !slices.ContainsFunc(strings.Split(text, "\n"), isTitle) {
		i.untold = append(i.untold, "the section "+section)
	}
}

// value returns a field, or "" if it is missing.
func (i *info) value(name string) string {
	v, told := i.values[name]
	if !told {
		i.untold = append(i.untold, name)
	}
	return v
}

// number returns a field, or 0 if it is missing.
func (i *info) number(name string) float64 {
	n, err := strconv.ParseFloat(i.values[name], 64)
	if err != nil {
		i.untold = append(i.untold, name)
	}
	return n
}

// calls returns how often a command was called, 0 if never.
func (i *info) calls(command string) (n float64) {
	// a command without calls is not listed
	_, _ = fmt.Sscanf(i.values["cmdstat_"+command], "calls=%g,", &n)
	return n
}

// judge returns the findings of look. A missing field is never reported as well.
func (i *info) judge(look func(*info) []Finding) []Finding {
	all := look(i)
	if len(i.untold) == 0 {
		return all
	}
	slices.Sort(i.untold)
	all = slices.DeleteFunc(all, func(f Finding) bool { return f.Severity == OK })
	return append(all, unseen(i.addr+": what goes by "+strings.Join(slices.Compact(i.untold), ", "), errors.New("its INFO does not tell"), "ask who runs this Redis"))
}

// eachMaster asks each master of the audited Redis for sections of INFO, and calls look with the
// answer.
func eachMaster(ctx context.Context, e *Exam, look func(*info) []Finding, sections ...string) (all []Finding, err error) {
	return onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) ([]Finding, error) {
		i := &info{addr: addr, client: c, values: map[string]string{}}
		for _, section := range sections {
			text, err := c.Info(ctx, section).Result()
			if err != nil {
				return nil, fmt.Errorf("ask for INFO %s: %w", section, err)
			}
			i.read(section, text)
		}
		return i.judge(look), nil
	})
}

// onMasters calls look for each master of a Redis. A master that does not answer is unknown.
func onMasters(ctx context.Context, e *Exam, n need, look func(c *redis.Client, addr string) ([]Finding, error)) (all []Finding, err error) {
	err = e.redis(n).EachMaster(ctx, func(c *redis.Client) error {
		addr := redisclient.Address(c)
		if err := e.away[n][addr]; err != nil {
			all = append(all, unseen(addr+": it does not answer", err, notReached))
			return nil
		}
		some, err := look(c, addr)
		all = append(all, some...)
		if err != nil {
			all = append(all, unseen(addr+": it could not be looked at", err, ""))
		}
		return ctx.Err()
	})
	return all, err
}

// megabytes formats a size.
func megabytes(n float64) string { return fmt.Sprintf("%.0f MB", n/1e6) }
