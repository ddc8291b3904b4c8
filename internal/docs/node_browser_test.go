//go:build browser

package docs

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

type object = map[string]any

// A nodeProgram is a module that Node.js runs, with JSON in each line of its input and output.
type nodeProgram struct {
	*testing.T
	in    *json.Encoder
	lines *bufio.Scanner
}

// startNode runs a module in a directory where the package redis is installed. files are copied there.
func startNode(t *testing.T, module, url string, files ...string) *nodeProgram {
	t.Helper()
	folder, found := servers.Folder()
	installed := filepath.Join(folder, "browser", "node_modules")
	if _, missing := os.Stat(filepath.Join(installed, "redis")); !found || missing != nil {
		t.Fatal("Node.js or its package redis is missing; run scripts/servers browser")
	}
	place := t.TempDir()
	testenv.Must(t, os.Symlink(installed, filepath.Join(place, "node_modules")))
	for _, file := range files {
		name := filepath.Join(place, file)
		testenv.Must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		testenv.Must(t, os.WriteFile(name, []byte(read(t, file)), 0o644))
	}
	testenv.Must(t, os.WriteFile(filepath.Join(place, "main.mjs"), []byte(module), 0o644))
	cmd := exec.Command("node", "main.mjs", filepath.Join(checkout(t), "protocol"))
	cmd.Dir, cmd.Stderr, cmd.Env = place, os.Stderr, append(os.Environ(), "REDIS_URL="+url)
	in, err := cmd.StdinPipe()
	testenv.Must(t, err)
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // and the test fails
	t.Cleanup(func() {
		_ = in.Close()
		testenv.Must(t, cmd.Wait())
		late.Stop()
	})
	return &nodeProgram{t, json.NewEncoder(in), bufio.NewScanner(out)}
}

// next returns the next line of the output.
func (n *nodeProgram) next() (line object) {
	n.Helper()
	if !n.lines.Scan() {
		n.Fatalf("the program ended: %v", n.lines.Err())
	}
	testenv.Must(n, json.Unmarshal(n.lines.Bytes(), &line))
	return line
}

// want sends a line, unless it is nil, and compares the next line of the output.
func (n *nodeProgram) want(line, want object) {
	n.Helper()
	if line != nil {
		testenv.Must(n, n.in.Encode(line))
	}
	if got := n.next(); fmt.Sprint(got) != fmt.Sprint(want) {
		n.Errorf("after %v: %v, wanted %v", line, got, want)
	}
}

// The subscriber of protocol/conformance matches what Redis matches, in a time that no pattern extends,
// and drops what messages name.
func TestNodeSubscriber(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	channel := server.Channel("cache")
	snippet := read(t, "protocol/conformance/subscriber.mjs")
	channelText := "'" + protocol.DefaultChannel + "'"
	if !strings.Contains(snippet, channelText) {
		t.Fatal("it subscribes to another channel")
	}
	n := startNode(t, strings.Replace(snippet, channelText, "'"+channel+"'", 1)+read(t, "internal/docs/testdata/node/subscriber.mjs"), server.URL)
	n.want(nil, object{"ready": true})
	n.want(object{"set": []string{"kqü", "kqx", "kqab", "list:1", "a*", "ab"}}, object{"keys": 6})
	seq := uint64(0)
	publish := func(m protocol.Message) {
		t.Helper()
		seq++
		m.Epoch, m.Seq, m.At = "E", cmp.Or(m.Seq, seq), time.Now()
		testenv.Must(t, server.Client.Publish(t.Context(), channel, m.Append(nil, protocol.FormatEvent)).Err())
	}
	holds := func(what string, keys ...string) {
		t.Helper()
		testenv.Eventually(t, what, func() bool {
			testenv.Must(t, n.in.Encode(object{"list": true}))
			return fmt.Sprint(n.next()["list"]) == fmt.Sprint(keys)
		})
	}
	publish(protocol.Message{}) // of an unknown epoch
	holds("a new epoch")
	n.want(object{"set": []string{"kqü", "kqx", "kqab", "list:1", "a*", "ab"}}, object{"keys": 6})
	publish(protocol.Message{Patterns: []string{"kq??", `a\*`}})
	holds("what the patterns match", "kqx", "list:1", "ab")
	publish(protocol.Message{Keys: []string{"ab"}})
	holds("a key", "kqx", "list:1")
	publish(protocol.Message{Seq: seq})
	holds("the same number again", "kqx", "list:1")
	publish(protocol.Message{Seq: seq + 5})
	holds("a gap")
	n.want(object{"set": []string{"a"}}, object{"keys": 1})
	testenv.Must(t, server.Client.Publish(t.Context(), channel, "{").Err())
	holds("an unreadable message")
}

