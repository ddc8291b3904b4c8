package demo

import (
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
)

// guideText tells a person how to play, in commands to copy.
var guideText = template.Must(template.New("guide").Parse(`
Everything keeps running until Ctrl-C. To play, paste this into another terminal first:
{{- if .Password}}
(with your password where it says PASSWORD)
{{- end}}

  export MYSQL_DSN='{{.DSN}}' APP_ENV={{.Env}}
{{- if .MySQL}}
  alias mysql='{{.MySQL}}'
{{- end}}
{{- if .Redis}}
  alias redis-cli='{{.Redis}}'
{{- end}}

Say that something changed, and see it go:
  {{.Unstale}} enqueue product 42
  {{.Unstale}} enqueue product 44 --param category_id=7 --param category_id=9
  {{.Unstale}} enqueue coupon WELCOME --at +5s
  {{.Unstale}} status
  {{.Unstale}} map explain --map {{.Map}} --entity product --id 42

Look at the cache:
{{- if not .Redis}}
  (redis-cli is not installed here; any client of {{.URL}} will do)
{{- end}}
  redis-cli --scan --pattern '{{.Prefix}}*'
  redis-cli GET {{.Prefix}}product:45
  redis-cli SUBSCRIBE {{.Channel}}

Change the shop, and take it back to see that nothing happens:
{{- if not .MySQL}}
  (no MySQL client is installed here; any client of {{.Server}} will do)
{{- end}}
{{- range .Statements}}
  {{if $.MySQL}}mysql -e "{{.}}"{{else}}{{.}}{{end}}
{{- end}}

Here each message is shown as it is heard. The shop's readers come back every {{.Refill}} and fill what is
missing.

`))

// A guide is what guideText shows.
type guide struct {
	Unstale, Map, Env, Prefix, Channel string

	DSN      string
	Password bool   // one was left out of DSN or URL
	Server   string // the database's server, in words
	URL      string
	MySQL    string // how to call a client on the demo's database; empty: there is none
	Redis    string // likewise

	Statements []string
	Refill     string
}

const guideUpdate = "BEGIN; UPDATE products SET price_cents = 100 WHERE id = 45; " +
	"INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '45'); "

func (d *Demo) writeGuide(w io.Writer, program string) error {
	return newGuide(d.place, program, d.cfg.MapFile, d.m.Channel()).write(w)
}

func newGuide(p *place, program, mapFile, channel string) guide {
	g := guide{
		Unstale: program, Map: mapFile, Env: p.env, Prefix: string(newNames(p.env)), Channel: channel,
		Statements: []string{guideUpdate + "ROLLBACK;", guideUpdate + "COMMIT;"}, Refill: refillInterval.String(),
	}
	g.addMySQL(p)
	g.addRedis(p)
	return g
}

func (g guide) write(w io.Writer) error {
	if err := guideText.Execute(w, g); err != nil {
		return fmt.Errorf("write guide: %w", err)
	}
	return nil
}

// addMySQL leaves passwords out: the person knows them, a terminal's log need not.
func (g *guide) addMySQL(p *place) {
	user := p.mysql.User
	if p.mysql.Passwd != "" {
		user += ":PASSWORD"
		g.Password = true
	}
	g.DSN = fmt.Sprintf("%s@%s(%s)/%s", user, p.mysql.Net, p.mysql.Addr, p.database)
	g.Server = p.mysql.Addr
	m := p.privateMySQL
	if m == nil {
		return
	}
	g.Server = fmt.Sprintf("%s as root without a password, database %s", m.Addr(), p.database)
	if client := findClient(m.Program(), "mysql", "mariadb"); client != "" {
		g.MySQL = fmt.Sprintf("%s --no-defaults --socket=%s --user=root %s", client, m.Socket(), p.database)
	}
}

func (g *guide) addRedis(p *place) {
	g.URL = "(unreadable redis url)"
	if at, err := keyspace.ParseURL(p.redisURL, false); err == nil {
		g.URL = keyspace.Options{Redis: at}.Redacted()
	}
	if r := p.privateRedis; r != nil {
		if client := findClient(r.Program(), "redis-cli"); client != "" {
			g.Redis = fmt.Sprintf("%s -p %d", client, r.Port())
		}
		return
	}
	u, err := url.Parse(p.redisURL)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" {
		return // redis-cli does not know Sentinel
	}
	if _, given := u.User.Password(); given {
		u.User = url.UserPassword(u.User.Username(), "PASSWORD")
		g.Password = true
	}
	u.RawQuery = ""
	if client := findClient(nil, "redis-cli"); client != "" {
		g.Redis = client + " -u " + u.String()
	}
}

// findClient returns how to call a client: by its name if it is on PATH, otherwise the one that was unpacked with the
// server, run by the loader and the libraries of its tree as the server is. Empty if there is none.
func findClient(server *servers.Program, names ...string) string {
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	if server == nil || server.Tree == "" {
		return ""
	}
	for _, name := range names {
		programs, _ := filepath.Glob(filepath.Join(server.Tree, "usr/bin", name))
		if len(programs) == 0 {
			continue
		}
		libs, _ := filepath.Glob(filepath.Join(server.Tree, "usr/lib/*-linux-gnu*"))
		path := strings.Join(libs, ":")
		if loaders, _ := filepath.Glob(filepath.Join(server.Tree, "usr/lib64/ld-linux-*.so.*")); len(loaders) > 0 {
			return loaders[0] + " --library-path " + path + " " + programs[0]
		}
		return "env LD_LIBRARY_PATH=" + path + " " + programs[0]
	}
	return ""
}
