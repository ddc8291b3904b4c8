package docs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/unstale/unstale/internal/testenv"
)

// A service is an entry of docker-compose.yml.
type service struct {
	Image       string
	Build       string
	Command     []string
	Environment variables
	Ports       []string
	Healthcheck struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Restart     string
	ReadOnly    bool `yaml:"read_only"`
}

// variables are a service's environment, which Compose accepts as a mapping or as a list.
type variables map[string]string

func (v *variables) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.MappingNode {
		return node.Decode((*map[string]string)(v))
	}
	var list []string
	if err := node.Decode(&list); err != nil {
		return err
	}
	*v = variables{}
	for _, one := range list {
		name, value, _ := strings.Cut(one, "=")
		(*v)[name] = value
	}
	return nil
}

func services(t testing.TB) map[string]service {
	t.Helper()
	var file struct{ Services map[string]service }
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	return file.Services
}

// docker compose up --wait needs a health check of each service that keeps running, and a service
// that waits for each one that ends.
func TestCompose(t *testing.T) {
	t.Parallel()
	all := services(t)
	var names []string
	for name, s := range all {
		names = append(names, name)
		oneShot := s.Restart == "no"
		if oneShot == (len(s.Healthcheck.Test) > 0) {
			t.Errorf("%s: one-shot %v, health check %q", name, oneShot, s.Healthcheck.Test)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:$") {
				t.Errorf("%s: port %s is open to the network, or cannot be changed", name, port)
			}
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"migrate", "mysql", "redis", "redis-state", "shop", "worker"}) {
		t.Fatalf("services %q", names)
	}
	for _, c := range []struct{ name, on, condition string }{
		{"migrate", "mysql", "service_healthy"},
		{"shop", "migrate", "service_completed_successfully"},
		{"worker", "shop", "service_completed_successfully"},
		{"worker", "redis", "service_healthy"},
	} {
		if got := all[c.name].DependsOn[c.on].Condition; got != c.condition {
			t.Errorf("%s waits for %s with %q, wanted %q", c.name, c.on, got, c.condition)
		}
	}
	// Without it, the account of the try cannot create triggers while the binary log is on (1419).
	if !slices.Contains(all["mysql"].Command, "--log-bin-trust-function-creators=1") {
		t.Errorf("mysql runs %q", all["mysql"].Command)
	}
	// Tests use these images if Docker is available.
	if all["mysql"].Image != "mysql:8.4" || all["redis"].Image != "redis:8" {
		t.Errorf("images %s and %s", all["mysql"].Image, all["redis"].Image)
	}
	// scripts/demo sets these variables, to keep its containers apart from others.
	for name, variables := range map[string][]string{"mysql": {"MYSQL_PORT-", "MYSQL_ROOT_PASSWORD:-"}, "redis": {"REDIS_PORT-", "REDIS_PASSWORD:-"}, "redis-state": {"REDIS_STATE_PORT-", "REDIS_PASSWORD:-"}} {
		for _, variable := range variables {
			if !strings.Contains(fmt.Sprint(all[name]), "${"+variable) {
				t.Errorf("%s does not read ${%s...}", name, variable)
			}
		}
	}
	if a, b := all["migrate"], all["worker"]; a.Image != b.Image || a.Build != "." || b.Build != "." || !a.ReadOnly || !b.ReadOnly {
		t.Errorf("migrate and worker differ: %+v, %+v", a, b)
	}
	// The application's account has the privileges of the page, by column.
	page, made := read(t, accountsPage), strings.Join(all["shop"].Command, " ")
	grants := regexp.MustCompile(`GRANT [^;]* ON shop.cache_[^;]* TO 'shop'@'%';`).FindAllString(made, -1)
	if len(grants) != 3 {
		t.Errorf("shop makes the grants %q", grants)
	}
	for _, grant := range grants {
		if !strings.Contains(page, "\n"+grant) {
			t.Errorf("%s does not have %s", accountsPage, grant)
		}
	}
	for name, settings := range map[string][]string{
		"redis":       {"--maxmemory $", "--maxmemory-policy allkeys-lru", "--appendonly no"},
		"redis-state": {"--maxmemory $", "--maxmemory-policy noeviction", "--appendonly yes"},
	} {
		if _, always := all[name].Environment["REDISCLI_AUTH"]; always {
			t.Errorf("%s sets REDISCLI_AUTH without a password, too, and redis-cli warns", name)
		}
		for _, setting := range settings {
			if command := strings.Join(all[name].Command, " "); !strings.Contains(command, setting) {
				t.Errorf("%s lacks %s: %s", name, setting, command)
			}
		}
	}
}

// Without a Docker engine, make test-docker fails and names what to do.
func TestContainersWithoutEngine(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "make", "test-docker")
	cmd.Dir, cmd.Env = root, append(bare(), "DOCKER_HOST=unix:///nonexistent/docker.sock")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "test-docker: no Docker engine answers (") ||
		!strings.Contains(string(out), "; install or start one, or set DOCKER_HOST") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Every secret is a variable with a default for local use.
func TestComposeSecrets(t *testing.T) {
	t.Parallel()
	for name, s := range services(t) {
		for variable, value := range s.Environment {
			secret := strings.Contains(variable, "PASSWORD") || strings.Contains(variable, "AUTH") ||
				variable == "MYSQL_DSN" || variable == "REDIS_URL"
			if secret && !strings.Contains(value, "PASSWORD:-") {
				t.Errorf("%s: %s is %q", name, variable, value)
			}
		}
	}
}

