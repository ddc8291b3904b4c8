package session

import (
	"context"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/secretfile"
)

// FollowFile makes each new connection of cfg read the user and the password from a file with a
// DSN: they can change while the process runs. Errors name the file and not its content.
func FollowFile(cfg *mysql.Config, file string) error {
	return cfg.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		dsn, err := secretfile.Read(file)
		if err != nil {
			return fmt.Errorf("read the mysql dsn: %w", err)
		}
		now, err := ParseDSN(dsn)
		if err != nil {
			return fmt.Errorf("file %s: %w", file, err)
		}
		c.User, c.Passwd = now.User, now.Passwd
		return nil
	}))
}
