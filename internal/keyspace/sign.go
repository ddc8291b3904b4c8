package keyspace

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// redisTimeLife is how long an answer to TIME is used. Heartbeats renew it, so batches rarely ask.
const redisTimeLife = time.Second

// A redisTime is an answer to TIME. The zero value is the machine's own clock.
type redisTime struct {
	time time.Time
	at   time.Time // when it came, by the machine's monotonic clock
}

func (r redisTime) now() time.Time {
	if r.time.IsZero() {
		return time.Now()
	}
	return r.time.Add(time.Since(r.at))
}

// askTime asks a node for its time if messages are signed and the last answer is too old. It
// returns the result of heard. An account without +time signs with the clock of the machine.
func (p *Publisher) askTime(ctx context.Context, s *series, node *redis.Client) (again bool, err error) {
	if p.messageKey == nil || time.Since(s.told.at) < redisTimeLife || !p.nodes.clock.mayAsk() {
		return false, nil
	}
	c := redis.NewTimeCmd(ctx, "time")
	if err := p.nodes.exec(ctx, node, []redis.Cmder{c}); err != nil {
		return false, err
	}
	if firstWord(c.Err()) == "NOPERM" {
		p.nodes.clock.deny()
		s.told = redisTime{}
		return false, nil
	}
	s.told = redisTime{c.Val(), time.Now()}
	return p.heard(ctx, node, []redis.Cmder{c})
}

// text returns a message in the event format, signed if there is a key.
func (p *Publisher) text(s *series, channel string, m protocol.Message) []byte {
	if p.messageKey == nil {
		return m.Append(nil, protocol.FormatEvent)
	}
	m.Sent = uint64(s.told.now().UnixMicro())
	return m.AppendSigned(nil, channel, p.messageKey)
}
