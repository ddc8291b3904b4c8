// Package servers starts private MySQL, MariaDB, Redis and ZooKeeper servers as child processes,
// for the demo, the benchmarks and the tests. A [Link] between a program and a server can drop, delay
// or cut connections.
//
// Guarantees:
//
//  1. A server is private to its caller: its data are in a temporary directory, and it listens on
//     127.0.0.1 at a free port and, except for ZooKeeper, on a Unix socket in that directory.
//  2. A server never outlives the process that started it, not even if that process is killed
//     with SIGKILL (Linux; elsewhere only Close ends it).
//  3. A Start function returns when the server responds, or with an error that includes the end
//     of the server's log. Nothing waits for a fixed time.
//  4. Close kills the server and removes its directory immediately. The next process removes
//     directories that a killed process left behind.
//
// Limits: programs come from PATH or from the directory .servers, which scripts/servers fills. The
// package downloads and installs nothing. It is not meant for data that must be kept: the servers
// have no password.
package servers
