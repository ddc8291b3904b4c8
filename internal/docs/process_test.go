package docs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// A process is a running worker.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *buffer
	over chan struct{} // closed when it has ended
}

func start(t *testing.T, program, dsn, redisURL string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "run", "--map", file, "--listen", "127.0.0.1:0")
	cmd.Env = testenv.Environ("MYSQL_DSN="+dsn, "REDIS_URL="+redisURL)
	return launch(t, cmd)
}

// launch starts a worker, which is killed at the end of the test if it still runs then.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	w := &process{t: t, cmd: cmd, log: &buffer{}, over: make(chan struct{})}
	cmd.Stderr = w.log
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = w.cmd.Wait(); close(w.over) }() // ProcessState has the exit status
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.over
		if t.Failed() {
			t.Logf("the worker said:\n%s", w.log)
		}
	})
	return w
}

// until waits for a condition, and fails the test if it does not come.
func (w *process) until(what string, condition func() bool) {
	w.t.Helper()
	if !w.comes(time.Minute, condition) {
		w.t.Fatalf("%s: not within a minute", what)
	}
}

// comes reports whether a condition comes within a limit. The process must not end before.
func (w *process) comes(limit time.Duration, condition func() bool) bool {
	w.t.Helper()
	if testenv.Comes(limit, w.over, condition) {
		return true
	}
	select {
	case <-w.over:
		w.t.Fatalf("it ended with %s", w.cmd.ProcessState)
	default:
	}
	return false
}

// get returns the status and the body of a path.
func (w *process) get(path string) string {
	w.t.Helper()
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(w.log.String())
	if address == nil {
		return ""
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + address[1] + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", reply.StatusCode, body)
}

// stop ends the worker as a deployment does.
func (w *process) stop() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	<-w.over
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		w.t.Errorf("exit code %d", code)
	}
}

// A buffer collects the output of a process while the test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) has(part string) bool { return strings.Contains(b.String(), part) }
