package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/doctor"
)

// A cache that is full and evicts is a warning, however slowly it does. One that is not full any more,
// or that has evicted nothing, is well.
func TestEvictions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		used, evicted int
		want          string
	}{
		{190, 36, "the cache is full and evicts keys"}, {190, 0, ""}, {100, 36, ""},
	} {
		all := doctor.MemoryOf(fmt.Sprintf("# Server\r\nuptime_in_seconds:36000\r\n# Memory\r\nmaxmemory:200000000\r\nused_memory:%d000000\r\nmaxmemory_policy:allkeys-lru\r\nmem_fragmentation_ratio:1.0\r\n"+
			"# Stats\r\nkeyspace_hits:9\r\nkeyspace_misses:1\r\nevicted_keys:%d\r\n", c.used, c.evicted))
		if c.want == "" {
			if len(all) != 1 || all[0].Severity != doctor.OK {
				t.Errorf("%+v: %+v", c, all)
			}
		} else if len(all) != 1 || all[0].Severity != doctor.Warning || !strings.HasPrefix(all[0].Title, c.want) || !strings.Contains(all[0].Evidence, "36 keys evicted in 10.0 hours, 0.001 per second") {
			t.Errorf("%+v: %+v", c, all)
		}
	}
}
