package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// mostTried bounds the number of the map's names that are tried.
const mostTried = 500

// redisRights runs a worker's commands, on made-up names. With an account for an audit it asks what
// else the worker's account may do.
func redisRights(ctx context.Context, e *Inputs) (all []Finding, err error) {
	t, cut := trialOf(e.Map)
	t.Wake, t.Wait = e.Wake, e.Wait
	rights, err := e.Redis.Account.TryRights(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, node := range nodesOf(rights) {
		all = append(all, node.findings(cmp.Or(e.RedisUser, "default"))...)
	}
	if cut > 0 {
		all = append(all, unknown("rights on "+output.Things(cut, "more name")+" of the map", fmt.Errorf("%d were tried", mostTried),
			"see that the account's patterns cover them: unstale map explain shows what a row makes"))
	}
	if e.Map == nil {
		all = append(all, unknown("rights on the names and the channel of the map", errors.New("there is no map"), flags[aMap]))
	}
	well := output.Things(len(rights), "right") + " are there, each was tried"
	if e.mayExceed {
		return orOK(all, "%s", well), nil
	}
	excess, err := e.redisExcess(ctx)
	if err == nil && len(excess) == 0 {
		well += ", and the account may run no command, touch no name and use no channel that a worker does not"
	}
	return append(orOK(all, "%s", well), excess...), err
}

// A nodeRights is the result of permission trials on one node, or on several with the same result.
// Each node of a Cluster has its own list of accounts.
type nodeRights struct {
	addrs  []string // none outside Redis Cluster
	rights []keyspace.Right
}

// nodesOf groups permissions by nodes.
func nodesOf(rights []keyspace.Right) (nodes []nodeRights) {
	outcome := func(a, b keyspace.Right) bool {
		return a.What == b.What && a.Rule == b.Rule && (a.Err == nil) == (b.Err == nil) && a.Away == b.Away
	}
	for len(rights) > 0 {
		n := slices.IndexFunc(rights, func(r keyspace.Right) bool { return r.Node != rights[0].Node })
		if n < 0 {
			n = len(rights)
		}
		some := rights[:n]
		rights = rights[n:]
		same := slices.IndexFunc(nodes, func(other nodeRights) bool { return slices.EqualFunc(other.rights, some, outcome) })
		if same < 0 {
			same, nodes = len(nodes), append(nodes, nodeRights{rights: some})
		}
		if addr := some[0].Node; addr != "" {
			nodes[same].addrs = append(nodes[same].addrs, addr)
		}
	}
	return nodes
}

func (n *nodeRights) findings(user string) (all []Finding) {
	at, on := "", ""
	if len(n.addrs) > 0 {
		at, on = "\nat "+strings.Join(n.addrs, ", "), "\non each of these nodes: "+strings.Join(n.addrs, ", ")
	}
	lack := func(s Severity, title string, dispensable bool) {
		if rules, evidence := n.lacks(dispensable); len(rules) > 0 {
			all = append(all, found(s, title, evidence+at, "ACL SETUSER "+user+" "+strings.Join(rules, " ")+on))
		}
	}
	lack(Critical, "the worker's Redis account lacks rights", false)
	lack(Warning, "the worker's Redis account lacks rights that a worker can do without", true)
	refused := false
	for _, r := range n.rights {
		o, isOutage := errors.AsType[*keyspace.Outage](r.Err)
		switch {
		case r.Err == nil:
		case r.Away && isOutage && (o.State == keyspace.StateAuth || o.State == keyspace.StateNoPerm):
			all = append(all, found(Critical, "the worker's Redis account is not at each node: where a replica without it takes over, rows wait", o.Error()+at,
				"run the line of `unstale acl worker` there"+on))
		case r.Away:
			all = append(all, unknown("the rights at a node that does not answer", fmt.Errorf("%w%s", r.Err, at), notReached))
		case !isOutage:
			all = append(all, unknown("the right "+r.What, fmt.Errorf("%w%s", r.Err, at), ""))
		case !refused: // the first represents all
			refused = true
			all = append(all, found(Critical, "Redis refuses what a worker does", r.What+": "+o.Error()+at, "bring it back to take writes; docs/operations.md lists the states"))
		}
	}
	return all
}

// trialOf returns the permission trial for a worker's map, and how many of the map's names it
// leaves out.
func trialOf(m *invalidation.Map) (t keyspace.Trial, cut int) {
	if m == nil {
		return t, 0
	}
	t.Channel = m.Channel()
	text := "unstale-doctor-" + rand.Text()
	seen := map[string]bool{}
	for _, n := range m.Names() {
		t.Scans = t.Scans || n.Kind == invalidation.KindPattern
		if seen[n.Glob] {
			continue
		}
		seen[n.Glob] = true
		if len(seen) > mostTried {
			cut++
			continue
		}
		name := keyspace.TrialKey(n.Glob, text)
		switch {
		case !strings.Contains(n.Glob, "*"): // the same for all rows, so other clients may use it
			t.Fixed = append(t.Fixed, name)
		case n.Kind == invalidation.KindSet:
			t.Sets = append(t.Sets, name)
		default:
			t.Keys = append(t.Keys, name)
			if n.Hold > 0 && n.Kind != invalidation.KindPattern {
				t.Held = append(t.Held, name)
			}
		}
	}
	if len(t.Sets) > 0 { // the worker unlinks members
		for _, glob := range m.Reads().Globs(invalidation.KindKey) {
			if strings.Contains(glob, "*") { // otherwise other clients may use it
				t.Keys = append(t.Keys, keyspace.TrialKey(glob, text))
			}
		}
	}
	return t, cut
}

// lacks returns the rules for ACL SETUSER that an account lacks, each once, and what that prevents:
// of the rights that a worker can do without, or of the others.
func (n *nodeRights) lacks(dispensable bool) (rules []string, evidence string) {
	const most = 10
	var losses []string
	for _, r := range n.rights {
		if (r.Loss != "") != dispensable {
			continue
		}
		for _, rule := range strings.Fields(r.Rule) {
			if !slices.Contains(rules, rule) {
				rules, losses = append(rules, rule), append(losses, strings.TrimSuffix("NOPERM at "+r.What+": "+r.Loss, ": "))
			}
		}
	}
	if more := len(losses) - most; more > 0 {
		losses = append(losses[:most], fmt.Sprintf("and %d more", more))
	}
	return rules, strings.Join(losses, "\n")
}

// mostExcess is the number of commands and users that are listed by name.
const mostExcess = 20

// redisExcess asks Redis for each of its commands whether the worker's account may run it, and
// reads the account's key patterns.
func (e *Inputs) redisExcess(ctx context.Context) (all []Finding, err error) {
	if cure, reason := e.lacks([]need{auditRedis}); reason != nil {
		return []Finding{unknown("what the worker's Redis account may do and need not", reason, cure)}, nil
	}
	user := cmp.Or(e.RedisUser, "default")
	return onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) ([]Finding, error) {
		return excessAt(ctx, e, c, addr, user)
	})
}

