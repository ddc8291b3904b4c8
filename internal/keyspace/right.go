package keyspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A Trial lists the permissions that TryRights tries. Names are of keys and sets that do not exist.
type Trial struct {
	Keys []TrialName // that are unlinked
	Held []TrialName // the keys with hold
	Sets []TrialName // index sets
	// that the map names without a value, and that may exist: they are only read
	Fixed   []TrialName
	Scans   bool   // there are patterns
	Channel string // of messages
	Wake    string // channel of hints, "" for none
	Wait    bool   // WAIT is used
}

// A TrialName is a made-up name, and the pattern of names that it represents.
type TrialName struct{ Name, Pattern string }

// A Right is the result of trying one permission.
type Right struct {
	Node string // of a Cluster, where it was tried: its address; "" otherwise
	Away bool   // nothing was tried there: Err is why
	What string // that was tried, such as UNLINK shop:product:*
	Rule string // for ACL SETUSER, if the account lacks it; "" otherwise
	Loss string // what does not work without it; "": the worker does not
	Err  error  // why it is not known whether the account has it
}

// An Account is the user of Redis that the Keyspace works as.
type Account struct {
	nodes   *Nodes
	sharded bool // Pub/Sub
}

// An attempt is a command with the right that it needs.
type attempt struct {
	Right
	pattern string // of names, for the rule; "": the command's own
	command redis.Cmder
	direct  bool // to a node that may redirect, after it has checked permissions
}

// TryRights runs each command that a worker needs, on names that the caller has invented or that no
// other client uses, and reports the commands that the account may not run. It changes nothing that
// other clients can see: keys that it stores live for a second, and its PUBLISH is refused for a
// reason that Redis checks after permissions. The error is an *Outage.
//
// In a Cluster each node has its own list of accounts, so TryRights asks every master and every
// replica in CLUSTER SLOTS. A node that does not answer has a Right that reports it.
func (a *Account) TryRights(ctx context.Context, t Trial) ([]Right, error) {
	if a.nodes.cluster == nil {
		return a.tryNode(ctx, a.nodes.client.(*redis.Client), t)
	}
	var mu sync.Mutex
	var rights []Right
	ask := func(ctx context.Context, node *redis.Client) error {
		some, err := a.tryNode(ctx, node, t)
		if err != nil {
			some = []Right{{What: "what a worker does", Err: err, Away: true}}
		}
		for i := range some {
			some[i].Node = node.Options().Addr
		}
		mu.Lock()
		defer mu.Unlock()
		rights = append(rights, some...)
		return nil
	}
	if err := errors.Join(a.nodes.cluster.ForEachMaster(ctx, ask), a.nodes.cluster.ForEachSlave(ctx, ask)); err != nil {
		return nil, a.nodes.outage(ctx, err)
	}
	slices.SortStableFunc(rights, func(a, b Right) int { return strings.Compare(a.Node, b.Node) })
	return rights, nil
}

// tryNode tries all at one server.
func (a *Account) tryNode(ctx context.Context, node *redis.Client, t Trial) ([]Right, error) {
	rights, err := a.tryAll(ctx, node, slices.Concat(a.plainAttempts(ctx, t), t.keyAttempts(ctx)))
	if err != nil {
		return nil, err
	}
	some, err := a.tryChannels(ctx, node, t)
	return append(rights, some...), err
}

// plainAttempts returns those that concern no key.
func (a *Account) plainAttempts(ctx context.Context, t Trial) []attempt {
	plain := func(loss string, args ...any) attempt {
		return attempt{Right: Right{What: strings.ToUpper(fmt.Sprint(args[0])), Loss: loss}, command: redis.NewCmd(ctx, args...)}
	}
	scan := "whether a Redis that lost its past is empty is not known, so the whole journal is unlinked again"
	if t.Scans {
		scan = "sweeps of patterns wait"
	}
	all := []attempt{
		plain("", "ping"),
		plain("the journal has no unlink times", "time"),
		plain(scan, "scan", 0, "count", 1),
		plain("the progress of a sweep has no end", "dbsize"),
	}
	if t.Wait {
		all = append(all, plain("", "wait", 0, 1))
	}
	if a.nodes.cluster != nil {
		all = append(all, plain("", "cluster", "nodes"))
		if t.Scans { // most servers do not know it, which is not a refusal
			all = append(all, plain("a sweep scans masters again while slots move", "clusterscan", slotCursor(0)))
		}
	}
	return all
}

