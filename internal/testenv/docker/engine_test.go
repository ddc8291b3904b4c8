package main

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// fakeEngine returns an HTTP server that implements enough of Docker's protocol to be found. It has
// one image and can fetch none. It simulates failures of the engine only, not the work of a
// container.
func fakeEngine(t *testing.T, image string) (host string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.47")
		w.Header().Set("Ostype", "linux")
	})
	mux.HandleFunc("GET /{version}/info", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"ServerVersion":"28.0.0"}`) })
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

// An image that the engine has is used. If the engine cannot fetch an image, the error names it.
func TestPrepare(t *testing.T) {
	t.Setenv("DOCKER_HOST", fakeEngine(t, "redis:8"))
	if err := prepare(t.Context(), "redis:8"); err != nil {
		t.Errorf("an image that is there: %v", err)
	}
	err := prepare(t.Context(), "mysql:8.4")
	if err == nil || !strings.Contains(err.Error(), "fetch image mysql:8.4: ") || !strings.Contains(err.Error(), "the registry is out of reach") {
		t.Errorf("an image that cannot be had: %v", err)
	}
}

// If nothing answers at the engine's address that testcontainers finds, this host's address is
// tried. An error names the variable that sets it.
func TestFirstThatAnswers(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const silent = "127.0.0.1:1"
	for _, addresses := range [][2]string{{silent, server.Addr().String()}, {server.Addr().String(), silent}} {
		got, err := firstThatAnswers(t.Context(), addresses[0], addresses[1])
		if err != nil || got != server.Addr().String() {
			t.Errorf("%q: %q, %v", addresses, got, err)
		}
	}
	if _, err := firstThatAnswers(t.Context(), silent, silent); err == nil || !strings.Contains(err.Error(), "set TESTCONTAINERS_HOST_OVERRIDE to the address") {
		t.Errorf("nothing answers: %v", err)
	}
}
