package servers

import (
	"context"
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
)

// GaleraLibrary returns the path of the library that makes a MariaDB server a node of a Galera
// cluster, for its option --wsrep-provider. The library is in the package galera-4.
func GaleraLibrary() (string, error) {
	patterns := []string{"/usr/lib*/libgalera_smm.so", "/usr/lib*/galera*/libgalera_smm.so"}
	if folder, ok := Folder(); ok {
		patterns = append(patterns, filepath.Join(folder, "galera", "usr", "lib", "libgalera_smm.so"))
	}
	for _, pattern := range patterns {
		if files, _ := filepath.Glob(pattern); len(files) > 0 {
			return filepath.Abs(files[0])
		}
	}
	return "", fmt.Errorf("find Galera: there is none of %q; run scripts/servers mariadb in the checkout, or install the package galera-4", patterns)
}

// GaleraOptions configures a Galera cluster.
type GaleraOptions struct {
	// Nodes is the number of servers. Zero means three, the least that survives the loss of one.
	Nodes int
	// Dir is as in MySQLOptions.
	Dir string
	// Args are further options of each server.
	Args []string
}

// A Galera is a set of private MariaDB servers that form a Galera cluster. All take writes. Kill,
// Pause and Resume work as with other servers. A killed node needs Rejoin instead of Restart.
type Galera struct {
	Nodes []*MySQL

	folder *folder
	buses  []string // addresses of the nodes among each other
}

// StartGalera starts the nodes of a cluster, and returns when all are synced. It needs the library
// of GaleraLibrary. The caller must Close the cluster.
//
// A node that joins gets the writes that it lacks. It copies no data, which would need programs that
// Debian has elsewhere. All nodes begin with the same template, at the position of the cluster.
func StartGalera(ctx context.Context, o GaleraOptions) (_ *Galera, err error) {
	library, err := GaleraLibrary()
	if err != nil {
		return nil, err
	}
	program, err := Find(KindMariaDB)
	if err != nil {
		return nil, err
	}
	count := o.Nodes
	if count == 0 {
		count = 3
	}
	g := &Galera{}
	if g.folder, err = newFolder(o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = g.Close()
		}
	}()
	if err := os.WriteFile(g.folder.join("wsrep_sst_position"), []byte(positionScript), 0o700); err != nil {
		return nil, err
	}
	path := "PATH=" + g.folder.path + string(os.PathListSeparator) + os.Getenv("PATH")
	var state map[string]string
	for i := range count {
		ports := [2]int{}
		for j := range ports {
			if ports[j], err = FreePort(); err != nil {
				return nil, err
			}
		}
		base := g.base(i)
		if err := os.Mkdir(base, 0o700); err != nil {
			return nil, err
		}
		if i > 0 {
			if err := g.position(i, state["wsrep_cluster_state_uuid"], state["wsrep_last_committed"]); err != nil {
				return nil, err
			}
		}
		args := append([]string{
			"--wsrep-on=ON", "--wsrep-provider=" + library, "--wsrep-cluster-address=gcomm://" + strings.Join(g.buses, ","),
			"--wsrep-node-address=127.0.0.1", "--wsrep-sst-method=position", "--binlog-format=ROW",
			fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s;base_dir=%s;gcache.size=64M",
				PortAddress(ports[0]), PortAddress(ports[1]), base),
		}, o.Args...)
		node, err := StartMySQL(ctx, MySQLOptions{Program: program, Dir: o.Dir, Args: args, Env: []string{path}})
		if err != nil {
			return nil, err
		}
		g.Nodes = append(g.Nodes, node)
		g.buses = append(g.buses, PortAddress(ports[0]))
		if state, err = g.Synced(ctx, i, i+1); err != nil {
			return nil, err
		}
	}
	_, err = g.Synced(ctx, 0, count)
	return g, err
}

