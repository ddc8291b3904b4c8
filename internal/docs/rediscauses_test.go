package docs

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func (d *drill) fillRedis() (cure func()) {
	d.t.Helper()
	d.must(d.noise.ConfigSet(d.t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	d.must(d.noise.ConfigSet(d.t.Context(), "maxmemory", "10mb").Err())
	large := strings.Repeat("x", 100_000)
	stop := d.steadily(20*time.Millisecond, func(ctx context.Context, n int) { d.noise.Set(ctx, fmt.Sprint("large:", n), large, 0) })
	return func() {
		stop()
		d.must(d.noise.ConfigSet(d.t.Context(), "maxmemory", "100mb").Err())
		d.must(d.noise.FlushAll(d.t.Context()).Err())
		d.stockOther()
	}
}

func (d *drill) askForNothing() (cure func()) {
	return d.steadily(50*time.Millisecond, func(ctx context.Context, _ int) { d.getOther(ctx, "misspelt") })
}

// connectTooOften opens connections until one is refused, and then closes them all. The exporter
// can then report the refusal.
func (d *drill) connectTooOften() (cure func()) {
	return d.steadily(500*time.Millisecond, func(ctx context.Context, _ int) { d.takeConnections(ctx)() })
}

// connectForGood keeps the connections. It also takes the exporter's current connection once it is
// free, so the exporter is refused as well.
func (d *drill) connectForGood() (cure func()) {
	var releases []func()
	stop := d.steadily(20*time.Millisecond, func(ctx context.Context, _ int) { releases = append(releases, d.takeConnections(ctx)) })
	return func() {
		stop()
		for _, release := range releases {
			release()
		}
	}
}

// takeConnections opens connections until one is refused.
func (d *drill) takeConnections(ctx context.Context) (release func()) {
	var taken []net.Conn
	for refused := false; !refused; {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", d.other.Addr())
		if err != nil {
			break
		}
		taken = append(taken, c)
		_, _ = c.Write([]byte("PING\r\n"))
		reply, _ := bufio.NewReader(c).ReadString('\n')
		refused = reply != "+PONG\r\n"
	}
	return func() {
		for _, c := range taken {
			_ = c.Close()
		}
	}
}

// fragment deletes every other value in adjacent memory, so no page of memory is free.
func (d *drill) fragment() (cure func()) {
	d.t.Helper()
	d.must(d.noise.ConfigSet(d.t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	d.must(d.noise.ConfigSet(d.t.Context(), "maxmemory", "0").Err())
	const values = 200_000
	d.must(d.noise.Do(d.t.Context(), "debug", "populate", values, "fragment", 1000).Err())
	_, err := d.noise.Pipelined(d.t.Context(), func(p redis.Pipeliner) error {
		for n := 0; n < values; n += 2 {
			p.Del(d.t.Context(), fmt.Sprint("fragment:", n))
		}
		return nil
	})
	d.must(err)
	return func() {
		d.must(d.noise.ConfigSet(d.t.Context(), "maxmemory", "100mb").Err())
		d.must(d.noise.FlushAll(d.t.Context()).Err())
		d.stockOther()
	}
}

// slowCommands runs commands that sleep: they use no CPU, and leave time for other commands.
func (d *drill) slowCommands() (cure func()) {
	return d.steadily(40*time.Millisecond, func(ctx context.Context, _ int) { d.noise.Do(ctx, "debug", "sleep", "0.02") })
}

func (d *drill) killOther() (cure func()) {
	d.t.Helper()
	d.must(d.other.Kill())
	return func() {
		d.must(d.other.Restart(d.t.Context()))
		d.stockOther()
	}
}
