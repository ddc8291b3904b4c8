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

// A Trial says which rights of the account TryRights tries. Names are of keys and sets that do not exist.
type Trial struct {
	Keys    []TrialName // that are unlinked
	Held    []TrialName // of those, the ones that are held
	Sets    []TrialName // index sets
	Fixed   []TrialName // that the map names without a value, and that may exist: they are only read
	Scans   bool        // there are patterns
	Channel string      // of messages
	Wake    string      // channel of hints, "" for none
	Wait    bool        // WAIT is used
}

// A TrialName is a made-up name, and the pattern of names for which it stands.
type TrialName struct{ Name, Pattern string }

// A Right is what came of trying one.
type Right struct {
	Node string // of a Cluster, where it was tried: its address; "" otherwise
	Away bool   // nothing was tried there: Err is why
	What string // that was tried, such as UNLINK shop:product:*
	Rule string // for ACL SETUSER, if the account lacks it; "" otherwise
	Loss string // what does not work without it; "": the worker does not
	Err  error  // why it is not known whether the account has it
}

// An attempt is a command with the right that it needs.
type attempt struct {
	Right
	pattern string // of names, for the rule; "": the command's own
	command redis.Cmder
	direct  bool // to a node that may redirect, which it does after it has looked at the rights
}

// TryRights runs each command that a worker needs, on names that the caller has made up or that nobody else has, and
// reports which of them the account may not run. It changes nothing that anybody else sees: what it stores lives for a
// second, and a PUBLISH is refused for a reason that Redis looks at after the account's rights. The error is an *Outage.
//
// In Cluster each node has a list of accounts of its own, so that every master and every replica that CLUSTER SLOTS lists is
// asked. One that does not answer has a Right that says so.
func (k *Keyspace) TryRights(ctx context.Context, t Trial) ([]Right, error) {
	if k.cluster == nil {
		return k.tryNode(ctx, k.client.(*redis.Client), t)
	}
	var mu sync.Mutex
	var rights []Right
	ask := func(ctx context.Context, node *redis.Client) error {
		some, err := k.tryNode(ctx, node, t)
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
	if err := errors.Join(k.cluster.ForEachMaster(ctx, ask), k.cluster.ForEachSlave(ctx, ask)); err != nil {
		return nil, k.outage(ctx, err)
	}
	slices.SortStableFunc(rights, func(a, b Right) int { return strings.Compare(a.Node, b.Node) })
	return rights, nil
}

// tryNode tries all at one server.
func (k *Keyspace) tryNode(ctx context.Context, node *redis.Client, t Trial) ([]Right, error) {
	rights, err := k.tryAll(ctx, node, slices.Concat(k.plainAttempts(ctx, t), t.keyAttempts(ctx)))
	if err != nil {
		return nil, err
	}
	some, err := k.tryChannels(ctx, node, t)
	return append(rights, some...), err
}

// plainAttempts are those that concern no key.
func (k *Keyspace) plainAttempts(ctx context.Context, t Trial) []attempt {
	plain := func(loss string, args ...any) attempt {
		return attempt{Right: Right{What: strings.ToUpper(fmt.Sprint(args[0])), Loss: loss}, command: redis.NewCmd(ctx, args...)}
	}
	scan := "whether a Redis that lost its past is empty is not known, so the whole journal is unlinked again"
	if t.Scans {
		scan = "sweeps of patterns wait"
	}
	all := []attempt{
		plain("", "ping"),
		plain("the journal has no births", "time"),
		plain(scan, "scan", 0, "count", 1),
		plain("the progress of a sweep has no end", "dbsize"),
	}
	if t.Wait {
		all = append(all, plain("", "wait", 0, 1))
	}
	if k.cluster != nil {
		all = append(all, plain("", "cluster", "nodes"))
	}
	return all
}

// keyAttempts are those on names.
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
	add(state, alivePrefix+"*", "set", alive, "", "px", time.Second.Milliseconds()) // HSET would have no time to live
	add(state, alivePrefix+"*", "hset", alive, "doctor", "{}")
	add(state, alivePrefix+"*", "pexpire", alive, time.Second.Milliseconds())
	for _, page := range []Page{WorkersPage, SourcesPage} {
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
func (k *Keyspace) tryAll(ctx context.Context, on redis.UniversalClient, all []attempt) ([]Right, error) {
	commands := make([]redis.Cmder, len(all))
	for i := range all {
		commands[i] = all[i].command
	}
	if err := k.exec(ctx, on, commands); err != nil {
		return nil, err
	}
	rights := make([]Right, len(all))
	for i := range all {
		all[i].direct = k.cluster != nil
		if err := all[i].read(all[i].command.Err()); err != nil {
			return nil, k.outage(ctx, err)
		}
		rights[i] = all[i].Right
	}
	return rights, nil
}

// read notes what an answer says of the right. What Redis refuses for another reason, it looks at afterwards. The error
// is not an answer.
func (a *attempt) read(err error) error {
	var denied *denial
	switch {
	case err == nil, errors.Is(err, redis.Nil):
	case errors.As(err, &denied) && strings.HasPrefix(denied.rule, "~") && a.pattern != "":
		a.Rule = "~" + a.pattern
		if strings.EqualFold(a.command.Name(), "renamenx") { // which of its two names is refused, Redis does not tell
			a.Rule += " ~" + setPrefix + "*"
		}
	case errors.As(err, &denied):
		a.Rule = denied.rule
	case firstWord(err) == "":
		return err
	case a.direct && (stateOf(err) == StateMoving || stateOf(err) == StateWrongMode):
	case stateOf(err) != StateError: // such as READONLY, OOM or MISCONF, which keep a worker from working
		a.Err = outage(err)
	}
	return nil
}

// tryChannels tries SUBSCRIBE, and PUBLISH without publishing: a connection that speaks RESP2 and is subscribed may do
// nothing else, which Redis looks at after the rights.
func (k *Keyspace) tryChannels(ctx context.Context, on *redis.Client, t Trial) (rights []Right, err error) {
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
		if err := conn.Process(ctx, command); try.read(err) != nil {
			return nil, k.outage(ctx, err)
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
	if k.sharded {
		name = "spublish"
	}
	command := redis.NewCmd(ctx, name, t.Channel, "")
	try := attempt{Right: Right{What: strings.ToUpper(name) + " " + t.Channel}, pattern: t.Channel, command: command, direct: k.cluster != nil}
	if !subscribed {
		try.Err = errors.New("it cannot be tried without +subscribe")
	} else if err := conn.Process(ctx, command); try.read(err) != nil {
		return nil, k.outage(ctx, err)
	}
	return append(rights, try.Right), nil
}

// quietClient is a client like that of options for one connection, which speaks RESP2.
func quietClient(options *redis.Options) *redis.Client {
	o := *options
	o.Protocol, o.PoolSize, o.PipelinePoolSize, o.MinIdleConns, o.MaxRetries = 2, 1, onePool, 0, -1
	c := redis.NewClient(&o)
	c.AddHook(denials{})
	return c
}

// TrialKey makes up a name that a glob matches, of a text that nobody else has.
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
