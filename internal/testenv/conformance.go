package testenv

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// Conformance reads a file of protocol/conformance as F, lets fill compute the results of its cases,
// and compares the file with what comes out. With update it writes that instead.
func Conformance[F any](t testing.TB, path string, update bool, fill func(file *F)) {
	t.Helper()
	var file F
	before, err := os.ReadFile(path)
	Must(t, err)
	decoder := json.NewDecoder(bytes.NewReader(before))
	decoder.DisallowUnknownFields()
	Must(t, decoder.Decode(&file))
	fill(&file)
	var after bytes.Buffer
	encoder := json.NewEncoder(&after)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	Must(t, encoder.Encode(file))
	if bytes.Equal(before, after.Bytes()) {
		return
	}
	if update {
		Must(t, os.WriteFile(path, after.Bytes(), 0o644))
		return
	}
	was, is := strings.Split(string(before), "\n"), strings.Split(after.String(), "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			t.Fatalf("%s:%d has\n%s\ninstead of\n%s\n-update writes it: read the diff, because each client follows these files", filepath.Base(path), i+1, was[i], is[i])
		}
	}
	t.Fatalf("%s has %d lines instead of %d: -update writes it", filepath.Base(path), len(was), len(is))
}

// Bytes are bytes in a file of protocol/conformance: a string if they are UTF-8, else an object with
// their base64. Long ones can have the form {"repeat": TEXT, "times": N}.
type Bytes struct {
	Text string
	form json.RawMessage // as it was read
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	var form struct {
		Base64 []byte
		Repeat string
		Times  int
	}
	if text[0] == '"' {
		return json.Unmarshal(text, &b.Text)
	}
	err := json.Unmarshal(text, &form)
	b.Text, b.form = string(form.Base64)+strings.Repeat(form.Repeat, form.Times), bytes.Clone(text)
	return err
}

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	switch {
	case b.form != nil:
		return b.form, nil
	case utf8.ValidString(b.Text):
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(b.Text)
		return bytes.TrimSpace(text.Bytes()), err
	}
	return []byte(`{"base64":"` + base64.StdEncoding.EncodeToString([]byte(b.Text)) + `"}`), nil
}

// BytesOf returns text as Bytes, or nil if it is not there.
func BytesOf(text string, there bool) *Bytes {
	if !there {
		return nil
	}
	return &Bytes{Text: text}
}
