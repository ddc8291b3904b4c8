package docs

import (
	"slices"
	"testing"
)

// A cause is a condition that alerts detect.
type cause struct {
	what   string
	bring  func(*drill) (cure func())
	alerts []string
}

// drills are lists of causes. The causes of a list are brought about at the same time, and the
// lists run in sequence. Each alert has a cause here. Rows that must be old get an old time.
var drills = [][]cause{
	{
		{"Redis connections come and go", (*drill).flap, []string{"UnstaleOutagesRepeat"}},
	},
	{
		{"an operator pauses all workers", (*drill).pause, []string{"UnstalePaused", "UnstaleHeartbeatsWithheld", "UnstaleReaderUnhealthy"}},
		{"workers have different maps", (*drill).changeOneMap, []string{"UnstaleMapsDiffer"}},
		{"rows arrive faster than workers process them", (*drill).backlog, []string{"UnstaleLate"}},
		{"Redis is full", (*drill).fillRedis, []string{"RedisEvictions", "RedisEvictionsContinue"}},
		{"a capture trigger is dropped", (*drill).dropTrigger, []string{"UnstaleCaptureDrift"}},
		{"clients read keys that are never stored", (*drill).askForNothing, []string{"RedisHitRatioLow"}},
		{"Redis loses locks", (*drill).loseLocks, []string{"UnstaleLocksLost"}},
		{"a guarded transaction outlives its lock", (*drill).stayInSection, []string{"UnstaleLockGuardOpen"}},
		{"maxclients is reached repeatedly", (*drill).connectTooOften, []string{"RedisConnectionErrors"}},
	},
	{
		{"a transaction locks rows", (*drill).holdRows, []string{"UnstaleStalled", "UnstaleOverdue"}},
		{"triggers are not checked", (*drill).compareNoMore, []string{"UnstaleCaptureUnchecked"}},
		{"an insert uses the last ID", (*drill).useUpIDs, []string{"UnstaleIDsRunOut"}},
		{"another database has the same ID", (*drill).shareID, []string{"UnstaleDatabasesConflict"}},
		{"a program stores old entries", (*drill).storeOldEntries, []string{"UnstaleStaleEntry"}},
		{"an entity is missing from the map", (*drill).unknownEntity, []string{"UnstaleRowsDead"}},
		{"the worker may not access keys", (*drill).foreignKeys, []string{"UnstaleRowsDelayed"}},
		{"an index set is a string", (*drill).notASet, []string{"UnstaleSweepsRefused"}},
		{"a map is invalid", (*drill).breakMap, []string{"UnstaleMapRefused"}},
		{"readers always read new keys", (*drill).readNewKeys, []string{"UnstaleReaderHitRatioLow"}},
		{"loaders fail", (*drill).failLoaders, []string{"UnstaleReaderLoadsFail"}},
		{"maxmemory is off, and half of the values, which have no TTL, are deleted", (*drill).fragment, []string{"RedisWithoutLimit", "RedisFragmentation", "RedisUsedAsDatabase"}},
	},
	{
		{"the sweeping worker hangs", (*drill).holdSweepLock, []string{"UnstaleSweepsStuck"}},
		{"a table is missing", (*drill).hideTable, []string{"UnstaleGaugesUnread"}},
		{"Redis commands are slow", (*drill).slowCommands, []string{"RedisLatency", "RedisSlowLog"}},
		{"a master of a Cluster dies", (*drill).killMaster, []string{"UnstaleMastersAway"}},
	},
	{
		{"the worker may not SCAN", (*drill).forbidScan, []string{"UnstaleSweepsFail"}},
		{"the map's reads change", (*drill).changeReads, []string{"UnstaleReadersDiffer"}},
		{"Redis dies", (*drill).killOther, []string{"RedisDown"}},
		{"the Redis of locks and limits dies", (*drill).killState, []string{"UnstaleLocksFail", "UnstaleLimitsUnsure"}},
	},
	{
		{"a worker's COMMIT hangs", (*drill).hangCommits, []string{"UnstaleStalled"}},
	},
	{
		{"Redis dies, and rows wait", (*drill).killCache, []string{"UnstaleOutage", "UnstaleRowsWait"}},
	},
	{
		{"Redis restarts from an old snapshot, one journal row is corrupt, and a frozen worker locks the rest", (*drill).goBack,
			[]string{"UnstaleHealed", "UnstaleHealingTakesLong", "UnstaleJournalDamaged"}},
	},
}

// lastDrills end all workers, and are not undone.
var lastDrills = [][]cause{
	{
		{"no worker runs", (*drill).stopWorkers, []string{"UnstaleNoWorker"}},
		{"maxclients stays reached, even for the exporter", (*drill).connectForGood, []string{"RedisDown"}},
	},
	{
		{"a worker healed an old snapshot before its first scrape", (*drill).startWorker,
			[]string{"UnstaleHealed"}},
	},
}

// Each alert has a drill.
func TestDrillsAreComplete(t *testing.T) {
	t.Parallel()
	drilled := map[string]bool{}
	for _, causes := range slices.Concat(drills, lastDrills) {
		for _, c := range causes {
			for _, name := range c.alerts {
				drilled[name] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !drilled[a.Alert] {
			t.Errorf("%s is not drilled", a.Alert)
		}
		delete(drilled, a.Alert)
	}
	for name := range drilled {
		t.Errorf("%s is drilled, and there is no such alert", name)
	}
}