// positionScript runs at both servers when a node joins. It passes on the position after which the
// node lacks writes, in a file of that join, and refuses to copy all data.
const positionScript = `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	--role) role=$2 ;;
	--address) address=$2 ;;
	--gtid) gtid=$2 ;;
	--bypass) bypass=yes ;;
	esac
	shift
done
[ "$role" != joiner ] || address=127.0.0.1:1/$$ # the donor gets it
position=${0%/*}/position-${address##*/}
if [ "$role" = joiner ]; then
	echo "ready $address"
	until [ -e "$position" ]; do sleep 0.05; done
	cat "$position"
else
	[ "$bypass" ] || exit 1
	echo "$gtid" >"$position.new" && mv "$position.new" "$position"
	echo done "$gtid"
fi
`

func (g *Galera) base(i int) string { return g.folder.join(strconv.Itoa(i)) }

// position sets the position of the cluster at which node i starts.
func (g *Galera) position(i int, cluster, last string) error {
	text := fmt.Sprintf("version: 2.1\nuuid: %s\nseqno: %s\n", cluster, last)
	return os.WriteFile(filepath.Join(g.base(i), "grastate.dat"), []byte(text), 0o600)
}

// recovered is where a killed node ended.
var recovered = regexp.MustCompile(`Recovered position: ([0-9a-f-]+):(\d+)`)

// Rejoin starts a killed node as a member of the cluster, and returns when it has what it missed. It
// starts at the position of the node's data, as the service of a distribution does.
func (g *Galera) Rejoin(ctx context.Context, i int) error {
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	node := g.Nodes[i]
	others := slices.Delete(slices.Clone(g.buses), i, i+1)
	command := node.command
	node.command = func() *exec.Cmd {
		cmd := command()
		cmd.Args = append(cmd.Args, "--wsrep-cluster-address=gcomm://"+strings.Join(others, ","))
		return cmd
	}
	defer func() { node.command = command }()
	recover := node.command()
	recover.Args = append(recover.Args, "--wsrep-recover")
	out, err := recover.CombinedOutput()
	at := recovered.FindSubmatch(out)
	if err != nil || at == nil {
		return fmt.Errorf("find the position of node %d: %v: %s", i, err, out)
	}
	if err := g.position(i, string(at[1]), string(at[2])); err != nil {
		return err
	}
	if err := node.Restart(ctx); err != nil {
		return err
	}
	_, err = g.Synced(ctx, i, 0)
	return err
}

// Synced waits until node i accepts statements and sees a number of members, 0 for any, and returns
// its state.
func (g *Galera) Synced(ctx context.Context, i, members int) (state map[string]string, err error) {
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	db, err := sql.Open("mysql", g.Nodes[i].DSN(""))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for {
		state, err = wsrepState(ctx, db)
		committed, parseErr := strconv.Atoi(state["wsrep_last_committed"]) // -1 until the node has a position
		if err == nil && parseErr == nil && committed > 0 && state["wsrep_ready"] == "ON" && state["wsrep_local_state_comment"] == "Synced" &&
			(members == 0 || state["wsrep_cluster_size"] == strconv.Itoa(members)) {
			return state, nil
		}
		if stopped := pause(ctx, 10*probeInterval); stopped != nil {
			return nil, fmt.Errorf("join a Galera cluster as node %d: %w; its state: ready %s, %s, %s members (%v); its log ends with:\n%s", i, stopped,
				state["wsrep_ready"], state["wsrep_local_state_comment"], state["wsrep_cluster_size"], err, tail(g.Nodes[i].Log()))
		}
	}
}

func wsrepState(ctx context.Context, db *sql.DB) (map[string]string, error) {
	state := map[string]string{}
	rows, err := db.QueryContext(ctx, "SHOW GLOBAL STATUS LIKE 'wsrep%'")
	if err != nil {
		return state, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return state, err
		}
		state[name] = value
	}
	return state, rows.Err()
}

// Close closes all nodes.
func (g *Galera) Close() error { return errors.Join(closeNodes(g.Nodes), g.folder.remove()) }
