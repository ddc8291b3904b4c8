package keyspace

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

const (
	reportPage = 1000 // reports a command
	// reportsRead bounds what is read of a stream that others let grow: what readers leave there,
	// and some that XADD trims later.
	reportsRead = protocol.MaxReports + 10*reportPage
)

// Reports calls visit with the reports of readers and their times by the clock of Redis, newest
// first, down to those from since on. It reads at most as many as readers keep, and skips entries
// that are not reports. The account needs +xrevrange %R~unstale:evicted. An error is an *Outage.
func (c *Contents) Reports(ctx context.Context, since time.Time, visit func(protocol.Report, time.Time)) error {
	from, to := strconv.FormatInt(max(since.UnixMilli(), 0), 10), "+"
	for read := 0; read < reportsRead; read += reportPage {
		page, err := c.nodes.client.XRevRangeN(ctx, protocol.ReportKey, to, from, reportPage).Result()
		if err != nil {
			return c.nodes.outage(ctx, err)
		}
		for _, m := range page {
			if r, err := protocol.ParseReport(fieldsOf(m)); err == nil {
				visit(r, reportTime(m.ID))
			}
		}
		if len(page) < reportPage {
			return nil
		}
		to = "(" + page[len(page)-1].ID
	}
	return nil
}

// fieldsOf returns the fields of an entry of a stream.
func fieldsOf(m redis.XMessage) map[string]string {
	fields := make(map[string]string, len(m.Values))
	for name, value := range m.Values {
		fields[name] = fmt.Sprint(value)
	}
	return fields
}

// reportTime returns the time in the id of an entry, which Redis makes.
func reportTime(id string) time.Time {
	millis, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(millis, 10, 64)
	return time.UnixMilli(n).UTC()
}
