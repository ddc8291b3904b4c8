package protocol

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Format is the encoding of published messages.
type Format string

const (
	// FormatEvent is an object:
	// {"v":1,"epoch":...,"seq":...,"at":...,"keys":[...],"patterns":[...]}.
	FormatEvent Format = "event"
	// FormatArray is a bare list of keys and patterns, for the oldest clients.
	FormatArray Format = "array"
)

// MaxEntries is the largest number of keys and patterns in one message.
const MaxEntries = 1000

// messageVersion is the only "v" that DecodeMessage knows.
const messageVersion = 1

// timeLayout is RFC 3339 with microseconds, always six digits.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// A Message is published after the keys were unlinked. It may arrive twice.
type Message struct {
	// Epoch identifies one run of one publisher. Seq increases by one with each of its messages.
	// The epochs of several workers interleave, so track Seq per Epoch. After a gap, a reconnect or
	// an error of DecodeMessage a reader no longer knows which values are stale: it clears its
	// local cache. Both are zero in the array format, which cannot show a gap.
	Epoch string
	Seq   uint64
	// At is when the message was made, in UTC with microseconds.
	At time.Time
	// Keys are exact keys, Patterns are globs as CompileGlob reads them.
	Keys, Patterns []string
	// Unlinked is a time before the first of Keys was unlinked, by the clock of Redis, in
	// microseconds since 1970. Zero: unknown, as always in the array format.
	Unlinked uint64
	// Beat makes the message a heartbeat too; nil for none. The array format has no room for it.
	Beat *Beat
	// Sent is when a signed message was made, by the clock of Redis, in microseconds since 1970.
	// Zero: unknown, as in messages without a MAC and in the array format.
	Sent uint64
}

// Append appends the JSON of m in format f. Valid UTF-8 is preserved exactly; a byte that is not
// part of valid UTF-8 becomes U+FFFD. The array format has no epoch, sequence or time, and its old
// clients do not support escapes: there an escaped character of a pattern becomes ?, which matches
// too much rather than too little.
func (m Message) Append(dst []byte, f Format) []byte {
	if f == FormatArray {
		dst = append(dst, '[')
		dst = appendStrings(dst, m.Keys, appendJSON)
		dst = appendStrings(dst, m.Patterns, appendPlainPattern)
		return append(dst, ']')
	}
	dst = append(dst, `{"v":1,"epoch":`...)
	dst = appendJSON(dst, m.Epoch)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, m.Seq, 10)
	dst = append(dst, `,"at":"`...)
	dst = m.At.UTC().AppendFormat(dst, timeLayout)
	dst = append(dst, `","keys":[`...)
	dst = appendStrings(dst, m.Keys, appendJSON)
	dst = append(dst, `],"patterns":[`...)
	dst = appendStrings(dst, m.Patterns, appendJSON)
	dst = append(dst, ']')
	if m.Unlinked > 0 {
		dst = strconv.AppendUint(append(dst, `,"u":`...), m.Unlinked, 10)
	}
	if m.Beat != nil {
		beat, _ := json.Marshal(m.Beat) // text and numbers: it cannot fail
		dst = append(append(dst, `,"hb":`...), beat...)
	}
	if m.Sent > 0 {
		dst = strconv.AppendUint(append(dst, `,"t":`...), m.Sent, 10)
	}
	return append(dst, '}')
}

// appendStrings appends the entries of a list behind its opening bracket or behind other entries.
func appendStrings(dst []byte, list []string, appendOne func([]byte, string) []byte) []byte {
	for _, s := range list {
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		dst = appendOne(dst, s)
	}
	return dst
}

