package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// FolderVariable names the environment variable with the directory of unpacked servers, for a
// program that runs outside the checkout.
const FolderVariable = "UNSTALE_SERVERS_DIR"

// TreesVariable names the environment variable with a list of directories, separated by commas, below
// the directory of unpacked servers: "trixie,sid". If it is set, MySQL, MariaDB and Redis come from
// these alone, in this order, and not from PATH. Other kinds are not affected.
const TreesVariable = "UNSTALE_SERVERS_TREES"

// module is the first line of the go.mod in the directory that contains .servers.
const module = "module github.com/unstale/unstale"

// A MissingError reports that no usable program of a kind was found, and how to get one.
type MissingError struct {
	Kind     Kind
	Folder   string   // directory of unpacked programs, empty outside a checkout
	Rejected []string // programs that were found and why they are unusable
}

func (e *MissingError) Error() string {
	folder := e.Folder
	if folder == "" {
		folder = ".servers of a checkout (there is none here)"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "find %s: no %s %s or newer on PATH or in %s", e.Kind, names[e.Kind][0], oldest[e.Kind], folder)
	for _, r := range e.Rejected {
		fmt.Fprintf(&b, "; %s", r)
	}
	fmt.Fprintf(&b, "; run %s in the checkout, which unpacks one there (or install %s, or set %s)", e.command(), e.packages(), FolderVariable)
	if e.Kind == KindMySQL {
		b.WriteString("; to test on MariaDB: UNSTALE_TEST_DB=mariadb")
	}
	return b.String()
}

// command returns the command to run.
func (e *MissingError) command() string {
	switch e.Kind {
	case KindMariaDB:
		return "scripts/servers mariadb"
	case KindZooKeeper:
		return "scripts/servers zookeeper"
	default:
		return "scripts/servers"
	}
}

// packages returns the packages with the program in Debian and derived distributions.
func (e *MissingError) packages() string {
	switch e.Kind {
	case KindMySQL:
		return "the package mysql-server-core or mysql-server"
	case KindMariaDB:
		return "the package mariadb-server-core"
	case KindZooKeeper:
		return "the packages libzookeeper-java and default-jre-headless"
	default:
		return "the package redis-server"
	}
}

// Find returns the program of a kind that the Start functions use: the first one of FindAll. The
// error is a *MissingError.
func Find(kind Kind) (*Program, error) { return everywhere().find(kind) }

// FindDatabase returns the program that StartMySQL uses for a flavor, which is KindMySQL,
// KindMariaDB or empty: MySQL.
func FindDatabase(flavor Kind) (*Program, error) {
	switch flavor {
	case "":
		return Find(KindMySQL)
	case KindMySQL, KindMariaDB:
		return Find(flavor)
	default:
		return nil, fmt.Errorf("find a database: flavor %q is neither %q nor %q", string(flavor), string(KindMySQL), string(KindMariaDB))
	}
}

// FindAll returns every usable program of a kind: on PATH first, then in the trees below .servers.
func FindAll(kind Kind) []*Program {
	found, _ := everywhere().search(kind)
	return found
}

// places are the directories to search for programs.
type places struct {
	path   []string // directories of installed programs
	folder string   // of unpacked trees, may be empty
	trees  []string // below folder
}

func everywhere() places {
	folder, _ := Folder()
	p := places{path: pathFolders(), folder: folder, trees: []string{"root", "debian"}}
	if trees := os.Getenv(TreesVariable); trees != "" {
		p.path, p.trees = nil, strings.Split(trees, ",")
	}
	return p
}

func (p places) find(kind Kind) (*Program, error) {
	found, rejected := p.search(kind)
	if len(found) == 0 {
		return nil, &MissingError{Kind: kind, Folder: p.folder, Rejected: rejected}
	}
	return found[0], nil
}

func (p places) search(kind Kind) (found []*Program, rejected []string) {
	if kind == KindZooKeeper {
		return places{path: pathFolders(), folder: p.folder}.zookeeper()
	}
	consider := func(tree string, path ...string) {
		program, err := usable(kind, tree, filepath.Join(path...))
		if err != nil {
			rejected = append(rejected, err.Error())
		} else if program != nil {
			found = append(found, program)
		}
	}
	for _, name := range names[kind] {
		for _, dir := range p.path {
			consider("", dir, name)
		}
	}
	if p.folder == "" {
		return found, rejected
	}
	for _, tree := range p.trees {
		tree = filepath.Join(p.folder, tree)
		for _, name := range names[kind] {
			consider(tree, tree, "usr/sbin", name)
			consider(tree, tree, "usr/bin", name)
		}
	}
	return found, rejected
}

// usable returns the program at path, or nil if path is not a program of that kind.
func usable(kind Kind, tree, path string) (*Program, error) {
	if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return nil, nil
	}
	program, err := identify(path, tree)
	switch {
	case err != nil:
		return nil, err
	case program.Kind != kind:
		return nil, nil
	case older(program.Version, oldest[kind]):
		return nil, fmt.Errorf("%s is %s", path, program.Version)
	}
	return program, nil
}

// pathFolders returns the directories of PATH and two that contain servers but are often missing in
// a user's PATH.
func pathFolders() []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	seen := map[string]bool{}
	unique := dirs[:0]
	for _, dir := range append(dirs, "/usr/local/sbin", "/usr/sbin") {
		if filepath.IsAbs(dir) && !seen[dir] {
			seen[dir] = true
			unique = append(unique, dir)
		}
	}
	return unique
}

// Folder returns the directory that scripts/servers unpacks programs into: UNSTALE_SERVERS_DIR, or
// .servers next to the go.mod of this module in the working directory or a parent of it.
func Folder() (path string, ok bool) {
	if path := os.Getenv(FolderVariable); path != "" {
		return path, true
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			line, _, _ := strings.Cut(string(text), "\n")
			if strings.TrimSpace(line) == module {
				return filepath.Join(dir, ".servers"), true
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

// treeLoader returns how to run a program of an unpacked tree: with the tree's own loader if it has
// one, otherwise with the tree's library directories.
func treeLoader(tree string) (loader, libs []string) {
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		dirs, _ := filepath.Glob(filepath.Join(tree, pattern))
		libs = append(libs, dirs...)
	}
	for _, pattern := range []string{"usr/lib64/ld-linux-*.so.*", "usr/lib/ld-linux-*.so.*", "lib64/ld-linux-*.so.*", "lib/ld-linux-*.so.*"} {
		if found, _ := filepath.Glob(filepath.Join(tree, pattern)); len(found) > 0 {
			return []string{found[0], "--library-path", strings.Join(libs, ":")}, nil
		}
	}
	return nil, libs
}
