package conform

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// keyPrefix begins all keys of a run.
const keyPrefix = "conform:"

// scriptNames are the scripts of the protocol by their text and by their SHA-1.
var scriptNames = func() map[string]string {
	names := map[string]string{}
	for name, text := range map[string]string{
		"lease": protocol.LeaseScript, "stamp": protocol.StampScript, "fill": protocol.FillScript,
		"release": protocol.ReleaseScript, "expire": protocol.ExpireScript,
	} {
		names[text], names[digestOf(text)] = name, name
	}
	return names
}()

func digestOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// readers are the commands that may touch a key of the run without a script. GETEX extends a
// sliding value.
var readers = []string{"GET", "MGET", "GETEX", "PTTL", "TTL", "PEXPIRETIME", "EXISTS", "STRLEN", "TYPE", "GETRANGE", "EVAL_RO", "EVALSHA_RO"}

// scriptOf returns the script that a command runs, with its KEYS and ARGV: "" if it runs none, and
// "unknown" for another one than the protocol's.
func (c command) scriptOf() (name string, keys, argv []string) {
	if c.name != "EVAL" && c.name != "EVALSHA" || len(c.args) < 2 {
		return "", nil, nil
	}
	script := c.args[0]
	if c.name == "EVALSHA" {
		script = strings.ToLower(script)
	}
	if name = scriptNames[script]; name == "" {
		name = "unknown"
	}
	n, _ := strconv.Atoi(c.args[1])
	rest := c.args[2:]
	n = min(max(n, 0), len(rest))
	return name, rest[:n], rest[n:]
}

// concerns reports whether a command touches a key of the run.
func (c command) concerns() bool {
	return slices.ContainsFunc(c.args, func(arg string) bool { return len(arg) < 1024 && strings.Contains(arg, keyPrefix) })
}

// changes reports whether a command without a script changes a key of the run. A write probe, which
// is an UNLINK of a key with "probe" in its name, does not.
func (c command) changes() bool {
	probe := c.name == "UNLINK" && len(c.args) == 1 && strings.Contains(c.args[0], "probe")
	return c.concerns() && !probe && !slices.Contains(readers, c.name)
}

// sort finds the kind of a trip. It reports false if the trip need not be held.
func (t *trip) sort() (held bool) {
	for _, c := range t.commands {
		script, _, _ := c.scriptOf()
		held = held || c.concerns()
		switch {
		case script == "fill", script == "" && c.changes():
			t.kind = fills
		case script == "lease":
			t.kind = max(t.kind, leases)
		}
	}
	return held
}

// A granted is a lease that a client got.
type granted struct {
	key  string
	at   int
	life time.Duration
}

// An observer checks the commands of a client, and remembers what their replies said.
type observer struct {
	ledger  *ledger
	longest time.Duration // the lease of the map

	at     int                 // the number of the latest event
	loads  map[string]int      // by key: when its latest load began
	tags   map[string][]string // by key: what was asked for
	leases map[string]granted  // by their text
	stamps map[string]int      // by tag and version: when they were first seen
	values map[string]bool     // by key and SHA-1: those that were read
}

func newObserver(l *ledger, longest time.Duration) *observer {
	return &observer{
		ledger: l, longest: longest, loads: map[string]int{}, tags: map[string][]string{}, leases: map[string]granted{},
		stamps: map[string]int{}, values: map[string]bool{},
	}
}

// loadBegan records a load.
func (o *observer) loadBegan(keys []string) {
	o.at++
	for _, key := range keys {
		o.loads[key] = o.at
	}
}

// observe checks a trip when it is held: its commands first, its replies the second time.
func (o *observer) observe(t *trip) {
	o.at++
	for i, c := range t.commands {
		script, keys, argv := c.scriptOf()
		if !c.concerns() && script == "" {
			continue
		}
		if t.answered() {
			o.learn(c, script, keys, argv, t.replies[i])
			continue
		}
		switch script {
		case "unknown":
			o.ledger.breach("scripts", fmt.Sprintf("%s of a script that is not the protocol's: %.80q", c.name, c.args))
		case "":
			switch {
			case !c.changes():
			case slices.Contains([]string{"SET", "SETEX", "PSETEX", "SETNX", "MSET", "GETSET"}, c.name) && strings.HasPrefix(c.args[0], keyPrefix):
				o.ledger.breach("fill", fmt.Sprintf("%s %s stores a value without fill.lua", c.name, c.args[0]))
			default:
				o.ledger.breach("scripts", fmt.Sprintf("%s %.80q", c.name, c.args))
			}
		default:
			o.checkNames(script, keys)
			o.checkArguments(script, keys, argv)
		}
	}
}

