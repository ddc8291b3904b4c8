package testenv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		env   []string
		mysql string // image
		redis string // image
		err   string
	}{
		{nil, "mysql:8.4", "redis:8", ""},
		{[]string{"UNSTALE_TEST_DB=mysql"}, "mysql:8.4", "redis:8", ""},
		{[]string{"UNSTALE_TEST_DB=mariadb"}, "mariadb:10.11", "redis:8", ""},
		{[]string{"UNSTALE_TEST_DB=mariadb", "UNSTALE_TEST_MYSQL_IMAGE=mirror/mariadb:11", "UNSTALE_TEST_REDIS_IMAGE=valkey:9"}, "mirror/mariadb:11", "valkey:9", ""},
		{[]string{"UNSTALE_TEST_DB=postgres"}, "", "", `UNSTALE_TEST_DB is "postgres", want mysql, mariadb or nothing`},
		{[]string{"UNSTALE_TEST_SERVERS=podman"}, "", "", `UNSTALE_TEST_SERVERS is "podman", want env, docker, local or nothing`},
	}
	for _, test := range tests {
		s, err := readSettings(environment(test.env...))
		if test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%v: %v, want %s", test.env, err, test.err)
			}
			continue
		}
		if err != nil || s.mysqlImage != test.mysql || s.redisImage != test.redis {
			t.Errorf("%v: images %s and %s, %v, want %s and %s", test.env, s.mysqlImage, s.redisImage, err, test.mysql, test.redis)
		}
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	tests := []struct {
		env  []string
		want []source
		err  string
	}{
		{nil, []source{fromDocker, fromLocal}, ""},
		{[]string{"REDIS_URL=redis://staging", "MYSQL_DSN=root@/"}, []source{fromDocker, fromLocal}, ""},
		{[]string{"UNSTALE_TEST_MYSQL_DSN=root@/"}, []source{fromDocker, fromLocal}, ""},
		{[]string{"UNSTALE_TEST_REDIS_URL=redis://here"}, []source{fromEnv}, ""},
		{[]string{"UNSTALE_TEST_REDIS_URL=redis://here", "UNSTALE_TEST_SERVERS=local"}, []source{fromLocal}, ""},
		{[]string{"UNSTALE_TEST_SERVERS=docker"}, []source{fromDocker}, ""},
		{[]string{"UNSTALE_TEST_SERVERS=env"}, nil, "UNSTALE_TEST_SERVERS is env, but UNSTALE_TEST_REDIS_URL is not set"},
	}
	for _, test := range tests {
		s, err := readSettings(environment(test.env...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.sources(redisVariable, s.redisURL)
		if test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%v: %v, want %s", test.env, err, test.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, %v, want %v", test.env, got, err, test.want)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fails []source
		want  string // what is chosen
		said  string
		err   string
	}{
		{nil, "docker", "", ""},
		{[]source{fromDocker}, "local", "docker is out; going on with local servers", ""},
		{[]source{fromDocker, fromLocal}, "", "docker is out; going on with local servers", "no Redis for the tests: docker: docker is out\nlocal: local is out"},
	}
	for _, test := range tests {
		var said []string
		server, from, err := choose("Redis", []source{fromDocker, fromLocal}, func(from source) (string, error) {
			if slices.Contains(test.fails, from) {
				return "", errors.New(string(from) + " is out")
			}
			return string(from), nil
		}, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if server != test.want || string(from) != test.want || strings.Join(said, "|") != test.said {
			t.Errorf("%v fail: chose %q from %q, said %q", test.fails, server, from, said)
		}
		if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%v fail: %v, want %s", test.fails, err, test.err)
		}
	}
}

func TestNotesAreSaidOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	n := &notes{out: &out}
	for range 2 {
		n.say("no engine")
		n.use("Redis", "8.0.6", fromLocal)
		n.use("MySQL", "9.7.4", fromEnv)
	}
	if out.String() != "test servers: no engine\n" {
		t.Errorf("said %q", out.String())
	}
	if got, want := n.summary(), "MySQL 9.7.4 (env), Redis 8.0.6 (local)"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
}
