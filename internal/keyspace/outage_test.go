package keyspace_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A command that the user may not run at all is not the fault of a row.
func TestOutageNoPermissionForCommand(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	setUser(t, admin, "worker", "on", ">secret", "~*", "&none", "+@all", "-unlink", "-set", "-scan", "-scard")
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr())})

	_, err := k.Unlinker.Unlink(t.Context(), targets("a", "b"))
	wantOutage(t, err, keyspace.StateNoPerm)
	_, err = k.Unlinker.Unlink(t.Context(), []keyspace.Target{{Key: "a", Hold: time.Minute}})
	wantOutage(t, err, keyspace.StateNoPerm)
	_, err = k.Publisher.Publish(t.Context(), "cache:invalidate", protocol.FormatEvent, keyspace.News{Keys: []string{"a"}})
	wantOutage(t, err, keyspace.StateNoPerm)
	_, err = k.Sweeper.Sweep(t.Context(), []string{"a*"}, nil)
	wantOutage(t, err, keyspace.StateNoPerm)
	_, err = k.Sets.TakeSet(t.Context(), "tag", 1, unheard)
	wantOutage(t, err, keyspace.StateNoPerm)
}

// When the server refuses the connection itself, go-redis leaves the commands of a pipeline without
// an error. That must not pass for success.
func TestOutageWrongPassword(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--requirepass", "secret")
	for _, url := range []string{"redis://:wrong@" + server.Addr(), "redis://" + server.Addr(), "redis://" + server.Addr() + "/1"} {
		k := open(t, keyspace.Options{Redis: at(url)})
		_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
		wantOutage(t, err, keyspace.StateAuth)
		if strings.Contains(err.Error(), "wrong@") || strings.Contains(err.Error(), ":wrong") {
			t.Errorf("error shows the password: %v", err)
		}
		_, err = k.Publisher.Publish(t.Context(), "c", protocol.FormatEvent, keyspace.News{Keys: []string{"a"}})
		wantOutage(t, err, keyspace.StateAuth)
		wantOutage(t, k.Nodes.Ping(t.Context()), keyspace.StateAuth)
	}
}

// Removing needs no memory; a tombstone does, and a full Redis is an outage.
func TestOutageOutOfMemory(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--maxmemory-policy", "noeviction")
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	fill(t, k.Nodes.Client(), "a", "b")
	if err := k.Nodes.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := k.Nodes.Client().Set(t.Context(), "c", "c", 0).Err(); !redis.IsOOMError(err) {
		t.Fatalf("SET in a full server: %v", err)
	}
	mustUnlink(t, k, targets("a"))
	_, err := k.Unlinker.Unlink(t.Context(), []keyspace.Target{{Key: "b", Hold: time.Minute}})
	wantOutage(t, err, keyspace.StateOOM)
}

func TestOutageReadOnlyReplica(t *testing.T) {
	t.Parallel()
	master := testenv.OwnRedis(t)
	replica := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(replica.URL())})
	c := testenv.Client(t, replica.URL())
	if err := c.Do(t.Context(), "replicaof", "127.0.0.1", master.Port()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
	wantOutage(t, err, keyspace.StateReadOnly)

	// A replica without its master that refuses stale reads.
	if err := c.ConfigSet(t.Context(), "replica-serve-stale-data", "no").Err(); err != nil {
		t.Fatal(err)
	}
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "MASTERDOWN", func() bool { return redis.IsMasterDownError(c.Get(t.Context(), "a").Err()) })
	_, err = k.Sweeper.Sweep(t.Context(), []string{"a*"}, nil)
	wantOutage(t, err, keyspace.StateMasterDown)
}

// A server that starts with much data answers LOADING for a while.
func TestOutageLoading(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	fill(t, k.Nodes.Client(), names(2000, "some:key:%d")...)
	if err := k.Nodes.Client().Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error, 1)
	go func() { loaded <- server.Restart(t.Context()) }()
	testenv.Eventually(t, "LOADING", func() bool {
		_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
		wantOutage(t, err, keyspace.StateNetwork, keyspace.StateLoading)
		return redis.IsLoadingError(err)
	})
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "recovery", func() bool { return k.Nodes.Ping(t.Context()) == nil })
	mustUnlink(t, k, targets("some:key:1"))
}

// A server that loads may answer LOADING too late for a command. The state is loading nevertheless,
// until it answers.
func TestOutageLoadingAnswersLate(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "8000")
	k := open(t, keyspace.Options{Redis: at(server.URL()), Timeout: 100 * time.Millisecond})
	admin := testenv.Client(t, server.URL())
	fill(t, admin, names(5000, "some:key:%d")...)
	if err := admin.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error, 1)
	go func() { loaded <- server.Restart(t.Context()) }()
	var states []string
	testenv.Eventually(t, "recovery", func() bool {
		_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
		var o *keyspace.Outage
		if errors.As(err, &o) {
			states = append(states, o.State)
		}
		return err == nil
	})
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	states = slices.Compact(slices.DeleteFunc(states, func(s string) bool { return s == keyspace.StateNetwork }))
	if n := len(slices.DeleteFunc(slices.Clone(states), func(s string) bool { return s != keyspace.StateLoading })); n != 1 {
		t.Errorf("states %q, wanted loading, and once: it may be slow before and after", states)
	}
}

