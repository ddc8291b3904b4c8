package session

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/credentials"
)

// Follow makes each new connection of cfg read the user and the password from a file with a DSN,
// unless that is "", and its certificates from other files: they can change while the process runs.
// If any of the other files is given, connections use TLS. Errors name the file and not its
// content.
func Follow(cfg *mysql.Config, file string, certificates credentials.TLSFiles) error {
	follow := func(_ context.Context, c *mysql.Config) error {
		if err := readDSN(c, file); err != nil {
			return err
		}
		return secure(c, certificates)
	}
	if err := follow(context.Background(), cfg); err != nil {
		return err
	}
	return cfg.Apply(mysql.BeforeConnect(follow))
}

func readDSN(c *mysql.Config, file string) error {
	if file == "" {
		return nil
	}
	dsn, err := credentials.ReadSecret(file)
	if err != nil {
		return fmt.Errorf("read the mysql dsn: %w", err)
	}
	now, err := ParseDSN(dsn)
	if err != nil {
		return fmt.Errorf("file %s: %w", file, err)
	}
	c.User, c.Passwd = now.User, now.Passwd
	return nil
}

// secure turns TLS on, with the files as they are now.
func secure(c *mysql.Config, files credentials.TLSFiles) (err error) {
	if files.Given() {
		if c.TLS, err = files.Config(c.TLS); err != nil {
			return fmt.Errorf("TLS of mysql: %w", err)
		}
		if c.TLS.ServerName == "" {
			c.TLS.ServerName, _, _ = net.SplitHostPort(c.Addr) // a socket has none
		}
	}
	if c.TLS != nil && c.TLS.ServerName == "" && !c.TLS.InsecureSkipVerify {
		return errors.New("TLS of mysql: a socket has no name; set MYSQL_TLS_SERVER_NAME to one in the server's certificate, or turn TLS off, since a socket does not leave the host")
	}
	return nil
}
