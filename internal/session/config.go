package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/dberr"
)

// Config configures how [Sessions] reach MySQL and how long they may hold rows.
type Config struct {
	// MySQL is the server, from [ParseDSN]. It must name a database. Parameters that change the
	// meaning of statements are overridden, and system variables (Params) that the store does not
	// pin are refused: see docs/settings.md. Required.
	MySQL *mysql.Config
	// Worker names this process in the journal, at most 64 characters. Required.
	Worker string
	// Operator is the operator that runs a command, as the program claims: user@host. The audit
	// keeps 255 characters of it. Only operators' commands set it.
	Operator string
	// ClaimTimeout is how long the server waits before it disconnects a worker that vanished during
	// a claim, which frees its rows: the wait_timeout, net_read_timeout, net_write_timeout and lock
	// timeouts of the claiming session. Whole seconds, 2 s to 5 min. Zero: 10 s. A batch must end
	// within half of it.
	ClaimTimeout time.Duration
	// StatementTimeout bounds every statement outside a claim (status, sweeps, retention), and each
	// reply of the server inside one. Zero: 5 s.
	StatementTimeout time.Duration
	// LookupTimeout bounds one lookup of the map, on the server. The client waits a little longer.
	// 10 ms to 2 s. Zero: 200 ms.
	LookupTimeout time.Duration
}

// WithDefaults returns a copy of c with zero values replaced by the defaults.
func (c Config) WithDefaults() Config {
	c.ClaimTimeout = cmp.Or(c.ClaimTimeout, 10*time.Second)
	c.StatementTimeout = cmp.Or(c.StatementTimeout, 5*time.Second)
	c.LookupTimeout = cmp.Or(c.LookupTimeout, 200*time.Millisecond)
	return c
}

// Validate checks c. Its error names the field, the value and the rule.
func (c Config) Validate() error {
	if n := len(c.Worker); n == 0 || n > 64 {
		return fmt.Errorf("worker name %q: has %d bytes, wanted 1 to 64", c.Worker, n)
	}
	if t := c.ClaimTimeout; t < 2*time.Second || t > 5*time.Minute || t%time.Second != 0 {
		return fmt.Errorf("claim timeout %s: wanted whole seconds from 2s to 5m", t)
	}
	if t := c.StatementTimeout; t < 100*time.Millisecond || t > 5*time.Minute {
		return fmt.Errorf("statement timeout %s: wanted 100ms to 5m", t)
	}
	if t := c.LookupTimeout; t < 10*time.Millisecond || t > 2*time.Second {
		return fmt.Errorf("lookup timeout %s: wanted 10ms to 2s", t)
	}
	_, err := c.driver()
	return err
}

const wantedDSN = "wanted user:password@tcp(host:3306)/database"

// driver returns the MySQL configuration of the pools.
func (c Config) driver() (*mysql.Config, error) {
	switch {
	case c.MySQL == nil:
		return nil, errors.New("no mysql is given")
	case c.MySQL.DBName == "":
		return nil, fmt.Errorf("mysql dsn: names no database; %s", wantedDSN)
	}
	if err := refuseVariables(c.MySQL.Params); err != nil {
		return nil, fmt.Errorf("mysql dsn: %w", err)
	}
	cfg := c.MySQL.Clone()
	// This package decides how rows are read and what statements mean.
	cfg.Params = nil
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.ColumnsWithAlias = false
	cfg.ClientFoundRows = false
	cfg.InterpolateParams = true // one round trip a statement; safe with utf8mb4
	cfg.MultiStatements = false
	cfg.AllowAllFiles = false
	cfg.CheckConnLiveness = true
	// Ask the server, so that an oversized packet is an error and not a lost connection.
	cfg.MaxAllowedPacket = 0
	cfg.Logger = &mysql.NopLogger{} // errors are returned; the loop logs them once
	cfg.Timeout = cmp.Or(cfg.Timeout, c.StatementTimeout)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, c.StatementTimeout)
	return cfg, cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_general_ci"), mysql.TimeTruncate(0))
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// ParseDSN parses a go-sql-driver data source name. The driver's errors quote the part that it
// parses as the address, which in a malformed DSN may be the password, so ParseDSN does not return
// them. It does return errors about parameters, which quote only those.
func ParseDSN(dsn string) (*mysql.Config, error) {
	cfg, err := parseDSN(dsn)
	return cfg, dberr.Wrap(err, "mysql dsn")
}

func parseDSN(dsn string) (*mysql.Config, error) {
	if s := scheme.FindString(dsn); s != "" {
		return nil, fmt.Errorf("a URL (%s...) is not understood; %s", s, wantedDSN)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		address, _, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
		_, bare := mysql.ParseDSN(dsn[:strings.LastIndexByte(dsn, '/')+1] + address)
		if bare == nil || strings.HasPrefix(err.Error(), "invalid DSN: ") {
			return nil, fmt.Errorf("%w; %s", err, wantedDSN)
		}
		return nil, fmt.Errorf("cannot be read; %s", wantedDSN)
	}
	return cfg, nil
}

// refuseVariables refuses system variables, which the driver would SET, unless every session pins
// its own value and so overrides them: applications may share a DSN that has a time_zone.
func refuseVariables(params map[string]string) error {
	mysql, mariaDB := session{}.byServer()
	pins := slices.Concat(session{}.common(), mysql, mariaDB)
	refused := slices.DeleteFunc(slices.Sorted(maps.Keys(params)), func(name string) bool {
		return slices.ContainsFunc(pins, func(p pin) bool { return p.name == strings.ToLower(name) })
	})
	if len(refused) == 0 {
		return nil
	}
	return fmt.Errorf("%s: neither a parameter of go-sql-driver nor a system variable that sessions pin; remove it, or set it on the server",
		strings.Join(refused, ", "))
}

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
