package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/unstale/unstale/console"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/worker"
)

// consoleFlags are the flags of the page that "unstale run" serves.
type consoleFlags struct {
	listen     string // "": no page
	tokenFile  string
	userHeader string
	proxyFile  string
	dsn        secret
	redis      secret
	actions    bool
	config     console.Config // set by complete
}

func (f *consoleFlags) addConsoleFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "console", "", "address of the console, a page for people, such as 127.0.0.1:9118 (default: off)")
	flags.StringVar(&f.tokenFile, "console-token-file", "", "file of the token that people enter in the console")
	flags.StringVar(&f.userHeader, "console-user-header", "", "header with the name of the user, which a proxy sends to the console")
	flags.StringVar(&f.proxyFile, "console-proxy-secret-file", "", "file of the secret that the proxy sends to the console in X-Unstale-Proxy-Secret")
	flags.BoolVar(&f.actions, "console-actions", false, "let people retry, correct and discard dead letters, replay, pause and resume in the console")
	flags.Var(&f.dsn, "console-dsn", "MySQL for the console, with an operator's account")
	flags.Var(&f.redis, "console-redis-url", "Redis for the console, with an operator's account")
}

// complete reads the files. The console reaches the servers as the worker does, but with its
// own accounts.
func (f *consoleFlags) complete(mysql mysqlFlags, redis redisFlags, log *slog.Logger) (err error) {
	if f.listen == "" {
		return nil
	}
	c := console.Config{TokenFile: f.tokenFile, UserHeader: f.userHeader, Logger: log, Actions: f.actions, MessageKey: redis.messageKey(), RedisShardedPubSub: redis.sharded}
	for _, file := range []struct {
		flag, path string
		to         *string
	}{{"--console-token-file", f.tokenFile, new(string)}, {"--console-proxy-secret-file", f.proxyFile, &c.ProxySecret}} {
		if file.path == "" {
			continue
		}
		if *file.to, err = credentials.ReadSecret(file.path); err != nil {
			return usageError{fmt.Errorf("%s: %w", file.flag, err)}
		}
		*file.to = strings.TrimSpace(*file.to)
	}
	if f.dsn.text != "" {
		mysql.dsn = f.dsn
		if c.MySQL, err = mysql.config(); err != nil {
			return fmt.Errorf("--console-dsn: %w", err)
		}
	}
	if f.redis.text != "" {
		redis.url = f.redis
		if c.Redis, err = redis.address(); err != nil {
			return fmt.Errorf("--console-redis-url: %w", err)
		}
	}
	f.config = c
	if err := c.Validate(); err != nil {
		return usageError{fmt.Errorf("console: %w", err)}
	}
	if err := c.ValidateAddress(f.listen); err != nil {
		return usageError{fmt.Errorf("--console: %w: set --console-token-file, or --console-user-header and --console-proxy-secret-file", err)}
	}
	return refuseAddress("--console", f.listen)
}

// serve answers on --console until the function that it returns is called.
func (f *consoleFlags) serve(log *slog.Logger, w *worker.Worker) (stop func(), err error) {
	if f.listen == "" {
		return func() {}, nil
	}
	f.config.Worker = w
	page, err := console.New(f.config)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the console: %w; choose another address with --console", err), page.Close())
	}
	end := serveOn(listener, &http.Server{Handler: page, IdleTimeout: time.Minute}, log, "the console is no longer served")
	log.Info("serving the console", "url", "http://"+listener.Addr().String()+"/", "mysql_account", f.config.MySQL != nil, "actions", f.config.Actions)
	return func() {
		end()
		if err := page.Close(); err != nil {
			log.Warn("console: connections are not closed", "error", err)
		}
	}, nil
}
