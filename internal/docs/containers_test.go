//go:build docker

package docs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// stackLimit bounds one command, the build of the image included.
const stackLimit = 30 * time.Minute

// A stack is docker-compose.yml in a separate project, on ports that Docker chooses.
type stack struct {
	t       *testing.T
	project string
	env     []string
}

// newStack returns a stack that is not up yet. It is removed at the end of the test.
func newStack(t *testing.T, env ...string) *stack {
	t.Helper()
	s := &stack{t: t, project: "unstale-test-" + strings.ToLower(rand.Text()[:8])}
	s.env = append(append(bare(), "COMPOSE_PROJECT_NAME="+s.project, "MYSQL_PORT=", "REDIS_PORT=", "REDIS_STATE_PORT=", "WORKER_PORT="), env...)
	t.Cleanup(func() {
		if t.Failed() {
			_, out, _ := s.try("docker compose ps --all; docker compose logs --no-color --tail 20")
			t.Logf("the containers:\n%s", out)
		}
		if _, out, err := s.try("docker compose down --volumes --timeout 1"); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	return s
}

// try runs a command in the checkout and returns its standard output, and both outputs together.
func (s *stack) try(command string) (said, all string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stackLimit) // Cleanup has no t.Context
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	var out, both buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = root, s.env, &out, &both
	err = cmd.Run()
	return out.String(), out.String() + both.String(), err
}

// sh runs a command that must succeed. redis-cli must not warn about a password.
func (s *stack) sh(command string) (said string) {
	s.t.Helper()
	said, all, err := s.try(command)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, all)
	}
	if strings.Contains(all, "AUTH") {
		s.t.Errorf("%s says\n%s", command, all)
	}
	return strings.TrimSpace(said)
}

// comes waits until a command prints the text.
func (s *stack) comes(command, want string) {
	s.t.Helper()
	testenv.Eventually(s.t, command+" prints "+strconv.Quote(want), func() bool { return s.sh(command) == want })
}

// sql runs statements in the shop's database.
func (s *stack) sql(account, statements string) string {
	s.t.Helper()
	return s.sh(fmt.Sprintf(`docker compose exec mysql mysql -N %s shop -e "%s"`, account, statements))
}

const (
	asRoot = "-uroot -proot"
	asShop = "-ushop -pshop"
)

// The README's lines lead from nothing to a key that is gone. Three workers delete more, triggers
// are created if MySQL allows them, and nothing is left in the end.
func TestComposeFromNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.sh("docker compose build") // what up does only for an image that is missing
	try := strings.Split(strings.TrimSpace(onlyBlock(t, readmePage, "sh", "docker compose up").text), "\n")
	if len(try) != 5 {
		t.Fatalf("%s has the lines %q", readmePage, try)
	}
	up, set, insert, get, down := try[0], try[1], try[2], try[3], try[4]
	began := time.Now()
	s.sh(up)
	t.Logf("%s: %s", up, time.Since(began).Round(time.Second))
	if said := s.sh(set); said != "OK" {
		t.Errorf("%s: %s", set, said)
	}
	s.sh(insert)
	s.comes(get, "")
	if said := s.sql(asRoot, "SELECT COUNT(*) FROM cache_outbox_dead"); said != "0" {
		t.Errorf("%s dead letters", said)
	}
	s.scale()
	s.sh(set)
	s.capture()
	s.comes(get, "")
	s.sh(down)
	for _, list := range []string{"ps --all", "volume ls", "network ls"} {
		if left := s.sh("docker " + list + " --quiet --filter label=com.docker.compose.project=" + s.project); left != "" {
			t.Errorf("docker %s: %s is left", list, left)
		}
	}
}

// scale starts three workers as the compose file says, which empty the queue together.
func (s *stack) scale() {
	s.t.Helper()
	s.sh(regexp.MustCompile(`(?m)^#   (.* --scale worker=3)$`).FindStringSubmatch(read(s.t, "docker-compose.yml"))[1])
	var status struct{ Workers []json.RawMessage }
	if err := json.Unmarshal([]byte(s.sh("docker compose exec --index 3 worker /unstale status --json")), &status); err != nil || len(status.Workers) != 3 {
		s.t.Errorf("%d workers, %v", len(status.Workers), err)
	}
	var keys, rows []string
	for id := range 100 {
		keys = append(keys, fmt.Sprintf("zahraah:dev:product:%d", id))
		rows = append(rows, fmt.Sprintf("('product', '%d')", id))
	}
	s.sh("docker compose exec redis redis-cli MSET " + strings.Join(keys, " old ") + " old")
	s.sql(asShop, "INSERT INTO cache_outbox (entity, entity_id) VALUES "+strings.Join(rows, ", "))
	s.comes("docker compose exec redis redis-cli EXISTS "+strings.Join(keys, " "), "0")
}

// capture creates triggers by the account of docker-compose.yml, and changes a price. If the server
// has a binary log and only SUPER may create triggers, a dry run reports that.
func (s *stack) capture() {
	s.t.Helper()
	place := s.t.TempDir()
	text := "version: 1\nentities:\n  product: { keys: [\"product:{id}\"] }\ncapture:\n  products: { entity: product, id: id }\n"
	// The container has another user, who must be able to read it.
	if err := os.WriteFile(filepath.Join(place, "shop.yaml"), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	apply := "docker compose run --rm --no-deps --volume " + place + ":/maps:ro migrate capture apply --map /maps/shop.yaml"
	const trust, triggers = "SET GLOBAL log_bin_trust_function_creators = ", "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = 'shop'"
	s.sql(asRoot, trust+"0")
	if _, all, err := s.try(apply + " --dry-run"); err == nil || !strings.Contains(all, "(1419); "+trust+"1") {
		s.t.Errorf("a dry run that cannot be applied: %v\n%s", err, all)
	}
	if made := s.sql(asRoot, triggers); made != "0" {
		s.t.Errorf("a dry run has made %s triggers", made)
	}
	s.sql(asRoot, trust+"1")
	s.sh(apply + " --dry-run")
	s.sh(apply)
	s.sql(asShop, "UPDATE products SET price_cents = price_cents + 1 WHERE id = 42")
}

// With a password, redis-cli in the container needs no other one.
func TestComposeRedisPassword(t *testing.T) {
	t.Parallel()
	s := newStack(t, "REDIS_PASSWORD=secret")
	s.sh("docker compose up --wait redis redis-state")
	for _, server := range []string{"redis", "redis-state"} {
		if said := s.sh("docker compose exec " + server + " redis-cli PING"); said != "PONG" {
			t.Errorf("redis-cli of %s says %s", server, said)
		}
		if said, _, _ := s.try("docker compose exec --env REDISCLI_AUTH= " + server + " redis-cli PING"); strings.Contains(said, "PONG") {
			t.Errorf("%s needs no password", server)
		}
	}
}
