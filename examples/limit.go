package examples

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/limit"
)

// NewCodes limits one-time codes to five an hour for each number.
func NewCodes(state redis.UniversalClient) (*limit.Limiter, error) {
	return limit.New(limit.Config{
		Redis: state, Prefix: "shop:limit:code:", Max: 5, Window: time.Hour, Timeout: time.Second, WhenAway: limit.Refuse,
	})
}

// SendCode answers a request for a one-time code, which send sends.
func SendCode(ctx context.Context, codes *limit.Limiter, w http.ResponseWriter, number string, send func(context.Context, string) error) error {
	d, err := codes.Take(ctx, number)
	if err != nil {
		return err
	}
	if !d.Allowed && d.Unsure != nil { // Redis cannot count
		w.WriteHeader(http.StatusServiceUnavailable)
		return nil
	}
	if !d.Allowed {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.RetryAfter.Seconds()))))
		w.WriteHeader(http.StatusTooManyRequests)
		return nil
	}
	return send(ctx, number)
}
