package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/internal/store"
)

// An info is the INFO reply of one master.
type info struct {
	addr   string
	client *redis.Client
	values map[string]string
	// requested fields that are missing: a provider of Redis may hide some
	untold []string
}

// addSection adds the answer for a section.
func (i *info) addSection(section, text string) {
	maps.Copy(i.values, redisclient.Facts(text))
	isTitle := func(line string) bool { return strings.EqualFold(strings.TrimSpace(line), "# "+section) }
	if !slices.ContainsFunc(strings.Split(text, "\n"), isTitle) {
		i.untold = append(i.untold, "the section "+section)
	}
}

// value returns a field, or "" if it is missing.
func (i *info) value(name string) string {
	v, told := i.values[name]
	if !told {
		i.untold = append(i.untold, name)
	}
	return v
}

// number returns a field, or 0 if it is missing.
func (i *info) number(name string) float64 {
	n, err := strconv.ParseFloat(i.values[name], 64)
	if err != nil {
		i.untold = append(i.untold, name)
	}
	return n
}

// calls returns how often a command was called, 0 if never.
func (i *info) calls(command string) (n float64) {
	// a command without calls is not listed
	_, _ = fmt.Sscanf(i.values["cmdstat_"+command], "calls=%g,", &n)
	return n
}

// judge returns the findings of look. A missing field is never reported as well.
func (i *info) judge(look func(*info) []Finding) []Finding {
	all := look(i)
	if len(i.untold) == 0 {
		return all
	}
	slices.Sort(i.untold)
	all = slices.DeleteFunc(all, func(f Finding) bool { return f.Severity == OK })
	return append(all, unknown(i.addr+": what goes by "+strings.Join(slices.Compact(i.untold), ", "), errors.New("its INFO does not tell"), "ask who runs this Redis"))
}

// eachMaster asks each master of the audited Redis for sections of INFO, and calls look with the
// answer.
func eachMaster(ctx context.Context, e *Inputs, look func(*info) []Finding, sections ...string) (all []Finding, err error) {
	return onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) ([]Finding, error) {
		i := &info{addr: addr, client: c, values: map[string]string{}}
		for _, section := range sections {
			text, err := c.Info(ctx, section).Result()
			if err != nil {
				return nil, fmt.Errorf("ask for INFO %s: %w", section, err)
			}
			i.addSection(section, text)
		}
		return i.judge(look), nil
	})
}

// onMasters calls look for each master of a Redis. A master that does not answer is unknown.
func onMasters(ctx context.Context, e *Inputs, n need, look func(c *redis.Client, addr string) ([]Finding, error)) (all []Finding, err error) {
	err = e.redis(n).EachMaster(ctx, func(c *redis.Client) error {
		addr := redisclient.Address(c)
		if err := e.away[n][addr]; err != nil {
			all = append(all, unknown(addr+": it does not answer", err, notReached))
			return nil
		}
		some, err := look(c, addr)
		all = append(all, some...)
		if err != nil {
			all = append(all, unknown(addr+": it could not be looked at", err, ""))
		}
		return ctx.Err()
	})
	return all, err
}

// megabytes formats a size.
func megabytes(n float64) string { return fmt.Sprintf("%.0f MB", n/1e6) }

const (
	mostFragmentation = 1.5
	// bytes: below that the ratio means nothing; an empty Redis has 19
	leastForFragments = 100e6
	mostlyFull        = 0.9    // of maxmemory; an eviction ends just below it
	leastHitRatio     = 0.8    // below it, examine the cache
	leastForHits      = 10_000 // reads
	// per miss; above it, most misses come from the scripts of package cache
	mostScripts        = 0.05
	whyMaxmemory       = "without a limit Redis grows until the system ends it"
	cureMaxmemory      = "set maxmemory in its configuration, and maxmemory-policy allkeys-lru or allkeys-lfu"
	curePolicy         = "set maxmemory-policy allkeys-lru or allkeys-lfu in its configuration"
	policyNoeviction   = "noeviction"
	policyBeginsOfKeys = "allkeys-"
)

