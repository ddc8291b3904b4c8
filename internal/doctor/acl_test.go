package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
)

func parse(t *testing.T, text string) *invalidation.Map {
	t.Helper()
	m, err := invalidation.Parse("mapping.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// oddMap has literal text that is special in globs, for redis-cli and in YAML.
const oddMap = `version: 1
publish: {channel: "c:1"}
limits: {pattern_prefix: 1}
entities:
  odd:
    keys: ["a[b]:{id}", "q'u o\"te:{id}", "back\\slash:{id}", "über:{id}", "{{x}}:{id}"]
  wide:
    keys: ["shop:{id}:page", "shop:home", "two:{id}{n}"]
    patterns: ["shop:*", "s?op:x:*", "two:*"]
    params: [n]
  a_year:
    keys: ["report:{id}"]
    patterns: ["report:????"]
`

// Names of the map become patterns that match only them, except for bytes that a shell or redis-cli
// could misread. A pattern that another one includes is left out. Redis accepts the line, and reads
// the same patterns from it.
func TestPatterns(t *testing.T) {
	t.Parallel()
	rules := doctor.ACLRules(doctor.Worker, doctor.ACLOptions{Map: parse(t, oddMap)})
	var got []string
	for _, rule := range rules {
		if !strings.HasPrefix(rule, "+") && !strings.Contains(rule, "unstale:") {
			got = append(got, rule)
		}
	}
	want := []string{`~a\[b]:*`, `~back\\slash:*`, `~q?u?o?te:*`, `~report:*`, `~s?op:x:*`, `~shop:*`, `~two:**`, `~{x}:*`, `~??ber:*`, `~lock:fill:*`, `&c:1`}
	if !slices.Equal(got, want) {
		t.Errorf("the rules are\n%q, wanted\n%q", got, want)
	}
	server := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	var words []any
	for _, word := range strings.Fields(doctor.ACLLine("odd", rules)) {
		words = append(words, word)
	}
	if err := admin.Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	for args, allowed := range map[string]bool{
		"get a[b]:1": true, "get ab:1": false, `get back\slash:1`: true, "get back/slash:1": false, "get über:1": true, "get {x}:1": true, "get shop:home": true,
		"keys *": false, "flushall": false, "config get x": false, "shutdown": false, "monitor": false,
	} {
		dryrun := []any{"acl", "dryrun", "odd"}
		for _, word := range strings.Fields(args) {
			dryrun = append(dryrun, word)
		}
		if answer := admin.Do(t.Context(), dryrun...).Val(); (answer == "OK") != allowed {
			t.Errorf("%s: %v", args, answer)
		}
	}
}

// No role but the exporter has a command that Redis counts as dangerous, and none one of
// administrators.
func TestNotDangerous(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	m := parse(t, oddMap)
	for _, role := range doctor.ACLRoles {
		for _, category := range []string{"dangerous", "admin"} {
			listed, err := admin.Do(t.Context(), "acl", "cat", category).StringSlice()
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range doctor.ACLRules(role, doctor.ACLOptions{Map: m, Prefix: "x:", Wake: "w", Wait: true, Report: true, Shadow: true}) {
				if role != doctor.Exporter && slices.Contains(listed, strings.TrimPrefix(rule, "+")) {
					t.Errorf("%s has %s, which is @%s", role, rule, category)
				}
			}
		}
	}
}

// A reader has the keys of reads. Without the section it has what the map unlinks.
func TestReader(t *testing.T) {
	t.Parallel()
	const entities = "version: 1\nentities:\n  thing: {keys: [\"shop:thing:{id}\"], patterns: [\"shop:list:*\"], sets: [\"tag:{id}\"], tags: [\"t-{id}\"]}\n"
	const reads = "reads:\n  thing: {key: \"shop:thing:{thing_id}\", tags: [\"t-{thing_id}\"], ttl: 5m}\n  list: {key: \"shop:list:{page}\", ttl: 5m}\n"
	for text, want := range map[string]string{
		entities:         "~shop:list:* ~shop:thing:* ~stamp:t-*",
		entities + reads: "~shop:list:* ~shop:thing:* ~stamp:t-*",
	} {
		rules := strings.Join(doctor.ACLRules(doctor.Reader, doctor.ACLOptions{Map: parse(t, text)}), " ")
		if !strings.HasSuffix(rules, want+" ~lock:fill:* ~lock:hold:* %R~unstale:alive* &cache:invalidate") || strings.Contains(rules, "publish") {
			t.Errorf("%s\nhas %s", text, rules)
		}
	}
}
