package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// engineLimit bounds the search for a Docker engine: tests without one should lose little time.
const engineLimit = 400 * time.Millisecond

// docker runs the program in the directory docker, which starts a server in a container. The
// container is removed at the end of the tests, and when their process is killed. kind is mysql,
// redis, or fetch for the image alone.
func docker(ctx context.Context, kind, image string) (address string, err error) {
	if err := engineAnswers(); err != nil {
		return "", err
	}
	folder, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/unstale/unstale").Output()
	if err != nil {
		return "", fmt.Errorf("find the program that starts containers: %w", err)
	}
	cmd := exec.Command("go", "run", ".", kind, image)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(folder)), "internal", "testenv", "docker")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0") // no -race
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	said := &progress{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start a container: %w", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	end := func() error { return errors.Join(stdin.Close(), cmd.Wait()) }
	if err != nil {
		_ = end() // the program has printed the reason
		return "", errors.New(said.last)
	}
	shared.add(end)
	return strings.TrimSpace(line), nil
}

// A progress prints the progress of the program, and keeps its last other line, which has the
// reason why it ended. go run adds its exit code.
type progress struct {
	rest string
	last string
}

func (p *progress) Write(text []byte) (int, error) {
	p.rest += string(text)
	for {
		line, rest, ended := strings.Cut(p.rest, "\n")
		switch {
		case !ended:
			return len(text), nil
		case strings.HasPrefix(line, "Docker fetches "):
			run.say("%s", line)
		case !strings.HasPrefix(line, "exit status "):
			p.last = line
		}
		p.rest = rest
	}
}

// engineAnswers checks whether an engine answers at DOCKER_HOST or, without it, at the usual place.
// It does so before the program that can search everywhere is compiled. If the settings ask for
// Docker, that program looks at the places that cannot be checked here.
func engineAnswers() error {
	host := os.Getenv("DOCKER_HOST")
	search := os.Getenv(sourceVariable) == string(fromDocker)
	if host == "" {
		if search {
			return nil
		}
		host = "unix:///var/run/docker.sock"
	}
	scheme, address, ok := strings.Cut(host, "://")
	if scheme == "tcp" || scheme == "http" || scheme == "https" {
		scheme = "tcp"
	} else if !ok || scheme != "unix" {
		if search {
			return nil
		}
		return fmt.Errorf("no Docker engine: DOCKER_HOST is %q; set %s=docker to use an engine that only testcontainers finds", host, sourceVariable)
	}
	if err := ping(scheme, address); err != nil {
		return fmt.Errorf("no Docker engine answers at %s: %w; set DOCKER_HOST if one runs elsewhere", host, err)
	}
	return nil
}

// ping checks that an engine answers. Over TCP, which may need TLS, a connection is enough.
func ping(network, address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), engineLimit)
	defer cancel()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	if network == "tcp" {
		c, err := dial(ctx, "", "")
		if err == nil {
			err = c.Close()
		}
		return err
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
