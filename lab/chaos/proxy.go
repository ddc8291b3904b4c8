package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// A proxy is HAProxy with the files of deploy/haproxy. Only their addresses, paths and account differ.
type proxy struct {
	addr string
	cmd  *exec.Cmd
	gone <-chan error
}

// startProxy writes the files to dir, and returns when the proxy leads to the primary.
func startProxy(ctx context.Context, nodes []*servers.MySQL, dir string) (*proxy, error) {
	program, err := exec.LookPath("haproxy")
	if err != nil {
		return nil, fmt.Errorf("%w; run scripts/servers cluster in the checkout, or install haproxy", err)
	}
	folder, _ := servers.Folder()
	client, err := exec.LookPath("mysql")
	if err != nil {
		client = filepath.Join(folder, "client", "commands", "mysql")
	}
	port, err := servers.FreePort()
	if err != nil {
		return nil, err
	}
	renamed := []string{
		"/etc/haproxy/", dir + "/", "/usr/bin:/bin", filepath.Dir(client) + ":/usr/bin:/bin",
		"127.0.0.1:3306", servers.PortAddress(port), "user = haproxy", "user = root", "password =", "# password =",
	}
	for i, n := range nodes {
		renamed = append(renamed, fmt.Sprintf("192.0.2.%d:3306", i+1), n.Addr())
	}
	for _, name := range []string{"group-replication.cfg", "is-primary", "check.cnf"} {
		text, err := os.ReadFile(filepath.Join(folder, "..", "deploy", "haproxy", name))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.NewReplacer(renamed...).Replace(string(text))), 0o700); err != nil {
			return nil, err
		}
	}
	p := &proxy{addr: servers.PortAddress(port), cmd: exec.Command(program, "-db", "-f", filepath.Join(dir, "group-replication.cfg"))}
	log, err := os.Create(filepath.Join(dir, "haproxy.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if p.gone, err = servers.Start(p.cmd); err != nil {
		return nil, err
	}
	last, led := error(nil), 0 // times in a row: until it has checked them, it leads to each node
	err = rig.Wait(ctx, 30*time.Second, 200*time.Millisecond, func() (bool, error) {
		led++
		var primary bool
		if primary, last = askAt(ctx, "root@tcp("+p.addr+")/", isPrimary); !primary || last != nil {
			led = 0
		}
		return led == 20, nil
	})
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("haproxy leads to no primary: %w: %v: %s", err, last, text), p.close())
	}
	return p, nil
}

func (p *proxy) close() error {
	err := p.cmd.Process.Kill()
	<-p.gone
	return err
}
