package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/worker"
)

// defaultListen is a loopback address: the metrics are nobody's business unless somebody says so.
const defaultListen = "127.0.0.1:9117"

// runCommand is "unstale run".
type runCommand struct {
	mysql  mysqlFlags
	redis  redisFlags
	logs   logFlags
	worker worker.Config

	mapFile      string
	name         string
	listen       string
	once         bool
	claimTimeout time.Duration
}

func newRun(p process) *cobra.Command {
	r := &runCommand{worker: worker.Config{}.WithDefaults()} // so that a zero that is given is refused
	cmd := &cobra.Command{
		Use:         "run",
		Annotations: map[string]string{stopNote: string(stopDone)},
		Short:       "Carry committed rows to Redis until stopped",
		Long: `Carry committed rows to Redis until SIGTERM or SIGINT, which let the pass in hand finish
(5 s at most); a second signal ends the process at once. SIGHUP reads the map again; it is
also read when its file changes. Several workers share the work.

/metrics, /healthz and /readyz are served on --listen.`,
		Example: `  unstale run --mysql-dsn 'unstale:secret@tcp(db:3306)/shop' --redis-url redis://cache:6379/0
  unstale run --once       # carry what is there, then exit`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "lookup-timeout"); err != nil {
				return err
			}
			if r.once { // then the end of the work is what it was asked for, not the stop
				p.Stop.set(stopOrderly)
			}
			return r.run(cmd.Context(), p)
		},
	}
	r.addFlags(cmd.Flags())
	showEnv(cmd.Flags(), "once")
	return cmd
}

func (r *runCommand) addFlags(flags *pflag.FlagSet) {
	r.mysql.add(flags)
	r.redis.add(flags)
	r.logs.add(flags)
	flags.IntVar(&r.redis.wait, "redis-wait", 0, "replicas that must have acknowledged a batch before it is settled (WAIT)")
	flags.Float64Var(&r.redis.share, "sweep-share", 0.25, "share of Redis' time that a pass over the keyspace may take; 1: all of it")
	d := r.worker
	flags.StringVar(&r.mapFile, "map", "mapping.yaml", "the map's file")
	flags.StringVar(&r.name, "worker", defaultName(), "this worker's name in the journal, at most 64 bytes")
	flags.StringVar(&r.listen, "listen", defaultListen, "address for /metrics, /healthz and /readyz; - turns it off")
	flags.BoolVar(&r.once, "once", false, "carry what is there and exit")
	flags.DurationVar(&r.claimTimeout, "claim-timeout", 10*time.Second, "the server frees the rows of a vanished worker after this, whole seconds")
	flags.IntVar(&r.worker.BatchRows, "batch-rows", d.BatchRows, "rows of one claim at most")
	flags.IntVar(&r.worker.BatchKeys, "batch-keys", d.BatchKeys, "keys of one batch at most")
	flags.DurationVar(&r.worker.IdleInterval, "idle-interval", d.IdleInterval, "longest wait between two polls")
	r.mysql.addLookups(flags)
	flags.IntVar(&r.worker.MaxAttempts, "max-attempts", d.MaxAttempts, "failures of a row before it is buried")
	flags.DurationVar(&r.worker.RetryDelay, "retry-delay", d.RetryDelay, "wait after a row's first failure; doubles")
	flags.DurationVar(&r.worker.JournalRetention, "journal-retention", d.JournalRetention, "how long the journal is kept")
	flags.StringVar(&r.worker.WakeChannel, "wake-channel", d.WakeChannel, "channel of wake-up hints; - turns it off")
	flags.DurationVar(&r.worker.WakeInterval, "wake-interval", d.WakeInterval, "shortest time between two passes for hints; 0: each hint makes a pass at once")
}

// defaultName tells workers of one host apart.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	name := fmt.Sprintf("%s-%d", host, os.Getpid())
	return name[max(0, len(name)-64):]
}

func (r *runCommand) run(ctx context.Context, p process) error {
	log, err := r.logs.logger(p)
	if err != nil {
		return err
	}
	if err := r.worker.Validate(); err != nil {
		return usageError{err}
	}
	if r.redis.share == 0 {
		return usageError{errors.New("--sweep-share is 0: it must be from 0.01 to 1")}
	}
	keyspace.SetClientLog(log)
	r.redis.beaconTTL = 2 * r.worker.JournalRetention // longer than anything that the journal knows
	options, err := r.redis.options()
	if err != nil {
		return err
	}
	maps, err := worker.OpenMapFile(r.mapFile, p.Env)
	if err != nil {
		return mapError(err)
	}
	store, err := r.mysql.open(r.name, r.claimTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // the process ends
	redis, err := keyspace.Open(options)
	if err != nil {
		return err
	}
	defer func() { _ = redis.Close() }() // the process ends
	r.logSettings(log, options, maps.Map())
	w, err := worker.New(r.worker, worker.Deps{Store: store, Redis: redis, Maps: maps, Log: log})
	if err != nil {
		return err
	}
	if !r.once {
		return r.work(ctx, log, w, store, maps)
	}
	defer tellStop(ctx, log)()
	if err := check(ctx, store); err != nil {
		return orStopped(ctx, err)
	}
	return r.drain(ctx, log, w)
}

// tellStop logs a signal when it comes, until the function that it returns is called.
func tellStop(ctx context.Context, log *slog.Logger) (end func() bool) {
	return context.AfterFunc(ctx, func() {
		log.Info("stopping: the pass in hand is finished; a second signal ends the process at once")
	})
}

// orStopped returns err, or in its place that a signal is its cause.
func orStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("stopped; run it again for the rest")
	}
	return err
}

