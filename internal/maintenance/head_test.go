package maintenance

import (
	"strings"
	"testing"
)

// The lease time is found wherever it is before the tags and the value; anything else is unknown.
func TestTimes(t *testing.T) {
	t.Parallel()
	const e, b = `"e":1772366399998`, `"b":1772366399998214`
	for head, known := range map[string]bool{
		"{" + e + "," + b + `,"v":1}`:                                  true,
		"{" + b + "," + e + `,"v":1}`:                                  true,
		`{"f":2,` + e + "," + b + `,"c":"msgpack"}` + "\n\x81":         true,
		`{"c":"gzip","d":7,` + e + "," + b + "}":                       true,
		"{" + b + `,"c":"x",` + e + `,"v":"` + strings.Repeat("x", 40): true,
		"": false, "{": false, "null": false, `"text"`: false, "[1,2": false,
		"{" + e + `,"v":{` + b + "}}":      false,
		"{" + e + `,"t":{` + b + "}":       false,
		"{" + e + "," + b:                  false, // cut
		"{" + e + `,"b":-1}`:               false,
		"{" + e + `,"b":5,"v":1}`:          false,
		`{"e":5,` + b + `,"v":1}`:          false,
		"{" + e + `,"b":1e15}`:             false,
		"{" + e + `,"c":"\\"",` + b + "}":  false,
		`{"e":99999999999999999999,` + b:   false,
		"{ " + e + ", " + b + "}":          false,
		"{" + strings.Repeat(e+",", 5) + e: false,
	} {
		leased, expiry := EntryTimes(head, false)
		if ok := leased == 1772366399998214 && expiry == 1772366399998000; ok != known || !known && leased != 0 {
			t.Errorf("%q: %d, %d", head, leased, expiry)
		}
	}
}

// Any text is read without a panic.
func FuzzTimes(f *testing.F) {
	f.Add(`{"e":1772366399998,"b":1772366399998214,"v":1}`)
	f.Add(`random:1772366399998214`)
	f.Fuzz(func(t *testing.T, head string) {
		for _, isTag := range []bool{false, true} {
			if leased, _ := EntryTimes(head, isTag); leased != 0 && (leased <= least || leased >= most) && !isTag {
				t.Errorf("%q: %d", head, leased)
			}
		}
	})
}
