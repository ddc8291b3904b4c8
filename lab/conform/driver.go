package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reader is a client that a driver makes obey lines.
type reader interface {
	// get does a fetch, and calls load for keys that have to be loaded. from is the source of a
	// single value.
	get(ctx context.Context, l Line, load loader) (values map[string]string, from string, err error)
	// applied returns how many keys and patterns of messages were applied, and whether the
	// in-process cache is open.
	applied() (evicted int64, open bool)
	// refused returns how many fills Redis did not accept.
	refused() uint64
	Close() error
}

// A loader gets the values of keys from the judge.
type loader func(ctx context.Context, keys []string) (map[string]string, error)

// ClientOptions choose a client in Go.
type ClientOptions struct {
	L1    bool   // it has an in-process cache
	Plain bool   // the reader from the pages of the protocol instead of package cache
	Plant string // a bug of that reader: see Plants
}

// Validate returns an error that names the invalid field.
func (o ClientOptions) Validate() error {
	i := slices.IndexFunc(Plants, func(p Plant) bool { return p.Name == o.Plant })
	switch {
	case o.Plant == "":
		return nil
	case i < 0:
		return fmt.Errorf("there is no plant %q", o.Plant)
	case Plants[i].memory && !o.L1:
		return fmt.Errorf("plant %q: it is a bug of the in-process cache, so it needs l1", o.Plant)
	}
	return nil
}

// open starts the client, and returns what it is called.
func (o ClientOptions) open(ctx context.Context, hello Line) (client reader, name string, err error) {
	if o.Plain || o.Plant != "" {
		client, err = newPlainReader(ctx, hello, o)
		return client, "reader of docs/protocol.md", err
	}
	client, err = newGoReader(hello, o.L1)
	return client, "driver of package cache", err
}

// connect returns a client of the server, or of its Cluster.
func (l Line) connect(o *redis.Options) redis.UniversalClient {
	if !l.Cluster {
		return redis.NewClient(o)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, ContextTimeoutEnabled: o.ContextTimeoutEnabled, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout})
}

// ServeClient is the driver of a client in Go: it obeys lines of in and writes lines to out, until
// in ends or a line asks it to close.
func ServeClient(ctx context.Context, in io.Reader, out io.Writer, o ClientOptions) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	lines := json.NewDecoder(in)
	d := &driver{out: json.NewEncoder(out), waiting: map[int]chan Line{}}
	defer d.calls.Wait()
	defer cancel()
	var l Line
	if err := lines.Decode(&l); err != nil {
		return orderly(err)
	}
	if l.Type != LineHello {
		return fmt.Errorf("the first line has the type %q, wanted %q", l.Type, LineHello)
	}
	client, name, err := o.open(ctx, l)
	if err != nil {
		return err
	}
	defer func() { cancel(); err = errors.Join(err, client.Close()) }()
	if o.L1 {
		if err := wait(ctx, client, func(_ int64, open bool) bool { return open }); err != nil {
			return err
		}
	}
	d.tell(Line{Type: LineReady, Version: DriverVersion, Name: name, L1: o.L1, Many: true, Cluster: true})
	for {
		var l Line
		if err := lines.Decode(&l); err != nil {
			return orderly(err)
		}
		switch l.Type {
		case LineFetch, LineMany:
			d.calls.Go(func() { d.fetch(ctx, client, l) })
		case LineLoaded:
			d.loaded(l)
		case LineStats:
			d.calls.Go(func() { d.stats(ctx, client, l) })
		case LineClose:
			return nil
		default:
			return fmt.Errorf("a line has the unknown type %q", l.Type)
		}
	}
}

// orderly returns the error of a read, unless it is the end of the input.
func orderly(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read a line: %w", err)
}

// A driver sends lines and waits for the values of loads.
type driver struct {
	calls sync.WaitGroup

	mu      sync.Mutex
	out     *json.Encoder
	number  int               // of the latest load
	waiting map[int]chan Line // loads, by their number
}

// tell writes a line. If the judge has gone, the input ends.
func (d *driver) tell(l Line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(l)
}

func (d *driver) fetch(ctx context.Context, client reader, l Line) {
	answer := Line{Type: LineResult, ID: l.ID}
	var err error
	if answer.Values, answer.From, err = client.get(ctx, l, d.load); err != nil {
		answer.Error = err.Error()
	}
	d.tell(answer)
}

func (d *driver) stats(ctx context.Context, client reader, l Line) {
	if wait(ctx, client, func(evicted int64, _ bool) bool { return evicted >= l.Evicted }) == nil {
		evicted, open := client.applied()
		d.tell(Line{Type: LineStats, ID: l.ID, Evicted: evicted, Open: open, Refused: client.refused()})
	}
}

// load asks the judge for values.
func (d *driver) load(ctx context.Context, keys []string) (map[string]string, error) {
	came := make(chan Line, 1)
	d.mu.Lock()
	d.number++
	id := d.number
	d.waiting[id] = came
	d.mu.Unlock()
	d.tell(Line{Type: LineLoad, ID: id, Keys: keys})
	select {
	case l := <-came:
		if l.Error != "" {
			return nil, errors.New(l.Error)
		}
		return l.Values, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *driver) loaded(l Line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if came := d.waiting[l.ID]; came != nil {
		delete(d.waiting, l.ID)
		came <- l
	}
}

// wait looks at a client until done.
func wait(ctx context.Context, client reader, done func(evicted int64, open bool) bool) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !done(client.applied()) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}
