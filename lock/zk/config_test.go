package zk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/zk"
)

// The error of a bad Backend names every field.
func TestConfig(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		backend zk.Backend
		says    []string
	}{
		{
			zk.Backend{Root: "locks/", User: "a:b"},
			[]string{
				`zk.Backend.Servers is empty: name the servers, such as "zk1.internal:2181"`, `zk.Backend.Root is "locks/": it must be a path such as /unstale/locks`,
				`zk.Backend.User is "a:b": it must not have a colon`,
			},
		},
		{
			zk.Backend{Servers: []string{"a:1,b:1"}, Root: "/a/../b", Password: "x"},
			[]string{`zk.Backend.Servers has "a:1,b:1": each is one host:port`, `zk.Backend.Root is "/a/../b"`, `zk.Backend.User is "": it must not`},
		},
	} {
		_, err := lock.New(lock.Config{Backend: test.backend})
		for _, says := range test.says {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %v, wanted %s", test.backend, err, says)
			}
		}
	}
	if err := (zk.Backend{Servers: []string{"a"}}).WithDefaults().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	if full := (lock.Config{Backend: zk.Backend{}}).WithDefaults(); full.Timeout != 2500*time.Millisecond {
		t.Errorf("defaults with ZooKeeper: %+v", full)
	}
}