func excessAt(ctx context.Context, e *Inputs, c *redis.Client, addr, user string) (all []Finding, err error) {
	anew := "run the line that `unstale acl worker --user " + user + "` prints: it takes all else"
	commands, err := commandsOf(ctx, c)
	if err != nil {
		return []Finding{unknown(addr+": which commands "+user+" may run", err, "grant the account of --audit-redis-url +command and +acl|dryrun")}, nil
	}
	may, err := allowed(ctx, c, user, commands)
	if err != nil {
		return nil, err
	}
	var evidence, unclear []string
	if len(may) > 0 {
		evidence = append(evidence, addr+": "+user+" may "+listed(may, mostExcess))
	}
	names, err := namesOf(ctx, c, user)
	switch {
	case err != nil:
		all = append(all, unknown(addr+": which names and channels "+user+" may use", err, "grant the account of --audit-redis-url +acl|getuser"))
	case e.Map != nil: // otherwise another finding says that the map's names are unknown
		var wide []string
		if wide, unclear = e.beyond(names); len(wide) > 0 {
			evidence = append(evidence, addr+": "+user+" has "+listed(wide, mostExcess))
		}
	}
	if len(evidence) > 0 {
		all = append(all, found(Warning, "the worker's Redis account may do more than a worker does", strings.Join(evidence, "\n"), anew))
	}
	if len(unclear) > 0 {
		all = append(all, unknown(addr+": whether "+user+" needs its names", fmt.Errorf("these are patterns that nobody can compare with the map: %s", listed(unclear, mostExcess)), anew))
	}
	return all, nil
}