// keyAttempts returns those on names.
func (t Trial) keyAttempts(ctx context.Context) (all []attempt) {
	add := func(loss, pattern string, args ...any) {
		right := Right{What: strings.ToUpper(fmt.Sprint(args[0])) + " " + pattern, Loss: loss}
		all = append(all, attempt{Right: right, pattern: pattern, command: redis.NewCmd(ctx, args...)})
	}
	for _, k := range t.Keys {
		add("", k.Pattern, "unlink", k.Name)
		if lease, ok := protocol.LeaseKey(k.Name); ok {
			add("", protocol.LeasePrefix+"*", "unlink", lease)
		}
	}
	if len(t.Keys) > 0 {
		k := t.Keys[0]
		add("spot checks are off, so an entry that survived its invalidation is not found", k.Pattern, "getrange", k.Name, 0, 0)
		// a script that is not there, and one that does nothing
		none := strings.Repeat("0", 40)
		add("stale entries that spot checks find are not unlinked", k.Pattern, "evalsha", none, 1, k.Name)
		add("stale entries that spot checks find are not unlinked", k.Pattern, "eval", "return 1", 1, k.Name)
	}
	for _, k := range t.Fixed {
		add("", k.Pattern, "get", k.Name)
	}
	for _, k := range t.Held {
		if name, ok := protocol.HoldKey(k.Name); ok {
			add("", protocol.HoldPrefix+"*", "pexpire", name, 1, "gt")
			add("", protocol.HoldPrefix+"*", "set", name, tombstoneValue, "px", 1, "nx")
		}
	}
	const state = "readers cannot detect a wrong server or database, and unstale status depends on MySQL alone"
	alive := protocol.AliveKey(rand.Text())
	// HSET would have no time to live
	add(state, alivePrefix+"*", "set", alive, "", "px", time.Second.Milliseconds())
	add(state, alivePrefix+"*", "hset", alive, "doctor", "{}")
	add(state, alivePrefix+"*", "pexpire", alive, time.Second.Milliseconds())
	for _, page := range []StatusHash{WorkersHash, SourcesHash} {
		add(state, string(page), "hgetall", string(page))
		add(state, string(page), "hdel", string(page), rand.Text())
	}
	beacon := beaconKey("", rand.Text(), 0)
	add("", beaconPrefix+"*", "set", beacon, value{}.String(), "px", time.Second.Milliseconds())
	add("", beaconPrefix+"*", "get", beacon)
	for _, s := range t.Sets {
		private := privateName(s.Name, 0)
		add("", s.Pattern, "scard", s.Name)
		add("", s.Pattern, "renamenx", s.Name, private)
		add("", setPrefix+"*", "sscan", private, 0, "count", 1)
		add("", setPrefix+"*", "srem", private, "nothing")
	}
	return all
}

// tryAll sends attempts in one pipeline, and reads the answers.
func (a *Account) tryAll(ctx context.Context, on redis.UniversalClient, all []attempt) ([]Right, error) {
	commands := make([]redis.Cmder, len(all))
	for i := range all {
		commands[i] = all[i].command
	}
	if err := a.nodes.exec(ctx, on, commands); err != nil {
		return nil, err
	}
	rights := make([]Right, len(all))
	for i := range all {
		all[i].direct = a.nodes.cluster != nil
		if err := all[i].judge(all[i].command.Err()); err != nil {
			return nil, a.nodes.outage(ctx, err)
		}
		rights[i] = all[i].Right
	}
	return rights, nil
}

// judge records what an answer says about the permission. Redis checks permissions first, so other
// refusals mean that it is granted. The error is not an answer.
func (a *attempt) judge(err error) error {
	denied, ok := errors.AsType[*denial](err)
	switch {
	case err == nil, errors.Is(err, redis.Nil):
	case ok && strings.HasPrefix(denied.rule, "~") && a.pattern != "":
		a.Rule = "~" + a.pattern
		// which of its two names is refused, Redis does not tell
		if strings.EqualFold(a.command.Name(), "renamenx") {
			a.Rule += " ~" + setPrefix + "*"
		}
	case ok:
		a.Rule = denied.rule
	case firstWord(err) == "":
		return err
	case a.direct && (stateOf(err) == StateMoving || stateOf(err) == StateWrongMode):
	// such as READONLY, OOM or MISCONF, which keep a worker from working
	case stateOf(err) != StateError:
		a.Err = outage(err)
	}
	return nil
}

// ErrUntried is the Err of a Right to publish if the account may not subscribe.
var ErrUntried = errors.New("it cannot be tried without +subscribe")

// tryChannels tries SUBSCRIBE, and PUBLISH without publishing: a RESP2 connection with a
// subscription may run few commands, which Redis checks after permissions.
func (a *Account) tryChannels(ctx context.Context, on *redis.Client, t Trial) (rights []Right, err error) {
	client := quietClient(on.Options())
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	subscribed := false
	for _, channel := range []string{t.Wake, t.Channel} {
		if subscribed || channel == "" {
			continue
		}
		command := redis.NewSliceCmd(ctx, "subscribe", channel)
		try := attempt{Right: Right{What: "SUBSCRIBE " + channel, Loss: "hints are not heard"}, pattern: channel, command: command}
		if err := conn.Process(ctx, command); try.judge(err) != nil {
			return nil, a.nodes.outage(ctx, err)
		}
		subscribed = try.Rule == "" && try.Err == nil
		if channel == t.Wake {
			rights = append(rights, try.Right)
		}
	}
	if t.Channel == "" {
		return rights, nil
	}
	name := "publish"
	if a.sharded {
		name = "spublish"
	}
	command := redis.NewCmd(ctx, name, t.Channel, "")
	try := attempt{Right: Right{What: strings.ToUpper(name) + " " + t.Channel}, pattern: t.Channel, command: command, direct: a.nodes.cluster != nil}
	if !subscribed {
		try.Err = ErrUntried
	} else if err := conn.Process(ctx, command); try.judge(err) != nil {
		return nil, a.nodes.outage(ctx, err)
	}
	return append(rights, try.Right), nil
}

// quietClient returns a client like that of options for one connection, which speaks RESP2.
func quietClient(options *redis.Options) *redis.Client {
	o := *options
	o.Protocol, o.PoolSize, o.PipelinePoolSize, o.MinIdleConns, o.MaxRetries = 2, 1, onePool, 0, -1
	return explainDenials(redis.NewClient(&o))
}

// TrialKey returns a made-up name that matches a glob, with an unused text.
func TrialKey(glob, text string) TrialName {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '\\' && i+1 < len(glob):
			i++
			b.WriteByte(glob[i])
		case c == '*':
			b.WriteString(text)
		case c == '?':
			b.WriteByte('x')
		default:
			b.WriteByte(c)
		}
	}
	return TrialName{Name: b.String(), Pattern: glob}
}
