package examples

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

// Without Redis no code is sent, and the answer does not claim that there were too many.
func TestSendCodeWithoutRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	codes, err := NewCodes(client)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	err = SendCode(t.Context(), codes, w, "+49 30 1234567", func(context.Context, string) error { return errors.New("sent") })
	if err != nil || w.Code != 503 || w.Header().Get("Retry-After") != "" {
		t.Errorf("%v: %d, Retry-After %q", err, w.Code, w.Header().Get("Retry-After"))
	}
}

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
