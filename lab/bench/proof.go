package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/worker"
)

const (
	proofWrites = 1000 // invalidations per second, in proofParts INSERTs
	proofParts  = 100  //
	proofReads  = 5000 // of entries in Redis, per second
	proofKeys   = 10_000
	proofWarm   = 62 * time.Second // until each check has had its last look
	proofTime   = 20 * time.Second // that is counted
)

// proofRates are spot checks per second.
var proofRates = []int{0, 50, 500}

// A proofFigure is the cost of spot checks at one rate.
type proofFigure struct {
	Commands float64 `json:"redis_commands_per_second"`
	Looks    float64 `json:"look_commands_per_second"` // of those: what spot checks send
	Redis    float64 `json:"redis_cores"`              // processor time
	// of this process: the worker, and the readers
	Process float64 `json:"process_cores"`
	Checked float64 `json:"checks_per_second"`
}

func (f proofFigure) String() string {
	return fmt.Sprintf("%.0f commands/s, %.1f of them looks (%.2f %%), redis %.4f cores, worker and readers %.4f cores, %.1f checks/s",
		f.Commands, f.Looks, 100*f.Looks/f.Commands, f.Redis, f.Process, f.Checked)
}

// proof measures what spot checks cost at 1,000 invalidations and 5,000 reads per second.
func proof(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	runs := map[int][]proofFigure{}
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		order := rand.Perm(len(proofRates))
		for _, i := range order {
			f, err := proveAt(ctx, cfg, s, proofRates[i])
			if err != nil {
				return nil, fmt.Errorf("%d checks/s: %w", proofRates[i], err)
			}
			fmt.Fprintf(cfg.Progress, "%d checks/s: %s\n", proofRates[i], f)
			runs[proofRates[i]] = append(runs[proofRates[i]], f)
		}
	}
	details := map[string]any{}
	of := func(rate int, figure func(proofFigure) float64) float64 {
		var list []float64
		for _, f := range runs[rate] {
			list = append(list, figure(f))
		}
		return median(list)
	}
	for _, rate := range proofRates {
		details[fmt.Sprintf("checks_%03d", rate)] = proofFigure{
			Commands: of(rate, func(f proofFigure) float64 { return f.Commands }), Looks: of(rate, func(f proofFigure) float64 { return f.Looks }),
			Redis: of(rate, func(f proofFigure) float64 { return f.Redis }), Process: of(rate, func(f proofFigure) float64 { return f.Process }),
			Checked: of(rate, func(f proofFigure) float64 { return f.Checked }),
		}
	}
	commands := func(rate int) float64 { return details[fmt.Sprintf("checks_%03d", rate)].(proofFigure).Commands }
	return &Report{Ours: commands(proofRates[1]), Floor: commands(0), Unit: "commands/s of Redis", Machine: s.machine(), Details: details}, nil
}

// proveAt measures one rate.
func proveAt(ctx context.Context, cfg Config, s *shop, rate int) (f proofFigure, err error) {
	looks := &lookCounter{}
	settings := worker.Config{SpotChecks: rate}
	if rate == 0 {
		settings.SpotChecks = -1
	}
	stop, err := s.serveWith(ctx, "proof", looks, settings)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	endLoad := during(ctx, func(ctx context.Context) error { return proofLoad(ctx, s) })
	defer func() {
		if ended := endLoad(); !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
	}()
	counted := max(proofTime/time.Duration(cfg.Scale), time.Second)
	if err := wait(ctx, max(proofWarm/time.Duration(cfg.Scale), 2*time.Second)); err != nil {
		return f, err
	}
	before, err := readProof(ctx, s, looks)
	if err != nil {
		return f, err
	}
	began := time.Now()
	if err := wait(ctx, counted); err != nil {
		return f, err
	}
	after, err := readProof(ctx, s, looks)
	if err != nil {
		return f, err
	}
	seconds := time.Since(began).Seconds()
	for _, one := range []struct{ to, from *float64 }{
		{&after.Commands, &before.Commands}, {&after.Looks, &before.Looks}, {&after.Redis, &before.Redis}, {&after.Process, &before.Process}, {&after.Checked, &before.Checked},
	} {
		*one.to = (*one.to - *one.from) / seconds
	}
	return after, nil
}

// wait waits.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// readProof reads totals so far.
func readProof(ctx context.Context, s *shop, looks *lookCounter) (f proofFigure, err error) {
	info := s.InfoMap(ctx, "cpu", "stats").Val()
	for _, one := range []struct {
		into *float64
		text string
	}{{&f.Commands, info["Stats"]["total_commands_processed"]}, {&f.Redis, info["CPU"]["used_cpu_sys"]}, {&f.Process, info["CPU"]["used_cpu_user"]}} {
		if *one.into, err = strconv.ParseFloat(one.text, 64); err != nil {
			return f, fmt.Errorf("read figures of redis: %w", err)
		}
	}
	f.Redis, f.Process, f.Looks = f.Redis+f.Process, cpuTime(), float64(looks.commands.Load())
	err = s.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(checked), 0) FROM cache_outbox_minutes").Scan(&f.Checked)
	return f, err
}

// proofLoad writes and reads until ctx ends.
func proofLoad(ctx context.Context, s *shop) error {
	client := redis.NewClient(s.Options())
	defer client.Close()
	c, err := cache.New(cache.Config{Redis: client, Prefix: couponKey(""), Timeout: patientTimeout, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer c.Close()
	const forever = 1 << 24
	reads := during(ctx, func(ctx context.Context) error {
		_, err := paced(ctx, time.Second/proofReads, forever, latencyHands, func(ctx context.Context, _ int) error {
			_, id, _ := coupon(popular())
			_, err := cache.Fetch(ctx, c, id, loadProduct, cache.Static)
			return err
		})
		return err
	})
	insert := "INSERT INTO cache_outbox (entity, entity_id) VALUES " + strings.Repeat("(?, ?), ", proofWrites/proofParts-1) + "(?, ?)"
	_, err = paced(ctx, time.Second/proofParts, forever, latencyHands, func(ctx context.Context, _ int) error {
		var args []any
		for range proofWrites / proofParts {
			entity, id, _ := coupon(rand.IntN(proofKeys))
			args = append(args, entity, id)
		}
		_, err := s.db.ExecContext(ctx, insert, args...)
		return err
	})
	if ended := reads(); !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	return err
}

// popular draws the number of a key: the first tenth has half of the reads.
func popular() int { return int(proofKeys * math.Pow(rand.Float64(), math.Log(0.1)/math.Log(0.5))) }

// A lookCounter is a hook that counts the commands of the worker's looks.
type lookCounter struct{ commands atomic.Int64 }

func (*lookCounter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*lookCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *lookCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Name() == "getrange" }) {
			l.commands.Add(int64(len(commands)))
		}
		return next(ctx, commands)
	}
}
