package testenv

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/unstale/unstale/internal/servers"
)

// Which describes in one line the servers that the tests will use, without starting any. If one is
// missing, the error names the packages to install. Lines about unusable sources go to standard
// error, as in the tests.
func Which(ctx context.Context) (string, error) {
	defer shared.closeAll()
	s, err := readSettings(os.Getenv)
	if err != nil {
		return "", err
	}
	database, err := s.which(ctx, "database", mysqlVariable, s.mysqlDSN, s.describeMySQL)
	if err != nil {
		return "", err
	}
	redis, err := s.which(ctx, "Redis", redisVariable, s.redisURL, s.describeRedis)
	if err != nil {
		return "", err
	}
	zookeeper, err := servers.Find(servers.KindZooKeeper)
	if err != nil {
		return "", err
	}
	return strings.Join([]string{database, redis, fmt.Sprintf("%s (%s)", describeProgram(zookeeper), fromLocal)}, ", "), nil
}

func (s settings) which(ctx context.Context, what, variable, given string, describe func(context.Context, source) (string, error)) (string, error) {
	sources, err := s.sources(variable, given)
	if err != nil {
		return "", err
	}
	name, from, err := choose(what, sources, func(from source) (string, error) { return describe(ctx, from) }, run.say)
	return fmt.Sprintf("%s (%s)", name, from), err
}

func (s settings) describeMySQL(ctx context.Context, from source) (string, error) {
	switch from {
	case fromEnv:
		server, err := connectMySQL(ctx, s.mysqlDSN)
		if err != nil {
			return "", err
		}
		defer server.admin.Close()
		return server.flavor.String() + " " + servers.ShortVersion(server.version), nil
	case fromDocker:
		_, err := docker(ctx, "fetch", s.mysqlImage)
		return s.mysqlImage, err
	default:
		program, err := servers.FindDatabase(s.flavor)
		return describeProgram(program), err
	}
}

func (s settings) describeRedis(ctx context.Context, from source) (string, error) {
	switch from {
	case fromEnv:
		pool, err := newDatabasePool(ctx, s.redisURL)
		if err != nil {
			return "", err
		}
		defer pool.close()
		return pool.product + " " + servers.ShortVersion(pool.version), nil
	case fromDocker:
		_, err := docker(ctx, "fetch", s.redisImage)
		return s.redisImage, err
	default:
		program, err := s.redisProgram()
		return describeProgram(program), err
	}
}

func describeProgram(p *servers.Program) string {
	if p == nil {
		return ""
	}
	return p.Name + " " + p.Short()
}