// appendPlainPattern appends a pattern for clients that do not support escapes.
func appendPlainPattern(dst []byte, pattern string) []byte {
	if !strings.Contains(pattern, `\`) {
		return appendJSON(dst, pattern)
	}
	plain := make([]byte, 0, len(pattern))
	for i := 0; i < len(pattern); {
		_, size := utf8.DecodeRuneInString(pattern[i:])
		if pattern[i] == '\\' && i+1 < len(pattern) {
			// One ? for each byte: a ? of Redis is a byte.
			_, size = utf8.DecodeRuneInString(pattern[i+1:])
			plain = append(plain, strings.Repeat("?", size)...)
			i += 1 + size
			continue
		}
		plain = append(plain, pattern[i:i+size]...)
		i += size
	}
	return appendJSON(dst, string(plain))
}

const hexDigits = "0123456789abcdef"

// appendJSON appends s as a JSON string. It escapes only what JSON requires.
func appendJSON(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		i++
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i-1]...)
		start = i
		dst = appendEscapedByte(dst, c)
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscapedByte(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// wireEvent is the event format. Pointers tell an absent field.
type wireEvent struct {
	V        *int64    `json:"v"`
	Epoch    string    `json:"epoch"`
	Seq      uint64    `json:"seq"`
	At       time.Time `json:"at"`
	Keys     []string  `json:"keys"`
	Patterns []string  `json:"patterns"`
	Unlinked uint64    `json:"u"`
	Beat     *Beat     `json:"hb"`
	Sent     uint64    `json:"t"`
}

var errMessageVersion = errors.New(`the field "v" is missing`)

// DecodeMessage reads a message of either format. An event of another version is refused; its
// unknown fields are ignored. In an array an entry with * or ? is a pattern whose other characters
// are literal, any other entry a key.
func DecodeMessage(b []byte) (Message, error) {
	b = bytes.TrimLeft(b, " \t\r\n")
	if len(b) > 0 && b[0] == '[' {
		return decodeArray(b)
	}
	var w wireEvent
	if err := json.Unmarshal(b, &w); err != nil {
		return Message{}, fmt.Errorf("decode message: %w", err)
	}
	if w.V == nil {
		return Message{}, fmt.Errorf("decode message: %w", errMessageVersion)
	}
	if *w.V != messageVersion {
		return Message{}, fmt.Errorf("decode message: version %d is not known", *w.V)
	}
	return Message{Epoch: w.Epoch, Seq: w.Seq, At: w.At.UTC(), Keys: w.Keys, Patterns: w.Patterns, Unlinked: w.Unlinked, Beat: w.Beat, Sent: w.Sent}, nil
}

func decodeArray(b []byte) (Message, error) {
	var entries []string
	if err := json.Unmarshal(b, &entries); err != nil {
		return Message{}, fmt.Errorf("decode message: %w", err)
	}
	var m Message
	for _, entry := range entries {
		if strings.ContainsAny(entry, "*?") {
			m.Patterns = append(m.Patterns, literalEscapes.Replace(entry))
		} else {
			m.Keys = append(m.Keys, entry)
		}
	}
	return m, nil
}

// literalEscapes converts a pattern of a client without escapes to the pattern syntax of this
// package.
var literalEscapes = strings.NewReplacer(`\`, `\\`, `[`, `\[`)

// LeastMessageKey is the least number of bytes of a [MessageKey].
const LeastMessageKey = 16

// A MessageKey is a secret that workers and readers share. Workers sign messages with it, so
// readers can ignore messages of other publishers. It is not the ID of the outbox, which web
// clients may see in tokens. Every verb of package fmt and every encoding as text print a
// placeholder instead of it.
type MessageKey []byte

const hiddenKey = "(secret)"

// Format prints a placeholder.
func (MessageKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hiddenKey) }

// MarshalText returns a placeholder.
func (MessageKey) MarshalText() ([]byte, error) { return []byte(hiddenKey), nil }

// Validate returns an error if the key is too short.
func (k MessageKey) Validate() error {
	if len(k) < LeastMessageKey {
		return fmt.Errorf("a message key has %d bytes: it must have %d or more; openssl rand -base64 32 makes one", len(k), LeastMessageKey)
	}
	return nil
}

// Errors of [VerifyMessage].
var (
	ErrNoMAC  = errors.New("the message has no MAC")
	ErrBadMAC = errors.New("the MAC of the message is of no known key")
)

// A signed message ends in macField, the MAC and macEnd. The MAC is over all bytes before macField.
const (
	macField = `,"mac":"`
	macEnd   = `"}`
)

var macEncoding = base64.RawURLEncoding

// AppendSigned appends the JSON of m in the event format, with its MAC for channel as the last
// field. Set m.Sent: readers refuse old messages.
func (m Message) AppendSigned(dst []byte, channel string, key MessageKey) []byte {
	start := len(dst)
	dst = m.Append(dst, FormatEvent)
	dst = dst[:len(dst)-1] // the MAC goes before the closing brace
	mac := key.mac(channel, dst[start:])
	return append(append(append(dst, macField...), mac...), macEnd...)
}

// mac returns HMAC-SHA256 of the channel, a zero byte and the signed part of a message, as
// base64url without padding.
func (k MessageKey) mac(channel string, signed []byte) []byte {
	h := hmac.New(sha256.New, k)
	_, _ = io.WriteString(h, channel+"\x00")
	_, _ = h.Write(signed)
	return macEncoding.AppendEncode(nil, h.Sum(nil))
}

// VerifyMessage returns nil if one of keys has signed text for channel, and else ErrNoMAC or
// ErrBadMAC. It does not check the age of the message: see [Message.Sent].
func VerifyMessage(text []byte, channel string, keys ...MessageKey) error {
	end := len(text) - len(macEnd)
	from := end - macEncoding.EncodedLen(sha256.Size)
	signed := from - len(macField)
	if signed < 0 || string(text[signed:from]) != macField || !bytes.HasSuffix(text, []byte(macEnd)) {
		return ErrNoMAC
	}
	for _, key := range keys {
		if hmac.Equal(key.mac(channel, text[:signed]), text[from:end]) {
			return nil
		}
	}
	return ErrBadMAC
}