// mapError puts every fault of a map on a line of its own.
func mapError(err error) error {
	var faults invalidation.Faults
	if errors.As(err, &faults) {
		return fmt.Errorf("the map has %s, no row was touched:\n%w", count(len(faults), "fault"), err)
	}
	return err
}

func (r *runCommand) logSettings(log *slog.Logger, redis keyspace.Options, m *invalidation.Map) {
	c := r.worker
	log.Info("unstale starts", "version", versionText(), "worker", r.name,
		"mysql", r.mysql.redacted(), "redis", redis.Redacted(), "map", r.mapFile, "map_version", m.Version(),
		"entities", len(m.Entities()), "channel", m.Channel(), "format", m.Format(), "listen", r.listen,
		"claim_timeout", r.claimTimeout.String(), "redis_timeout", r.redis.timeout.String(),
		"redis_wait", r.redis.wait, "redis_sharded_pubsub", r.redis.sharded, "sweep_share", r.redis.share,
		"batch_rows", c.BatchRows, "batch_keys", c.BatchKeys, "idle_interval", c.IdleInterval.String(),
		"lookup_timeout", r.mysql.lookupTimeout.String(), "max_attempts", c.MaxAttempts, "retry_delay", c.RetryDelay.String(),
		"journal_retention", c.JournalRetention.String(), "wake_channel", c.WakeChannel, "wake_interval", c.WakeInterval.String())
}

// awaitPause is the wait between two looks at a MySQL that is not there yet.
const awaitPause = 500 * time.Millisecond

// await waits until MySQL answers, and refuses what waiting cannot cure: a schema or a setting that does not
// fit, a password.
func (r *runCommand) await(ctx context.Context, health *worker.Health, db *store.Store) error {
	for {
		err := check(ctx, db)
		if err == nil || errors.Is(err, migrations.ErrSchema) || store.IsRefusal(err) {
			return err
		}
		health.Wait(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(awaitPause):
		}
	}
}

func check(ctx context.Context, store *store.Store) error {
	if err := store.Ping(ctx); err != nil {
		return err
	}
	if err := migrations.Check(ctx, store.DB()); err != nil {
		return err
	}
	return store.Check(ctx)
}

func (r *runCommand) drain(ctx context.Context, log *slog.Logger, w *worker.Worker) error {
	total, err := w.Drain(ctx)
	said := "drained"
	switch {
	case err == nil:
	case ctx.Err() != nil:
		said, err = "stopped before all was carried, nothing is half done", orStopped(ctx, err)
	case total == (worker.Result{}):
		return err // nothing to tell
	default:
		said = "failed before all was carried, nothing is half done"
	}
	log.Info(said, "rows", total.Claimed, "unlinked", total.Unlinked, "delayed", total.Delayed, "dead", total.Dead,
		"keys", total.Keys, "messages", total.Messages, "sweeps", total.Sweeps)
	return err
}

func (r *runCommand) work(ctx context.Context, log *slog.Logger, w *worker.Worker, store *store.Store, maps *worker.MapFile) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-hup:
				maps.Reload()
			case <-done:
				return
			}
		}
	}()
	stop, err := r.serve(log, w)
	if err != nil {
		return err
	}
	defer stop()
	defer tellStop(ctx, log)()
	switch err := r.await(ctx, w.Health(), store); {
	case ctx.Err() != nil: // stopped while it waited
	case err != nil:
		return err
	default:
		if err := w.Run(ctx); err != nil {
			return err
		}
	}
	log.Info("stopped, nothing is half done")
	return nil
}

// serve answers on --listen until the function that it returns is called.
func (r *runCommand) serve(log *slog.Logger, w *worker.Worker) (stop func(), err error) {
	if r.listen == "-" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", r.listen)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w; choose another address with --listen, or - for none", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", w.Metrics().Handler())
	mux.Handle("/", w.Health().Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are no longer served", "error", err)
		}
	}()
	log.Info("serving metrics and health", "address", listener.Addr().String())
	return func() {
		_ = server.Close() // probes may be cut off; the process ends
		<-ended
	}, nil
}
