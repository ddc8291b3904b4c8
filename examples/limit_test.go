package examples

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

// Five codes are sent, and for the sixth the answer says when to try again.
func TestSendCode(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer client.Close()
	codes, err := NewCodes(client)
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	send := func(context.Context, string) error { sent++; return nil }
	for i := 1; i <= 6; i++ {
		w := httptest.NewRecorder()
		if err := SendCode(t.Context(), codes, w, "+49 30 1234567", send); err != nil {
			t.Fatal(err)
		}
		if want := min(i, 5); sent != want || (w.Code == 429) != (i == 6) || (w.Header().Get("Retry-After") != "") != (i == 6) {
			t.Errorf("request %d: %d sent, %d, Retry-After %q", i, sent, w.Code, w.Header().Get("Retry-After"))
		}
	}
}
