package invalidation_test

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/unstale/unstale/invalidation"
)

// The reasons are stored in the dead letters and are metric labels: the set is closed.
func TestReasons(t *testing.T) {
	t.Parallel()
	want := []invalidation.Reason{
		"unknown_entity", "missing_parameter", "bad_parameter", "params_too_large",
		"too_many_keys", "pattern_too_wide", "lookup_failed", "redis_refused", "capture_failed",
	}
	if got := invalidation.Reasons(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRowError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]*invalidation.RowError{
		"lookup_failed": {Reason: invalidation.LookupFailed},
		`lookup_failed "category_id": unexpected EOF`: {Reason: invalidation.LookupFailed, Param: "category_id", Err: io.ErrUnexpectedEOF},
		"redis_refused: unexpected EOF":               {Reason: invalidation.RedisRefused, Err: io.ErrUnexpectedEOF},
	} {
		if err.Error() != want || errors.Is(err, io.ErrUnexpectedEOF) != (err.Err != nil) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
