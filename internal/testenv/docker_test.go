package testenv

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// If an engine is unreachable or does not respond, local servers are used instead.
func TestEngineThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, host := range map[string]string{
		"silent": "unix://" + socket,
		"absent": "unix:///nonexistent/docker.sock",
		"broken": "no:such//host",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := again(t, "TestRedisIsEmptyAndOfItsOwn", "DOCKER_HOST="+host)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if strings.Count(out, "test servers: no Docker engine") != 1 || strings.Count(out, "; going on with local servers\n") != 1 {
				t.Errorf("it says\n%s", out)
			}
		})
	}
}
