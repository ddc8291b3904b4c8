package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/unstale/unstale/internal/servers"
)

// Contract: the demo's own table.
const redemptionsSQL = "CREATE TABLE redemptions (coupon VARCHAR(64) NOT NULL, till VARCHAR(20) NOT NULL, KEY coupon (coupon))"

// raceTills has two processes redeem a coupon: first with a lock alone, then in held.InTx. The
// first process is frozen between its SELECT and its INSERT until the second has finished.
func (p *player) raceTills(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, raceLimit, fmt.Errorf("not finished within %s", raceLimit))
	defer cancel()
	err := p.demo.steps.run("redeeming one coupon in two processes: first with a lock alone, then guarded", func() (string, error) {
		if _, err := p.demo.shop.db.ExecContext(ctx, redemptionsSQL); err != nil {
			return "", err
		}
		for _, r := range []*Tills{{Name: "lock alone", coupon: "SPRING"}, {Name: "lock, and held.InTx", coupon: "WELCOME", guarded: true}} {
			if err := p.sellTwice(ctx, r); err != nil {
				return "", err
			}
			p.report.Tills = append(p.report.Tills, *r)
		}
		return "", nil
	})
	if err != nil {
		return fmt.Errorf("tills: %w", because(ctx, err))
	}
	p.judgeTills()
	return nil
}

// sellTwice runs one race of two tills.
func (p *player) sellTwice(ctx context.Context, r *Tills) (err error) {
	s := sale{DSN: p.demo.place.mysql.FormatDSN(), RedisURL: p.demo.place.redisURL, Prefix: p.demo.place.channel + ":lock:", Coupon: r.coupon, Guarded: r.guarded}
	key := s.Prefix + "{" + couponLock(s.Coupon) + "}"
	defer func() {
		err = errors.Join(err, p.demo.cache.redis.Del(context.WithoutCancel(ctx), key, key+":wake").Err())
	}()
	s.Till, s.Waits = "till 1", true
	first, err := openTill(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.close()) }()
	if said, err := first.hear(); err != nil || said != saysRead {
		return errors.Join(fmt.Errorf("till 1 reported %q", said), err)
	}
	if err := servers.Freeze(first.cmd.Process); err != nil {
		return fmt.Errorf("freeze till 1: %w", err)
	}
	s.Till, s.Waits = "till 2", false
	second, err := openTill(ctx, s)
	if err != nil {
		return err
	}
	r.Second, err = second.hear()
	if err = errors.Join(err, second.close()); err != nil {
		return err
	}
	if err := first.goOn(); err != nil {
		return fmt.Errorf("thaw till 1: %w", err)
	}
	if r.First, err = first.hear(); err != nil {
		return err
	}
	return p.demo.shop.db.QueryRowContext(ctx, usedSQL, r.coupon).Scan(&r.Redemptions)
}

// A tillProcess is the parent's view of a till.
type tillProcess struct {
	cmd    *exec.Cmd
	ended  <-chan error
	orders io.WriteCloser
	says   *bufio.Scanner
	close  func() error // ends it, and returns how it ended
}

// openTill starts this program as a till, which is killed when ctx ends.
func openTill(ctx context.Context, s sale) (*tillProcess, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	says, theirs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirOrders.Close(), orders.Close())
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), tillVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirOrders, theirs, os.Stderr
	ended, err := servers.Start(cmd)
	err = errors.Join(err, theirOrders.Close(), theirs.Close())
	if err != nil {
		return nil, errors.Join(err, orders.Close(), says.Close())
	}
	// an error means that the process has ended
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	t := &tillProcess{cmd: cmd, ended: ended, orders: orders, says: bufio.NewScanner(says)}
	t.close = func() error {
		_ = servers.Thaw(cmd.Process) // likewise
		_ = orders.Close()            // the end of its orders
		err := <-ended
		stop()
		_ = says.Close() // read to its end, or not needed
		if err != nil {
			return fmt.Errorf("%s: %w", s.Till, err)
		}
		return nil
	}
	if err := t.order(string(text)); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tillProcess) order(text string) error {
	_, err := fmt.Fprintln(t.orders, text)
	return err
}

// goOn thaws a till, whose order to continue is already in the pipe.
func (t *tillProcess) goOn() error {
	return errors.Join(t.order("go on"), servers.Thaw(t.cmd.Process))
}

// hear returns the next line that a till prints.
func (t *tillProcess) hear() (string, error) {
	if !t.says.Scan() {
		return "", errors.Join(errors.New("a till ended without a result"), t.says.Err())
	}
	return t.says.Text(), nil
}

// judgeTills reports unexpected results. A lock alone that loses nothing demonstrates no problem. A
// guarded coupon must be redeemed once, by the till that was not frozen.
func (p *player) judgeTills() {
	alone, guarded := p.report.Tills[0], p.report.Tills[1]
	if alone.Redemptions != 2 {
		p.fault("tills with %s: the coupon has %d redemptions, so the problem was not shown", alone.Name, alone.Redemptions)
	}
	if guarded.Redemptions != 1 || guarded.First != saysRefused || guarded.Second != saysRedeemed {
		p.fault("tills with %s: till 1: %s, till 2: %s; the coupon has %d redemptions", guarded.Name, guarded.First, guarded.Second, guarded.Redemptions)
	}
}

// write prints the outcome of a race of tills.
func (r *Tills) write(w io.Writer) {
	what := fmt.Sprintf("the coupon was redeemed %d times", r.Redemptions)
	if r.Redemptions == 1 {
		what = "the coupon was redeemed once"
	}
	fmt.Fprintf(w, "%-*still 1 %s, till 2 %s: %s\n", nameWidth, r.Name, r.First, r.Second, what)
}
