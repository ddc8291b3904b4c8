package cache

import (
	"encoding/json"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
)

var update = flag.Bool("update", false, "write what the tests would compare with")

// A fixedTime is the time of Redis, in milliseconds.
type fixedTime int64

func (f fixedTime) Now() time.Time { return time.UnixMilli(int64(f)) }

// An opaqueCodec hands out the bytes that it is given.
type opaqueCodec string

func (c opaqueCodec) Name() string                { return string(c) }
func (opaqueCodec) Marshal(v any) ([]byte, error) { return v.(json.RawMessage), nil }
func (opaqueCodec) Unmarshal(data []byte, v any) error {
	*v.(*json.RawMessage) = slices.Clone(data)
	return nil
}

// How a reader reads entries at a time.
func TestConformanceEntries(t *testing.T) {
	t.Parallel()
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason   string            `json:"reason"`
			Entry    testenv.Bytes     `json:"entry"`
			Shown    string            `json:"first_line"`
			At       int64             `json:"at"`
			Codec    string            `json:"codec,omitempty"`
			Tags     []string          `json:"tags,omitempty"`
			Versions map[string]string `json:"versions,omitempty"`
			Read     string            `json:"read"`
			Value    *testenv.Bytes    `json:"value,omitempty"`
			NotFound bool              `json:"not_found,omitempty"`
			Extend   int64             `json:"getex_ms,omitempty"`
			Hash     string            `json:"hash"`
		} `json:"cases"`
	}
	states := map[state]string{fresh: "fresh", stale: "stale", onError: "on_error", absent: "miss", foreign: "leave"}
	testenv.Conformance(t, "../protocol/conformance/entries.json", *update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			codec := JSON
			if c.Codec != "" {
				codec = opaqueCodec(c.Codec)
			}
			reader, err := New(Config{Codec: codec})
			testenv.Must(t, err)
			reader.redis.clock.keeper = fixedTime(c.At)
			r, err := newRequest[json.RawMessage](reader, "k", For(time.Hour).Tagged(c.Tags...), 0)
			testenv.Must(t, err)
			versions := map[string]string{}
			if e, _, err := parseEntry([]byte(c.Entry.Text), codec, r.decode); err == nil {
				for tag := range e.Tags {
					versions[tag] = c.Versions[tag]
				}
			}
			found, err := r.judge(t.Context(), []byte(c.Entry.Text), versions)
			testenv.Must(t, err)
			first, _, _ := strings.Cut(c.Entry.Text, "\n")
			c.Shown, c.Read, c.Value, c.Extend = strings.ToValidUTF8(first, "?"), states[found.state], nil, 0
			usable := found.state > foreign
			c.NotFound, c.Hash = usable && found.entry.Negative != 0, found.useless()
			if usable && !c.NotFound {
				c.Value = testenv.BytesOf(string(found.value.(json.RawMessage)), true)
			}
			if r.slides(&found) {
				c.Extend = max(min(found.entry.Idle, found.entry.Expiry-c.At), 1)
			}
			testenv.Must(t, reader.Close())
		}
	})
}

// When an in-process cache is open, and which events empty it.
func TestConformanceHeartbeats(t *testing.T) {
	t.Parallel()
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason  string   `json:"reason"`
			Sources []string `json:"sources"`
			Steps   []struct {
				At      int64  `json:"at"`
				Event   string `json:"event"`
				Sent    int64  `json:"sent,omitempty"`
				Message string `json:"message,omitempty"`
				Empties bool   `json:"empties"`
				Open    bool   `json:"open"`
			} `json:"steps"`
		} `json:"cases"`
	}
	testenv.Conformance(t, "../protocol/conformance/heartbeats.json", *update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			h, opened := newHearing(Memory{Period: time.Second, Sources: c.Sources}), false
			for j := range c.Steps {
				s := &c.Steps[j]
				now := time.UnixMilli(s.At)
				var v verdict
				switch s.Event {
				case "subscribed":
					v = h.subscribe(now)
				case "lost":
					v = h.lose(now, errors.New("lost"))
				case "pong":
					v = h.answer(time.UnixMilli(s.Sent), now)
				case "time":
					v = h.tick(now)
				case "unreadable":
					v = h.misread(now, errCorrupt)
				default:
					m, err := protocol.DecodeMessage([]byte(s.Message))
					if err != nil {
						t.Fatalf("%s: %v", s.Message, err)
					}
					v = h.message(m, now)
				}
				s.Empties, s.Open = v.empty || opened && !v.open, v.open
				opened = v.open
			}
		}
	})
}

// The numbers of the protocol.
func TestConformanceLimits(t *testing.T) {
	t.Parallel()
	defaults := Config{}.WithDefaults()
	seconds := func(d time.Duration) any { return d.Seconds() }
	_, _, weight := protocol.PopularAt("", time.Hour.Milliseconds())
	values := map[string]any{
		"row.entity": outbox.MaxEntity, "row.id": outbox.MaxID, "row.trace": outbox.MaxTrace, "row.params": outbox.MaxParams,
		"message.entries": protocol.MaxEntries, "message.key": protocol.LeastMessageKey, "message.keys": maxMessageKeys,
		"token.text": outbox.MaxTokenText, "token.rows": outbox.MaxTokenRows, "token.lifetime": seconds(outbox.TokenLifetime),
		"entry.unpacked": mostUnpacked, "entry.ttl": seconds(longestTTL), "entry.jitter": defaults.Jitter, "entry.negative_ttl": seconds(negativeTTL),
		"entry.pause_after_failure": seconds(defaults.LoadPause), "version.margin": seconds(stampMargin),
		"lease.ttl": seconds(defaults.Lease), "lease.first_pause": seconds(firstPause), "lease.longest_pause": seconds(longestPause), "lease.holders": mostRounds,
		"heartbeat.period": seconds(defaults.Memory.Period), "heartbeat.silent_periods": silentPeriods, "heartbeat.message_waits": seconds(longestWait),
		"alive.age": float64(protocol.AliveLife) / 1e6, "unlink.margin": seconds(unlinkMargin), "clock.compare_after": seconds(clockLife), "clock.step": seconds(stepSize),
		"report.process": protocol.MaxProcess, "report.stream": protocol.MaxReports,
		"shadow.key": protocol.MaxShadowKey, "shadow.tags": protocol.MaxShadowTags, "shadow.stream": protocol.MaxShadows,
		"popular.key": protocol.MaxPopularKey, "popular.keys": protocol.MostPopular, "popular.ttl": seconds(protocol.PopularLife), "popular.weight_per_hour": weight,
		"slots": protocol.SlotCount,
	}
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Name   string          `json:"name"`
			Value  json.RawMessage `json:"value"`
			Unit   string          `json:"unit"`
			Reason string          `json:"reason"`
		} `json:"cases"`
	}
	testenv.Conformance(t, "../protocol/conformance/limits.json", *update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			value, known := values[c.Name]
			if !known {
				t.Errorf("%s is no limit", c.Name)
			}
			c.Value, _ = json.Marshal(value)
			delete(values, c.Name)
		}
	})
	for name := range values {
		t.Errorf("%s is missing", name)
	}
}
