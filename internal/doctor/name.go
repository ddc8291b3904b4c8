package doctor

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A KeyName is the name of a key or of a family, as any bytes. In JSON it is a string. If it is not
// UTF-8, which a string cannot represent, it is an object such as {"base64": "/w=="}.
type KeyName string

// MarshalJSON implements json.Marshaler.
func (n KeyName) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(n)) {
		return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(n))})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(string(n))
	return b.Bytes(), err
}

// quotedName returns a name in quotes, on one line, and truncated if it is long. Names are untrusted
// data.
func quotedName(n KeyName) string {
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
