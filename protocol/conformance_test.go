package protocol_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

var update = flag.Bool("update", false, "write what the tests would compare with")

// Redis decides which slot a name is in. Names of leases and tombstones are in the slot of their
// key, and no two keys share one.
func TestConformanceNames(t *testing.T) {
	t.Parallel()
	type bytes = testenv.Bytes
	node := testenv.OwnRedis(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(testenv.BusPort(t)), "--cluster-config-file", testenv.NodesFolder(t)+"/nodes.conf")
	client := testenv.Client(t, node.URL())
	slots := func(names ...string) []int {
		cmds, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for _, name := range names {
				p.ClusterKeySlot(t.Context(), name)
			}
			return nil
		})
		testenv.Must(t, err)
		list := make([]int, len(cmds))
		for i, cmd := range cmds {
			list[i] = int(cmd.(*redis.IntCmd).Val())
		}
		return list
	}
	owner := map[string]string{}
	named := func(key string) (lease, hold *bytes, slot int) {
		leaseName, ok := protocol.LeaseKey(key)
		holdName, also := protocol.HoldKey(key)
		in := slots(key, leaseName, holdName)
		if ok != also || ok && (in[1] != in[0] || in[2] != in[0]) || int(protocol.Slot(key)) != in[0] {
			t.Errorf("%q: lease %q, tombstone %q, slots %v, computed %d", key, leaseName, holdName, in, protocol.Slot(key))
		}
		if other, taken := owner[leaseName]; ok && taken && other != key {
			t.Errorf("%q and %q share a lease", key, other)
		}
		owner[leaseName] = key
		return testenv.BytesOf(leaseName, ok), testenv.BytesOf(holdName, ok), in[0]
	}
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason string `json:"reason"`
			Key    bytes  `json:"key"`
			Lease  *bytes `json:"lease"`
			Hold   *bytes `json:"hold"`
			Slot   int    `json:"slot"`
		} `json:"cases"`
		Tags []struct {
			Reason string `json:"reason"`
			Tag    bytes  `json:"tag"`
			Stamp  bytes  `json:"stamp"`
			Hold   *bytes `json:"hold"`
			Slot   int    `json:"slot"`
		} `json:"tags"`
		Words []struct {
			Reason   string `json:"reason"`
			Alphabet string `json:"alphabet"`
			Longest  int    `json:"longest"`
			Count    int    `json:"count"`
			Without  int    `json:"without"`
			SHA256   string `json:"sha256"`
		} `json:"words"`
	}
	testenv.Conformance(t, "conformance/names.json", *update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			c.Lease, c.Hold, c.Slot = named(c.Key.Text)
		}
		for i := range f.Tags {
			c := &f.Tags[i]
			c.Stamp.Text = protocol.StampKey(c.Tag.Text)
			_, c.Hold, c.Slot = named(c.Stamp.Text)
		}
		for i := range f.Words {
			w := &f.Words[i]
			words, lines := wordsOf(w.Alphabet, w.Longest), sha256.New()
			w.Count, w.Without = len(words), 0
			for chunk := range slices.Chunk(words, 500) {
				var leases []string
				for _, word := range chunk {
					lease, _ := protocol.LeaseKey(word)
					leases = append(leases, lease)
				}
				in := slots(slices.Concat(chunk, leases)...)
				for j, word := range chunk {
					if leases[j] == "" {
						w.Without++
					} else if in[len(chunk)+j] != in[j] || owner[leases[j]] != "" && owner[leases[j]] != word {
						t.Errorf("%q: the lease %q is in another slot or of %q", word, leases[j], owner[leases[j]])
					}
					owner[leases[j]] = word
					_, _ = fmt.Fprintf(lines, "%s\t%s\t%d\n", word, leases[j], in[j])
				}
			}
			w.SHA256 = hex.EncodeToString(lines.Sum(nil))
		}
	})
}

