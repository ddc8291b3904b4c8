package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The lease time of an entry is checked in both formats.
func TestBirthsOfBothFormats(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_700_000_000_123_456)
	for _, form := range []string{`{"e":1700000060000,"b":%d,"c":"other","v":"eA=="}`, `{"f":2,"e":1700000060000,"b":%d,"c":"other"}` + "\n{\x00\n"} {
		text := fmt.Sprintf(form, at.UnixMicro())
		r := &registrar{unlinked: map[string]time.Time{"k": at}}
		if r.compare("k", text); r.compared != 1 || len(r.found) > 0 {
			t.Errorf("%q: %d compared, found %v", text, r.compared, r.found)
		}
		aged := strings.Replace(text, fmt.Sprint(at.UnixMicro()), fmt.Sprint(at.Add(-time.Minute).UnixMicro()), 1)
		if r.compare("k", aged); r.compared != 2 || len(r.found) != 1 {
			t.Errorf("%q: %d compared, found %v", aged, r.compared, r.found)
		}
	}
}