func redisMemory(ctx context.Context, e *Inputs) ([]Finding, error) {
	return eachMaster(ctx, e, memoryOf, "server", "memory", "stats", "commandstats")
}

func memoryOf(i *info) (all []Finding) {
	add := func(s Severity, title, evidence, cure string) {
		all = append(all, found(s, title, i.addr+": "+evidence, cure))
	}
	limit, used, policy := i.number("maxmemory"), i.number("used_memory"), i.value("maxmemory_policy")
	switch {
	case limit == 0:
		add(Warning, "maxmemory is not set: "+whyMaxmemory, "maxmemory 0, policy "+policy+", used "+megabytes(used), cureMaxmemory)
	case policy == policyNoeviction:
		add(Critical, "the cache evicts nothing: once full it refuses writes, those of the workers' beacons too, and rows wait",
			fmt.Sprintf("maxmemory-policy noeviction, used %s of %s", megabytes(used), megabytes(limit)), curePolicy)
	case policy == "allkeys-random":
		add(Warning, "the cache evicts keys that are in use, and the workers' beacons: workers then heal what is not lost, and readers close their in-process cache meanwhile",
			fmt.Sprintf("maxmemory-policy allkeys-random, %.0f keys evicted", i.number("evicted_keys")), curePolicy)
	case !strings.HasPrefix(policy, policyBeginsOfKeys):
		add(Warning, "the cache evicts only some keys, and may refuse writes while others fill it", "maxmemory-policy "+policy, curePolicy)
	}
	if evicted := i.number("evicted_keys"); limit > 0 && evicted > 0 && used > mostlyFull*limit && len(all) == 0 {
		hours := max(i.number("uptime_in_seconds"), 1) / 3600
		add(Warning, "the cache is full and evicts keys, perhaps ones that are still read",
			fmt.Sprintf("%s used of %s, %.0f keys evicted in %.1f hours, %.2g per second", megabytes(used), megabytes(limit), evicted, hours, evicted/hours/3600),
			"raise maxmemory, or store less: unstale doctor --keys lists the largest keys and those that live long")
	}
	if ratio := i.number("mem_fragmentation_ratio"); ratio > mostFragmentation && used > leastForFragments {
		add(Warning, "memory is fragmented", fmt.Sprintf("ratio %.2f at %s", ratio, megabytes(used)), "set activedefrag yes, or restart it at a quiet hour")
	}
	hits, misses := i.number("keyspace_hits"), max(0, i.number("keyspace_misses")-i.calls("getrange")) // spot checks read with GETRANGE
	reads, byScripts := hits+misses, i.calls("evalsha") > mostScripts*misses
	if reads >= leastForHits && hits/reads < leastHitRatio && !byScripts {
		add(Warning, "the hit ratio is low", fmt.Sprintf("%.2f of %.0f reads since its start", hits/reads, reads),
			"look for keys that are stored and never read, and for short times to live: unstale doctor --keys")
	}
	if len(all) == 0 {
		ratio := "too few reads to tell a hit ratio"
		switch {
		case reads < leastForHits:
		case byScripts:
			ratio = "the hit ratio is in unstale_cache_requests_total of the readers, since their scripts count several misses for one"
		default:
			ratio = fmt.Sprintf("hit ratio %.2f", hits/reads)
		}
		all = append(all, ok("%s: %s used of %s, policy %s, %.0f keys evicted, %s", i.addr, megabytes(used), megabytes(limit), policy, i.number("evicted_keys"), ratio))
	}
	return all
}

