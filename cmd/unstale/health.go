package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
)

// healthCommand is "unstale health".
type healthCommand struct {
	listen  string
	alive   bool
	json    bool
	timeout time.Duration
}

func newHealth(p process) *cobra.Command {
	h := &healthCommand{}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Probe a running worker, for containers",
		Long: `Ask the worker on --listen whether it is ready. The image has no shell and no HTTP client, so its
health check runs this command.

Exit codes:
  0  the worker is ready
  1  it is not, or does not answer; the output has the reason`,
		Example: `  unstale health           # /readyz: both servers answer
  unstale health --alive   # /healthz: the loop runs, outage or not`,
		RunE: func(cmd *cobra.Command, _ []string) error { return h.probeWorker(cmd.Context(), p) },
	}
	flags := cmd.Flags()
	flags.StringVar(&h.listen, "listen", defaultListen, "where the worker serves, as given to unstale run")
	flags.BoolVar(&h.alive, "alive", false, "ask /healthz instead of /readyz")
	flags.DurationVar(&h.timeout, "timeout", 2*time.Second, "for the whole answer")
	flags.BoolVar(&h.json, "json", false, "print one JSON object")
	return cmd
}

func (h *healthCommand) probeWorker(ctx context.Context, p process) error {
	address, err := probeAddress(h.listen)
	if err != nil {
		return usageError{err}
	}
	path := "/readyz"
	if h.alive {
		path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	err = probe(ctx, "http://"+address+path)
	if h.json {
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		return errors.Join(err, output.JSON(p.Out, map[string]any{"ok": err == nil, "error": reason}))
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(p.Out, "ok")
	return nil
}

// probeAddress returns where a worker that listens on an address can be reached on the same host:
// one that listens on every interface is asked over loopback.
func probeAddress(listen string) (string, error) {
	if listen == "-" {
		return "", errors.New("--listen is -: the worker serves nothing that could be asked")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("--listen %q: must be host:port", listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// probe returns nil if url answers 200, otherwise the reason that it gives. It takes no proxy from
// the environment.
func probe(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // the body was read
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	var reply struct {
		Error string `json:"error"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, answer.Body, 64<<10)).Decode(&reply); err != nil || reply.Error == "" {
		return fmt.Errorf("ask the worker: %s answers %s; is that unstale?", url, answer.Status)
	}
	return fmt.Errorf("the worker does not work: %s", reply.Error)
}
