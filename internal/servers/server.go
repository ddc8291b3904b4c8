package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	// startLimit bounds a start whose context has no deadline.
	startLimit = 2 * time.Minute
	// probeInterval is the pause between two attempts to reach a server that starts.
	probeInterval = 5 * time.Millisecond
	// startTries is how often a first start chooses another port if the port was taken meanwhile.
	startTries = 5
)

// ErrClosed is returned by the methods of a closed server.
var ErrClosed = errors.New("server is closed")

// A Server is one private server process and its data. MySQL and Redis embed it. All methods are
// safe for concurrent use. Methods that start or stop the process run one at a time.
type Server struct {
	program *Program
	folder  *folder
	command func() *exec.Cmd                                // called for each run
	probe   func(ctx context.Context) (ver string, _ error) // one attempt to query the server
	ports   func() (int, error)                             // chooses a port for a first start

	mu      sync.Mutex // held while the process starts or stops
	port    int        // set before the server is returned, then constant
	child   *child     // the latest run, guarded by mu
	version string     // guarded by mu
	closed  bool       // guarded by mu
}

// Addr returns the TCP address, such as 127.0.0.1:24017. It does not change when the server
// restarts.
func (s *Server) Addr() string { return PortAddress(s.port) }

// Port returns the TCP port.
func (s *Server) Port() int { return s.port }

// Log returns the path of the file with all output of the server. Close removes it.
func (s *Server) Log() string { return s.folder.join("log") }

// Program returns the program of the server.
func (s *Server) Program() *Program { return s.program }

// Version returns the version that the server reported at its latest start: SELECT VERSION(), or
// valkey_version or redis_version of INFO.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Pid returns the process ID of the latest run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.cmd.Process.Pid
}

// Stop ends the process cleanly (SIGTERM) and waits for it, which takes seconds for MySQL. The data
// stay, so Restart can follow. If ctx ends first, Stop kills the process and returns an error. If
// the process has ended already, Stop returns nil.
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

// Kill ends the process with SIGKILL and waits for it. The data stay as the process left them, so
// Restart can follow. The error is always nil.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child.kill()
	return nil
}

// Pause freezes the process (SIGSTOP) and returns when all its threads have stopped (Linux).
// Connections stay open and get no reply.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.child.freeze(); err != nil {
		return fmt.Errorf("pause %s: %w", s.program.Kind, err)
	}
	return nil
}

// Resume continues a frozen process (SIGCONT).
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.child.thaw(); err != nil {
		return fmt.Errorf("resume %s: %w", s.program.Kind, err)
	}
	return nil
}

// Restart starts the server again with the same data, port and settings. If it runs, Restart first
// stops it cleanly. It returns when the server responds.
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
		if !errors.Is(err, errPortTaken) {
			return err
		}
		if err := pause(ctx, 10*probeInterval); err != nil {
			return fmt.Errorf("restart %s: wait for port %d: %w", s.program.Kind, s.port, err)
		}
	}
}

// Close kills the process immediately (SIGKILL), since its data are not needed, and removes its
// directory. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.child != nil {
		s.child.kill()
	}
	return s.folder.remove()
}

// first starts a new server. Its caller must Close the server if that fails.
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
		if err = s.run(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// run starts the process once and waits until it responds.
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
			log := tail(s.Log())
			err := fmt.Errorf("start %s: %s ended (%v); its log ends with:\n%s", s.program.Kind, s.program.Path, c.err, log)
			if PortTaken(s.port) || strings.Contains(log, "ddress already in use") {
				err = errors.Join(err, errPortTaken)
			}
			return err
		default:
		}
		if stopped := pause(ctx, probeInterval); stopped != nil {
			c.kill()
			return fmt.Errorf("start %s: %w; last attempt to connect: %v; its log ends with:\n%s", s.program.Kind, stopped, err, tail(s.Log()))
		}
	}
}

// errPortTaken is joined to the error of a server that ended because another process had its port,
// which that process may have given up since.
var errPortTaken = errors.New("another process has the port")

// pause waits for d, or returns the reason why ctx ended.
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
