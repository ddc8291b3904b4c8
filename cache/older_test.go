package cache

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A subscription opens with the recorded messages of an older worker, which had neither alive nor
// behind, and ignores unknown fields.
func TestSubscriptionToOtherVersions(t *testing.T) {
	t.Parallel()
	const source = "05995c4c7b89ee0354305084863b4776"
	for name, change := range map[string]*strings.Replacer{
		"older": strings.NewReplacer(),
		"newer": strings.NewReplacer(`{"v":1,`, `{"v":1,"new":{"a":[1]},`, `"hb":{`, `"hb":{"new":{"a":[1]},`),
	} {
		f, err := os.Open("../protocol/testdata/messages.txt")
		if err != nil {
			t.Fatal(err)
		}
		h, heard := newHearing(Memory{Period: time.Second, Sources: []string{source}}), 0
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "#") {
				continue
			}
			m, err := protocol.DecodeMessage([]byte(change.Replace(lines.Text())))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if heard == 0 {
				h.subscribe(m.At)
			}
			heard++
			h.pong = m.At
			if v := h.message(m, m.At); v.empty || v.open != (heard > 2) || v.late != nil {
				t.Errorf("%s: message %d: %+v", name, heard, v)
			}
		}
		_ = f.Close()
		if heard != 12 {
			t.Errorf("%s: %d messages, wanted 12", name, heard)
		}
	}
}
