package servers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

// A Keyspace is a keyspace of Vitess.
type Keyspace struct {
	Name    string
	Shards  []string // such as "-80" and "80-"
	VSchema string   // JSON
}

// VitessOptions configures a Vitess.
type VitessOptions struct {
	// MySQL has the shards of all keyspaces, each in a database: see [ShardDatabase]. Required.
	MySQL     *MySQL
	Keyspaces []Keyspace
	// Args are further options of vtcombo.
	Args []string
}

// A Vitess is a private vtcombo: VTGate, a VTTablet for each shard and their topology in one process.
// Its Addr is VTGate's. Killed and restarted, it has the shards and the VSchema that it began with.
type Vitess struct{ *Server }

// ShardDatabase returns the database of a shard.
func ShardDatabase(keyspace, shard string) string { return "vt_" + keyspace + "_" + shard }

// StartVitess creates the databases and starts vtcombo, from PATH or as scripts/test-vitess builds it.
// It returns when VTGate responds. The caller must Close it, before the MySQL.
func StartVitess(ctx context.Context, o VitessOptions) (*Vitess, error) {
	path, err := exec.LookPath("vtcombo")
	if err != nil {
		folder, _ := Folder()
		if path, err = exec.LookPath(filepath.Join(folder, "vitess", "vtcombo")); err != nil {
			return nil, fmt.Errorf("find vtcombo: %w; run scripts/test-vitess in the checkout", err)
		}
	}
	folder, err := newFolder("")
	if err != nil {
		return nil, err
	}
	v := &Vitess{&Server{program: &Program{Kind: "vitess", Name: "Vitess", Path: path}, folder: folder, ports: FreePort}}
	topology, err := v.prepare(ctx, o)
	if err == nil {
		v.Server.command = func() *exec.Cmd { return v.vtcombo(o, topology) }
		v.probe = v.ask
		err = v.first(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// nobody is the account of vtcombo, which refuses to run as root.
const nobody = 65534

// prepare writes the VSchemas, creates the databases, and returns the topology.
func (v *Vitess) prepare(ctx context.Context, o VitessOptions) (topology string, err error) {
	type named = map[string]any
	var keyspaces []named
	admin, err := sql.Open("mysql", o.MySQL.DSN(""))
	if err != nil {
		return "", err
	}
	defer admin.Close()
	for _, k := range o.Keyspaces {
		var shards []named
		for _, shard := range k.Shards {
			shards = append(shards, named{"name": shard})
			if _, err := admin.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS `"+ShardDatabase(k.Name, shard)+"`"); err != nil {
				return "", err
			}
		}
		keyspaces = append(keyspaces, named{"name": k.Name, "shards": shards, "replicaCount": 1, "rdonlyCount": -1}) // only primaries
		dir := v.folder.join(k.Name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "vschema.json"), []byte(k.VSchema), 0o644)); err != nil {
			return "", err
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(v.folder.path, nobody, nobody); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(named{"cells": []string{"test"}, "keyspaces": keyspaces})
	return string(text), err
}

func (v *Vitess) vtcombo(o VitessOptions, topology string) *exec.Cmd {
	status, _ := FreePort() // 0: any
	args := []string{
		"--json-topo", topology, "--schema-dir", v.folder.path, "--tablet-types-to-wait", "PRIMARY",
		"--mysql-server-bind-address", "127.0.0.1", "--mysql-server-port", strconv.Itoa(v.port), "--mysql-auth-server-impl", "none",
		"--bind-address", "127.0.0.1", "--port", strconv.Itoa(status), "--log_dir", v.folder.path,
		"--db-host", "127.0.0.1", "--db-port", strconv.Itoa(o.MySQL.Port()),
	}
	for _, account := range []string{"app", "appdebug", "allprivs", "dba", "repl", "filtered", "erepl", "clone"} {
		args = append(args, "--db-"+account+"-user", "root")
	}
	cmd := exec.Command(v.program.Path, append(args, o.Args...)...)
	cmd.Env = append(cmd.Environ(), "VTDATAROOT="+v.folder.path)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// DSN returns a data source name for go-sql-driver, through VTGate.
func (v *Vitess) DSN(keyspace string) string { return "root@tcp(" + v.Addr() + ")/" + keyspace }

func (v *Vitess) ask(ctx context.Context) (version string, err error) {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr = "root", "tcp", v.Addr()
	return askVersion(ctx, c)
}
