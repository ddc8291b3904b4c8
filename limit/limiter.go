package limit

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Limiter counts attempts. Safe for concurrent use, in as many processes as there are: those with
// the same Prefix must have the same Max and Window. Changing these keeps the attempts that are
// counted, for as long as the shorter one of the two Windows. With a Max above 20 and a shorter
// Window a subject may begin at zero; if Max goes from above 20 to 20 or less, it does. A key whose
// value is not of this package is left as it is, and its subject cannot be counted.
type Limiter struct {
	config                   Config
	allowed, refused, unsure atomic.Uint64
}

// New makes a Limiter. It asks Redis nothing. An error names the field and the cure.
func New(config Config) (*Limiter, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	return &Limiter{config: config}, nil
}

// A Decision is what became of an attempt.
type Decision struct {
	Allowed bool
	// Remaining is how many more would be allowed now.
	Remaining int
	// RetryAfter is after how long another would be allowed, if none is in between. 0: now.
	RetryAfter time.Duration
	// Unsure is why Redis could not count the attempt; Allowed is then what Config.WhenAway says,
	// and the rest is zero. Whether it was counted is not known. Nil: Redis has decided.
	Unsure error
}

// idLength is how much of a random text tells the attempts of one subject apart: 80 bits.
const idLength = 16

// Take counts one attempt of subject, unless it is refused. A subject has 1 to 512 bytes, which
// pass through exactly. The error is that of a subject that is none, or of ctx if that has ended; a
// Redis that is away is no error, see Decision.Unsure.
func (l *Limiter) Take(ctx context.Context, subject string) (Decision, error) {
	return l.TakeOnce(ctx, subject, rand.Text()[:idLength])
}

// TakeOnce is Take with an id of the attempt, of 1 to 64 bytes, such as that of the request: within
// a window the same id of a subject counts once, also when it comes from another process, so
// whoever is limited must not choose it. An id is remembered by 48 bits of its hash. Above a Max of
// 20, four ids are remembered, by 24 bits.
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

// Forget lets a subject begin anew, after a login that succeeded for example. The error is that of
// Redis, within Config.Timeout, or of a subject that is none.
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

// Statistics count attempts since New.
type Statistics struct {
	Allowed, Refused uint64 // as Redis decided
	Unsure           uint64 // Redis could not count them
}

// Statistics returns the counts so far.
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
