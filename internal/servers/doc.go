// Package servers starts private MySQL, MariaDB, Redis and ZooKeeper servers as child processes, for the demo, the benchmarks and
// the tests.
//
// What it guarantees:
//
//  1. A server is its caller's own: its data lie in a temporary folder, it listens on 127.0.0.1 at a free port and,
//     but for ZooKeeper, on a Unix socket in that folder.
//  2. A server never outlives the process that started it, not even when that process is killed with SIGKILL (Linux;
//     elsewhere only Close ends it).
//  3. A Start function returns when the server answers, or with an error that carries the tail of the server's log.
//     Nothing waits for a fixed time.
//  4. Close ends the server at once and removes its folder. A folder that a killed process left behind is removed by
//     the next one.
//
// Programs come from PATH or from the folder .servers that scripts/servers fills. The package downloads and installs
// nothing, and it is not meant for data that anybody wants to keep: the servers have no password.
package servers
