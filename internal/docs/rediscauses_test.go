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

func (d *drill) connectTooOften() (cure func()) {
	return d.steadily(500*time.Millisecond, func(ctx context.Context, _ int) { d.takeConnections(ctx)() })
}

func (d *drill) connectForGood() (cure func()) { return d.takeConnections(d.t.Context()) }

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

func (d *drill) fragment() (cure func()) {
	d.t.Helper()
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
