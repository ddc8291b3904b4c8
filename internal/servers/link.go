package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A Link is a network connection that can be disturbed. Not safe for concurrent use.
type Link struct {
	proxy  *toxiproxy.Proxy
	listen string
}

// mostPorts is how many ports are tried, since others may take one after it was found free.
const mostPorts = 5

// patience bounds a wait for the address.
const patience = 10 * time.Second

// NewLink starts a link to an address, such as 127.0.0.1:6379. The caller must Close it.
func NewLink(name, upstream string) (*Link, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	var err error
	for range mostPorts {
		var free int
		if free, err = FreePort(); err != nil {
			break
		}
		l := &Link{proxy: toxiproxy.NewProxy(server, name, PortAddress(free), upstream), listen: PortAddress(free)}
		if err = l.proxy.Start(); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("start link %s: %w", name, err)
}

// Addr returns where clients connect. It stays the same.
func (l *Link) Addr() string { return l.listen }

// Cut ends all connections; new ones are accepted.
func (l *Link) Cut() error {
	l.proxy.Stop()
	return l.Open()
}

// Close ends all connections and refuses new ones.
func (l *Link) Close() { l.proxy.Stop() }

// Open accepts connections again. It waits if the address is in use: a child process between fork
// and exec has a copy of every open listener, so a listener can outlive its Close.
func (l *Link) Open() error {
	for deadline := time.Now().Add(patience); ; {
		err := l.proxy.Start()
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// Point leads the link elsewhere.
func (l *Link) Point(upstream string) error {
	l.proxy.Stop()
	l.proxy.Upstream = upstream
	return l.Open()
}

// Swallow drops every byte in both directions; connections stay.
func (l *Link) Swallow() error {
	return l.add(`{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
		`{"name":"up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)
}

// Slow delays every answer.
func (l *Link) Slow(milliseconds int) error {
	return l.add(fmt.Sprintf(`{"name":"down","type":"latency","stream":"downstream","attributes":{"latency":%d,"jitter":50}}`, milliseconds))
}

// SlowRequests delays every request. One arrives even if its sender has given up.
func (l *Link) SlowRequests(milliseconds int) error {
	return l.add(fmt.Sprintf(`{"name":"up","type":"latency","stream":"upstream","attributes":{"latency":%d}}`, milliseconds))
}

// Tear lets answers through in small pieces and then resets the connection.
func (l *Link) Tear(bytes int) error {
	return l.add(fmt.Sprintf(`{"name":"down","type":"limit_data","stream":"downstream","attributes":{"bytes":%d}}`, bytes))
}

// Calm ends every disturbance; connections stay closed or open.
func (l *Link) Calm(ctx context.Context) { l.proxy.Toxics.ResetToxics(ctx) }

// Reset resets every connection when it is used, and each new one.
func (l *Link) Reset() error {
	return l.add(`{"name":"down","type":"reset_peer","stream":"downstream","attributes":{"timeout":0}}`)
}

func (l *Link) add(toxics ...string) error {
	for _, t := range toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(t)); err != nil {
			return fmt.Errorf("disturb link: %w", err)
		}
	}
	return nil
}

// Heal ends every disturbance, and every connection: some have lost bytes.
func (l *Link) Heal(ctx context.Context) error {
	l.Calm(ctx)
	return l.Cut()
}

// Throttle lets answers through at that many kilobytes a second.
func (l *Link) Throttle(kilobytes int) error {
	return l.add(fmt.Sprintf(`{"name":"down","type":"bandwidth","stream":"downstream","attributes":{"rate":%d}}`, kilobytes))
}

// LinkLeaks are functions of the library whose goroutines may stay for ever, after a disturbance that
// held bytes back.
var LinkLeaks = []string{
	"github.com/Shopify/toxiproxy/v2.(*ToxicLink).read",
	"github.com/Shopify/toxiproxy/v2.(*ToxicLink).write",
	"github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run",
}
