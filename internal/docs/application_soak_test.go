//go:build soak

package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// An application outside the repository gets both modules as docs/adopting.md says, from a module
// proxy with the tags of scripts/tags. It imports all public packages, has no replace, and works.
// `go install` makes the program from the same proxy.
func TestApplicationOfTheTags(t *testing.T) {
	t.Parallel()
	get := strings.TrimSpace(onlyBlock(t, adoptingPage, "sh", "go get").text)
	version := get[strings.LastIndex(get, "@v")+2:]
	dir := t.TempDir()
	proxy := filepath.Join(dir, "proxy")
	tags, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "tags"), version, proxy).Output()
	if err != nil || string(tags) != fmt.Sprintf("v%s\nlock/zk/v%s\n", version, version) {
		t.Fatalf("scripts/tags %s: %v\n%s", version, err, tags)
	}
	cached, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	from := strings.Fields(string(cached))
	c := command{dir: filepath.Join(dir, "shop"), env: append(os.Environ(),
		"GOWORK=off", "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=-trimpath -modcacherw", "GONOSUMDB=github.com/unstale/unstale",
		"GOMODCACHE="+filepath.Join(dir, "modules"), // the user's must not keep these tags
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(from[0], "cache", "download")+","+from[1])}

	var imports strings.Builder
	for _, p := range publicPackages(t) {
		fmt.Fprintf(&imports, "import _ \"github.com/unstale/unstale/%s\"\n", p)
	}
	if err := os.CopyFS(c.dir, os.DirFS(filepath.Join(root, "examples", "application"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"all.go":       "package main\n\n" + imports.String(),
		"mapping.yaml": "version: 1\nentities: {product: {keys: [\"shop:product:{id}\"]}}\n",
		"go.sum":       read(t, "go.sum") + read(t, "lock/zk/go.sum"), // saves a request per module
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.run(t, "go", "mod", "init", "example.com/shop")
	c.run(t, strings.Fields(get)...)
	c.run(t, "go", "mod", "tidy")
	if all := c.run(t, "go", "list", "-m", "-f", "{{.Path}} {{.Version}} {{.Replace}}", "all"); strings.Count(all, " v"+version+" <nil>\n") < 2 || strings.Count(all, "\n") != strings.Count(all, " <nil>\n") {
		t.Errorf("the application's modules:\n%s", all)
	}
	c.run(t, "go", "build", "-o", "shop", ".")

	shop, cache := testenv.MySQL(t), testenv.OwnRedis(t)
	zookeeper, _ := testenv.ZooKeeper(t)
	app := command{dir: c.dir, env: []string{"MYSQL_DSN=" + shop.DSN, "REDIS_URL=" + cache.URL(), "ZOOKEEPER=" + zookeeper.Addrs()[0]}}
	app.run(t, "./shop")

	c.run(t, "go", "install", "github.com/unstale/unstale/cmd/unstale@v"+version)
	if said := app.run(t, filepath.Join(dir, "unstale"), "version"); !strings.HasPrefix(said, "unstale v"+version+" ") {
		t.Errorf("unstale version: %s", said)
	}
}

// A command is the directory and the environment of commands.
type command struct {
	dir string
	env []string
}

// run returns the output of a command that must succeed.
func (c command) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}
