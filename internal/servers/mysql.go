package servers

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQLOptions configures a MySQL or MariaDB server.
type MySQLOptions struct {
	// Flavor is KindMySQL or KindMariaDB. Empty: MySQL.
	Flavor Kind
	// Program overrides Flavor and the search of Find.
	Program *Program
	// Dir is the directory in which the server's temporary directory is created. Empty: the
	// system's. Its path must be short enough for a Unix socket.
	Dir string
	// Args are further options of the server, such as "--sync-binlog=0". They override this
	// package's options, which leave durability at the server's defaults.
	Args []string
	// Env is added to the environment of the server, such as "LD_PRELOAD=clock.so".
	Env []string
}

// A MySQL is a private MySQL or MariaDB server. Its account root has all privileges and no
// password.
type MySQL struct {
	*Server
}

// StartMySQL starts a server and returns when it responds. The first run with a program prepares a
// template of the data directory, which takes seconds; later runs copy it. Without a deadline in
// ctx it gives up after two minutes. The caller must Close the server.
func StartMySQL(ctx context.Context, o MySQLOptions) (*MySQL, error) {
	program := o.Program
	if program == nil {
		var err error
		if program, err = FindDatabase(o.Flavor); err != nil {
			return nil, err
		}
	}
	template, err := templateFolder(ctx, program)
	if err != nil {
		return nil, err
	}
	folder, err := newFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	m := &MySQL{&Server{program: program, folder: folder, ports: FreePort}}
	m.Server.command = func() *exec.Cmd {
		cmd := program.command(m.args(o.Args)...)
		cmd.Env = append(cmd.Environ(), o.Env...)
		return cmd
	}
	m.probe = m.ask
	if err = copyFolder(template, folder.join("data")); err == nil {
		err = m.first(ctx)
	}
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// args returns the options of a normal run.
func (m *MySQL) args(more []string) []string {
	args := append(commonArgs(m.program, m.folder.join("data")),
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(m.port),
		"--socket="+m.Socket(),
		"--pid-file="+m.folder.join("pid"),
		"--tmpdir="+m.folder.path,
		"--skip-name-resolve",
		"--max-connections=1000",
	)
	if m.program.Kind == KindMySQL {
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL")
	}
	return append(args, more...)
}

// commonArgs returns the options for a normal run and for preparing a data directory.
func commonArgs(p *Program, data string) []string {
	args := []string{"--no-defaults", "--basedir=" + p.base(), "--datadir=" + data}
	for _, name := range []string{"mysql", "mariadb"} {
		messages := filepath.Join(p.base(), "share", name)
		if _, err := os.Stat(filepath.Join(messages, "english", "errmsg.sys")); err == nil {
			args = append(args, "--lc-messages-dir="+messages)
			break
		}
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// Flavor returns KindMySQL or KindMariaDB.
func (m *MySQL) Flavor() Kind { return m.program.Kind }

// Socket returns the path of the Unix socket.
func (m *MySQL) Socket() string { return m.folder.join("mysql.sock") }

// DSN returns a data source name for go-sql-driver over the Unix socket, as root, with parseTime
// and UTC. The database may be empty.
func (m *MySQL) DSN(database string) string {
	return m.config("unix", m.Socket(), database).FormatDSN()
}

// TCPDSN is like DSN, but over TCP, for clients that connect through a proxy.
func (m *MySQL) TCPDSN(database string) string {
	return m.config("tcp", m.Addr(), database).FormatDSN()
}

func (m *MySQL) config(network, address, database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User = "root"
	c.Net = network
	c.Addr = address
	c.DBName = database
	c.ParseTime = true
	c.Loc = time.UTC
	c.Params = map[string]string{"time_zone": "'+00:00'"}
	return c
}

// ask connects once and returns the server's version.
func (m *MySQL) ask(ctx context.Context) (version string, err error) {
	return askVersion(ctx, m.config("unix", m.Socket(), ""))
}

func askVersion(ctx context.Context, c *mysql.Config) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c.Params = nil
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	return version, err
}