// checkNames checks the KEYS of a script.
func (o *observer) checkNames(script string, keys []string) {
	value, wanted := "", []string(nil)
	switch script {
	case "lease", "fill":
		value = strings.Join(keys[min(2, len(keys)):], " ")
		lease, _ := protocol.LeaseKey(value)
		hold, _ := protocol.HoldKey(value)
		wanted = []string{lease, hold, value}
	case "stamp":
		value = strings.Join(keys[:min(1, len(keys))], " ")
		hold, _ := protocol.HoldKey(value)
		if !strings.HasPrefix(value, protocol.StampPrefix) {
			value = protocol.StampPrefix + value
		}
		wanted = []string{value, hold}
	case "release":
		wanted = keys
		if inner, ok := protocol.InnerKey(strings.Join(keys[:min(1, len(keys))], "")); !ok || len(keys) > 2 || len(keys) == 2 && keys[1] != inner {
			wanted = []string{"lock:fill:{K}", inner}
		}
	default:
		return
	}
	if !slices.Equal(keys, wanted) {
		o.ledger.breach("names", fmt.Sprintf("%s.lua got the keys %q, wanted %q", script, keys, wanted))
	}
}

// checkArguments checks the ARGV of a script.
func (o *observer) checkArguments(script string, keys, argv []string) {
	switch {
	case script == "lease" && len(argv) == 3 && len(keys) == 3:
		if hash := argv[2]; hash != "" && hash != "*" && !o.values[keys[2]+" "+hash] {
			o.ledger.breach("hash", fmt.Sprintf("lease.lua got %q, which is the SHA-1 of no value of %q that the client has read", hash, keys[2]))
		}
	case script == "fill" && len(argv) == 3 && len(keys) == 3:
		o.checkFill(keys[2], argv[0], argv[1])
	case script == "lease" || script == "fill":
		o.ledger.breach("scripts", fmt.Sprintf("%s.lua got %d keys and %d arguments", script, len(keys), len(argv)))
	}
}

// An entryText is what the judge needs of an entry of format 1.
type entryText struct {
	Value  json.RawMessage   `json:"v"`
	Expiry int64             `json:"e"`
	Birth  int64             `json:"b"`
	Tags   map[string]string `json:"t"`
}

// checkFill checks the lease and the entry of a fill.
func (o *observer) checkFill(key, lease, text string) {
	held, known := o.leases[lease]
	switch {
	case !known || held.key != key:
		o.ledger.breach("lease", fmt.Sprintf("the fill of %q has the lease %q, which Redis did not grant", key, lease))
	case held.at > o.loads[key]:
		o.ledger.breach("lease", fmt.Sprintf("the lease of the fill of %q was granted after its load began", key))
	case held.life > o.longest:
		o.ledger.breach("lease-time", fmt.Sprintf("the lease of the fill of %q was for %v, the map's is %v", key, held.life, o.longest))
	}
	var e entryText
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Value == nil || e.Expiry < 1e12 || e.Expiry > 1e14 {
		o.ledger.breach("entry", fmt.Sprintf("entry %.120q: needs v, and e in milliseconds since 1970", text))
		return
	}
	if _, born, _ := strings.Cut(lease, ":"); e.Birth != 0 && strconv.FormatInt(e.Birth, 10) != born {
		o.ledger.breach("entry", fmt.Sprintf("b of an entry is %d, wanted the time of its lease %q", e.Birth, lease))
	}
	for _, tag := range o.tags[key] {
		version, ok := e.Tags[tag]
		if !ok {
			o.ledger.breach("entry", fmt.Sprintf("the entry of %q lacks the tag %q", key, tag))
			continue
		}
		if at := o.stamps[tag+" "+version]; at == 0 || at > o.loads[key] {
			o.ledger.breach("stamps", fmt.Sprintf("the version %q of tag %q, in the entry of %q, was not read before its load", version, tag, key))
		}
	}
}

// learn remembers what a reply told the client.
func (o *observer) learn(c command, script string, keys, argv []string, reply any) {
	text, _ := reply.(string)
	switch {
	case script == "lease" && len(keys) == 3 && len(argv) == 3:
		parts, _ := reply.([]any)
		if len(parts) != 2 {
			return
		}
		text, _ = parts[1].(string)
		switch parts[0] {
		case "lease":
			ms, _ := strconv.ParseInt(argv[1], 10, 64)
			if _, known := o.leases[text]; !known {
				o.leases[text] = granted{key: keys[2], at: o.at, life: time.Duration(ms) * time.Millisecond}
			}
		case "value":
			o.values[keys[2]+" "+digestOf(text)] = true
		}
	case script == "stamp" && len(keys) > 0:
		o.sawVersion(keys[0], text)
	case c.name == "GET" || c.name == "GETEX":
		o.sawText(c.args[0], text)
	case c.name == "MGET":
		texts, _ := reply.([]any)
		for i, key := range c.args[:min(len(c.args), len(texts))] {
			text, _ := texts[i].(string)
			o.sawText(key, text)
		}
	}
}

func (o *observer) sawText(key, text string) {
	if strings.HasPrefix(key, protocol.StampPrefix) {
		o.sawVersion(key, text)
	} else if text != "" {
		o.values[key+" "+digestOf(text)] = true
	}
}

func (o *observer) sawVersion(key, version string) {
	name := strings.TrimPrefix(key, protocol.StampPrefix) + " " + version
	if version != "" && o.stamps[name] == 0 {
		o.stamps[name] = o.at
	}
}
