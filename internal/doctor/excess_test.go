package doctor_test

import (
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// testExcess gives the worker's accounts privileges that no worker needs, one by one: each is
// reported, and none with the accounts of the page.
func testExcess(w *testbed) {
	w.t.Helper()
	excessInRedis(w)
	excessInMySQL(w)
}

// wantExcess checks that a check warns of all excess privileges.
func (w *testbed) wantExcess(check string, all ...string) {
	w.t.Helper()
	found := w.examine(check)
	var told []string
	for _, f := range found {
		if f.Severity == doctor.Warning {
			told = append(told, f.Evidence)
		}
	}
	for _, one := range all {
		if !strings.Contains(strings.Join(told, "\n"), one) {
			w.t.Errorf("%s does not tell %s: %+v", check, one, found)
		}
	}
}

// testElsewhere points the audit to another Redis, and to a replica. The findings about them are
// not well.
func testElsewhere(w *testbed) {
	t := w.t
	t.Helper()
	right := w.inputs.AuditRedis
	other := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: other.Addr()})
	defer admin.Close()
	do := func(command string) {
		t.Helper()
		var args []any
		for _, word := range strings.Fields(command) {
			args = append(args, word)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do("acl setuser " + audit + " " + auditRules)
	w.inputs.AuditRedis = w.keysAt(other.Addr(), audit, 3).Nodes // another database than the worker's
	check := func(says string, severity doctor.Severity) {
		t.Helper()
		if f := find(w.examine("reach"), "reach", says); f == nil || f.Severity != severity {
			t.Errorf("reach does not tell %q: %+v", says, w.examine("reach"))
		}
		for _, check := range []string{"redis-rights", "redis-publishers", "redis-memory", "redis-persistence", "redis-slowlog", "redis-replication", "redis-state"} {
			w.wantUnknown(check, says)
		}
	}
	check("leads to another server than --redis-url", doctor.Warning)
	w.do("acl setuser default on nopass ~* &* +@all")
	do("replicaof " + strings.Replace(w.redis.Addr(), ":", " ", 1))
	testenv.Eventually(t, "the replica to follow", func() bool {
		f := find(w.examine("reach"), "reach", "a replica of it")
		return f != nil && f.Severity == doctor.Info
	})
	check("a replica of it", doctor.Info)
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	w.inputs.AuditRedis = w.keys(audit, 3).Nodes
	if all := w.examine("reach", "redis-persistence"); doctor.Worst(all).AtLeast(doctor.Unknown) {
		t.Errorf("the workers' server is taken for another: %+v", all)
	}
	w.inputs.AuditRedis = right
	w.acl(audit, "-get")
	w.wantUnknown("reach", "look for a mark")
	w.acl(audit, "+get")
	// Of the keys that doctor stores, those of permission trials live for a second; a mark is
	// deleted at the end of the examination.
	if left, err := w.admin.Keys(t.Context(), keyspace.OwnPrefixes[0]+"doctor:*").Result(); err != nil || len(left) > 0 {
		t.Errorf("marks are left: %q, %v", left, err)
	}
}

func excessInRedis(w *testbed) {
	give := func(rules string) { w.acl(worker, "reset "+workerRules(w.t)+" "+rules) }
	for _, commands := range []string{
		"migrate restore sort sync psync module|load failover cluster|info bgsave bgrewriteaof latency|reset info role config|set debug",
		"keys flushall flushdb swapdb shutdown monitor replicaof acl|setuser save client|kill script|load function|load fcall del rename",
	} {
		give("+" + strings.ReplaceAll(commands, " ", " +"))
		w.wantExcess("redis-rights", strings.Split(strings.ToUpper(commands), " ")...)
	}
	give("+@all")
	w.wantExcess("redis-rights", "ACL|", "more")
	give("+migrate ~sess:* &* %R~other:* (+get ~third:*)")
	w.wantExcess("redis-rights", "MIGRATE", "~sess:*", "&*", "%R~other:*", "~third:*")
	give("~*")
	w.wantExcess("redis-rights", "~*")
	give("~zahraah:[ab]*")
	w.wantUnknown("redis-rights", "nobody can compare")
	give("")
	w.acl(audit, "-acl|getuser")
	w.wantUnknown("redis-rights", "+acl|getuser")
	w.acl(audit, "-command")
	w.wantUnknown("redis-rights", "+command")
	w.acl(audit, "+command +acl|getuser")
	m := w.inputs.Map
	w.inputs.Map = nil
	w.wantUnknown("redis-rights", "give --map")
	w.wantUnknown("mysql-rights", "without a map: SELECT on `shop`.`product_categories`")
	w.inputs.Map = m
	for _, check := range []string{"redis-rights", "mysql-rights"} {
		if all := w.examine(check); len(all) != 1 || all[0].Severity != doctor.OK {
			w.t.Errorf("with the rules of unstale acl: %+v", all)
		}
	}
	shipped, err := os.ReadFile("../../mapping.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	w.useMap(string(shipped))
	w.acl(worker, "reset "+workerRules(w.t, string(shipped)))
	for _, f := range w.examine("redis-rights") {
		if f.Severity != doctor.OK {
			w.t.Errorf("the shipped map with the rules of unstale acl: %+v", f)
		}
	}
	w.inputs.Map = m
	give("")
}

func excessInMySQL(w *testbed) {
	mysql := w.db.Flavor == servers.KindMySQL
	w.sql("CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1", "CREATE ROLE idle", "GRANT DROP ON shop.cache_outbox_summaries TO idle")
	var given, told []string
	for _, g := range []struct{ right, on, told string }{
		{"DELETE", "shop.cache_outbox_audit", "DELETE on `shop`.`cache_outbox_audit`"},
		{"INSERT", "shop.cache_outbox_control", "INSERT on `shop`.`cache_outbox_control`"},
		{"UPDATE", "shop.cache_outbox_dead", "UPDATE on `shop`.`cache_outbox_dead`"},
		{"INSERT (entity)", "shop.cache_outbox", "INSERT (`entity`) on `shop`.`cache_outbox`"},
		{"SELECT", "shop.products", "SELECT on `shop`.`products`"},
		{"UPDATE", "shop.product_categories", "UPDATE on `shop`.`product_categories`"},
		{"SELECT", "mysql.*", "SELECT on `mysql`.*"},
		{"EXECUTE", "shop.*", "EXECUTE on `shop`.*"},
		{"EXECUTE", "FUNCTION shop.f", "EXECUTE on FUNCTION `shop`.`f`"},
		{"FILE", "*.*", "FILE"},
	} {
		given, told = append(given, g.right+" ON "+g.on), append(told, g.told)
	}
	for _, g := range given {
		w.sql("GRANT " + g + " TO 'unstale'@'%'")
	}
	w.sql("GRANT SELECT ON shop.cache_outbox_version TO 'unstale'@'%' WITH GRANT OPTION", "GRANT idle TO 'unstale'@'%'")
	w.inputs.MySQL = w.mysql(worker, "shop")
	w.wantExcess("mysql-rights", append(told, "GRANT OPTION on `shop`.`cache_outbox_version`")...)
	w.wantUnknown("mysql-rights", "`idle`")
	active := "SET DEFAULT ROLE idle TO 'unstale'@'%'"
	if !mysql {
		active = "SET DEFAULT ROLE idle FOR 'unstale'@'%'"
	}
	w.sql(active)
	w.inputs.MySQL = w.mysql(worker, "shop")
	w.wantExcess("mysql-rights", "DROP on `shop`.`cache_outbox_summaries`")
	well := func(when string) {
		w.t.Helper()
		for _, f := range w.examine("mysql-rights", "lookups") {
			if f.Severity.AtLeast(doctor.Warning) {
				w.t.Errorf("%s: %+v", when, f)
			}
		}
	}
	w.sql("CREATE USER 'admin'@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO 'admin'@'%' WITH GRANT OPTION")
	w.useAccountOfCure("admin")
	well("with its own cure, by an administrator")
	w.useAccountOfCure(worker)
	well("with its own cure")
	w.sql("DROP USER admin, unstale_worker", "DROP ROLE idle", "DROP FUNCTION f", "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'unstale'@'%'")
	for _, rights := range doctor.WorkerRights {
		w.sql("GRANT " + strings.Join(rights.Rights, ", ") + " ON shop." + rights.Table + " TO 'unstale'@'%'")
	}
	w.sql("GRANT SELECT ON shop.product_categories TO 'unstale'@'%'")
	w.inputs.MySQL = w.mysql(worker, "shop")
	m := w.inputs.Map
	w.sql("CREATE SQL SECURITY INVOKER VIEW listed AS SELECT product_id, category_id FROM product_categories")
	w.useMap(strings.Replace(everything, "FROM product_categories", "FROM listed", 1))
	w.sql("GRANT SELECT ON shop.listed TO 'unstale'@'%'")
	w.wantUnknown("mysql-rights", "lookups name listed, which may need it: SELECT on `shop`.`product_categories`")
	well("of a view that reads with the rights of who asks")
	w.inputs.Map = m
	w.sql("DROP VIEW listed")
}

// useAccountOfCure examines an account that may do more than a worker, creates the account of the
// check's own fix, and uses it. The fix takes nothing from the first account.
func (w *testbed) useAccountOfCure(user string) {
	w.t.Helper()
	w.inputs.MySQL = w.mysql(user, "shop")
	f := find(w.examine("mysql-rights"), "mysql-rights", "may do more")
	if f == nil || strings.Contains(f.Cure, "REVOKE") {
		w.t.Fatalf("%+v", f)
	}
	w.sql("DROP USER IF EXISTS 'unstale_worker'@'%'")
	for line := range strings.Lines(f.Cure) {
		if statement := strings.TrimSpace(line); strings.HasSuffix(statement, ";") {
			w.sql(strings.Replace(statement, "change me", "secret", 1))
		}
	}
	w.inputs.MySQL = w.mysql("unstale_worker", "shop")
}
