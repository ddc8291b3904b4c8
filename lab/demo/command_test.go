package demo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/demo"
)

// The command "unstale-lab demo" has the documented exit codes and output, and leaves nothing
// behind.
func TestCommand(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "unstale")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/unstale-lab").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, string){
		"good": commandPlays, "wrong": commandFails, "usage": commandRefusesFlags,
		"interrupted": commandIsInterrupted, "served": commandServes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, program)
		})
	}
}

// A command is one run of the program with its own temporary directory.
type command struct {
	*exec.Cmd
	tmp            string
	stdout, stderr bytes.Buffer
}

func newCommand(t *testing.T, program string, args ...string) *command {
	t.Helper()
	tmp, err := os.MkdirTemp("", "d") // short, because of the limit on socket paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	c := &command{tmp: tmp, Cmd: exec.CommandContext(t.Context(), program, append([]string{"demo"}, args...)...)}
	c.Dir = "../.."
	c.Env = append(os.Environ(), "TMPDIR="+tmp, "MYSQL_DSN=somebody's", "REDIS_URL=somebody's", "UNSTALE_JSON=true")
	c.Stdout, c.Stderr = &c.stdout, &c.stderr
	return c
}

// checkEnd checks the exit code, and that no files or processes are left.
func (c *command) checkEnd(t *testing.T, err error, code int) {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, wanted %d\n%s%s", got, code, &c.stdout, &c.stderr)
	}
	left, err := os.ReadDir(c.tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if text, err := os.ReadFile(line); err == nil && bytes.Contains(text, []byte(c.tmp+"/")) {
			t.Errorf("still running: %q", text)
		}
	}
}

// MYSQL_DSN and REDIS_URL point to nothing here, and the demo does not use them. If only MariaDB is
// available, it says so in its first and its last line.
func commandPlays(t *testing.T, program string) {
	database, err := servers.FindDatabase(flavor())
	if err != nil {
		t.Fatal(err)
	}
	c := newCommand(t, program, "--json")
	if database.Tree != "" {
		c.Env = append(c.Env, servers.TreesVariable+"="+filepath.Base(database.Tree))
	}
	c.checkEnd(t, c.Run(), 0)
	var r demo.Report
	if err := json.Unmarshal(c.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v:\n%s", err, &c.stdout)
	}
	checkReport(t, &r, true)
	said, fallback := c.stderr.String(), "There is no MySQL here, so the demo uses MariaDB "+database.Short()+".\n"
	if database.Kind == servers.KindMySQL {
		fallback = "starting M"
	} else if !strings.HasSuffix(said, fallback) {
		t.Errorf("standard error ends without %q:\n%s", fallback, said)
	}
	if !strings.HasPrefix(said, fallback) {
		t.Errorf("standard error begins without %q:\n%s", fallback, said)
	}
}

func commandFails(t *testing.T, program string) {
	g, _ := givenServers(t)
	c := newCommand(t, program, "--mysql-dsn", g.mysql.DSN, "--redis-url", g.redis.URL,
		"--map", changedMap(t, "    keys: [\"{app}:{env}:home\"]\n", ""))
	c.checkEnd(t, c.Run(), 1)
	if c.stderr.String() != "unstale-lab: demo: unexpected results; the report lists them\n" {
		t.Errorf("standard error has\n%s", &c.stderr)
	}
	if !strings.Contains(c.stdout.String(), ":home is still in Redis, but must be gone\n") {
		t.Errorf("standard output has\n%s", &c.stdout)
	}
}

func commandRefusesFlags(t *testing.T, program string) {
	for _, args := range [][]string{{"--serve", "--json"}, {"--flavor", "oracle"}, {"--redis-url", "nonsense"}, {"everything"}} {
		c := newCommand(t, program, args...)
		c.checkEnd(t, c.Run(), 2)
	}
}

// interruptAfter starts the command and sends SIGINT once, as soon as it has printed text.
func (c *command) interruptAfter(t *testing.T, text string) error {
	t.Helper()
	c.Stdout = nil
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	sent := false
	for chunk := make([]byte, 256); ; {
		n, err := pipe.Read(chunk)
		c.stdout.Write(chunk[:n])
		if !sent && bytes.Contains(c.stdout.Bytes(), []byte(text)) {
			sent = true
			if err := c.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
		if err != nil {
			return c.Wait()
		}
	}
}

func commandIsInterrupted(t *testing.T, program string) {
	c := newCommand(t, program, "--flavor", string(flavor()))
	c.checkEnd(t, c.interruptAfter(t, "starting M"), 130)
	if c.stderr.String() != "unstale-lab: the demo was interrupted\n" {
		t.Errorf("standard error has\n%s", &c.stderr)
	}
}

func commandServes(t *testing.T, program string) {
	c := newCommand(t, program, "--serve", "--flavor", string(flavor()))
	c.checkEnd(t, c.interruptAfter(t, "This terminal shows each message"), 0)
	if c.stderr.Len() > 0 {
		t.Errorf("standard error has\n%s", &c.stderr)
	}
}
