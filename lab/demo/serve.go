package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/console"
	"github.com/unstale/unstale/redisurl"
)

// refillInterval is how often the shop's readers run in Serve. It leaves time to see the missing
// keys.
const refillInterval = 10 * time.Second

// Serve keeps everything running for interactive use, and serves the console. It first prints
// instructions; program is the command that runs unstale. It then prints a line for each message
// and each time that the shop's readers fill the cache again, until ctx ends. The end of ctx is not
// an error.
func (d *Demo) Serve(ctx context.Context, out io.Writer, program string) error {
	if _, err := d.cache.fill(ctx, true); err != nil {
		return unlessEnded(ctx, err)
	}
	address, stop, err := d.serveConsole()
	if err != nil {
		return err
	}
	defer stop()
	if err := d.writeGuide(out, program, address); err != nil {
		return err
	}
	refills := time.NewTicker(refillInterval)
	defer refills.Stop()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.ended:
			return workerEnded(err)
		case h := <-d.listener.events:
			if h.err != nil || len(h.message.Keys)+len(h.message.Patterns) > 0 { // others are heartbeats
				say("%s", d.sentence(h))
			}
		case <-refills.C:
			filled, err := d.cache.fill(ctx, false)
			if err != nil {
				return unlessEnded(ctx, err)
			}
			if filled > 0 {
				say("readers filled %d missing keys", filled)
			}
		}
	}
}

// consoleAddress is the documented address of the console. If it is taken, the demo takes another
// port.
const consoleAddress = "127.0.0.1:9118"

// serveConsole serves the worker's console on a loopback address until stop is called. Its account
// is the demo's own, with all privileges.
func (d *Demo) serveConsole() (address string, stop func(), err error) {
	at, err := redisurl.Parse(d.place.redisURL, false)
	if err != nil {
		return "", nil, err
	}
	page, err := console.New(console.Config{MySQL: d.place.mysql, Redis: at, Worker: d.worker, Actions: true, Logger: d.cfg.Logger})
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", consoleAddress)
	if err != nil {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("listen for the console: %w", err), page.Close())
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is closed
	return "http://" + listener.Addr().String() + "/", func() {
		_ = server.Close() // pages may be cut off
		serving.Wait()
		_ = page.Close() // the demo ends its servers next
	}, nil
}

// unlessEnded drops the error of a call that the end of ctx cut off.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// sentence describes a message that was received.
func (d *Demo) sentence(h heard) string {
	if h.err != nil {
		return "the subscription failed: " + h.err.Error()
	}
	var parts []string
	for _, list := range []struct {
		noun  string
		names []string
	}{{"keys", h.message.Keys}, {"patterns", h.message.Patterns}} {
		if len(list.names) > 0 {
			parts = append(parts, list.noun+" "+strings.Join(list.names, " "))
		}
	}
	return strings.TrimSpace(fmt.Sprintf("received #%d  %s", h.message.Seq, strings.Join(parts, ", ")))
}
