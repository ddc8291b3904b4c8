package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/session"
)

// A setting is a server variable with a problematic value. It can have several names; a server
// knows at most one of them.
type setting struct {
	names []string
	judge func(value string) (f Finding, wrong bool)
}

// leastPacket is less than a batch of many keys needs: smaller packets cut batches, and may refuse
// a single row.
const leastPacket = 4 << 20

// sqlMode is the only variable here that may be empty: an empty value of the others means that the
// server does not have it.
const sqlMode = "@@GLOBAL.sql_mode"

var settings = []setting{
	{[]string{sqlMode}, func(v string) (Finding, bool) {
		return found(Warning, "sessions are not strict by default, so an application's row may be cut in silence", "sql_mode is "+quoted(v),
			"add STRICT_TRANS_TABLES to the server's sql_mode, or set it in each application's sessions"), !strings.Contains(v, "STRICT_")
	}},
	{[]string{"@@GLOBAL.max_allowed_packet"}, func(v string) (Finding, bool) {
		n, err := strconv.ParseInt(v, 10, 64)
		return found(Warning, "packets are small, so batches are cut and rows with many keys are dead-lettered", "max_allowed_packet is "+v,
			fmt.Sprintf("set it to %d or more", leastPacket)), err == nil && n < leastPacket
	}},
	{[]string{"@@GLOBAL.read_only"}, func(v string) (Finding, bool) {
		return found(Critical, "this MySQL is read-only, so no row is settled: a replica?", "read_only is "+v, "name the primary in --mysql-dsn"), isOn(v)
	}},
	{[]string{"@@GLOBAL.super_read_only"}, func(v string) (Finding, bool) {
		return found(Critical, "this MySQL is read-only, even for administrators", "super_read_only is "+v, "name the primary in --mysql-dsn"), isOn(v)
	}},
	// The settings below cannot be wrong: sessions of unstale pin them and read them back. They may
	// surprise applications.
	{[]string{"@@GLOBAL.transaction_isolation", "@@GLOBAL.tx_isolation"}, nil},
	{[]string{"@@GLOBAL.time_zone"}, nil},
	{[]string{"@@GLOBAL.log_bin"}, nil},
	{[]string{"@@GLOBAL.binlog_format"}, nil},
}

// mysqlSettings also repeats the queries of a worker's start. Sessions are pinned, and were read
// back when they were opened.
func mysqlSettings(ctx context.Context, e *Exam) (all []Finding, err error) {
	if err := e.MySQL.Check(ctx); err != nil {
		for _, one := range split(err) {
			var wrong session.SettingError
			if !errors.As(one, &wrong) {
				all = append(all, unseen("settings that a worker refuses", one, ""))
				continue
			}
			text, cure, _ := strings.Cut(wrong.Error(), "; ")
			all = append(all, found(Critical, "no worker starts with this server", text, cure))
		}
	}
	var seen []string
	for _, s := range settings {
		name, value, err := s.read(ctx, e.MySQL)
		if err != nil {
			return all, err
		}
		if name == "" {
			continue
		}
		seen = append(seen, name+"="+value)
		if s.judge == nil {
			continue
		}
		if f, wrong := s.judge(value); wrong {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		f := well("settings of the server are well; sessions of unstale pin their own")
		f.Evidence = strings.Join(seen, " ")
		all = append(all, f)
	}
	return all, nil
}

// read returns "" for the name if the server has none of them.
func (s setting) read(ctx context.Context, db *session.Sessions) (name, value string, err error) {
	for _, name := range s.names {
		value, err := db.Variable(ctx, name)
		if err != nil || value != "" || name == sqlMode {
			return strings.TrimPrefix(name, "@@GLOBAL."), value, err
		}
	}
	return "", "", nil
}

// split returns the errors that errors.Join has joined.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func isOn(v string) bool { return v == "1" || strings.EqualFold(v, "ON") }

func quoted(v string) string { return strconv.Quote(v) }