// A server that has just said what keeps it, and then does not answer in time, is in the same state
// still.
func TestOutageBusyThenSilence(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--busy-reply-threshold", "1")
	k := open(t, keyspace.Options{Redis: at(server.URL()), Timeout: 200 * time.Millisecond})
	admin := testenv.Client(t, server.URL())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = admin.WithTimeout(time.Minute).Eval(context.Background(), "while true do end", nil).Err()
	}()
	testenv.Eventually(t, "BUSY", func() bool {
		_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
		return err != nil && strings.Contains(err.Error(), "BUSY")
	})
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
	wantOutage(t, err, keyspace.StateBusy)
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the script's end", func() bool {
		admin.ScriptKill(t.Context())
		return k.Nodes.Ping(t.Context()) == nil
	})
	<-ended
}

// A server that is gone is an outage, and when it is back the same Keyspace works.
func TestOutageServerKilledAndBack(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	mustUnlink(t, k, targets("a"))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
	wantOutage(t, err, keyspace.StateNetwork)
	_, err = k.Publisher.Publish(t.Context(), "c", protocol.FormatEvent, keyspace.News{Keys: []string{"a"}})
	wantOutage(t, err, keyspace.StateNetwork)
	_, err = k.Sweeper.Sweep(t.Context(), []string{"a*"}, nil)
	wantOutage(t, err, keyspace.StateNetwork)
	_, err = k.Sets.TakeSet(t.Context(), "tag", 1, unheard)
	wantOutage(t, err, keyspace.StateNetwork)

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "recovery", func() bool { return k.Nodes.Ping(t.Context()) == nil })
	fill(t, k.Nodes.Client(), "a")
	mustUnlink(t, k, targets("a"))
	wantLeft(t, k.Nodes.Client(), []string{"a"})
}

// After any number of failed dials, the first call after a recovery succeeds.
func TestFirstCallAfterRecovery(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	mustUnlink(t, k, targets("a"))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
		wantOutage(t, err, keyspace.StateNetwork)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustUnlink(t, k, targets("a"))
}

// A server that hangs costs two timeouts, and no more.
func TestOutageTimeout(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	const timeout = 100 * time.Millisecond
	k := open(t, keyspace.Options{Redis: at(server.URL()), Timeout: timeout})
	mustUnlink(t, k, targets("a"))
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err := k.Unlinker.Unlink(t.Context(), targets("a"))
	took := time.Since(start)
	wantOutage(t, err, keyspace.StateTimeout)
	if took < timeout || took > 20*timeout {
		t.Errorf("took %v with a timeout of %v", took, timeout)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
	defer cancel()
	_, err = k.Unlinker.Unlink(ctx, targets("a"))
	wantOutage(t, err, keyspace.StateTimeout)

	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "recovery", func() bool { _, err := k.Unlinker.Unlink(t.Context(), targets("a")); return err == nil })
}

func TestOutageContextAndClose(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	k, err := keyspace.Open(keyspace.Options{Redis: at(r.URL), Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = k.Unlinker.Unlink(ctx, targets("a"))
	wantOutage(t, err, keyspace.StateCanceled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v hides its cause", err)
	}
	for range 2 {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err = k.Unlinker.Unlink(t.Context(), targets("a"))
	wantOutage(t, err, keyspace.StateClosed)
}

// Every error reply has its state. The replies come from a real server, which a script makes say
// them.
func TestOutageStates(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	for reply, want := range map[string]string{
		"LOADING Redis is loading the dataset in memory":     keyspace.StateLoading,
		"CLUSTERDOWN The cluster is down":                    keyspace.StateClusterDown,
		"TRYAGAIN Multiple keys request during rehashing":    keyspace.StateMoving,
		"BUSY Redis is busy running a script":                keyspace.StateBusy,
		"MISCONF Redis is configured to save RDB snapshots":  keyspace.StateMisconf,
		"NOREPLICAS Not enough good replicas to write":       keyspace.StateNoReplicas,
		"CROSSSLOT Keys in request do not hash to same slot": keyspace.StateWrongMode,
		"NOAUTH Authentication required":                     keyspace.StateAuth,
		"ERR max number of clients reached":                  keyspace.StateMaxClients,
		"ERR unknown command 'unlink'":                       keyspace.StateError,
		"SOMETHING that nobody knows":                        keyspace.StateError,
		"NOPERM User x has no permissions to run the 'type'": keyspace.StateNoPerm,
	} {
		err := r.Client.Eval(t.Context(), "return redis.error_reply(ARGV[1])", nil, reply).Err()
		if got := keyspace.StateOf(err); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}