// wordsOf returns all words of the letters of an alphabet, the shortest first.
func wordsOf(alphabet string, longest int) (all []string) {
	last := []string{""}
	for range longest {
		var next []string
		for _, word := range last {
			for _, letter := range alphabet {
				next = append(next, word+string(letter))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}

// Redis decides what a glob matches.
func TestConformanceGlobs(t *testing.T) {
	t.Parallel()
	type bytes = testenv.Bytes
	type file struct {
		About string  `json:"about"`
		Keys  []bytes `json:"keys"`
		Cases []struct {
			Reason  string  `json:"reason"`
			Pattern bytes   `json:"pattern"`
			Refused bool    `json:"refused,omitempty"`
			Matches []bytes `json:"matches"`
		} `json:"cases"`
	}
	client := testenv.Redis(t).Client
	testenv.Conformance(t, "conformance/globs.json", *update, func(f *file) {
		for _, key := range f.Keys {
			testenv.Must(t, client.Set(t.Context(), key.Text, "", 0).Err())
		}
		for i := range f.Cases {
			c := &f.Cases[i]
			glob, err := protocol.CompileGlob(c.Pattern.Text)
			if c.Refused, c.Matches = err != nil, []bytes{}; c.Refused {
				continue
			}
			found, err := client.Keys(t.Context(), c.Pattern.Text).Result()
			testenv.Must(t, err)
			for _, key := range f.Keys {
				matches := slices.Contains(found, key.Text)
				if matches != glob.Match(key.Text) {
					t.Errorf("%q matches %q: %t, says Redis", c.Pattern.Text, key.Text, matches)
				}
				if matches {
					c.Matches = append(c.Matches, key)
				}
			}
		}
	})
}

// Redis decides which hash a value has.
func TestConformanceHashes(t *testing.T) {
	t.Parallel()
	client := testenv.Redis(t).Client
	of := func(text string) string {
		hash, err := client.Eval(t.Context(), "return redis.sha1hex(ARGV[1])", nil, text).Text()
		testenv.Must(t, err)
		if hash != sum(text) {
			t.Errorf("%q: %s, computed %s", text, hash, sum(text))
		}
		return hash
	}
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason string        `json:"reason"`
			Value  testenv.Bytes `json:"value"`
			SHA1   string        `json:"sha1"`
			Wrong  string        `json:"of_decoded_text,omitempty"`
		} `json:"cases"`
	}
	testenv.Conformance(t, "conformance/hashes.json", *update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			c.SHA1, c.Wrong = of(c.Value.Text), ""
			if decoded := string([]rune(c.Value.Text)); decoded != c.Value.Text {
				c.Wrong = of(decoded)
			}
		}
	})
}

// What a listener must do with a message: "apply" it, only "evict" its names, or "clear" what it has.
func TestConformanceMessages(t *testing.T) {
	t.Parallel()
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason   string         `json:"reason"`
			Channel  string         `json:"channel,omitempty"`
			Secrets  []string       `json:"secrets,omitempty"`
			Now      int64          `json:"now_us,omitempty"`
			Message  testenv.Bytes  `json:"message"`
			Must     string         `json:"must"`
			Epoch    string         `json:"epoch,omitempty"`
			Seq      uint64         `json:"seq,omitempty"`
			Keys     []string       `json:"keys"`
			Patterns []string       `json:"patterns"`
			Unlinked uint64         `json:"unlinked_us,omitempty"`
			Beat     *protocol.Beat `json:"heartbeat,omitempty"`
		} `json:"cases"`
	}
	testenv.Conformance(t, "conformance/messages.json", *update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			m, fault := protocol.DecodeMessage([]byte(c.Message.Text))
			c.Must, c.Epoch, c.Seq, c.Unlinked, c.Beat = "apply", m.Epoch, m.Seq, m.Unlinked, m.Beat
			c.Keys, c.Patterns = append([]string{}, m.Keys...), append([]string{}, m.Patterns...)
			for _, pattern := range m.Patterns {
				_, err := protocol.CompileGlob(pattern)
				fault = errors.Join(fault, err)
			}
			if fault != nil {
				c.Must = "clear"
			}
			var secrets []protocol.MessageKey
			for _, secret := range c.Secrets {
				secrets = append(secrets, protocol.MessageKey(secret))
			}
			if len(secrets) == 0 {
				continue
			}
			err := protocol.VerifyMessage([]byte(c.Message.Text), c.Channel, secrets...)
			age := time.Duration(c.Now-int64(m.Sent)) * time.Microsecond
			if err != nil || fault == nil && age.Abs() > 3*time.Second {
				c.Must = "evict"
			}
		}
	})
}

