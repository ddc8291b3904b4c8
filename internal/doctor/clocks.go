package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostApart is how far clocks may be apart: times in rows are by the database's clock, unlink times
// by the clock of Redis, and operators compare them with logs.
const mostApart = time.Second

// Contract: no table.
const clockSQL = "SELECT UTC_TIMESTAMP(6)"

// clocks compares this host's clock with that of each server, by the middle of the round trip.
func clocks(ctx context.Context, e *Exam) (all []Finding, err error) {
	if e.reached[aMySQL] == nil {
		all = append(all, clock(ctx, "MySQL", func(ctx context.Context) (now time.Time, err error) {
			err = e.MySQL.DB().QueryRowContext(ctx, clockSQL).Scan(&now)
			return now, err
		}))
	}
	if e.reached[aRedis] == nil {
		some, err := onMasters(ctx, e, aRedis, func(c *redis.Client, addr string) ([]Finding, error) {
			return []Finding{clock(ctx, "Redis at "+addr, func(ctx context.Context) (time.Time, error) { return c.Time(ctx).Result() })}, nil
		})
		all = append(all, some...)
		if err != nil {
			return all, err
		}
	}
	if len(all) == 0 {
		return nil, errors.New("it needs a server")
	}
	return all, nil
}

func clock(ctx context.Context, server string, ask func(context.Context) (time.Time, error)) Finding {
	var apart, trip time.Duration
	for i := range 3 { // the shortest trip is the most precise
		began := time.Now()
		now, err := ask(ctx)
		took := time.Since(began)
		if err != nil {
			return unseen("the clock of "+server, err, "")
		}
		if i == 0 || took < trip {
			trip, apart = took, now.Sub(began.Add(took/2))
		}
	}
	if apart.Abs() > mostApart+trip/2 {
		return found(Warning, "the clock of "+server+" is another than this host's", fmt.Sprintf("%s apart, in a round trip of %s", apart.Round(time.Millisecond), trip.Round(time.Microsecond)),
			"have both follow a time server")
	}
	return well("the clock of %s is within %s of this host's", server, (apart.Abs() + trip/2).Round(time.Millisecond))
}
