package docs

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
)

// testRunbook runs every command of the symptoms in docs/operations.md with the account that the
// page names: the operator's for unstale, the audit's for SQL and redis-cli.
func testRunbook(t *testing.T, place, program string) {
	env, server := testenv.MySQL(t), testenv.OwnRedis(t)
	schematest.Up(t, env.DB)
	state := testenv.OwnRedis(t, append([]string{"--appendonly", "yes"}, aclUser(t, "docs/doctor.md", "ACL SETUSER unstale_state")...)...)
	operator := runbookAccount(t, env, onlyBlock(t, accountsPage, "sql", "CREATE USER 'unstale_operator'"))
	granted := "XA_RECOVER_ADMIN"
	if env.Flavor == servers.KindMariaDB {
		granted = "BINLOG MONITOR"
	}
	auditSQL := testenv.OpenDB(t, runbookAccount(t, env, onlyBlock(t, "docs/doctor.md", "sql", granted)))
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(t.Context(), words(onlyBlock(t, "docs/doctor.md", "redis", "ACL SETUSER unstale_audit").text)...).Err(); err != nil {
		t.Fatal(err)
	}
	auditor := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "unstale_audit", Password: "change-me-7"})
	defer auditor.Close()
	run(t, env.DB, "INSERT INTO cache_outbox_dead (entity, entity_id, first_id, attempts, reason, error, map_version, created_at) "+
		"VALUES ('coupon', 'SUMMER', 1, 8, 'redis_refused', '', '', '2020-01-01')") // to retry
	commands := 0
	symptoms := func(lang string) (found []block) {
		from, to := lines(t, operationsPage, "## By symptom")
		for _, b := range blocks(t, operationsPage, lang) {
			if from < b.line && b.line < to {
				found = append(found, b)
			}
		}
		return found
	}
	for _, b := range symptoms("sh") {
		for line := range strings.Lines(b.text) {
			commands++
			command := strings.Fields(line)
			switch command[0] {
			case "unstale":
				cmd := exec.CommandContext(t.Context(), program, command[1:]...)
				cmd.Dir, cmd.Env = place, testenv.Environ("APP_ENV=prod", "MYSQL_DSN="+operator, "REDIS_URL="+server.URL(), "REDIS_URL_STATE=redis://unstale_state:change-me-10@"+state.Addr())
				out, err := cmd.CombinedOutput()
				if ended := new(exec.ExitError); command[1] == "status" && errors.As(err, &ended) && ended.ExitCode() > 2 {
					err = nil // exit codes above 2 report that something is stale
				}
				if err != nil {
					t.Errorf("%s:%d: %s: %v\n%s", b.page, b.line, line, err, out)
				}
			case "redis-cli":
				if err := auditor.Do(t.Context(), words(strings.Join(command[1:], " "))...).Err(); err != nil {
					t.Errorf("%s:%d: %s: %v", b.page, b.line, line, err)
				}
			default:
				t.Errorf("%s:%d: nobody runs %s", b.page, b.line, line)
			}
		}
	}
	if commands == 0 {
		t.Errorf("%s has no commands", operationsPage)
	}
	for _, b := range symptoms("sql") {
		for _, statement := range statements(b) {
			rows, err := auditSQL.QueryContext(t.Context(), statement)
			if err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
				continue
			}
			_ = rows.Close()
		}
	}
}

// runbookAccount creates the account of a page on a server that other tests share, and returns its
// DSN.
func runbookAccount(t *testing.T, env *testenv.Database, b block) string {
	t.Helper()
	const password = "change me 7"
	made := statements(b)
	name := strings.Split(made[0], "'")[1]
	own := fmt.Sprintf("%.4s%s", strings.TrimPrefix(name, "unstale_"), strings.TrimPrefix(env.Name, "unstale_test"))
	t.Cleanup(func() { _, _ = env.DB.Exec("DROP USER '" + own + "'@'%'") }) // its database goes too
	run(t, env.DB, "CREATE USER '"+own+"'@'%' IDENTIFIED BY '"+password+"'")
	for _, grant := range made[1:] {
		run(t, env.DB, strings.NewReplacer("'"+name+"'", "'"+own+"'", " shop.", " "+env.Name+".").Replace(grant))
	}
	return dsn(t, env.DSN, own, password)
}
