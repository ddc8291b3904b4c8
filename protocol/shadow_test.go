package protocol_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/protocol"
)

func TestShadow(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_700_000_000_000_001).UTC()
	want := protocol.Shadow{Process: "web-1:312", Key: "shop:\xff\n", Tags: []string{"a", "b\"c"}, Lease: at, Loaded: at.Add(time.Second), Digest: strings.Repeat("0a", 20)}
	good, all := map[string]string{"later": "unknown"}, want.Fields()
	for i := 0; i < len(all); i += 2 {
		good[all[i]] = all[i+1]
	}
	if got, err := protocol.ParseShadow(good); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][2]string{
		{"process", ""}, {"process", "\xff"}, {"process", strings.Repeat("x", protocol.MaxProcess+1)}, {"key", ""},
		{"key", strings.Repeat("x", protocol.MaxShadowKey+1)}, {"tags", "x"}, {"tags", `["` + strings.Repeat("x", protocol.MaxShadowTags) + `"]`},
		{"lease", ""}, {"lease", "0"}, {"lease", "-1"}, {"loaded", "x"}, {"loaded", "999999999999999999"}, {"sha1", ""}, {"sha1", strings.Repeat("x", 40)}, {"sha1", "0a"},
	} {
		fields := maps.Clone(good)
		fields[bad[0]] = bad[1]
		if got, err := protocol.ParseShadow(fields); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}
