package doctor

import (
	"context"
	"fmt"
	"strings"
)

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

func redisMemory(ctx context.Context, e *Exam) ([]Finding, error) {
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
		all = append(all, well("%s: %s used of %s, policy %s, %.0f keys evicted, %s", i.addr, megabytes(used), megabytes(limit), policy, i.number("evicted_keys"), ratio))
	}
	return all
}
