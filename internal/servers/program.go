package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Kind is a kind of server.
type Kind string

// The kinds of server that this package can start.
const (
	KindMySQL     Kind = "mysql"
	KindMariaDB   Kind = "mariadb"
	KindRedis     Kind = "redis"
	KindZooKeeper Kind = "zookeeper"
)

// String returns the usual name.
func (k Kind) String() string {
	switch k {
	case KindMySQL:
		return "MySQL"
	case KindMariaDB:
		return "MariaDB"
	case KindRedis:
		return "Redis"
	case KindZooKeeper:
		return "ZooKeeper"
	}
	return string(k)
}

// valkey is the name of a program that has the kind KindRedis.
const valkey = "Valkey"

// oldest is the first version of each kind that unstale supports. Redis 6.2 would be enough, but
// before 7.0 a server without a password lets any local user write files through CONFIG SET dir.
// ZooKeeper has container nodes since 3.5.3.
var oldest = map[Kind]string{KindMySQL: "8.0.20", KindMariaDB: "10.6.0", KindRedis: "7.0.0", KindZooKeeper: "3.5.3"}

// names are the file names to look for, best first.
var names = map[Kind][]string{
	KindMySQL:     {"mysqld"},
	KindMariaDB:   {"mariadbd", "mysqld"},
	KindRedis:     {"redis-server", "valkey-server"},
	KindZooKeeper: {"zookeeper.jar"},
}

// A Program is a server program on this machine.
type Program struct {
	Kind    Kind
	Name    string // the usual name: that of Kind, or Valkey
	Path    string // of the executable, which is Java for ZooKeeper
	Version string // as the program prints it, such as "9.7.4-2" or "10.11.11-MariaDB-0+deb12u1"
	Tree    string // the directory that it was unpacked to, empty for a program on PATH

	loader []string // of an unpacked tree: its dynamic loader and the loader's flags
	libs   []string // of an unpacked tree without a loader: LD_LIBRARY_PATH
	jars   string   // directory of ZooKeeper's jars
}

// command prepares a run of the program. An unpacked program is run by its tree's loader, since the
// host's libraries may be older.
func (p *Program) command(args ...string) *exec.Cmd {
	argv := append(append(append([]string{}, p.loader...), p.Path), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	if len(p.libs) > 0 {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(p.libs, ":"))
	}
	return cmd
}

// base returns the directory that the program was installed under, such as /usr.
func (p *Program) base() string {
	path := p.Path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return filepath.Dir(filepath.Dir(path))
}

// versionLine finds the version in the output of --version: "mysqld Ver 9.7.4-2 for Linux", "Redis
// server v=8.0.6 sha=...", "Valkey server v=9.1.0 sha=...".
var versionLine = regexp.MustCompile(`(?:Ver |v=)([0-9]+\.[0-9]+\.[0-9]+\S*)`)

// identified caches the programs whose version is known.
var identified struct {
	sync.Mutex
	byPath map[string]*Program
}

// identify runs the program at path to find out its kind and version. The error describes why it is
// unusable.
func identify(path, tree string) (*Program, error) {
	identified.Lock()
	defer identified.Unlock()
	if p := identified.byPath[path]; p != nil {
		return p, nil
	}
	p := &Program{Path: path, Tree: tree}
	if tree != "" {
		p.loader, p.libs = treeLoader(tree)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := p.output(ctx, "--version")
	if err != nil {
		return nil, fmt.Errorf("run %s --version: %w", path, err)
	}
	found := versionLine.FindStringSubmatch(out)
	if found == nil {
		return nil, fmt.Errorf("run %s --version: no version in %q", path, out)
	}
	p.Version = found[1]
	switch {
	case strings.HasPrefix(out, "Redis"), strings.HasPrefix(out, valkey):
		p.Kind = KindRedis
	case strings.Contains(out, "MariaDB"):
		p.Kind = KindMariaDB
	default:
		p.Kind = KindMySQL
	}
	if p.Name = p.Kind.String(); strings.HasPrefix(out, valkey) {
		p.Name = valkey
	}
	if identified.byPath == nil {
		identified.byPath = map[string]*Program{}
	}
	identified.byPath[path] = p
	return p, nil
}

// output runs the program to its end and returns its output.
func (p *Program) output(ctx context.Context, args ...string) (string, error) {
	cmd := p.command(args...)
	timed := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	timed.Env = cmd.Env
	out, err := timed.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Short returns only the version's number, such as "9.7.4".
func (p *Program) Short() string { return ShortVersion(p.Version) }

// ShortVersion cuts a server's version to its number: "10.11.11-MariaDB" becomes "10.11.11".
func ShortVersion(version string) string {
	end := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		return version
	}
	return strings.TrimRight(version[:end], ".")
}

// older reports whether version a comes before version b.
func older(a, b string) bool {
	as, bs := strings.Split(ShortVersion(a), "."), strings.Split(ShortVersion(b), ".")
	for i := range bs {
		if i >= len(as) {
			return true
		}
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return false
}
