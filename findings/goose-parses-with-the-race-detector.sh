#!/usr/bin/env bash
# In a program that was built with the race detector, goose allocates 4 MiB for about every fourth
# line of a migration. To find the end of a statement, it takes a buffer of 4 MiB from a sync.Pool for
# each line. With -race, a sync.Pool drops a quarter of what is put back, on purpose. Tests that each
# migrate a database then collect garbage for much of their time. Without -race, the same code
# allocates one buffer. Lines between StatementBegin and StatementEnd take no buffer.
#
# Seen: goose 3.28.0, Go 1.26. `goose validate` of one migration with one CREATE TABLE of 1,000
# columns, in garbage collections of Go (the figures vary a little):
#
#   without -race: 1
#   with -race: 131
#   with -race, between StatementBegin and StatementEnd: 1
#
# Needs Go and a C compiler. Exits with 1 if the counts are not below 10, above 50, and below 10.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
export GOFLAGS=-mod=mod GOWORK=off
go mod init parses >log 2>&1
go get -tool github.com/pressly/goose/v3/cmd/goose@v3.28.0 >>log 2>&1
tags=no_postgres,no_clickhouse,no_mssql,no_mysql,no_sqlite3,no_vertica,no_ydb,no_libsql,no_duckdb
go build -tags "$tags" -o plain github.com/pressly/goose/v3/cmd/goose
CGO_ENABLED=1 go build -race -tags "$tags" -o raced github.com/pressly/goose/v3/cmd/goose
mkdir lines block
table() {
	echo 'CREATE TABLE wide ('
	for i in $(seq 999); do echo "  c$i INT,"; done
	echo '  c1000 INT'
	echo ');'
}
{ echo '-- +goose Up' && table; } >lines/00001_wide.sql
{ echo '-- +goose Up' && echo '-- +goose StatementBegin' && table && echo '-- +goose StatementEnd'; } >block/00001_wide.sql
collections() {
	GODEBUG=gctrace=1 "./$1" -dir "$2" validate >out 2>&1 || { cat out >&2; exit 1; }
	grep -c '^gc ' out || true
}
plain=$(collections plain lines) raced=$(collections raced lines) block=$(collections raced block)
printf 'without -race: %d\nwith -race: %d\nwith -race, between StatementBegin and StatementEnd: %d\n' "$plain" "$raced" "$block"
[ "$plain" -lt 10 ] && [ "$raced" -gt 50 ] && [ "$block" -lt 10 ] || { echo 'differs' >&2; exit 1; }
