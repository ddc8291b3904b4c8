package docs

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

const tutorialPage = "docs/tutorial.md"

// testTutorial follows the tutorial from top to bottom, in a copy of the checkout and against empty
// servers. It types the commands of the consoles, saves the YAML as shop.yaml, runs the SQL and
// sends the Redis commands. Three dots represent any text.
func testTutorial(t *testing.T, place string) {
	const page = tutorialPage
	shop, cache := testenv.MySQL(t), testenv.Redis(t)
	options, err := redis.ParseURL(cache.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	// docker-compose.yml creates the account with all privileges on its database, and no others.
	run(t, shop.DB, "CREATE USER '"+shop.Name+"'@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON "+shop.Name+".* TO '"+shop.Name+"'@'%'")
	defer run(t, shop.DB, "DROP USER '"+shop.Name+"'@'%'")
	env := append(bare(), "MYSQL_DSN="+dsn(t, shop.DSN, shop.Name, "secret"), "REDIS_URL="+cache.URL)
	for _, export := range regexp.MustCompile(`(?m)^export (APP_ENV=\w+)`).FindAllStringSubmatch(read(t, page), -1) {
		env = append(env, export[1])
	}
	done := map[string]int{}
	for _, b := range blocks(t, page, "console", "sql", "redis", "yaml") {
		done[b.lang]++
		switch b.lang {
		case "console":
			typeIn(t, b, place, env)
		case "sql":
			run(t, shop.DB, statements(b)...)
		case "redis":
			ask(t, b, client)
		case "yaml":
			if err := os.WriteFile(filepath.Join(place, "shop.yaml"), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if done["console"] == 0 || done["sql"] == 0 {
		t.Errorf("%s has blocks %v", page, done)
	}
}

// testTutorialServers compares the addresses that the tutorial and the README export with the
// servers that docker-compose.yml starts.
func testTutorialServers(t *testing.T) {
	t.Helper()
	server := services(t)["mysql"].Environment
	password := strings.NewReplacer("${MYSQL_PASSWORD:-", "", "}", "").Replace(server["MYSQL_PASSWORD"])
	want := fmt.Sprintf("export MYSQL_DSN='%s:%s@tcp(127.0.0.1:3306)/%s' REDIS_URL=redis://127.0.0.1:6379/0",
		server["MYSQL_USER"], password, server["MYSQL_DATABASE"])
	for _, page := range []string{tutorialPage, "README.md"} {
		if got, _, _ := strings.Cut(onlyBlock(t, page, "sh", "export ").text, "\n"); got != want {
			t.Errorf("%s: %s\nwanted %s", page, got, want)
		}
	}
}

// bare returns the environment without variables that configure the program, or that make reads as
// a child of another make.
func bare() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return regexp.MustCompile("^(UNSTALE_|MYSQL_|REDIS_|APP_ENV=|MAKE|MFLAGS=)").MatchString(variable)
	})
}

// typeIn types the commands of a console block and compares their output.
func typeIn(t *testing.T, b block, place string, env []string) {
	t.Helper()
	for _, typed := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		command, shown, _ := strings.Cut(typed, "\n")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir, cmd.Env = place, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s:%d: %s: %v", b.page, b.line, command, err)
		}
		parts := strings.Split(strings.TrimSpace(shown), "...")
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		if !regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(strings.TrimSpace(string(out))) {
			t.Errorf("%s:%d: %s\nsays:\n%swanted:\n%s", b.page, b.line, command, out, shown)
		}
	}
}

// ask sends the commands of a redis-cli block and compares their results.
func ask(t *testing.T, b block, client *redis.Client) {
	t.Helper()
	for _, typed := range strings.Split("\n"+b.text, "\n> ")[1:] {
		command, shown, _ := strings.Cut(typed, "\n")
		got, err := client.Do(t.Context(), words(command)...).Result()
		if errors.Is(err, redis.Nil) {
			got, err = "(nil)", nil
		}
		if err != nil {
			t.Errorf("%s:%d: %s: %v", b.page, b.line, command, err)
		}
		text := fmt.Sprint(got) // a status is shown unquoted, a value in quotes
		if shown = strings.TrimSpace(shown); shown != text && shown != strconv.Quote(text) {
			t.Errorf("%s:%d: %s: %s, wanted %s", b.page, b.line, command, text, shown)
		}
	}
}

// shopTables creates the tables of the examples.
func shopTables(t testing.TB, db *sql.DB) {
	t.Helper()
	run(t, db,
		"CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)",
		"CREATE TABLE product_categories (product_id INT, category_id INT, PRIMARY KEY (product_id, category_id))",
		"INSERT INTO products VALUES (42, 4990)",
		"INSERT INTO product_categories VALUES (42, 7)",
	)
}