// The reader of protocol/conformance names keys and reads entries as the files beside it say, and
// stores no old value. Package cache reads what it stores, and it reads what package cache stores.
// The rules of `unstale acl reader` are enough for it.
func TestNodeReader(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	m, err := invalidation.Parse("mapping.yaml", []byte("version: 1\nentities:\n  thing: {keys: [\"shop:{id}\"], tags: [\"tag-{id}\"]}\n"), nil)
	testenv.Must(t, err)
	testenv.SetUser(t, admin, "reader", append([]string{"on", ">secret", "-@all"}, doctor.ACLRules(doctor.Reader, doctor.ACLOptions{Map: m})...)...)
	n := startNode(t, read(t, "internal/docs/testdata/node/reader.mjs"), "redis://reader:secret@"+server.Addr(), "protocol/conformance/reader.mjs")
	n.want(nil, object{"ready": true}) // and nothing that is wrong
	products, err := cache.New(cache.Config{Redis: admin, Prefix: "shop:"})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, products.Close()) })
	ctx := t.Context()
	tagged := cache.For(time.Hour).Tagged("tag-1")
	cached := func(what, key string, p *cache.Policy, want string) {
		t.Helper()
		got, err := cache.FetchResult(ctx, products, key, func(context.Context) (string, error) { return "loaded", nil }, p)
		if err != nil || got.Value != want || got.Source != cache.FromRedis {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	id := 0
	fetch := func(key string, tags ...string) (line, load object) {
		id++
		return object{"id": id, "key": "shop:" + key, "ttl": 600_000, "tags": append([]string{}, tags...)}, object{"id": id, "load": true}
	}
	of := func(load object, name string, value any) object { return object{"id": load["id"], name: value} }
	lease := func(key string) string { name, _ := protocol.LeaseKey("shop:" + key); return name }
	unlink := func(key string) { testenv.Must(t, admin.Unlink(ctx, lease(key), "shop:"+key).Err()) }
	missing := func(what string, names ...string) {
		t.Helper()
		if n := admin.Exists(ctx, names...).Val(); n != 0 {
			t.Errorf("%s: %d of %q exist", what, n, names)
		}
	}
	stored := func(key string, value string, tags ...string) {
		t.Helper()
		line, load := fetch(key, tags...)
		n.want(line, load)
		n.want(of(load, "value", value), of(load, "value", value))
	}
	hit := func(key string, value string, tags ...string) {
		t.Helper()
		line, load := fetch(key, tags...)
		n.want(line, of(load, "value", value))
	}

	stored("1", "v", "tag-1")
	missing("after the fill", lease("1"))
	hit("1", "v", "tag-1")
	cached("stored by Node", "1", tagged, "v")
	if left := admin.PTTL(ctx, "shop:1").Val(); left > 690*time.Second || left < 400*time.Second {
		t.Errorf("the TTL is %v", left)
	}
	testenv.Must(t, admin.Unlink(ctx, protocol.StampKey("tag-1")).Err())
	stored("1", "w", "tag-1")
	hit("1", "w", "tag-1")
	hit("1", "w") // with a tag that this caller does not name

	_, err = cache.Fetch(ctx, products, "2", func(context.Context) (string, error) { return "of Go", nil }, tagged)
	testenv.Must(t, err)
	hit("2", "of Go", "tag-1")

	line, load := fetch("3") // the worker unlinks during the load
	n.want(line, load)
	unlink("3")
	n.want(of(load, "value", "old"), of(load, "value", "old"))
	missing("after the UNLINK", "shop:3", lease("3"))

	line, load = fetch("4", "tag-4") // the version of the tag goes during the load
	n.want(line, load)
	testenv.Must(t, admin.Unlink(ctx, protocol.StampKey("tag-4")).Err())
	n.want(of(load, "value", "old"), of(load, "value", "old"))
	stored("4", "new", "tag-4")

	line, load = fetch("5") // the load fails: nobody waits for its lease
	n.want(line, load)
	n.want(of(load, "fails", "no database"), of(load, "error", "no database"))
	missing("after a failure", lease("5"))

	line, load = fetch("6") // a tombstone
	hold, _ := protocol.HoldKey("shop:6")
	testenv.Must(t, admin.Set(ctx, hold, "1", time.Minute).Err())
	n.want(line, load)
	n.want(of(load, "value", "old"), of(load, "value", "old"))
	missing("with a tombstone", "shop:6", lease("6"))

	line, load = fetch("7") // two callers, one load
	n.want(line, load)
	second, other := fetch("7")
	scripts := func() (n int) {
		_, after, _ := strings.Cut(admin.Info(ctx, "commandstats").Val(), "cmdstat_eval:calls=")
		_, _ = fmt.Sscan(strings.ReplaceAll(after, ",", " "), &n)
		return n
	}
	before := scripts()
	testenv.Must(t, n.in.Encode(second))
	testenv.Eventually(t, "the second caller waits", func() bool { return scripts() >= before+3 })
	testenv.Must(t, n.in.Encode(of(load, "value", "one")))
	answers := []string{fmt.Sprint(n.next()), fmt.Sprint(n.next())}
	for _, want := range []object{of(load, "value", "one"), of(other, "value", "one")} {
		if !slices.Contains(answers, fmt.Sprint(want)) {
			t.Errorf("two callers: %v, wanted %v", answers, want)
		}
	}

	line, load = fetch("8") // nothing is there, which is remembered
	n.want(line, load)
	n.want(of(load, "missing", true), object{"id": load["id"]})
	line, load = fetch("8")
	n.want(line, object{"id": load["id"]})
	if _, err := cache.Get[string](ctx, products, "8"); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("stored as missing: %v", err)
	}

	testenv.Must(t, admin.RPush(ctx, "shop:9", "x").Err()) // no string: it stays
	stored("9", "v")
	if kind := admin.Type(ctx, "shop:9").Val(); kind != "list" {
		t.Errorf("a list became a %s", kind)
	}
	testenv.Must(t, admin.Set(ctx, "shop:10", `{"f":9}`, 0).Err()) // another format: it stays
	stored("10", "v")
	if text := admin.Get(ctx, "shop:10").Val(); text != `{"f":9}` {
		t.Errorf("another format became %s", text)
	}

	// A worker has left this server: what is there is not used, and nothing is stored.
	now := admin.Time(ctx).Val().UnixMicro()
	beat := func(at int64, lease int64) {
		testenv.Must(t, admin.HSet(ctx, protocol.AliveKey(""), "s", protocol.Alive{Time: at, Lease: lease}.String()).Err())
	}
	beat(now-4_000_000, 10_000)
	stored("1", "loaded", "tag-1")
	missing("without a worker", lease("1"))
	beat(now+60_000_000, 100) // and a map with a short lease
	hit("1", "w", "tag-1")
	line, load = fetch("11")
	n.want(line, load)
	if left := admin.PTTL(ctx, lease("11")).Val(); left > 100*time.Millisecond {
		t.Errorf("the lease lasts for %v", left)
	}
	n.want(of(load, "value", "v"), of(load, "value", "v"))
	if refused := testenv.Denied(t, admin, "reader"); len(refused) > 0 {
		t.Errorf("Redis refused %q", refused)
	}
}
