package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/worker"
)

// defaultListen is a loopback address: metrics are exposed beyond it only on request.
const defaultListen = "127.0.0.1:9117"

// runCommand is "unstale run".
type runCommand struct {
	mysql  mysqlFlags
	redis  redisFlags
	logs   logFlags
	worker worker.Config
	page   consoleFlags

	listen  string
	once    bool
	tracing string // the collector's endpoint; it may hold a secret
}

func newRun(p process) *cobra.Command {
	// so that a zero that is given is refused
	r := &runCommand{worker: worker.Config{}.WithDefaults()}
	cmd := &cobra.Command{
		Use:         "run",
		Annotations: map[string]string{stopNote: string(stopDone)},
		Short:       "Process outbox rows until stopped",
		Long: `Process outbox rows until SIGTERM or SIGINT: claim committed rows, unlink their keys and publish them.
Several workers share the work.

Signals:
  SIGTERM, SIGINT  finish the current batch (at most 5 s) and exit; a second one exits immediately
  SIGHUP           read the map again; a worker also reads a changed file

The worker serves /metrics, /healthz and /readyz on --listen, and a page for people on --console. It
sends spans of batches to the collector in the variables of OpenTelemetry, such as
OTEL_EXPORTER_OTLP_ENDPOINT.`,
		Example: `  unstale run --mysql-dsn 'unstale:secret@tcp(db:3306)/shop' --redis-url redis://cache:6379/0
  unstale run --once       # process existing rows, then exit`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.once { // then it ends with its work, and a stop is an early end
				p.Stop.set(stopOrderly)
			}
			log, err := r.complete(cmd.Flags(), p)
			if err != nil {
				return err
			}
			return r.runWorker(cmd.Context(), p, log)
		},
	}
	r.addFlags(cmd.Flags())
	return cmd
}

func (r *runCommand) addFlags(flags *pflag.FlagSet) {
	r.mysql.addMySQLFlags(flags)
	r.redis.addRedisFlags(flags)
	r.redis.addKey(flags)
	r.logs.addLogFlags(flags)
	d := r.worker
	flags.IntVar(&r.worker.RedisWait, "redis-wait", d.RedisWait, "replicas that must have acknowledged a batch before it is settled (WAIT)")
	flags.Float64Var(&r.worker.SweepShare, "sweep-share", d.SweepShare, "share of Redis time for all sweeps; 1: all of it")
	flags.IntVar(&r.worker.SpotChecks, "spot-checks", d.SpotChecks, "unlinked keys per second to check for stale entries; 0: none")
	flags.StringVar(&r.worker.MapFile, "map", defaultMap, "the map's file")
	flags.StringVar(&r.worker.Name, "worker", d.Name, "this worker's name in the journal, at most 64 bytes (default: host and process)")
	flags.Lookup("worker").DefValue = "" // help and man pages are the same everywhere
	flags.StringVar(&r.listen, "listen", defaultListen, "address for /metrics, /healthz and /readyz; - turns it off")
	r.page.addConsoleFlags(flags)
	flags.BoolVar(&r.once, "once", false, "process existing rows and exit")
	flags.DurationVar(&r.worker.ClaimTimeout, "claim-timeout", d.ClaimTimeout, "the server frees the rows of a vanished worker after this, whole seconds")
	flags.IntVar(&r.worker.BatchRows, "batch-rows", d.BatchRows, "rows of one claim at most")
	flags.IntVar(&r.worker.BatchKeys, "batch-keys", d.BatchKeys, "keys of one batch at most")
	flags.DurationVar(&r.worker.IdleInterval, "idle-interval", d.IdleInterval, "longest wait between two polls")
	r.mysql.addLookups(flags)
	flags.IntVar(&r.worker.MaxAttempts, "max-attempts", d.MaxAttempts, "failures of a row before it is dead-lettered")
	flags.DurationVar(&r.worker.RetryDelay, "retry-delay", d.RetryDelay, "wait after a row's first failure; doubles")
	flags.DurationVar(&r.worker.JournalRetention, "journal-retention", d.JournalRetention, "how long the journal is kept")
	flags.DurationVar(&r.worker.LockRetention, "lock-retention", d.LockRetention, "how long the row of a lock is kept after its last acquisition, at least 48h")
	flags.StringVar(&r.worker.WakeChannel, "wake-channel", d.WakeChannel, "channel of wake-up hints; - turns it off")
	flags.DurationVar(&r.worker.WakeInterval, "wake-interval", d.WakeInterval, "shortest time between two claims for wake-ups; 0: each claims immediately")
}

