package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// maxMessageKeys are the old and the new one of a rotation.
const maxMessageKeys = 2

// An authenticator checks messages by keys and by their age. Without keys it accepts each message.
type authenticator struct {
	keys  []protocol.MessageKey
	limit time.Duration // of a message's age
	redis *backend
}

// authenticate returns why a message that has arrived is not a worker's, or nil.
func (a *authenticator) authenticate(got *redis.Message, by *arrival) error {
	if len(a.keys) == 0 {
		return nil
	}
	if err := protocol.VerifyMessage([]byte(got.Payload), got.Channel, a.keys...); err != nil {
		return err
	}
	if by.fault != nil && !errors.Is(by.fault, ErrInvalidationPattern) {
		return nil // a worker's message that this version cannot read
	}
	age := time.Duration(a.redis.clock.now()-int64(by.message.Sent)/1000) * time.Millisecond
	if age.Abs() <= a.limit {
		return nil
	}
	a.redis.clock.until.Store(0) // the difference to the clock of Redis may have changed
	return fmt.Errorf("the time in the message is %v ago by the clock of Redis, and the limit is %v", age, a.limit)
}

// compareClock asks Redis for its time if that is due and the age of messages matters. If Redis
// does not answer, the clock keeps running.
func (a *authenticator) compareClock(ctx context.Context) {
	b := a.redis
	if len(a.keys) == 0 || !b.clock.due() {
		return
	}
	sent := time.Now()
	now, err := within(ctx, b, func(ctx context.Context) (time.Time, error) { return b.client.Time(ctx).Result() })
	if err == nil {
		b.clock.heard(now.UnixMicro(), sent)
	}
}
