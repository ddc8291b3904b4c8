package chaos

import (
	"context"
	"fmt"
	"strings"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A link is a network connection that can be disturbed. Not safe for concurrent use.
type link struct {
	proxy    *toxiproxy.Proxy
	listen   string
	upstream string
}

func newLink(name, upstream string) (*link, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &link{proxy: toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream), upstream: upstream}
	if err := l.proxy.Start(); err != nil {
		return nil, fmt.Errorf("start link %s: %w", name, err)
	}
	l.listen = l.proxy.Listen // stays the same over restarts
	return l, nil
}

func (l *link) addr() string { return l.listen }

// cut ends all connections; new ones are accepted.
func (l *link) cut() error {
	l.proxy.Stop()
	return l.proxy.Start()
}

// close ends all connections and refuses new ones.
func (l *link) close() { l.proxy.Stop() }

// open accepts connections again.
func (l *link) open() error { return l.proxy.Start() }

// point leads the link elsewhere.
func (l *link) point(upstream string) error {
	l.proxy.Stop()
	l.proxy.Upstream = upstream
	return l.proxy.Start()
}

// swallow drops every byte in both directions; connections stay.
func (l *link) swallow() error {
	return l.add(`{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
		`{"name":"up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)
}

// slow delays every answer.
func (l *link) slow(milliseconds int) error {
	return l.add(fmt.Sprintf(`{"name":"down","type":"latency","stream":"downstream","attributes":{"latency":%d,"jitter":50}}`, milliseconds))
}

// tear lets answers through in small pieces and then resets the connection.
func (l *link) tear(bytes int) error {
	return l.add(fmt.Sprintf(`{"name":"down","type":"limit_data","stream":"downstream","attributes":{"bytes":%d}}`, bytes))
}

func (l *link) add(toxics ...string) error {
	for _, t := range toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(t)); err != nil {
			return fmt.Errorf("disturb link: %w", err)
		}
	}
	return nil
}

// heal ends every disturbance, and every connection: some have lost bytes.
func (l *link) heal(ctx context.Context) error {
	l.proxy.Toxics.ResetToxics(ctx)
	return l.cut()
}
