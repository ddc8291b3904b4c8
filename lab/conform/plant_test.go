package conform

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// The plant old-birth changes the lease time of an entry in both formats, and nothing else.
func TestBirthsAreAgedInBothFormats(t *testing.T) {
	t.Parallel()
	for _, form := range []string{`{"b":%d,"v":"eA=="}`, `{"b":%d,"f":2}` + "\n{\x00\n"} {
		cmd := redis.NewCmd(t.Context(), "eval", protocol.FillScript, 3, "lease", "hold", "k", "1:1", fmt.Appendf(nil, form, 1_700_000_000_123_456), 1000)
		hook{plant: oldBirth}.change(t.Context(), cmd)
		if aged, want := string(cmd.Args()[7].([]byte)), fmt.Sprintf(form, 1_699_999_940_123_456); aged != want {
			t.Errorf("%q, wanted %q", aged, want)
		}
	}
}
