package keyspace

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// Shadows returns the shadow reads that readers reported after the entry of the stream with the
// given ID, oldest first, and the ID of the last one. It reads at most twice as many entries as the
// stream keeps, and skips entries that are not reports. The account needs +xrange
// %R~unstale:shadow. An error is an *Outage.
func (c *Contents) Shadows(ctx context.Context, after string) (reports []protocol.Shadow, last string, err error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	page, err := c.nodes.client.XRangeN(ctx, protocol.ShadowKey, from, "+", 2*protocol.MaxShadows).Result()
	if err != nil {
		return nil, after, c.nodes.outage(ctx, err)
	}
	for _, m := range page {
		after = m.ID
		if s, err := protocol.ParseShadow(fieldsOf(m)); err == nil {
			reports = append(reports, s)
		}
	}
	return reports, after, nil
}

// EntryDigest returns the SHA-1 of a text in Redis in hexadecimal, or "" if the key has none. An
// error is an *Outage.
func (c *Contents) EntryDigest(ctx context.Context, key string) (string, error) {
	text, err := c.nodes.client.Get(ctx, key).Bytes()
	switch {
	case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		return "", nil
	case err != nil:
		return "", c.nodes.outage(ctx, err)
	}
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:]), nil
}
