package protocol

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
)

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
