package keyspace_test

import (
	"crypto/sha1"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// Shadow reads and entries are read from one server and from all nodes of a Cluster.
func TestShadows(t *testing.T) {
	t.Parallel()
	single, cluster := testenv.Redis(t), testenv.OwnCluster(t, 3, false)
	for url, client := range map[string]redis.UniversalClient{single.URL: single.Client, cluster.URL(): cluster.Client} {
		contents := open(t, keyspace.Options{Redis: at(url)}).Contents
		if found, last, err := contents.Shadows(t.Context(), ""); len(found) > 0 || last != "" || err != nil {
			t.Errorf("%s: %v, %q, %v", url, found, last, err)
		}
		last := ""
		for i := range 6 {
			text, key := fmt.Sprint("text ", i), fmt.Sprint("shop:product:", i)
			s := protocol.Shadow{Process: "web-1", Key: key, Lease: time.UnixMicro(1), Loaded: time.UnixMicro(2), Digest: fmt.Sprintf("%x", sha1.Sum([]byte(text)))}
			for _, values := range [][]string{s.Fields(), {"key", "no report"}} {
				if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ShadowKey, Values: values}).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.Set(t.Context(), key, text, 0).Err(); err != nil {
				t.Fatal(err)
			}
			found, next, err := contents.Shadows(t.Context(), last)
			if err != nil || len(found) != 1 || found[0].Key != key || next == last {
				t.Fatalf("%s: %+v, %q, %v", url, found, next, err)
			}
			last = next
			if digest, err := contents.EntryDigest(t.Context(), key); err != nil || digest != s.Digest {
				t.Errorf("%s: %s: %q, %v", url, key, digest, err)
			}
			if err := client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
			if digest, err := contents.EntryDigest(t.Context(), key); err != nil || digest != "" {
				t.Errorf("%s: %s: %q, %v", url, strings.TrimPrefix(key, "shop:"), digest, err)
			}
		}
	}
}
