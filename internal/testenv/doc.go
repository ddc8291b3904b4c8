// Package testenv gives tests real servers: a MySQL database or a Redis of their own, or a path of their own in ZooKeeper.
//
// Where a server comes from is chosen for MySQL and for Redis separately, the first that can be had:
//
//  1. env: the server that UNSTALE_TEST_MYSQL_DSN or UNSTALE_TEST_REDIS_URL names. MYSQL_DSN and REDIS_URL are never
//     read: they may name a system that somebody needs.
//  2. docker: a container (UNSTALE_TEST_MYSQL_IMAGE, UNSTALE_TEST_REDIS_IMAGE).
//  3. local: a child process, see package servers.
//
// UNSTALE_TEST_SERVERS=env, docker or local allows only that one. UNSTALE_TEST_DB=mysql or mariadb chooses the
// database; unset means MySQL, and MariaDB where only that is installed. ZooKeeper is always local, three processes, as
// is every server that a test stops.
//
// A test never skips for lack of a server: it fails and says what to install. Only tests import this package.
package testenv
