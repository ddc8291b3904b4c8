package servers

import (
	"context"
	"os"
	"path/filepath"
)

// redoSize is the redo log of the template. A server that runs grows its own;
// a small one is faster to copy.
const redoSize = "8M"

// accounts are the statements that make root reachable over TCP. With
// --skip-name-resolve root@localhost is for the socket only.
var accounts = map[Kind]string{
	KindMySQL: "CREATE USER root@'%';\nGRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n",
}

// initialiseMySQL makes a data folder with mysqld itself.
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
