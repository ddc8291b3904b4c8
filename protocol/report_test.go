package protocol_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/unstale/unstale/protocol"
)

// fieldsOf returns the fields of an entry as a client reads them.
func fieldsOf(r protocol.Report) map[string]string {
	all, fields := r.Fields(), map[string]string{}
	for i := 0; i < len(all); i += 2 {
		fields[all[i]] = all[i+1]
	}
	return fields
}

func TestReport(t *testing.T) {
	t.Parallel()
	want := protocol.Report{Process: "web-1:312", Epoch: "7QX2", First: 7, Last: 9, Dropped: 3}
	good := fieldsOf(want)
	good["later"] = "unknown"
	if got, err := protocol.ParseReport(good); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][2]string{
		{"process", ""}, {"process", strings.Repeat("x", protocol.MaxProcess+1)}, {"process", "\xff"}, {"epoch", ""},
		{"first", ""}, {"first", "0"}, {"first", "10"}, {"last", "-1"}, {"dropped", "x"},
	} {
		fields := maps.Clone(good)
		fields[bad[0]] = bad[1]
		if got, err := protocol.ParseReport(fields); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}