func redisPersistence(ctx context.Context, e *Inputs) ([]Finding, error) {
	return eachMaster(ctx, e, func(i *info) (all []Finding) {
		if i.value("aof_enabled") == "1" {
			all = append(all, found(Warning, "the cache writes an append-only file, which it does not need: each write waits for the disk", i.addr+": aof_enabled 1",
				"set appendonly no, if nothing but a cache is in it"))
		}
		if i.value("rdb_last_bgsave_status") == "err" || i.value("aof_last_write_status") == "err" {
			all = append(all, found(Critical, "Redis cannot write to its disk, and may refuse writes (MISCONF)",
				i.addr+": rdb_last_bgsave_status "+i.values["rdb_last_bgsave_status"]+", aof_last_write_status "+i.values["aof_last_write_status"], "free its disk, or turn persistence off"))
		}
		snapshots, err := i.client.ConfigGet(ctx, "save").Result()
		if _, told := snapshots["save"]; err == nil && !told {
			err = errors.New("it does not tell its setting save")
		}
		switch {
		case err != nil:
			all = append(all, unknown(i.addr+": whether it makes snapshots", err, ""))
		case snapshots["save"] != "":
			all = append(all, found(Info, "the cache makes snapshots; after a restart from one, workers unlink again what it has forgotten",
				i.addr+": save "+snapshots["save"], `set save "", if nothing but a cache is in it`))
		}
		return orOK(all, "%s: neither an append-only file nor snapshots", i.addr)
	}, "persistence")
}

// redisPublishers finds the users of Redis, other than the worker's, that may publish messages to
// readers.
func redisPublishers(ctx context.Context, e *Inputs) (all []Finding, err error) {
	channel, worker := e.Map.Channel(), cmp.Or(e.RedisUser, "default")
	all, err = onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) ([]Finding, error) {
		users, err := publishersAt(ctx, c, channel, worker)
		if err != nil {
			return []Finding{unknown(addr+": who may publish on "+channel, err, "grant the account of --audit-redis-url +acl|users, +acl|getuser and +acl|dryrun")}, nil
		}
		if len(users) == 0 {
			return nil, nil
		}
		return []Finding{found(Warning, "readers trust messages that other users than the worker's may publish",
			fmt.Sprintf("%s: on %s publish also %s", addr, channel, listed(users, mostExcess)), noPublishing(users, channel))}, nil
	})
	if err != nil {
		return all, err
	}
	return orOK(all, "only %s may publish on %s", worker, channel), nil
}

