package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

const (
	// probeLimit bounds the look for a Docker engine.
	probeLimit = 800 * time.Millisecond
	// pullLimit bounds the fetching of one image.
	pullLimit = 3 * time.Minute
)

// A dockerEngine is a Docker engine that answered.
type dockerEngine struct {
	client *client.Client
	host   string
}

// findEngine returns the first Docker engine that answers: DOCKER_HOST if that is set, otherwise the docker command's
// current context and the usual sockets.
func findEngine(ctx context.Context) (*dockerEngine, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	var problems []error
	for _, host := range engineHosts(ctx) {
		engine, err := dialEngine(ctx, host)
		if err == nil {
			return engine, nil
		}
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		return nil, errors.New("no Docker engine: DOCKER_HOST is not set and there is no socket")
	}
	return nil, fmt.Errorf("no Docker engine answers: %w", problems[0])
}

func dialEngine(ctx context.Context, host string) (*dockerEngine, error) {
	c, err := client.New(client.FromEnv, client.WithHost(host))
	if err != nil {
		return nil, err
	}
	if _, err := c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		_ = c.Close()
		return nil, err
	}
	return &dockerEngine{client: c, host: host}, nil
}

// engineHosts lists where an engine may be. Sockets that do not exist are left out.
func engineHosts(ctx context.Context) []string {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return []string{host}
	}
	var hosts []string
	if out, err := exec.CommandContext(ctx, "docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}").Output(); err == nil {
		hosts = append(hosts, strings.TrimSpace(string(out)))
	}
	sockets := []string{"/var/run/docker.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		sockets = append(sockets, filepath.Join(home, ".docker/run/docker.sock"))
	}
	for _, socket := range sockets {
		hosts = append(hosts, "unix://"+socket)
	}
	return existing(hosts)
}

// existing drops repetitions and sockets that are not there.
func existing(hosts []string) []string {
	seen := map[string]bool{}
	kept := hosts[:0]
	for _, host := range hosts {
		socket, isSocket := strings.CutPrefix(host, "unix://")
		if isSocket {
			if _, err := os.Stat(socket); err != nil {
				continue
			}
		}
		if host != "" && !seen[host] {
			seen[host] = true
			kept = append(kept, host)
		}
	}
	return kept
}

// image makes sure that the engine has an image, and says so when it must be fetched, which takes a while.
func (e *dockerEngine) image(ctx context.Context, name string, say func(format string, args ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	if _, err := e.client.ImageInspect(ctx, name); err == nil {
		return nil
	}
	say("Docker fetches %s", name)
	pull, err := e.client.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("fetch image %s: %w", name, err)
	}
	return nil
}
