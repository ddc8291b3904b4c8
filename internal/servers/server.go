package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/port"
)

const (
	// startLimit bounds a start whose context has no deadline.
	startLimit = 2 * time.Minute
	// probeInterval is the pause between two attempts to reach a server that starts.
	probeInterval = 5 * time.Millisecond
	// startTries is how often a first start takes another port when somebody was faster.
	startTries = 5
)

// ErrClosed is returned by the methods of a server that was closed.
var ErrClosed = errors.New("server is closed")

// A Server is one private server process and its data. MySQL and Redis embed it. All methods may be called from several
// goroutines; those that start or stop the process take turns.
type Server struct {
	program *Program
	folder  *folder
	command func() *exec.Cmd                                // built again for each run
	probe   func(ctx context.Context) (ver string, _ error) // one attempt to talk to the server
	ports   func() (int, error)                             // chooses a port for a first start

	mu      sync.Mutex // held while the process starts or stops
	port    int        // set before the server is handed out, then constant
	child   *child     // the latest run, guarded by mu
	version string     // guarded by mu
	closed  bool       // guarded by mu
}

// Addr is the TCP address, such as 127.0.0.1:24017. It stays the same over restarts.
func (s *Server) Addr() string { return port.Address(s.port) }

// Port is the TCP port.
func (s *Server) Port() int { return s.port }

// Log is the path of the file that holds everything that the server printed. It goes with Close.
func (s *Server) Log() string { return s.folder.join("log") }

// Program is what runs.
func (s *Server) Program() *Program { return s.program }

// Version is what the server itself answered when it was asked at its latest start: SELECT VERSION(), or redis_version
// of INFO.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Pid is the process id of the latest run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.cmd.Process.Pid
}

// Stop ends the process in order (SIGTERM) and waits for it. The data stay, so that Restart can follow. MySQL takes
// seconds. When ctx ends first, the process is killed and the error says so. A process that is gone is not an error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx)
}

func (s *Server) stop(ctx context.Context) error {
	if !s.child.alive() {
		return nil
	}
	if err := s.child.terminate(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", s.program.Kind, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and waits for it. The data stay as the process left them, so that Restart can
// follow. The error is always nil.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child.kill()
	return nil
}

// Pause freezes the process (SIGSTOP) and returns when all its threads stand still (Linux). Connections stay open and
// get no answer.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.child.freeze(); err != nil {
		return fmt.Errorf("pause %s: %w", s.program.Kind, err)
	}
	return nil
}

// Resume lets a frozen process go on (SIGCONT).
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.child.thaw(); err != nil {
		return fmt.Errorf("resume %s: %w", s.program.Kind, err)
	}
	return nil
}

// Restart starts the server again with the same data, port and settings, and stops it in order before that if it runs.
// It returns when the server answers.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("restart %s: %w", s.program.Kind, ErrClosed)
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	for {
		err := s.run(ctx)
		if err == nil || !s.lostPort() {
			return err
		}
		if err := pause(ctx, 10*probeInterval); err != nil {
			return fmt.Errorf("restart %s: wait for port %d: %w", s.program.Kind, s.port, err)
		}
	}
}

// Close ends the process at once (SIGKILL: nobody needs its data) and removes its folder. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.child != nil {
		s.child.kill()
	}
	return s.folder.remove()
}

// first starts a new server and removes its folder when that does not work.
func (s *Server) first(ctx context.Context) error {
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for range startTries {
		if s.port, err = s.ports(); err != nil {
			return err
		}
		if err = s.run(ctx); err == nil || !s.lostPort() {
			return err
		}
	}
	return err
}

// run starts the process once and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	c, err := spawn(s.command(), s.Log())
	if err != nil {
		return err
	}
	s.child = c
	for {
		version, err := s.probe(ctx)
		if err == nil && c.alive() {
			s.version = version
			return nil
		}
		select {
		case <-c.exited:
			return fmt.Errorf("start %s: %s ended (%v); its log ends with:\n%s", s.program.Kind, s.program.Path, c.err, tail(s.Log()))
		default:
		}
		if stopped := pause(ctx, probeInterval); stopped != nil {
			c.kill()
			return fmt.Errorf("start %s: %w; last attempt to connect: %v; its log ends with:\n%s", s.program.Kind, stopped, err, tail(s.Log()))
		}
	}
}

// lostPort reports whether the latest run ended because somebody else has the port.
func (s *Server) lostPort() bool {
	return s.child != nil && !s.child.alive() && port.Taken(s.port)
}

// pause waits for d, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func withStartLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %s", startLimit))
}
