package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
)

// Data of others under a key is neither counted as attempts nor replaced, and the error names the
// key and the fix.
func TestForeignData(t *testing.T) {
	t.Parallel()
	for form, most := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			client := clientAt(t, testenv.Redis(t).URL)
			l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour})
			const key = "zahraah:limit:"
			ctx := t.Context()
			for subject, err := range map[string]error{
				"hash":        client.HSet(ctx, key+"hash", "name", "tea").Err(),
				"list":        client.RPush(ctx, key+"list", "tea").Err(),
				"short":       client.Set(ctx, key+"short", "tea", 0).Err(),
				"text":        client.Set(ctx, key+"text", "precious, and worth more", 0).Err(),
				"page":        client.Set(ctx, key+"page", strings.Repeat("page", 1000), 0).Err(),
				"leaderboard": client.ZAdd(ctx, key+"leaderboard", redis.Z{Score: 7, Member: "Ada"}, redis.Z{Score: 2e15, Member: "Bob"}).Err(),
				"fractions":   client.ZAdd(ctx, key+"fractions", redis.Z{Score: 1764031462000000.5, Member: "Ada"}).Err(),
			} {
				testenv.Must(t, err)
				before := client.Dump(ctx, key+subject).Val()
				d, err := l.Take(ctx, subject)
				testenv.Must(t, err)
				want := `limit: Redis cannot count: key "zahraah:limit:` + subject + `": WRONGTYPE the key has a value that no limit has made`
				if d.Allowed || d.Unsure == nil || !strings.HasPrefix(d.Unsure.Error(), want) || !strings.HasSuffix(d.Unsure.Error(), "; set Config.Prefix to one that no other data has") {
					t.Errorf("%s: %+v, wanted %s", subject, d, want)
				}
				if err := l.Forget(ctx, subject); err == nil || !strings.Contains(err.Error(), `forget a subject: key "zahraah:limit:`+subject+`": WRONGTYPE`) {
					t.Errorf("%s: forget: %v", subject, err)
				}
				if after := client.Dump(ctx, key+subject).Val(); after == "" || after != before {
					t.Errorf("%s: the value has changed", subject)
				}
			}
		})
	}
}
