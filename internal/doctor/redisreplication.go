package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// mostBehind is how many bytes of writes a replica may lack: some seconds of a busy cache.
const mostBehind = 10e6

func redisReplication(ctx context.Context, e *Exam) ([]Finding, error) {
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
				all = append(all, unseen(i.addr+": how far a replica is behind", fmt.Errorf("INFO says %s:%s", name, value), ""))
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
		if len(all) == 0 {
			all = append(all, well("%s: %s, none behind", i.addr, count(replicas, "replica")))
		}
		return all
	}, "replication")
	if err != nil || !e.AuditRedis.IsCluster() {
		return all, err
	}
	gone, err := goneReplicas(ctx, e)
	if err != nil {
		return append(all, unseen("replicas that no master hears of", err, "in Redis Cluster the account of the audit needs +cluster|nodes")), nil
	}
	return append(all, gone...), nil
}

var errEnough = errors.New("enough")

// goneReplicas returns the replicas that the Cluster knows and no master lists, since they are
// unavailable: the first master that answers reports them.
func goneReplicas(ctx context.Context, e *Exam) (all []Finding, err error) {
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
