// Package testenv gives each test a real server: its own MySQL or Redis database, or its own path
// in ZooKeeper.
//
// MySQL and Redis servers are chosen separately. Each comes from the first available source:
//
//  1. env: the server that UNSTALE_TEST_MYSQL_DSN or UNSTALE_TEST_REDIS_URL names. MYSQL_DSN and
//     REDIS_URL are never read: they may name a system that is in use.
//  2. docker: a container (UNSTALE_TEST_MYSQL_IMAGE, UNSTALE_TEST_REDIS_IMAGE).
//  3. local: a child process, see package servers.
//
// UNSTALE_TEST_SERVERS=env, docker or local allows only that source. UNSTALE_TEST_DB=mysql or
// mariadb chooses the database; unset means MySQL. ZooKeeper is always local, with three processes.
// So is every server that a test stops.
//
// A test is never skipped because a server is missing: it fails, and names the packages to install.
// Only tests import this package.
package testenv
