package outbox_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
)

// head is a token's text up to its rows.
const head = "1.0123456789abcdef0123456789abcdef.t6z3k1."

// A text from a browser is accepted in one form, and otherwise refused with a reason.
func TestParseToken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                          "",
		head + "7":                  head + "7",
		head + "9_7":                head + "7_9",
		head + "7_8_9-3":            head + "7-5",
		head + "7-3_8":              head + "7-3",
		head + "7-3-3_g-2-3":        head + "7-5-3",
		head + "7-3-3_8":            head + "7-3-3_8",
		head + "1y2p0ij32e8e7-rs-5": head + "1y2p0ij32e8e7-rs-5",
		head + "~":                  head + "~",
	} {
		if token, err := outbox.ParseToken(text); err != nil || token.String() != want {
			t.Errorf("%s: %s, %v; wanted %s", text, token, err, want)
		}
	}
	for text, want := range map[string]string{
		strings.Repeat("1", outbox.MaxTokenText+1): "parse token: 1025 bytes are more than 1024",
		"2.x":                                    `parse token: the version is "2", wanted "1"`,
		"1.x":                                    "parse token: 2 parts with dots between them, wanted 4",
		"1.0123456789ABCDEF0123456789abcdef.0.1": `parse token: the source is "0123456789ABCDEF0123456789abcdef", wanted 32 hex digits`,
		"1.0123456789abcdef0123456789abcdef.-1.1":        `parse token: the time is "-1", wanted seconds since 1970 in base 36`,
		"1.0123456789abcdef0123456789abcdef.zzzzzzzzz.1": `parse token: the time is "zzzzzzzzz", wanted seconds since 1970 in base 36`,
		head:                                  `parse token: the rows "": "" is not a number from 1 on in base 36`,
		head + "0":                            `parse token: the rows "0": "0" is not a number from 1 on in base 36`,
		head + "01":                           `parse token: the rows "01": "01" is not a number from 1 on in base 36`,
		head + "A":                            `parse token: the rows "A": "A" is not a number from 1 on in base 36`,
		head + "1'--":                         `parse token: the rows "1'--": "1'" is not a number from 1 on in base 36`,
		head + "1-1-1-1":                      `parse token: the rows "1-1-1-1": too many numbers`,
		head + "1' OR 1":                      `parse token: the rows "1' OR 1": "1' OR 1" is not a number from 1 on in base 36`,
		head + "1-rt":                         `parse token: the rows "1-rt": 1001 rows are more than 1000`,
		head + "1-2-1ekg":                     `parse token: the rows "1-2-1ekg": the step 65536 is more than 65535`,
		head + "1y2p0ij32e8e8":                `parse token: the rows "1y2p0ij32e8e8": the id 9223372036854775808 is more than 9223372036854775807`,
		head + "1-p0_rs-p0":                   "parse token: it names more than 1000 rows, or rows in more than 40 runs",
		head + strings.Repeat("1_", 40) + "3": "parse token: it names rows in more than 40 runs",
	} {
		if token, err := outbox.ParseToken(text); err == nil || err.Error() != want || !token.IsZero() {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// An accepted text survives a round trip, is not long, and needs no quoting. Joined with itself it
// does not change.
func FuzzParseToken(f *testing.F) {
	for _, text := range []string{"", head + "7", head + "9_7-3-3_zz-rs", head + "~", head, "1.x.y.z", head + "7-3-3_7-5_7-3-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := outbox.ParseToken(text)
		if err != nil {
			if !token.IsZero() {
				t.Errorf("a token beside the error %v", err)
			}
			return
		}
		written := token.String()
		if len(written) > outbox.MaxTokenText || strings.Trim(written, "0123456789abcdefghijklmnopqrstuvwxyz._-~") != "" {
			t.Errorf("the text is %q", written)
		}
		again, err := outbox.ParseToken(written)
		if err != nil || again.String() != written {
			t.Errorf("%q is read as %q, %v", written, again, err)
		}
		if joined, err := token.Join(again); err != nil || joined.String() != written {
			t.Errorf("%q joined with itself is %q, %v", written, joined, err)
		}
	})
}

// Join combines the writes of one browser, without expired ones.
func TestJoin(t *testing.T) {
	t.Parallel()
	at := func(made, rows string) string { return "1.0123456789abcdef0123456789abcdef." + made + "." + rows }
	for _, c := range [][3]string{
		{at("10", "1"), "", at("10", "1")},
		{at("10", "5"), at("11", "2-2"), at("11", "2-2_5")},
		{at("10", "5"), at("11", "6-2"), at("11", "5-3")},
		{at("10", "5"), at("9d", "6"), at("9d", "6")},   // 301 s later
		{at("10", "5"), at("9c", "6"), at("9c", "5-2")}, // 300 s later
		{at("10", "5"), at("11", "~"), at("11", "~")},
		{at("10", "1-p0"), at("11", "rs-p0"), at("11", "~")},
	} {
		a, err := outbox.ParseToken(c[0])
		b, err2 := outbox.ParseToken(c[1])
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		for _, pair := range [][2]outbox.Token{{a, b}, {b, a}} {
			before := pair[0].String()
			if joined, err := pair[0].Join(pair[1]); err != nil || joined.String() != c[2] {
				t.Errorf("%s and %s: %s, %v; wanted %s", pair[0], pair[1], joined, err, c[2])
			}
			if after := pair[0].String(); after != before {
				t.Errorf("%s became %s", before, after)
			}
		}
	}
}