// complete gives the worker's settings what other flags say. It returns an error if the worker
// cannot start with them.
func (r *runCommand) complete(flags *pflag.FlagSet, p process) (log *slog.Logger, err error) {
	if log, err = r.logs.logger(p); err != nil {
		log = slog.New(slog.DiscardHandler)
	}
	return log, errors.Join(err, refuseEmpty(flags, "lookup-timeout"), refuseAddress("--listen", r.listen), r.completeWorker(p, log))
}

func (r *runCommand) completeWorker(p process, log *slog.Logger) (err error) {
	c := &r.worker
	if c.MySQL, err = r.mysql.config(); err != nil {
		return err
	}
	if c.Redis, err = r.redis.address(); err != nil {
		return err
	}
	c.RedisTimeout, c.RedisShardedPubSub, c.LookupTimeout = r.redis.timeout, r.redis.sharded, r.mysql.lookupTimeout
	c.MapEnv, c.Logger, c.MessageKey = p.Env, log, r.redis.messageKey()
	if r.tracing, err = tracingEndpoint(p); err != nil {
		return err
	}
	if c.SweepShare == 0 {
		return usageError{errors.New("--sweep-share is 0: it must be from 0.01 to 1")}
	}
	c.SpotChecks = cmp.Or(c.SpotChecks, -1)
	if err := c.Validate(); err != nil {
		return usageError{errors.New(optionFlags.Replace(err.Error()))}
	}
	return r.page.complete(r.mysql, r.redis, log)
}

// memoryLimit is the size up to which the heap may grow before garbage is collected more often. It
// is not a bound: a batch of rows within the limits of a map needs less. garbageRoom is the least
// room for garbage above the live heap.
const (
	memoryLimit = 72 << 20
	garbageRoom = 32 << 20
)

// limitMemory sets Go's soft memory limit to memoryLimit, or to garbageRoom above the live heap if
// that is more. The buffers of connections to 64 masters, for example, take 64 MiB: with a fixed
// limit of 72 MiB, garbage collection would take several times as much processor time as the work.
func limitMemory(context.Context) {
	live := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(live)
	debug.SetMemoryLimit(max(memoryLimit, int64(live[0].Value.Uint64())+garbageRoom))
}

// refuseAddress refuses an address that no process can listen on. It does not resolve names.
func refuseAddress(flag, address string) error {
	if address == "-" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usageError{fmt.Errorf("%s %q: must be host:port, such as 127.0.0.1:9117 or :9117", flag, address)}
	}
	return nil
}

func (r *runCommand) runWorker(ctx context.Context, p process, log *slog.Logger) error {
	keyspace.SetClientLog(log)
	if _, set := p.Env("GOMEMLIMIT"); !set { // or Go has read it
		following, end := context.WithCancel(ctx)
		defer end()
		go sleep.Every(following, time.Second, limitMemory)
	}
	sent, err := newSpans(ctx, r.tracing, r.worker.Name, log)
	if err != nil {
		return err
	}
	r.worker.Hooks = sent.hooks()
	w, err := worker.New(r.worker)
	if err != nil {
		return mapError(err)
	}
	r.logSettings(log, w.Map())
	if !r.once {
		defer sent.close(time.Second)
		return r.work(ctx, log, w, sent)
	}
	defer sent.close(3 * time.Second)
	defer tellStop(ctx, log)()
	return r.drain(ctx, log, w)
}

// tellStop logs a signal when it comes, until the function that it returns is called.
func tellStop(ctx context.Context, log *slog.Logger) (end func() bool) {
	return context.AfterFunc(ctx, func() {
		log.Info("stopping: the current batch is finished; a second signal ends the process immediately")
	})
}

