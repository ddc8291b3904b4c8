package limit

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	_ "embed"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/redisclient"
)

// A Limiter limits the attempts of subjects. It is safe for concurrent use. All processes that use
// one Prefix must use the same Max and Window.
//
// If you change Max or Window, earlier attempts still count until the shorter of the two Windows
// has passed. There are two exceptions. Changing Max from above 20 to at most 20 resets all counts,
// and shortening Window with a Max above 20 can reset them.
//
// If the key of a subject contains other data, the Limiter leaves the key unchanged and sets
// Decision.Unsure.
type Limiter struct {
	config                   Config
	allowed, refused, unsure atomic.Uint64
}

// New returns a Limiter. It does not connect to Redis. The error lists every invalid field with the
// fix.
func New(config Config) (*Limiter, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	return &Limiter{config: config}, nil
}

// A Decision is the result of an attempt.
type Decision struct {
	Allowed bool
	// Remaining is the number of further attempts that would be allowed now.
	Remaining int
	// RetryAfter is the time until the next attempt would be allowed. Zero means now.
	RetryAfter time.Duration
	// Unsure is the error of Redis if it did not confirm the attempt, and nil otherwise. Allowed
	// then comes from Config.WhenAway, and the other fields are zero. Redis may or may not have
	// counted the attempt.
	Unsure error
}

// idLength is how much of a random text tells the attempts of one subject apart: 80 bits.
const idLength = 16

// Take makes one attempt for subject, and counts it if it is allowed. A subject is any string of 1
// to 512 bytes. The error reports an invalid subject, or is the error of ctx. If Redis is
// unavailable, the error is nil and Decision.Unsure is set.
func (l *Limiter) Take(ctx context.Context, subject string) (Decision, error) {
	return l.TakeOnce(ctx, subject, rand.Text()[:idLength])
}

// TakeOnce is like Take, for attempts that may be repeated with the same id, such as a request ID
// of 1 to 64 bytes. Within a window, each id of a subject counts once, even if another process
// repeats it. A user who can choose the id can therefore avoid the limit.
//
// Redis stores 48 bits of the hash of each id. If Max is above 20, it stores 24 bits of the latest
// four.
func (l *Limiter) TakeOnce(ctx context.Context, subject, id string) (Decision, error) {
	if err := checkSubject(subject); err != nil {
		return Decision{}, err
	}
	if len(id) < 1 || len(id) > 64 {
		return Decision{}, fmt.Errorf("limit: the id of an attempt has %d bytes, wanted 1 to 64", len(id))
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	limited, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	script, bits := exactScript, digest(id, 6)
	if l.config.Max > mostExact {
		script, bits = countedScript, digest(id, 3)
	}
	answer, err := script.Run(limited, l.config.Redis, []string{l.config.Prefix + subject}, l.config.Max, l.config.Window.Microseconds(), bits).Int64Slice()
	switch {
	case ctx.Err() != nil:
		return Decision{}, ctx.Err()
	case err == nil && len(answer) != 3:
		err = fmt.Errorf("%d numbers, wanted 3", len(answer))
		fallthrough
	case err != nil:
		l.unsure.Add(1)
		return Decision{Allowed: l.config.WhenAway == Allow, Unsure: fmt.Errorf("limit: Redis cannot count: %w", l.foreign(subject, err))}, nil
	}
	d := Decision{Allowed: answer[0] == 1, Remaining: int(answer[1]), RetryAfter: time.Duration(answer[2]) * time.Microsecond}
	if d.Allowed {
		l.allowed.Add(1)
	} else {
		l.refused.Add(1)
	}
	return d, nil
}

// Forget resets the count of a subject, for example after a successful login. The error reports an
// invalid subject, or comes from Redis. Config.Timeout limits the call.
func (l *Limiter) Forget(ctx context.Context, subject string) error {
	if err := checkSubject(subject); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	if err := forgetScript.Run(ctx, l.config.Redis, []string{l.config.Prefix + subject}).Err(); err != nil {
		return fmt.Errorf("limit: forget a subject: %w", l.foreign(subject, err))
	}
	return nil
}

// foreign names the key and the fix if its value is not of this package.
func (l *Limiter) foreign(subject string, err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fmt.Errorf("key %q: %w; set Config.Prefix to one that no other data has", l.config.Prefix+subject, err)
	}
	return err
}

// Statistics contains the numbers of attempts since New.
type Statistics struct {
	Allowed, Refused uint64 // by the decision of Redis
	Unsure           uint64 // not confirmed by Redis
}

// Statistics returns the numbers of attempts of this Limiter since New.
func (l *Limiter) Statistics() Statistics {
	return Statistics{Allowed: l.allowed.Load(), Refused: l.refused.Load(), Unsure: l.unsure.Load()}
}

func checkSubject(subject string) error {
	if len(subject) < 1 || len(subject) > 512 {
		return fmt.Errorf("limit: a subject has %d bytes, wanted 1 to 512", len(subject))
	}
	return nil
}

// digest returns the first bytes of the hash of an id.
func digest(id string, bytes int) string {
	sum := sha1.Sum([]byte(id))
	return string(sum[:bytes])
}

// mostExact is the largest Max in the exact form, which stores the time of each attempt. With it a
// full subject takes less than 512 bytes of Redis; TestMemory measures that. The other form takes a
// quarter of it, for any Max.
const mostExact = 20

var (
	//go:embed ours.lua
	oursText string
	//go:embed exact.lua
	exactText string
	//go:embed counted.lua
	countedText string
	//go:embed forget.lua
	forgetText string

	exactScript   = redis.NewScript(oursText + exactText)
	countedScript = redis.NewScript(oursText + countedText)
	forgetScript  = redis.NewScript(oursText + forgetText)
)

// CheckServer returns an error if Config.Redis is not suitable for counts: if it may evict keys, if
// it does not persist them, or if it is the server of a cache that a worker invalidates. It detects
// such a cache by the keys of workers, among up to about 10,000 keys, and by subscribers of the
// default wake-up channel. In Cluster, it checks every master.
//
// Call it at startup or before a deployment. It needs the ACL permissions +info, +scan and
// +pubsub|numsub. Take does not need them. If one is missing, the error wraps the error of Redis.
func (l *Limiter) CheckServer(ctx context.Context) error {
	if err := redisclient.CheckState(ctx, l.config.Redis); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	return nil
}
