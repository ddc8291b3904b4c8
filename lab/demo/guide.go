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
	"github.com/unstale/unstale/redisurl"
)

// guideText explains how to use the running demo, with commands to copy.
var guideText = template.Must(template.New("guide").Parse(`
The servers and the worker run until you press Ctrl-C. The console shows whether anything is stale,
and why. Its actions are enabled, since only this host reaches it:

  {{.Console}}

To experiment, first paste this into another terminal:
{{- if .Password}}
(replace PASSWORD with your password)
{{- end}}

  export MYSQL_DSN='{{.DSN}}' REDIS_URL='{{.URL}}'
  export KEY_PREFIX={{.App}} APP_ENV={{.Env}}
{{- if .MySQL}}
  alias mysql='{{.MySQL}}'
{{- end}}
{{- if .Redis}}
  alias redis-cli='{{.Redis}}'
{{- end}}

Insert outbox rows and see their keys disappear:
  {{.Unstale}} enqueue product 42
  {{.Unstale}} enqueue product 44 --param category_id=7 --param category_id=9
  {{.Unstale}} enqueue coupon WELCOME --at +5s
  {{.Unstale}} status
  {{.Unstale}} map explain --map {{.Map}} --entity product --id 42

Look at the cache:
{{- if not .Redis}}
  (redis-cli is not installed; use any client to connect to {{.URL}})
{{- end}}
  redis-cli --scan --pattern '{{.Prefix}}*'
  redis-cli GET {{.Prefix}}product:45
  redis-cli SUBSCRIBE {{.Channel}}

Change a price. After the ROLLBACK nothing happens; after the COMMIT the keys disappear:
{{- if not .MySQL}}
  (no MySQL client is installed; use any client to connect to {{.Server}})
{{- end}}
{{- range .Statements}}
  {{if $.MySQL}}mysql -e "{{.}}"{{else}}{{.}}{{end}}
{{- end}}

This terminal shows each message that the subscriber receives. Every {{.Refill}}, readers fill the
missing keys.

`))

// A guide holds the data of guideText.
type guide struct {
	Console, Unstale, Map, App, Env, Prefix, Channel string

	DSN      string
	Password bool   // removed from DSN or URL
	Server   string // the database's server, in words
	URL      string
	MySQL    string // client command for the demo's database; empty: no client
	Redis    string // likewise

	Statements []string
	Refill     string
}

const guideUpdate = "BEGIN; UPDATE products SET price_cents = 100 WHERE id = 45; " +
	"INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '45'); "

func (d *Demo) writeGuide(w io.Writer, program, console string) error {
	g := newGuide(d.place, program, d.cfg.MapFile, d.m.Channel())
	g.Console = console
	return g.write(w)
}

func newGuide(p *place, program, mapFile, channel string) guide {
	g := guide{
		Unstale: program, Map: mapFile, App: p.app, Env: env, Prefix: string(newNames(p.app)), Channel: channel,
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

// addMySQL omits passwords: the user knows them, and they must not appear in a terminal's log.
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
	if at, err := redisurl.Parse(p.redisURL, false); err == nil {
		g.URL = strings.ReplaceAll(keyspace.Options{Redis: at}.Redacted(), ":xxxxx", ":PASSWORD")
		g.Password = g.Password || strings.Contains(g.URL, ":PASSWORD")
	}
	if r := p.privateRedis; r != nil {
		if client := findClient(r.Program(), "redis-cli"); client != "" {
			g.Redis = fmt.Sprintf("%s -p %d", client, r.Port())
		}
		return
	}
	u, err := url.Parse(p.redisURL)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" {
		return // redis-cli does not support Sentinel
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

// findClient returns a command line for a client. A client on PATH is called by its name. Otherwise
// it is the client that was unpacked with the server, run with the same loader and libraries as the
// server. The result is empty if neither exists.
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