// orStopped returns err, or in its place that a signal is its cause.
func orStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("stopped; run it again for the rest")
	}
	return err
}

// mapError puts every error of a map on a separate line.
func mapError(err error) error {
	if faults, ok := errors.AsType[invalidation.Faults](err); ok {
		return fmt.Errorf("the map has %s, no row was touched:\n%w", output.Things(len(faults), "fault"), err)
	}
	return err
}

func (r *runCommand) logSettings(log *slog.Logger, m *invalidation.Map) {
	c := r.worker
	log.Info("unstale starts", "version", versionText(), "worker", c.Name,
		"mysql", redacted(c.MySQL), "redis", keyspace.Options{Redis: c.Redis}.Redacted(), "map", c.MapFile, "map_version", m.Version(),
		"entities", len(m.Entities()), "channel", m.Channel(), "format", m.Format(), "listen", r.listen,
		"claim_timeout", c.ClaimTimeout.String(), "redis_timeout", c.RedisTimeout.String(),
		"redis_wait", c.RedisWait, "redis_sharded_pubsub", c.RedisShardedPubSub, "messages_signed", c.MessageKey != nil, "sweep_share", c.SweepShare,
		"batch_rows", c.BatchRows, "batch_keys", c.BatchKeys, "idle_interval", c.IdleInterval.String(),
		"lookup_timeout", c.LookupTimeout.String(), "max_attempts", c.MaxAttempts, "retry_delay", c.RetryDelay.String(),
		"journal_retention", c.JournalRetention.String(), "lock_retention", c.LockRetention.String(), "wake_channel", c.WakeChannel, "wake_interval", c.WakeInterval.String(),
		"traces", cmp.Or(redactedURL(r.tracing), "-"))
}

func (r *runCommand) drain(ctx context.Context, log *slog.Logger, w *worker.Worker) error {
	total, err := w.Drain(ctx)
	said := "drained"
	switch {
	case err == nil:
	case ctx.Err() != nil:
		said, err = "stopped before all rows were processed, nothing is half done", orStopped(ctx, err)
	case total == (worker.Result{}):
		return err // nothing to tell
	default:
		said = "failed before all rows were processed, nothing is half done"
	}
	log.Info(said, "rows", total.Claimed, "unlinked", total.Unlinked, "delayed", total.Delayed, "dead", total.Dead,
		"keys", total.Keys, "messages", total.Messages, "sweeps", total.Sweeps)
	return err
}

func (r *runCommand) work(ctx context.Context, log *slog.Logger, w *worker.Worker, sent spans) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer func() {
		signal.Stop(hup)
		close(hup) // no signal is sent to it after Stop
	}()
	go func() {
		for range hup {
			w.Reload()
		}
	}()
	stop, err := r.serve(log, w, sent)
	if err != nil {
		return err
	}
	defer stop()
	hide, err := r.page.serve(log, w)
	if err != nil {
		return err
	}
	defer hide()
	defer tellStop(ctx, log)()
	if err := w.Run(ctx); err != nil {
		return err
	}
	log.Info("stopped, nothing is half done")
	return nil
}

// serve answers on --listen until the function that it returns is called.
func (r *runCommand) serve(log *slog.Logger, w *worker.Worker, sent spans) (stop func(), err error) {
	if r.listen == "-" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", r.listen)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w; choose another address with --listen, or - for none", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics(w, sent))
	mux.Handle("/", w.HealthHandler())
	stop = serveOn(listener, &http.Server{Handler: mux}, log, "metrics are no longer served")
	log.Info("serving metrics and health", "address", listener.Addr().String())
	return stop, nil
}

// serveOn answers on a listener until the function that it returns is called. It logs failure if it
// ends before.
func serveOn(listener net.Listener, server *http.Server, log *slog.Logger, failure string) (stop func()) {
	server.ReadHeaderTimeout, server.ErrorLog = 5*time.Second, slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(failure, "error", err)
		}
	}()
	return func() {
		_ = server.Close() // probes and pages may be cut off; the process ends
		<-ended
	}
}

// metrics serves the figures of the worker and of the process.
func metrics(w *worker.Worker, sent spans) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(w.Metrics(), sent.counts, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
