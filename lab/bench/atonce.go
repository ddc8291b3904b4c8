package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
)

const (
	atOnceProcesses = 2
	atOnceCallers   = 500                    // of each process
	atOnceLoad      = 100 * time.Millisecond // that the statement of a load takes
)

// An order is a line to a reader process. The first line has the URL. Then each key takes two
// lines: the first names it, and the second, which is empty, is the signal to begin.
type order struct{ Redis, Key string }

// A tally is the answer of a reader process to an order. The answer to a key means that all callers
// wait for the signal.
type tally struct {
	Loads  int64  // calls of the loader
	Misses uint64 // callers who found the key neither in memory nor in Redis
	Error  string // of a caller
}

// missAtOnce counts how often one key is loaded that all callers of several processes ask for at
// one signal.
func missAtOnce(ctx context.Context, cfg Config, url string, details map[string]any) (err error) {
	var all []*readerProcess
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.close())
		}
	}()
	for range atOnceProcesses {
		p, err := startReader(ctx, cfg.Reader, url)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	var loads, misses []float64
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "concurrent misses, %d of %d\n", run+1, cfg.Runs)
		var sum tally
		for _, o := range []order{{Key: "once:" + strconv.Itoa(run)}, {}} {
			for _, p := range all {
				if err := p.orders.Encode(o); err != nil {
					return p.failed(err)
				}
			}
			for _, p := range all {
				var t tally
				if err := p.answers.Decode(&t); err != nil {
					return p.failed(err)
				}
				if t.Error != "" {
					return fmt.Errorf("a reader process: %s", t.Error)
				}
				sum.Loads, sum.Misses = sum.Loads+t.Loads, sum.Misses+t.Misses
			}
		}
		loads, misses = append(loads, float64(sum.Loads)), append(misses, float64(sum.Misses))
	}
	details["at_once_callers"], details["at_once_processes"] = atOnceProcesses*atOnceCallers, atOnceProcesses
	details["at_once_misses"], details["at_once_loads"] = misses, loads
	return nil
}

// A readerProcess runs ReadAtOnce.
type readerProcess struct {
	cmd      *exec.Cmd
	in, out  *os.File
	orders   *json.Encoder
	answers  *json.Decoder
	errors   bytes.Buffer // to be read after gone
	gone     <-chan error
	dontKill func() bool
}

func startReader(ctx context.Context, command []string, url string) (p *readerProcess, err error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer stdout.Close()
	p = &readerProcess{cmd: exec.Command(command[0], command[1:]...), in: in, out: out, orders: json.NewEncoder(in), answers: json.NewDecoder(out)}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, &p.errors
	if p.gone, err = servers.Start(p.cmd); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	// an error means that it is gone already
	p.dontKill = context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	if err := p.orders.Encode(order{Redis: url}); err != nil {
		return nil, errors.Join(p.failed(err), p.close())
	}
	return p, nil
}

// failed returns the error of a process that does not answer. The error of close has the reason.
func (p *readerProcess) failed(err error) error {
	return fmt.Errorf("talk to a reader process: %w", err)
}

// close ends the process, which sees that there are no more orders.
func (p *readerProcess) close() error {
	_ = p.in.Close()
	const patience = 15 * time.Second
	limit := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	err := <-p.gone
	limit.Stop()
	p.dontKill()
	_ = p.out.Close()
	if err != nil {
		return fmt.Errorf("a reader process: %w: %s", err, bytes.TrimSpace(p.errors.Bytes()))
	}
	return nil
}

// ReadAtOnce runs a reader process of the mode cache: it reads orders from in and answers each on
// out, until in ends.
func ReadAtOnce(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var first order
	if err := orders.Decode(&first); err != nil {
		return fmt.Errorf("read where Redis is, which bench tells: %w", err)
	}
	options, err := redis.ParseURL(first.Redis)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	c, err := newReader(cache.Config{Redis: client})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		begin := callAtOnce(ctx, c, o.Key)
		if err := answers.Encode(tally{}); err != nil {
			return err
		}
		if err := orders.Decode(&o); err != nil {
			return fmt.Errorf("wait for the signal: %w", err)
		}
		if err := answers.Encode(begin()); err != nil {
			return err
		}
	}
}

// callAtOnce starts callers of a key and returns when each of them waits; begin lets them go, and
// returns what became of them.
func callAtOnce(ctx context.Context, c *cache.Cache, key string) (begin func() tally) {
	var (
		waiting, done sync.WaitGroup
		gate          = make(chan struct{})
		loads         atomic.Int64
		failure       atomic.Value
	)
	load := func(ctx context.Context) (product, error) {
		loads.Add(1)
		return someProduct, sleep.For(ctx, atOnceLoad)
	}
	waiting.Add(atOnceCallers)
	for range atOnceCallers {
		done.Go(func() {
			waiting.Done()
			<-gate
			got, err := cache.Fetch(ctx, c, key, load, cache.Static)
			if err == nil && got != someProduct {
				err = fmt.Errorf("got %v", got)
			}
			if err != nil {
				failure.Store(err.Error())
			}
		})
	}
	waiting.Wait()
	before := c.Statistics().Misses
	return func() tally {
		close(gate)
		done.Wait()
		text, _ := failure.Load().(string)
		return tally{Loads: loads.Load(), Misses: c.Statistics().Misses - before, Error: text}
	}
}
