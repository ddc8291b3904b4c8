package servers

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// RedisOptions configures a Redis server.
type RedisOptions struct {
	// Program overrides the search of Find.
	Program *Program
	// Dir is the directory in which the server's temporary directory is created. Empty: the
	// system's. Its path must be short enough for a Unix socket.
	Dir string
	// Args are further options, such as "--appendonly", "yes". They override this package's
	// options, which keep nothing on disk.
	Args []string
	// Env is added to the environment of the server, such as "LD_PRELOAD=clock.so".
	Env []string
	// Config is the text of a configuration file, read before Args. Sentinel needs one.
	Config string
}

// A Redis is a private Redis server without a password.
type Redis struct {
	*Server
}

// StartRedis starts a server and returns when it responds. Without a deadline in ctx it gives up
// after two minutes. The caller must Close the server.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	program := o.Program
	if program == nil {
		var err error
		if program, err = Find(KindRedis); err != nil {
			return nil, err
		}
	}
	return startRedis(ctx, program, o, FreePort)
}

func startRedis(ctx context.Context, program *Program, o RedisOptions, ports func() (int, error)) (*Redis, error) {
	folder, err := newFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	r := &Redis{&Server{program: program, folder: folder, ports: ports}}
	r.Server.command = func() *exec.Cmd {
		cmd := program.command(r.args(o.Args)...)
		cmd.Env = append(cmd.Environ(), o.Env...)
		return cmd
	}
	r.probe = r.ask
	// Sentinel rewrites its file, so the file is created once and not for each run.
	if err = os.WriteFile(folder.join("redis.conf"), []byte(o.Config), 0o600); err == nil {
		err = r.first(ctx)
	}
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Redis) args(more []string) []string {
	args := []string{
		r.folder.join("redis.conf"),
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(r.port),
		"--unixsocket", r.Socket(),
		"--dir", r.folder.path,
		"--save", "",
		"--appendonly", "no",
		"--daemonize", "no",
	}
	return append(args, more...)
}

// Socket returns the path of the Unix socket.
func (r *Redis) Socket() string { return r.folder.join("redis.sock") }

// URL returns the address of database 0 over TCP, such as redis://127.0.0.1:24017/0.
func (r *Redis) URL() string { return "redis://" + r.Addr() + "/0" }

// ask connects once and returns the server's version. It uses the socket, which no other server
// listens on, and writes the protocol directly: Redis refuses INFO while it loads its data, and a
// caller must wait until the data are loaded.
func (r *Redis) ask(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.Socket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("PING\r\nINFO server\r\nQUIT\r\n")); err != nil {
		return "", err
	}
	return r.readVersion(bufio.NewScanner(conn))
}

// readVersion reads the replies to PING and INFO. A server that requires a password is ready, but
// shows its version only to its users.
// Valkey also shows the version of Redis that it is compatible with.
func (r *Redis) readVersion(replies *bufio.Scanner) (version string, err error) {
	for replies.Scan() {
		line := replies.Text()
		if strings.HasPrefix(line, "-NOAUTH") || strings.HasPrefix(line, "-NOPERM") {
			return r.program.Version, nil
		}
		if strings.HasPrefix(line, "-") {
			return "", fmt.Errorf("redis returned %s", line[1:])
		}
		if name, value, _ := strings.Cut(line, ":"); name == "valkey_version" || name == "redis_version" && version == "" {
			version = value
		}
	}
	if err := replies.Err(); err != nil || version != "" {
		return version, err
	}
	return "", fmt.Errorf("no version in the reply of redis")
}
