package docs

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// testRefusals starts workers with errors that waiting cannot fix. Each worker exits with 1 and
// reports the fix, as docs/settings.md promises. (A broken map, a missing database and a schema of
// another version are cases of cmd/unstale.)
func testRefusals(t *testing.T, program string) {
	server := testenv.OwnMySQL(t, "--innodb-autoinc-lock-mode=0", "--log-bin=log", "--server-id=1", "--binlog-format=STATEMENT")
	admin := testenv.OpenDB(t, server.DSN(""))
	run(t, admin, "CREATE DATABASE shop", "CREATE USER 'unstale'@'%' IDENTIFIED BY 'right'", "GRANT ALL ON shop.* TO 'unstale'@'%'")
	as := func(password string) string { return dsn(t, server.TCPDSN("shop"), "unstale", password) }
	call(t, program, as("right"), "migrate", "up")
	run(t, admin, "ALTER TABLE shop.cache_outbox_sweeps ENGINE = MyISAM")

	refused(t, program, as("wrong"), "Access denied")
	refused(t, program, as("right"), "set it to ROW or MIXED", "ALTER TABLE cache_outbox_sweeps ENGINE = InnoDB", "set it to 2 (or 1)")
}

func refused(t *testing.T, program, dsn string, wanted ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "run", "--map", filepath.Join(checkout(t), "mapping.yaml"), "--listen", "-")
	cmd.Env = testenv.Environ("APP_ENV=prod", "MYSQL_DSN="+dsn, "REDIS_URL=redis://127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v\n%s", err, out)
	}
	for _, text := range wanted {
		if !strings.Contains(string(out), text) {
			t.Errorf("it does not say %q:\n%s", text, out)
		}
	}
}
