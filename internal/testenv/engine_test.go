package testenv

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeEngine is an HTTP server that speaks enough of Docker's protocol to be found. It has one image and can fetch
// none. It stands in for the engine's failures only; what a container does is not imitated.
func fakeEngine(t *testing.T, image string) (host string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.47")
		w.Header().Set("Ostype", "linux")
	})
	mux.HandleFunc("GET /{version}/images/{name}/json", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != image {
			http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
			return
		}
		fmt.Fprintln(w, `{"Id":"sha256:1"}`)
	})
	mux.HandleFunc("POST /{version}/images/create", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"message":"the registry is out of reach"}`, http.StatusInternalServerError)
	})
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return "unix://" + socket
}

func TestEngineHasOrFetchesAnImage(t *testing.T) {
	t.Parallel()
	e, err := dialEngine(t.Context(), fakeEngine(t, "redis:8"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.client.Close()
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if err := e.image(t.Context(), "redis:8", say); err != nil || len(said) > 0 {
		t.Errorf("an image that is there: %v, said %q", err, said)
	}
	err = e.image(t.Context(), "mysql:8.4", say)
	if err == nil || !strings.Contains(err.Error(), "fetch image mysql:8.4: ") || !strings.Contains(err.Error(), "the registry is out of reach") {
		t.Errorf("an image that cannot be had: %v", err)
	}
	if strings.Join(said, "|") != "Docker fetches mysql:8.4" {
		t.Errorf("said %q", said)
	}
}

func TestEngineThatDoesNotAnswer(t *testing.T) {
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
		t.Setenv("DOCKER_HOST", host)
		start := time.Now()
		_, err := findEngine(context.Background())
		if took := time.Since(start); err == nil || took > 10*time.Second { // it would be for ever
			t.Errorf("%s: %v after %s", name, err, took)
		}
	}
}

func TestExistingHosts(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "docker.sock")
	here := fakeEngine(t, "")
	got := existing([]string{"", here, socket, here, "tcp://10.0.0.1:2375"})
	if strings.Join(got, " ") != here+" tcp://10.0.0.1:2375" {
		t.Errorf("existing = %v", got)
	}
}

// The line that says why Docker is not used, and the tests that run without it.
func TestEngineWithoutImagesGivesWayToLocalServers(t *testing.T) {
	t.Parallel()
	out, err := again(t, usesBoth, "DOCKER_HOST="+fakeEngine(t, ""))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, image := range []string{"mysql:8.4", "redis:8"} {
		want := "test servers: fetch image " + image + ": "
		if strings.Count(out, want) != 1 || strings.Count(out, "going on with local servers\n") != 2 {
			t.Errorf("want one line %q..., got\n%s", want, out)
		}
	}
}