// moments are the times in leases and tag versions.
var moments = regexp.MustCompile(`:\d{16}`)

const anyTime = ":TIME"

// Redis decides what a script answers and leaves behind.
func TestConformanceScripts(t *testing.T) {
	t.Parallel()
	type bytes = testenv.Bytes
	type value struct {
		Value bytes `json:"value"`
		PX    int64 `json:"px"`
	}
	type step struct {
		Script  string  `json:"script,omitempty"`
		Keys    []bytes `json:"keys,omitempty"`
		Args    []bytes `json:"args,omitempty"`
		Command []bytes `json:"command,omitempty"`
		Reply   any     `json:"reply,omitempty"`
		Error   string  `json:"error,omitempty"`
	}
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason string           `json:"reason"`
			Before map[string]value `json:"before"`
			Steps  []step           `json:"steps"`
			After  map[string]value `json:"after"`
		} `json:"cases"`
	}
	sources := map[string]string{
		"lease": protocol.LeaseScript, "stamp": protocol.StampScript, "fill": protocol.FillScript, "release": protocol.ReleaseScript, "expire": protocol.ExpireScript,
	}
	client := testenv.Redis(t).Client
	const least = 100 // milliseconds may have passed: times are rounded up to a multiple of 100 s
	rounded := func(ms int64) int64 { return (ms + least*1000 - 1) / (least * 1000) * (least * 1000) }
	testenv.Conformance(t, "conformance/scripts.json", *update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			testenv.Must(t, client.FlushDB(t.Context()).Err())
			for name, v := range c.Before {
				testenv.Must(t, client.Set(t.Context(), name, v.Value.Text, time.Duration(v.PX)*time.Millisecond).Err())
			}
			latest := ""
			words := func(list []bytes) (all []any) {
				for _, word := range list {
					all = append(all, strings.Replace(word.Text, anyTime, latest, 1))
				}
				return all
			}
			for j := range c.Steps {
				s := &c.Steps[j]
				args := words(s.Command)
				if s.Script != "" {
					hash, err := client.ScriptLoad(t.Context(), sources[s.Script]).Result()
					testenv.Must(t, err)
					args = slices.Concat([]any{"EVALSHA", hash, len(s.Keys)}, words(s.Keys), words(s.Args))
				}
				reply, err := client.Do(t.Context(), args...).Result()
				if s.Reply, s.Error = nil, ""; errors.Is(err, redis.Nil) {
					continue
				} else if err != nil {
					s.Error, _, _ = strings.Cut(err.Error(), " script: ") // and its hash, from Redis 7.0 on
					continue
				}
				list, many := reply.([]any)
				if !many {
					list = []any{reply}
				}
				for k, part := range list {
					switch part := part.(type) {
					case string:
						if at := moments.FindString(part); at != "" {
							latest = at
						}
						list[k] = bytes{Text: moments.ReplaceAllString(part, anyTime)}
					case int64:
						if many {
							list[k] = rounded(part)
						}
					}
				}
				if s.Reply = list[0]; many {
					s.Reply = list
				}
			}
			c.After = map[string]value{}
			names, err := client.Keys(t.Context(), "*").Result()
			testenv.Must(t, err)
			for _, name := range names {
				kind := client.Type(t.Context(), name).Val()
				text := "(" + kind + ")"
				if kind == "string" {
					text = client.Get(t.Context(), name).Val()
				}
				c.After[name] = value{bytes{Text: moments.ReplaceAllString(text, anyTime)}, rounded(client.PTTL(t.Context(), name).Val().Milliseconds())}
			}
		}
	})
}