// publishersAt returns the enabled users, except one, that may publish on a channel. It publishes
// nothing.
func publishersAt(ctx context.Context, c *redis.Client, channel, but string) (users []string, err error) {
	known, err := c.Do(ctx, "acl", "users").StringSlice()
	if err != nil {
		return nil, fmt.Errorf("ask for the users: %w", err)
	}
	for _, user := range known {
		if user == but {
			continue
		}
		may := false
		for _, command := range []string{"publish", "spublish"} {
			answer, err := c.Do(ctx, "acl", "dryrun", user, command, channel, "x").Text()
			if err != nil {
				return nil, fmt.Errorf("try PUBLISH of %s with ACL DRYRUN: %w", user, err)
			}
			may = may || answer == "OK"
		}
		if !may {
			continue
		}
		rules, err := c.Do(ctx, "acl", "getuser", user).Result()
		if err != nil {
			return nil, fmt.Errorf("read the flags of %s: %w", user, err)
		}
		if holds(pairs(rules)["flags"], "on") {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	return users, nil
}

// noPublishing returns the ACL lines of docs/accounts.md that keep users from publishing.
func noPublishing(users []string, channel string) string {
	var lines []string
	for _, user := range users[:min(len(users), mostExcess)] {
		if user != "default" {
			lines = append(lines, "ACL SETUSER "+user+" resetchannels &"+channel+" -publish -spublish")
		}
	}
	if slices.Contains(users, "default") {
		lines = append(lines, "ACL SETUSER default off", "(when no client needs it; until then: ACL SETUSER default -publish -spublish)")
	}
	return strings.Join(append(lines, "docs/accounts.md#who-may-publish has the line that keeps wake-ups"), "\n")
}

// mostBehind is how many bytes of writes a replica may lack: some seconds of a busy cache.
const mostBehind = 10e6

func redisReplication(ctx context.Context, e *Inputs) ([]Finding, error) {
	all, err := eachMaster(ctx, e, func(i *info) (all []Finding) {
		if i.value("role") != "master" {
			return []Finding{found(Critical, "this Redis is a replica, which takes no writes", i.addr+": role "+i.values["role"]+", link "+i.values["master_link_status"],
				"name the master in --redis-url, or go by Sentinel or Cluster")}
		}
		replicas := 0
		for name, value := range i.values {
			if _, err := strconv.Atoi(strings.TrimPrefix(name, "slave")); err != nil || !strings.HasPrefix(name, "slave") {
				continue
			}
			replicas++
			fields := map[string]string{}
			for _, pair := range strings.Split(value, ",") {
				field, text, _ := strings.Cut(pair, "=")
				fields[field] = text
			}
			offset, offsetErr := strconv.ParseFloat(fields["offset"], 64)
			lag, lagErr := strconv.Atoi(fields["lag"])
			if err := errors.Join(offsetErr, lagErr); err != nil {
				all = append(all, unknown(i.addr+": how far a replica is behind", fmt.Errorf("INFO says %s:%s", name, value), ""))
				continue
			}
			behind := i.number("master_repl_offset") - offset
			if fields["state"] == "online" && lag <= mostLag && behind <= mostBehind {
				continue
			}
			all = append(all, found(Warning, "a replica is behind: a failover to it forgets unlinks, which workers then make again",
				fmt.Sprintf("%s: %s:%s is %s, %.0f bytes behind, heard of %d s ago", i.addr, fields["ip"], fields["port"], fields["state"], behind, lag),
				"look at its log, its network and its disk; --redis-wait waits for replicas"))
		}
		return orOK(all, "%s: %s, none behind", i.addr, output.Things(replicas, "replica"))
	}, "replication")
	if err != nil || !e.AuditRedis.IsCluster() {
		return all, err
	}
	gone, err := goneReplicas(ctx, e)
	if err != nil {
		return append(all, unknown("replicas that no master hears of", err, "in Redis Cluster the account of the audit needs +cluster|nodes")), nil
	}
	return append(all, gone...), nil
}

var errEnough = errors.New("enough")

// goneReplicas returns the replicas that the Cluster knows and no master lists, since they are
// unavailable: the first master that answers reports them.
func goneReplicas(ctx context.Context, e *Inputs) (all []Finding, err error) {
	err = e.AuditRedis.EachMaster(ctx, func(c *redis.Client) error {
		if e.away[auditRedis][c.Options().Addr] != nil {
			return nil
		}
		text, err := c.ClusterNodes(ctx).Result()
		if err != nil {
			return err
		}
		// id address flags master ping pong epoch link slots
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			if len(words) < 8 {
				continue
			}
			flags := strings.Split(words[2], ",") // nofailover is one too
			if !slices.Contains(flags, "slave") || !slices.Contains(flags, "fail") && !slices.Contains(flags, "fail?") && words[7] == "connected" {
				continue
			}
			addr, _, _ := strings.Cut(words[1], "@")
			all = append(all, found(Warning, "a replica is away: its master has one less to take over", fmt.Sprintf("%s is %s, link %s, as %s says", addr, words[2], words[7], c.Options().Addr),
				"look at its log, its network and its disk"))
		}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return all, err
}

const (
	slowEntries = 128
	slowSince   = time.Hour
)

// redisSlowLog reports only the names of commands, because their arguments are data.
func redisSlowLog(ctx context.Context, e *Inputs) ([]Finding, error) {
	return onMasters(ctx, e, auditRedis, func(c *redis.Client, addr string) (all []Finding, err error) {
		slow, err := slowFrom(ctx, c)
		if err != nil {
			all = append(all, unknown(addr+": what was slow", err, "set slowlog-log-slower-than 10000 and slowlog-max-len 128 in its configuration"))
		}
		entries, err := c.SlowLogGet(ctx, slowEntries).Result()
		if err != nil {
			return all, fmt.Errorf("read the slow log: %w", err)
		}
		read := len(entries)
		entries = slices.DeleteFunc(entries, func(s redis.SlowLog) bool { return time.Since(s.Time) > slowSince })
		if len(entries) == 0 && slow > 0 {
			all = append(all, ok("%s: nothing took longer than %s in the last %s", addr, slow, slowSince))
		}
		if len(entries) == 0 {
			return all, nil
		}
		if len(entries) == read && read >= slowEntries {
			all = append(all, unknown(addr+": what else was slow in the last "+slowSince.String(), fmt.Errorf("the newest %d entries, which were looked at, are all younger", read),
				"raise slowlog-log-slower-than if that is usual here, or slowlog-max-len, and see SLOWLOG GET -1"))
		}
		worst := slices.MaxFunc(entries, func(a, b redis.SlowLog) int { return cmp.Compare(a.Duration, b.Duration) })
		name := "?"
		if len(worst.Args) > 0 {
			name = strings.ToUpper(worst.Args[0])
		}
		all = append(all, found(Warning, "commands were slow, and everybody waited for them", fmt.Sprintf("%s: %s in the last %s, the slowest %s with %s, by %s",
			addr, output.Things(len(entries), "entry", "entries"), slowSince, name, worst.Duration, cmp.Or(worst.ClientName, worst.ClientAddr)),
			"SLOWLOG GET tells whose they are; look for KEYS, large values and large sets"))
		return all, nil
	})
}

// slowFrom returns how long a command must take to be in the slow log. An error means that the log
// is off, or that the setting is unknown.
func slowFrom(ctx context.Context, c *redis.Client) (time.Duration, error) {
	settings, err := c.ConfigGet(ctx, "slowlog-*").Result()
	if err != nil {
		return 0, fmt.Errorf("ask from when on a command is slow: %w", err)
	}
	from, err := strconv.ParseInt(settings["slowlog-log-slower-than"], 10, 64)
	switch {
	case err != nil:
		return 0, errors.New("it does not tell from when on a command is slow")
	case from < 0 || settings["slowlog-max-len"] == "0":
		return 0, errors.New("the slow log is off")
	}
	return max(time.Duration(from)*time.Microsecond, time.Microsecond), nil
}

// redisState finds other data in the cache's Redis: they share its memory, its evictions and its
// losses.
func redisState(ctx context.Context, e *Inputs) ([]Finding, error) {
	cache := e.AuditRedis.DB()
	if e.Redis != nil {
		cache = e.Redis.Nodes.DB()
	}
	return eachMaster(ctx, e, func(i *info) []Finding {
		var others []string
		for name, value := range i.values {
			db, err := strconv.Atoi(strings.TrimPrefix(name, "db"))
			if err != nil || !strings.HasPrefix(name, "db") || db == cache {
				continue
			}
			text := name + " (" + strings.Split(value, ",")[0] + ")"
			if db == e.StateDB {
				text += ", which --redis-db-state names"
			}
			others = append(others, text)
		}
		slices.Sort(others)
		if len(others) > 0 {
			return []Finding{found(Warning, "the cache's Redis has other data as well, which are evicted and forgotten with it", i.addr+": "+strings.Join(others, "; "),
				"give sessions, limits and locks a Redis of their own, with an append-only file")}
		}
		if e.StateDB >= 0 {
			return []Finding{found(Unknown, "whether sessions, limits and locks share the cache's Redis", i.addr+": database "+strconv.Itoa(e.StateDB)+" is empty here", "")}
		}
		return []Finding{ok("%s: no other database has keys; unstale doctor --keys looks at the names in this one", i.addr)}
	}, "keyspace")
}

// stateKept checks the Redis of sessions, limits and locks as packages lock and limit do, and
// whether it is a server of the cache.
func stateKept(ctx context.Context, e *Inputs) ([]Finding, error) {
	caches, cachesUntold := e.cacheServers(ctx)
	channels := slices.DeleteFunc([]string{e.Wake}, func(channel string) bool { return channel == "" })
	return onMasters(ctx, e, aState, func(c *redis.Client, addr string) (all []Finding, _ error) {
		faults := redisclient.StateFaults(ctx, c, channels...)
		if !slices.ContainsFunc(faults, func(f *redisclient.StateFault) bool { return f.IsCache() || f.Err != nil }) {
			server, err := serverOf(ctx, c)
			switch err = errors.Join(cachesUntold, err); {
			case err != nil:
				all = append(all, unknown("whether "+addr+" is the cache's too", err, notGivenRed))
			case slices.Contains(caches, server):
				faults = append(faults, redisclient.CacheFault(addr, "run_id "+server+" is that of a server of the cache"))
			}
		}
		for _, f := range faults {
			if f.Err != nil {
				all = append(all, unknown("whether "+addr+" keeps sessions, limits and locks", f.Err, f.Cure))
				continue
			}
			all = append(all, found(Warning, "the Redis of sessions, limits and locks "+f.Says, addr+": "+f.Seen, f.Cure))
		}
		return orOK(all, "%s keeps an append-only file, evicts nothing, and is not the cache's", addr), nil
	})
}

// cacheServers returns the cache's masters, by the account that is able to read them.
func (e *Inputs) cacheServers(ctx context.Context) (servers []string, err error) {
	var ask *keyspace.Nodes
	for _, n := range []need{aRedis, auditRedis} {
		if _, reason := e.lacks([]need{n}); reason == nil {
			ask = e.redis(n)
		}
	}
	if ask == nil {
		return nil, errors.New(Needs + string(aRedis))
	}
	err = ask.EachMaster(ctx, func(c *redis.Client) error {
		server, err := serverOf(ctx, c)
		servers = append(servers, server)
		return err
	})
	return servers, err
}

// serverOf returns the identity of a server, which changes when it restarts.
func serverOf(ctx context.Context, c *redis.Client) (string, error) {
	text, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("ask for INFO server: %w", err)
	}
	if id := redisclient.Facts(text)["run_id"]; strings.Trim(id, "0") != "" {
		return id, nil
	}
	return "", errors.New("INFO server tells no run_id") // as in some managed services
}

// beacons compares the beacons in Redis with the positions of recent workers.
func beacons(ctx context.Context, e *Inputs) ([]Finding, error) {
	positions, err := store.NewJournal(e.MySQL).RecentPositions(ctx, recently)
	if err != nil {
		return nil, err
	}
	if len(positions) == 0 {
		return []Finding{found(Unknown, "whether this Redis is the workers'", fmt.Sprintf("no batch was settled within %s", recently), "")}, nil
	}
	epochs := make([]string, len(positions))
	for i, p := range positions {
		epochs[i] = p.Epoch
	}
	has, err := e.Redis.Beacons.Survived(ctx, epochs)
	if err != nil {
		return nil, err
	}
	gone, short := 0, 0
	for _, p := range positions {
		switch n := has[p.Epoch]; {
		case n == 0, n == keyspace.Everything:
			gone++
		case n < p.N:
			short++
		}
	}
	var all []Finding
	if away := slices.Sorted(maps.Keys(e.away[aRedis])); len(away) > 0 {
		all = append(all, unknown("what masters that do not answer have of what workers were told", errors.New(strings.Join(away, ", ")), notReached))
	}
	evidence := fmt.Sprintf("of %s of the last %s it lacks %d and has %d in part", output.Things(len(positions), "beacon"), recently, gone, short)
	switch {
	case gone == len(positions):
		return append(all, found(Critical, "this Redis has never heard of the workers: a wrong server or database, or it was emptied", evidence,
			"compare --redis-url and --redis-db-cache with those of the workers; if they are the same, workers heal it by themselves")), nil
	case gone+short > 0:
		return append(all, found(Warning, "Redis has lost what it acknowledged, or is about to be told more", evidence, "nothing: workers heal it within seconds; look again")), nil
	}
	return append(all, ok("Redis has what workers were told in the last %s, by %s", recently, output.Things(len(positions), "beacon"))), nil
}
