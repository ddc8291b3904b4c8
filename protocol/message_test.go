package protocol

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var messageTime = time.Date(2025, 3, 4, 6, 6, 7, 890000, time.FixedZone("", 3600))

func TestMessageEvent(t *testing.T) {
	t.Parallel()
	m := Message{
		Epoch: "e1", Seq: 18446744073709551615, At: messageTime,
		Keys: []string{"a:1", "<&>\"\\\n\x01", "خصم\u2028"}, Patterns: []string{`b\*:*`},
	}
	got := string(m.Append([]byte("x"), FormatEvent))
	want := `x{"v":1,"epoch":"e1","seq":18446744073709551615,"at":"2025-03-04T05:06:07.000890Z",` +
		`"keys":["a:1","<&>\"\\\n\u0001","خصم` + "\u2028" + `"],"patterns":["b\\*:*"]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	back, err := DecodeMessage([]byte(got[1:]))
	m.At = m.At.UTC()
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("decoded %+v, %v", back, err)
	}
}

// The unlink time stands behind the patterns, and only if it is known.
func TestMessageUnlinked(t *testing.T) {
	t.Parallel()
	m := Message{Epoch: "e", At: time.Unix(0, 0).UTC(), Keys: []string{"a"}, Unlinked: 1772366400000001}
	got := string(m.Append(nil, FormatEvent))
	want := `{"v":1,"epoch":"e","seq":0,"at":"1970-01-01T00:00:00.000000Z","keys":["a"],"patterns":[],"u":1772366400000001}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if back, err := DecodeMessage([]byte(got)); err != nil || back.Unlinked != m.Unlinked {
		t.Errorf("decoded %+v, %v", back, err)
	}
	if got := string(m.Append(nil, FormatArray)); got != `["a"]` {
		t.Errorf("array: %s", got)
	}
}

// Recorded messages of the previous version keep their meaning. A message without the new fields
// has the same bytes.
func TestMessagesOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(src)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		n++
		m, err := DecodeMessage([]byte(line))
		if err != nil || m.Seq != uint64(n) || m.Unlinked != 0 {
			t.Errorf("%s: %+v, %v", line, m, err)
		}
		if got := string(m.Append(nil, FormatEvent)); got != line {
			t.Errorf("got  %s\nwant %s", got, line)
		}
	}
	if n == 0 {
		t.Error("no message")
	}
}

// A heartbeat has no keys, and still both arrays.
func TestMessageEmpty(t *testing.T) {
	t.Parallel()
	m := Message{Epoch: "e", At: time.Unix(0, 0)}
	if got, want := string(m.Append(nil, FormatEvent)), `{"v":1,"epoch":"e","seq":0,"at":"1970-01-01T00:00:00.000000Z","keys":[],"patterns":[]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := string(m.Append(nil, FormatArray)); got != "[]" {
		t.Errorf("got %s, want []", got)
	}
}

func TestMessageArray(t *testing.T) {
	t.Parallel()
	m := Message{Keys: []string{"a:1", `b\c`, "coupon:*"}, Patterns: []string{"l:*", `c\*\\x\?:\[a]:*`, `\é*`}}
	got := string(m.Append(nil, FormatArray))
	want := `["a:1","b\\c","coupon:*","l:*","c??x?:?a]:*","??*"]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	back, err := DecodeMessage([]byte(got))
	wantBack := Message{Keys: []string{"a:1", `b\c`}, Patterns: []string{"coupon:*", "l:*", "c??x?:?a]:*", "??*"}}
	if err != nil || !reflect.DeepEqual(back, wantBack) {
		t.Errorf("decoded %+v, %v", back, err)
	}
}

