package servers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// redoSize is the size of the template's redo log. A running server enlarges its own; a small one
// is faster to copy.
const redoSize = "8M"

// accounts are the statements that make root reachable over TCP. With --skip-name-resolve,
// root@localhost matches only the socket.
var accounts = map[Kind]string{
	KindMySQL: "CREATE USER root@'%';\nGRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n",
	KindMariaDB: "REPLACE INTO mysql.global_priv VALUES ('%', 'root', " +
		"'{\"access\":18446744073709551615}');\n",
}

// initialiseMySQL creates a data directory with mysqld itself.
func initialiseMySQL(ctx context.Context, p *Program, work, data string) error {
	script := filepath.Join(work, "accounts.sql")
	if err := os.WriteFile(script, []byte(accounts[KindMySQL]), 0o600); err != nil {
		return err
	}
	args := append(commonArgs(p, data),
		"--initialize-insecure",
		"--init-file="+script,
		"--innodb-redo-log-capacity="+redoSize,
		"--skip-log-bin",
		"--secure-file-priv=NULL",
	)
	return runToEnd(ctx, p, filepath.Join(work, "log"), nil, args...)
}

// bootstrapMariaDB creates a data directory by passing the scripts of the server's package to the
// server, as mariadb-install-db does. That is a shell script that needs the programs of an
// installed system. The help texts and the sys schema are left out: they are not used here and take
// most of the time.
func bootstrapMariaDB(ctx context.Context, p *Program, work, data string) error {
	scripts := []io.Reader{strings.NewReader("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n")}
	for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
		script, err := openMariaDBScript(p, name+".sql")
		if err != nil {
			return err
		}
		defer script.Close()
		scripts = append(scripts, script)
	}
	scripts = append(scripts, strings.NewReader("\n"+accounts[KindMariaDB]))
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	args := append(commonArgs(p, data),
		"--bootstrap",
		"--enforce-storage-engine=",
		"--innodb-log-file-size="+redoSize,
	)
	return runToEnd(ctx, p, filepath.Join(work, "log"), io.MultiReader(scripts...), args...)
}

// openMariaDBScript opens a script under its names in all supported versions.
func openMariaDBScript(p *Program, name string) (*os.File, error) {
	for _, folder := range []string{"mysql", "mariadb"} {
		for _, prefix := range []string{"mysql_", "mariadb_"} {
			if script, err := os.Open(filepath.Join(p.base(), "share", folder, prefix+name)); err == nil {
				return script, nil
			}
		}
	}
	return nil, fmt.Errorf("find mysql_%s or mariadb_%s below %s/share: it comes with the package mariadb-server-core", name, name, p.base())
}
