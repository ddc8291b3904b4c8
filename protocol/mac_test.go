package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

var macKey = MessageKey("0123456789abcdef0123456789abcdef")

// docs/protocol.md has the same message.
const signedMessage = `{"v":1,"epoch":"7QX2","seq":7,"at":"2026-03-01T12:00:00.000000Z","keys":["zahraah:prod:product:42"],"patterns":[],"t":1772366400000001,"mac":"L2pvAwYnrO3rzXQrvpdztUjhQO4aE0mMDSXwpMMLAks"}`

func signed() (Message, []byte) {
	m := Message{Epoch: "7QX2", Seq: 7, At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Keys: []string{"zahraah:prod:product:42"}, Sent: 1772366400000001}
	return m, m.AppendSigned(nil, "cache:invalidate", macKey)
}

func TestSignedMessage(t *testing.T) {
	t.Parallel()
	m, text := signed()
	if string(text) != signedMessage {
		t.Errorf("got  %s\nwant %s", text, signedMessage)
	}
	m.Patterns = []string{}
	if back, err := DecodeMessage(text); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("decoded %+v, %v", back, err)
	}
	if got := m.AppendSigned([]byte("x"), "cache:invalidate", macKey); string(got) != "x"+signedMessage {
		t.Errorf("behind other bytes: %s", got)
	}
	other := MessageKey("another key of some length")
	for _, keys := range [][]MessageKey{{macKey}, {other, macKey}, {macKey, other}} {
		if err := VerifyMessage(text, "cache:invalidate", keys...); err != nil {
			t.Errorf("%d keys: %v", len(keys), err)
		}
	}
	if err := VerifyMessage(text, "other", macKey); !errors.Is(err, ErrBadMAC) {
		t.Errorf("on another channel: %v", err)
	}
	if err := VerifyMessage(text, "cache:invalidate", other); !errors.Is(err, ErrBadMAC) {
		t.Errorf("with another key: %v", err)
	}
	if err := VerifyMessage(text, "cache:invalidate"); !errors.Is(err, ErrBadMAC) {
		t.Errorf("without a key: %v", err)
	}
}

// No other text has the MAC: not a shorter one, a longer one, or one with a changed byte.
func TestSignedMessageChanged(t *testing.T) {
	t.Parallel()
	_, text := signed()
	refused := func(what string, text []byte) {
		t.Helper()
		if err := VerifyMessage(text, "cache:invalidate", macKey); !errors.Is(err, ErrNoMAC) && !errors.Is(err, ErrBadMAC) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range text {
		refused("a prefix", text[:i])
		refused("a suffix", text[i+1:])
		changed := bytes.Clone(text)
		changed[i] ^= 1
		refused("a changed byte", changed)
	}
	refused("a byte before it", append([]byte(" "), text...))
	refused("a byte after it", append(bytes.Clone(text), ' '))
	refused("a field more", append(append(bytes.Clone(text[:len(text)-1]), `,"seq":9`...), '}'))
	m, _ := signed()
	refused("no MAC", m.Append(nil, FormatEvent))
	refused("an array", m.Append(nil, FormatArray))
}

func TestMessageKeyIsHidden(t *testing.T) {
	t.Parallel()
	config := struct{ Key MessageKey }{macKey}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %s %x %d %q %s", config, config, config, config.Key, config.Key, config.Key, []MessageKey{macKey}, text)
	for _, secret := range []string{string(macKey), "48 49", "30313233", "0x30"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s shows in %s", secret, all)
		}
	}
	const want = "a message key has 15 bytes: it must have 16 or more; openssl rand -base64 32 makes one"
	if err := macKey[:15].Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := macKey[:16].Validate(); err != nil {
		t.Error(err)
	}
}

// Only signed messages verify, for any text.
func FuzzVerifyMessage(f *testing.F) {
	_, text := signed()
	f.Add(text)
	f.Add([]byte(`,"mac":""}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		err := VerifyMessage(src, "cache:invalidate", macKey)
		if err != nil {
			return
		}
		i := bytes.LastIndex(src, []byte(macField))
		if want := string(macKey.mac("cache:invalidate", src[:i])); string(src[i+len(macField):]) != want+macEnd {
			t.Errorf("accepted %q", src)
		}
	})
}

// The cost of a signature, compared with that of encoding and decoding.
func BenchmarkSignedMessage(b *testing.B) {
	for _, n := range []int{0, 10, MaxEntries} {
		m := Message{Epoch: "0123456789abcdef", Seq: 7, Sent: 1772366400000001}
		for i := range n {
			m.Keys = append(m.Keys, fmt.Sprintf("zahraah:prod:product:%05d", i))
		}
		text := m.AppendSigned(nil, "c", macKey)
		var buf []byte
		for name, f := range map[string]func(){
			"encode": func() { buf = m.Append(buf[:0], FormatEvent) },
			"sign":   func() { buf = m.AppendSigned(buf[:0], "c", macKey) },
			"verify": func() { _ = VerifyMessage(text, "c", macKey) },
			"decode": func() { _, _ = DecodeMessage(text) },
		} {
			b.Run(fmt.Sprintf("%s-%d", name, n), func(b *testing.B) {
				for b.Loop() {
					f()
				}
			})
		}
	}
}