// To an old client a pattern is told as one that matches at least as much.
func TestMessageArrayMatchesMore(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"*", "a?b", `\`, "[x]", `*?[\`, "é"} {
		pattern := Escape(value) + ":*"
		m, err := DecodeMessage(Message{Patterns: []string{pattern}}.Append(nil, FormatArray))
		if err != nil || len(m.Patterns) != 1 {
			t.Fatalf("%q: %+v, %v", pattern, m, err)
		}
		g, err := CompileGlob(m.Patterns[0])
		if err != nil || !g.Match(value+":x") {
			t.Errorf("%q is told as %q, which does not match %q: %v", pattern, m.Patterns[0], value+":x", err)
		}
	}
}

// Clients of the array format know only * and ?: anything else in their patterns is literal.
func TestDecodeArrayIsLiteral(t *testing.T) {
	t.Parallel()
	m, err := DecodeMessage([]byte(` ["a[1]\\*"]`))
	if err != nil || len(m.Patterns) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	g, err := CompileGlob(m.Patterns[0])
	if err != nil || !g.Match(`a[1]\x`) || g.Match("a1x") {
		t.Errorf("pattern %q: %v", m.Patterns[0], err)
	}
}

func TestMessageInvalidUTF8(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"a\xffb": `["a�b"]`, "\xff\xfe": `["��"]`, "\xed\xa0\x80": `["���"]`, "é\xc3": `["é�"]`, "\ufffd": `["�"]`,
	} {
		if got := string(Message{Keys: []string{s}}.Append(nil, FormatArray)); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		``:                            "decode message: unexpected end of JSON input",
		`{}`:                          `decode message: the field "v" is missing`,
		`{"v":2,"keys":[]}`:           "decode message: version 2 is not known",
		`{"v":"1"}`:                   "decode message: json: cannot unmarshal string into Go struct field wireEvent.v of type int64",
		`[1]`:                         "decode message: json: cannot unmarshal number into Go value of type string",
		`["a"`:                        "decode message: unexpected end of JSON input",
		`{"v":1,"at":"yesterday"}`:    `decode message: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`,
		`"zahraah:prod:product:1"`:    "decode message: json: cannot unmarshal string into Go value of type protocol.wireEvent",
		`{"v":1,"seq":-1}`:            "decode message: json: cannot unmarshal number -1 into Go struct field wireEvent.seq of type uint64",
		`{"v":1,"keys":["a"],"x":1}x`: "decode message: invalid character 'x' after top-level value",
	} {
		if m, err := DecodeMessage([]byte(src)); err == nil || err.Error() != want {
			t.Errorf("%s: got %+v, %v, want %s", src, m, err, want)
		}
	}
	m, err := DecodeMessage([]byte(`{"v":1,"keys":["a"],"later":{"x":[1]}}`))
	if err != nil || !reflect.DeepEqual(m.Keys, []string{"a"}) {
		t.Errorf("an unknown field: %+v, %v", m, err)
	}
}

// Append writes valid JSON that decodes to the same message, and decoded patterns compile.
func FuzzDecodeMessage(f *testing.F) {
	for _, s := range []string{
		`[]`, `["a","b*"]`, `["a\\*[x"]`, `{"v":1,"epoch":"e","seq":7,"at":"2025-01-01T00:00:00Z","keys":["a"],"patterns":["b*"]}`, `{"v":2}`, `["\u0000\ud800"]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		checkAppend(t, string(src))
		m, err := DecodeMessage(src)
		if err != nil {
			return
		}
		for _, format := range []Format{FormatEvent, FormatArray} {
			text := m.Append(nil, format)
			if !json.Valid(text) || !utf8.Valid(text) {
				t.Fatalf("%q is not JSON", text)
			}
			back, err := DecodeMessage(text)
			if err != nil && m.At.Year() >= 0 && m.At.Year() <= 9999 {
				t.Fatalf("%q: %v", text, err)
			}
			if err == nil && len(back.Keys)+len(back.Patterns) != len(m.Keys)+len(m.Patterns) {
				t.Fatalf("%q: %+v became %+v", text, m, back)
			}
		}
	})
}

// checkAppend checks that any text is preserved exactly, except invalid UTF-8.
func checkAppend(t *testing.T, text string) {
	t.Helper()
	m, err := DecodeMessage(Message{Keys: []string{text}}.Append(nil, FormatEvent))
	var b strings.Builder
	for _, r := range text { // a byte that is not UTF-8 is U+FFFD here too
		b.WriteRune(r)
	}
	if err != nil || len(m.Keys) != 1 || m.Keys[0] != b.String() {
		t.Fatalf("%q became %q, %v", text, m.Keys, err)
	}
}
