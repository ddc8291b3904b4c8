package conform

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// scripts are those of the protocol.
var scripts = []struct{ name, text string }{
	{"lease", protocol.LeaseScript}, {"stamp", protocol.StampScript}, {"fill", protocol.FillScript},
	{"release", protocol.ReleaseScript}, {"expire", protocol.ExpireScript},
}

// scriptNames are their names by their text and by their SHA-1.
var scriptNames = func() map[string]string {
	names := map[string]string{}
	for _, script := range scripts {
		names[script.text], names[digestOf(script.text)] = script.name, script.name
	}
	return names
}()

func digestOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// unknownScript is the name of a script that is not the protocol's.
const unknownScript = "unknown"

// storers are the commands that store a value under their first argument.
var storers = []string{"SET", "SETEX", "PSETEX", "SETNX", "MSET", "GETSET"}

// readers are the commands that may touch a key of the run without a script. GETEX extends a
// sliding value.
var readers = []string{"GET", "MGET", "GETEX", "PTTL", "TTL", "PEXPIRETIME", "EXISTS", "STRLEN", "TYPE", "GETRANGE", "EVAL_RO", "EVALSHA_RO"}

// findScript sets the script of a command, with its KEYS and ARGV.
func (c *command) findScript() {
	if c.name != "EVAL" && c.name != "EVALSHA" || len(c.args) < 2 {
		return
	}
	script := c.args[0]
	if c.name == "EVALSHA" {
		script = strings.ToLower(script)
	}
	c.script = cmp.Or(scriptNames[script], unknownScript)
	n, _ := strconv.Atoi(c.args[1])
	rest := c.args[2:]
	n = min(max(n, 0), len(rest))
	c.keys, c.argv = rest[:n], rest[n:]
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
	texts  map[string]int      // by key and SHA-1, of values and tag versions: when they were first read
}

func newObserver(l *ledger) *observer {
	return &observer{ledger: l, longest: mapLease, loads: map[string]int{}, tags: map[string][]string{}, leases: map[string]granted{}, texts: map[string]int{}}
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
		switch {
		case !c.concerns() && c.script == "":
		case t.answered():
			o.learn(c, t.replies[i])
		case c.script == unknownScript:
			o.ledger.breach("scripts", "%s of a script that is not the protocol's: %.80q", c.name, c.args)
		case c.script != "":
			o.checkNames(c)
			o.checkArguments(c)
		case !c.changes():
		case slices.Contains(storers, c.name) && strings.HasPrefix(c.args[0], keyPrefix):
			o.ledger.breach("fill", "%s %s stores a value without fill.lua", c.name, c.args[0])
		default:
			o.ledger.breach("scripts", "%s %.80q", c.name, c.args)
		}
	}
}

// checkNames checks the KEYS of a script.
func (o *observer) checkNames(c command) {
	first, last := "", ""
	if len(c.keys) > 0 {
		first, last = c.keys[0], c.keys[len(c.keys)-1]
	}
	wanted := c.keys
	switch c.script {
	case "lease", "fill":
		lease, _ := protocol.LeaseKey(last)
		hold, _ := protocol.HoldKey(last)
		wanted = []string{lease, hold, last}
	case "stamp":
		stamp := protocol.StampKey(strings.TrimPrefix(first, protocol.StampPrefix))
		hold, _ := protocol.HoldKey(stamp)
		wanted = []string{stamp, hold}
	case "release":
		inner, ok := protocol.InnerKey(first)
		if wanted = []string{first, inner}; !ok {
			wanted[0] = "lock:fill:{K}"
		}
		if len(c.keys) == 1 { // the value is optional
			wanted = wanted[:1]
		}
	}
	if !slices.Equal(c.keys, wanted) {
		o.ledger.breach("names", "%s.lua got the keys %q, wanted %q", c.script, c.keys, wanted)
	}
}

// checkArguments checks the ARGV of a script.
func (o *observer) checkArguments(c command) {
	switch {
	case c.script != "lease" && c.script != "fill":
	case len(c.argv) != 3 || len(c.keys) != 3:
		o.ledger.breach("scripts", "%s.lua got %d keys and %d arguments", c.script, len(c.keys), len(c.argv))
	case c.script == "fill":
		o.checkFill(c.keys[2], c.argv[0], c.argv[1])
	default:
		if hash := c.argv[2]; hash != "" && hash != "*" && o.texts[c.keys[2]+" "+hash] == 0 {
			o.ledger.breach("hash", "lease.lua got %q, which is the SHA-1 of no value of %q that the client has read", hash, c.keys[2])
		}
	}
}

// An entryText is what the judge needs of an entry of format 1.
type entryText struct {
	Value  json.RawMessage   `json:"v"`
	Expiry int64             `json:"e"`
	Birth  int64             `json:"b"`
	Tags   map[string]string `json:"t,omitempty"`
}

// checkFill checks the lease and the entry of a fill.
func (o *observer) checkFill(key, lease, text string) {
	held, known := o.leases[lease]
	switch {
	case !known || held.key != key:
		o.ledger.breach("lease", "the fill of %q has the lease %q, which Redis did not grant", key, lease)
	case held.at > o.loads[key]:
		o.ledger.breach("lease", "the lease of the fill of %q was granted after its load began", key)
	case held.life > o.longest:
		o.ledger.breach("lease-time", "the lease of the fill of %q was for %v, the map's is %v", key, held.life, o.longest)
	}
	var e entryText
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Value == nil || e.Expiry < 1e12 || e.Expiry > 1e14 {
		o.ledger.breach("entry", "entry %.120q: needs v, and e in milliseconds since 1970", text)
		return
	}
	if _, born, _ := strings.Cut(lease, ":"); e.Birth != 0 && strconv.FormatInt(e.Birth, 10) != born {
		o.ledger.breach("entry", "b of an entry is %d, wanted the time of its lease %q", e.Birth, lease)
	}
	for _, tag := range o.tags[key] {
		version, ok := e.Tags[tag]
		if !ok {
			o.ledger.breach("entry", "the entry of %q lacks the tag %q", key, tag)
			continue
		}
		if at := o.texts[protocol.StampKey(tag)+" "+digestOf(version)]; at == 0 || at > o.loads[key] {
			o.ledger.breach("stamps", "the version %q of tag %q, in the entry of %q, was not read before its load", version, tag, key)
		}
	}
}

// learn remembers what a reply told the client.
func (o *observer) learn(c command, reply any) {
	parts, many := reply.([]any)
	if !many {
		parts = []any{reply}
	}
	switch {
	case c.script == "lease" && len(c.keys) == 3 && len(c.argv) == 3 && len(parts) == 2:
		text, _ := parts[1].(string)
		_, known := o.leases[text]
		switch {
		case parts[0] == "value":
			o.saw(c.keys[2], text)
		case parts[0] == "lease" && !known:
			life, _ := strconv.ParseInt(c.argv[1], 10, 64)
			o.leases[text] = granted{key: c.keys[2], at: o.at, life: ms(life)}
		}
	case c.script == "stamp" && len(c.keys) > 0:
		o.saw(c.keys[0], parts[0])
	case slices.Contains([]string{"GET", "GETEX", "MGET"}, c.name):
		for i, key := range c.args[:min(len(c.args), len(parts))] {
			o.saw(key, parts[i])
		}
	}
}

// saw remembers the text of a key, if there is one.
func (o *observer) saw(key string, value any) {
	text, _ := value.(string)
	if name := key + " " + digestOf(text); text != "" && o.texts[name] == 0 {
		o.texts[name] = o.at
	}
}