// listed lists some items, and the number of the others.
func listed(all []string, most int) string {
	text := strings.Join(all[:min(len(all), most)], ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// A command is a command that a Redis knows.
type command struct {
	name      string // with a subcommand after |
	arity     int    // words, including the name; negative: or more
	dangerous bool   // of @dangerous
	always    bool   // no account needs a permission for it
}

// commandsOf lists the commands of a Redis, with those of its modules, the dangerous ones first.
func commandsOf(ctx context.Context, c *redis.Client) (all []command, err error) {
	answer, err := c.Do(ctx, "command").Slice()
	if err != nil {
		return nil, fmt.Errorf("ask for the commands: %w", err)
	}
	var read func(list []any)
	read = func(list []any) {
		for _, one := range list {
			fields, _ := one.([]any)
			if len(fields) < 10 {
				err = errors.New("this Redis does not tell of its commands what Redis 7 tells")
				continue
			}
			if below, _ := fields[9].([]any); len(below) > 0 {
				read(below) // each is granted separately
				continue
			}
			name, _ := fields[0].(string)
			arity, _ := fields[1].(int64)
			all = append(all, command{name, int(arity), holds(fields[6], "@dangerous"), holds(fields[2], "no_auth")})
		}
	}
	read(answer)
	slices.SortFunc(all, func(a, b command) int {
		switch {
		case a.dangerous == b.dangerous:
			return strings.Compare(a.name, b.name)
		case a.dangerous:
			return -1
		}
		return 1
	})
	return all, err
}

func holds(list any, text string) bool {
	texts, _ := list.([]any)
	return slices.Contains(texts, any(text))
}

// allowed returns the commands that a user may run and no worker runs. ACL DRYRUN runs nothing; a
// refusal of only the tried name means that the command is allowed.
func allowed(ctx context.Context, c *redis.Client, user string, commands []command) (may []string, err error) {
	pipe := c.Pipeline()
	var asked []*redis.Cmd
	var names []string
	for _, one := range commands {
		if one.always || slices.Contains(WorkerCommands, one.name) {
			continue
		}
		args := []any{"acl", "dryrun", user}
		for word := range strings.SplitSeq(one.name, "|") {
			args = append(args, word)
		}
		for len(args)-3 < max(one.arity, -one.arity) {
			args = append(args, "1")
		}
		asked, names = append(asked, pipe.Do(ctx, args...)), append(names, one.name)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	for i, one := range asked {
		answer, err := one.Text()
		if err != nil {
			return nil, fmt.Errorf("ask whether %s may run %s: %w", user, names[i], err)
		}
		if !strings.Contains(answer, "permissions to run") {
			may = append(may, strings.ToUpper(names[i]))
		}
	}
	return may, nil
}

// foreignName is a name of a key or channel that no map creates.
const foreignName = "unstale-doctor:of-somebody-else"

// namesOf returns the key and channel patterns of a user, as ACL GETUSER writes them, including its
// selectors.
func namesOf(ctx context.Context, c *redis.Client, user string) (patterns []string, err error) {
	answer, err := c.Do(ctx, "acl", "getuser", user).Result()
	if err != nil {
		return nil, fmt.Errorf("ask for the rules of %s: %w", user, err)
	}
	var read func(rules any)
	read = func(rules any) {
		for name, value := range pairs(rules) {
			switch text, _ := value.(string); name {
			case "keys", "channels":
				patterns = append(patterns, strings.Fields(text)...)
			case "selectors":
				list, _ := value.([]any)
				for _, one := range list {
					read(one)
				}
			}
		}
	}
	read(answer)
	slices.Sort(patterns)
	return slices.Compact(patterns), nil
}

// pairs converts a flat list of names and values, as in RESP2.
func pairs(answer any) map[any]any {
	if m, ok := answer.(map[any]any); ok {
		return m
	}
	m := map[any]any{}
	list, _ := answer.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// beyond returns the rules that give a user names that no worker uses, or all names, and rules that
// are not understood. It compares them with one name for each pattern of the map.
func (e *Inputs) beyond(rules []string) (wide, unclear []string) {
	const text = "made-up"
	var keys []string
	for _, n := range e.Map.Names() {
		keys = append(keys, keyspace.TrialKey(n.Glob, text).Name)
	}
	for _, prefix := range append([]string{protocol.StampPrefix, protocol.LeasePrefix, protocol.HoldPrefix}, keyspace.OwnPrefixes...) {
		keys = append(keys, prefix, prefix+text)
	}
	for _, rule := range rules {
		used, pattern := keys, rule
		switch {
		case strings.HasPrefix(rule, "&"):
			used, pattern = []string{e.Map.Channel(), e.Wake}, rule[1:]
		case strings.HasPrefix(rule, "%"):
			_, pattern, _ = strings.Cut(rule, "~")
		default:
			pattern = strings.TrimPrefix(rule, "~")
		}
		glob, err := protocol.CompileGlob(pattern)
		switch {
		case err != nil:
			unclear = append(unclear, quoted(rule))
		case glob.Match(foreignName), !slices.ContainsFunc(used, glob.Match):
			wide = append(wide, rule)
		}
	}
	return wide, unclear
}

// An ACLRole is a kind of client.
type ACLRole string

// The roles. Worker and Reader use the Redis of the cache, Limiter and Locker the one for state.
const (
	Worker   ACLRole = "worker"
	Reader   ACLRole = "reader" // package cache, and readers by docs/protocol.md
	Limiter  ACLRole = "limiter"
	Locker   ACLRole = "locker"
	Exporter ACLRole = "exporter" // redis_exporter
)

// ACLRoles are all roles.
var ACLRoles = []ACLRole{Worker, Reader, Limiter, Locker, Exporter}

// ACLOptions select the rules of a role.
type ACLOptions struct {
	Map *invalidation.Map // of Worker and Reader

	Prefix string // of the keys of Limiter or Locker

	Wake    string // channel of wake-ups, of Worker; "" for none
	Wait    bool   // Worker waits for replicas
	Sharded bool   // Worker publishes with SPUBLISH
	Report  bool   // Reader reports evictions
	Popular bool   // Reader reports popular keys
	Shadow  bool   // Reader reports shadow reads, Worker reads them

	Cluster bool // Redis Cluster, which has one database and whose clients ask for slots
}

// commands are the commands of each role, without those that depend on Options. Package cache has
// no use for MGET, which readers in other languages send.
var commands = map[ACLRole][]string{
	Worker:   append([]string{"ping", "unlink", "get", "set", "scan", "dbsize"}, ruleCommandsOf(keyspace.StatusRules+" "+keyspace.EntryRules)...),
	Reader:   {"get", "mget", "set", "getex", "pttl", "pexpire", "unlink", "time", "evalsha", "eval", "hget", "hgetall", "subscribe", "ping"},
	Limiter:  {"evalsha", "eval", "time", "type", "unlink", "get", "set", "pexpire", "zadd", "zrange", "zremrangebyscore", "zcard", "zscore"},
	Locker:   {"evalsha", "eval", "time", "get", "set", "del", "pexpire", "pttl", "rpush", "blpop"},
	Exporter: {"info", "slowlog|len", "slowlog|get", "latency|latest"},
}

// setCommands clear index sets.
var setCommands = []string{"scard", "renamenx", "sscan", "srem"}

// ClusterRules are the additional rules of a worker, and of accounts for unstale doctor, in Redis
// Cluster.
const ClusterRules = "+cluster|slots +cluster|nodes"

// WorkerCommands are all commands that a worker can need, some of them only in Cluster or with a
// flag.
var WorkerCommands = slices.Concat(commands[Worker], setCommands, ruleCommandsOf(ClusterRules), []string{"select", "subscribe", "publish", "wait", "spublish", "xrange", "clusterscan"})

// ACLRules returns the rules of a role for ACL SETUSER. Each of them is needed.
func ACLRules(role ACLRole, o ACLOptions) (rules []string) {
	names := slices.Clone(commands[role])
	add := func(when bool, more ...string) {
		if when {
			names = append(names, more...)
		}
	}
	var rest []string // keys and channels
	switch role {
	case Worker:
		var sets bool
		rest, sets = workerRules(o.Map)
		add(sets, setCommands...)
		add(o.Wake != "", "subscribe")
		add(o.Sharded, "spublish")
		add(!o.Sharded, "publish")
		add(o.Wait, "wait")
		add(o.Shadow, "xrange")
		for _, channel := range []string{o.Map.Channel(), o.Wake} {
			if channel != "" {
				rest = append(rest, "&"+safe(protocol.Escape(channel)))
			}
		}
		if o.Shadow {
			rest = append(rest, "%R~"+protocol.ShadowKey)
		}
	case Reader:
		add(o.Report || o.Shadow, "xadd")
		add(o.Popular, "zincrby", "zremrangebyrank", "zrange")
		rest = append(readerRules(o.Map), "&"+safe(protocol.Escape(o.Map.Channel())))
		if o.Report {
			rest = append(rest, "%W~"+protocol.ReportKey)
		}
		if o.Shadow {
			rest = append(rest, "%W~"+protocol.ShadowKey)
		}
		if o.Popular {
			rest = append(rest, "~"+protocol.PopularPrefix+"*")
		}
	case Limiter:
		rest = []string{"~" + safe(protocol.Escape(o.Prefix)) + "*"}
	case Locker:
		rest = []string{"~" + safe(protocol.Escape(o.Prefix)) + "{*"}
	}
	if role != Exporter { // which uses database 0
		add(!o.Cluster, "select")
		add(o.Cluster, "cluster|slots")
		add(o.Cluster && role == Worker, "cluster|nodes")
		add(o.Cluster && role != Worker, "command") // where go-redis looks for the key of a command
	}
	for _, name := range names {
		rules = append(rules, "+"+name)
	}
	return append(rules, rest...)
}

// ACLLine returns the command that gives an account these rules and takes all others. It leaves the
// passwords of the account as they are: a new account has none, and cannot log in.
func ACLLine(user string, rules []string) string {
	return fmt.Sprintf("ACL SETUSER %s on resetkeys resetchannels clearselectors -@all %s", user, strings.Join(rules, " "))
}

// ruleCommandsOf returns the commands of rules, without the sign.
func ruleCommandsOf(rules string) (names []string) {
	for rule := range strings.FieldsSeq(rules) {
		if name, isCommand := strings.CutPrefix(rule, "+"); isCommand {
			names = append(names, name)
		}
	}
	return names
}