// testComposeShop runs the SQL of the service shop and, as its account, the README's statements.
// The map that ships finds the shop's tables, and the worker deletes the key.
func testComposeShop(t *testing.T, place, program string) {
	db, cache := testenv.OwnDatabase(t), testenv.Redis(t)
	options, err := redis.ParseURL(cache.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	call(t, program, db.DSN, "migrate", "up")
	command := strings.Join(services(t)["shop"].Command, " ")
	_, script, _ := strings.Cut(command, `--execute="`)
	for range 2 { // compose runs it again at each start
		run(t, db.DB, statements(block{text: strings.TrimSuffix(strings.ReplaceAll(script, "$$SHOP_PASSWORD", "shop"), `"`)})...)
	}
	want(t, db.DB, "SELECT GROUP_CONCAT(id) FROM products", "42,43")
	try := onlyBlock(t, readmePage, "sh", "docker compose up").text
	set := regexp.MustCompile(`redis-cli (SET (\S+) .*)`).FindStringSubmatch(try)
	insert := regexp.MustCompile(`-ushop -pshop shop -e "(.*)"`).FindStringSubmatch(try)
	if set == nil || insert == nil {
		t.Fatalf("%s has no try:\n%s", readmePage, try)
	}
	if err := client.Do(t.Context(), words(set[1])...).Err(); err != nil {
		t.Fatal(err)
	}
	shop := testenv.OpenDB(t, dsn(t, db.DSN, "shop", "shop"))
	run(t, shop, insert[1])
	cmd := exec.CommandContext(t.Context(), program, "run", "--once", "--map", filepath.Join(place, "mapping.yaml"))
	cmd.Env = testenv.Environ("APP_ENV=dev", "MYSQL_DSN="+db.DSN, "REDIS_URL="+cache.URL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unstale run: %v\n%s", err, out)
	}
	want(t, db.DB, "SELECT COUNT(*) FROM cache_outbox_dead", "0")
	if client.Exists(t.Context(), set[2]).Val() != 0 {
		t.Errorf("%s is still in Redis", set[2])
	}
	for _, b := range blocks(t, readmePage, "sql") { // of the quick start
		run(t, shop, statements(b)...)
	}
	want(t, shop, "SELECT price_cents FROM products WHERE id = 42", "4490")
}

// testComposeCommands checks that the program has the commands and variables that the services and
// the image use.
func testComposeCommands(t *testing.T, program string) {
	knows := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), program, append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("unstale %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	all := services(t)
	probe := all["worker"].Healthcheck.Test
	if len(probe) < 3 || probe[0] != "CMD" || probe[1] != "/unstale" {
		t.Fatalf("the image has no shell, but the health check is %q", probe)
	}
	knows(probe[2:]...)
	for _, name := range []string{"migrate", "worker"} {
		help := knows(all[name].Command...)
		for variable := range all[name].Environment {
			// APP_ENV belongs to the map
			if variable != "APP_ENV" && !regexp.MustCompile(`\[`+variable+`[],]`).MatchString(help) {
				t.Errorf("%s: unstale does not read %s", name, variable)
			}
		}
	}
	help := knows("run")
	for _, match := range regexp.MustCompile(`(UNSTALE_[A-Z_]+)=`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		if !strings.Contains(help, "["+match[1]+"]") {
			t.Errorf("Dockerfile: unstale does not read %s", match[1])
		}
	}
}

// The image is minimal, runs as an unprivileged user, and is built by the Go version of go.mod.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	file := read(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	stages := regexp.MustCompile(`(?m)^FROM (?:--\S+ )?(\S+)`).FindAllStringSubmatch(file, -1)
	if len(stages) != 2 || stages[0][1] != "golang:"+version+"-bookworm" || stages[1][1] != "scratch" {
		t.Errorf("stages %q", stages)
	}
	last := file[strings.LastIndex(file, "\nFROM "):]
	for _, line := range []string{"USER 65532:65532", "EXPOSE 9117", `ENTRYPOINT ["/unstale"]`} {
		if !strings.Contains(last, "\n"+line+"\n") {
			t.Errorf("the last stage lacks %s", line)
		}
	}
	if !strings.Contains(file, "-trimpath") || !strings.Contains(file, "-X main.version=") {
		t.Error("the binary has paths of the build, or no version")
	}
	for _, name := range append(pages(t), "docker-compose.yml") {
		if text := read(t, name); strings.Contains(text, "/etc/unstale") && !strings.Contains(last, "UNSTALE_MAP=/etc/unstale/mapping.yaml") {
			t.Errorf("%s and the image differ in where the map is", name)
		}
	}
}

// The image's context has all source files of the build: .dockerignore excludes everything that it
// does not name.
func TestBuildContext(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{$d := .Dir}}{{if not .Standard}}{{with .Module}}{{if .Main}}{{range $.EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}`, "./cmd/unstale")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	embedded := strings.Fields(strings.ReplaceAll(string(out), checkout(t)+"/", ""))
	if len(embedded) == 0 {
		t.Fatal("go list tells of no embedded files")
	}
	ignore := strings.Split(read(t, ".dockerignore"), "\n")
	for _, file := range append(embedded, "go.mod", "go.sum", "main.go") {
		named := slices.ContainsFunc(ignore, func(line string) bool {
			pattern, exception := strings.CutPrefix(line, "!")
			return exception && matches(pattern, file)
		})
		if !named {
			t.Errorf(".dockerignore keeps %s out of the image's context", file)
		}
	}
}

// matches supports the .dockerignore patterns in use: a star within a name, and two leading stars
// for any directory.
func matches(pattern, file string) bool {
	text := regexp.QuoteMeta(pattern)
	text = strings.ReplaceAll(text, `\*\*/`, `(.*/)?`)
	text = strings.ReplaceAll(text, `\*`, `[^/]*`)
	return regexp.MustCompile("^" + text + "$").MatchString(file)
}
