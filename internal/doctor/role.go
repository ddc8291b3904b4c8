package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// An ACLRole is a kind of client.
type ACLRole string

// The roles. Worker and Reader use the Redis of the cache, Limiter and Locker the one for state.
const (
	Worker   ACLRole = "worker"
	Reader   ACLRole = "reader" // package cache
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

// commands are the commands of each role, without those that depend on Options.
var commands = map[ACLRole][]string{
	Worker:   append([]string{"ping", "unlink", "get", "set", "scan", "dbsize"}, ruleCommandsOf(keyspace.BoardRules+" "+keyspace.EntryRules)...),
	Reader:   {"get", "set", "getex", "pttl", "pexpire", "unlink", "time", "evalsha", "eval", "hget", "hgetall", "subscribe", "ping"},
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
var WorkerCommands = slices.Concat(commands[Worker], setCommands, ruleCommandsOf(ClusterRules), []string{"select", "subscribe", "publish", "wait", "spublish", "xrange"})

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
		made := ruleNamesOf(o.Map)
		add(made.sets, setCommands...)
		add(o.Wake != "", "subscribe")
		add(o.Sharded, "spublish")
		add(!o.Sharded, "publish")
		add(o.Wait, "wait")
		add(o.Shadow, "xrange")
		rest = made.workerRules()
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
