package review

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Name is that of a key or of a family, any bytes. In JSON it is a string, or, where it is not UTF-8, which a string
// would not keep, an object such as {"base64": "/w=="}.
type Name string

// MarshalJSON implements json.Marshaler.
func (n Name) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(n)) {
		return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(n))})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(string(n))
	return b.Bytes(), err
}

// quoted shows a name, which is data, on one line and not all of a long one.
func quoted(n Name) string {
	const most = 100
	if len(n) <= most {
		return strconv.Quote(string(n))
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(n[cut]) {
		cut--
	}
	return fmt.Sprintf("%q... (%d bytes)", n[:cut], len(n))
}

// printable escapes what a terminal would not show but obey.
func printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}
