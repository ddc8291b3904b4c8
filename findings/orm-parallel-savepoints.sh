#!/usr/bin/env bash
# Nested transactions that run in parallel share savepoints in Drizzle and in TypeORM: both name a
# savepoint by the nesting depth, not by a number. If one of two nested transactions fails, the row
# that it wrote first is committed, and the complete row of the other one is lost. Neither library
# reports an error, apart from the one that was thrown on purpose.
#
# Seen: Drizzle 0.45.4 and TypeORM 1.1.1 with mysql2 3.24.6 and MySQL 9.7.4. In one outer
# transaction, "failed" inserts a row and then throws, "succeeded" begins in between, inserts a row
# and ends normally. Knex 3.3.0 runs nested transactions one at a time, as one would expect:
#
#   drizzle: committed failed
#   typeorm: committed failed
#   knex: committed succeeded
#
# Needs root or user namespaces, mmdebstrap, Node.js 20 and npm. Exits with 1 if the output differs.
set -euo pipefail
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait 2>/dev/null; rm -rf "$tmp"' EXIT

mode=chrootless
[ "$(id -u)" != 0 ] || mode=root
mkdir "$tmp/root" "$tmp/data" "$tmp/client"
mmdebstrap --mode=$mode --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract --format=tar --include=mysql-server-core,libc-bin sid - 2>"$tmp/log" |
	{ tar --extract --directory "$tmp/root" --exclude './dev/*' --no-same-owner && cat >/dev/null; }
libs=$(printf '%s:' "$tmp"/root/usr/lib/*-linux-gnu*)
run() { "$(ls "$tmp"/root/usr/lib64/ld-linux-*.so.* | head -n 1)" --library-path "$libs" "$tmp/root/usr/sbin/mysqld" --no-defaults \
	--basedir="$tmp/root/usr" --lc-messages-dir="$tmp/root/usr/share/mysql" --datadir="$tmp/data" --user="$(id -un)" "$@"; }
run --initialize-insecure >>"$tmp/log" 2>&1
run --socket="$tmp/s" --skip-networking --mysqlx=OFF --secure-file-priv=NULL --pid-file="$tmp/pid" >>"$tmp/log" 2>&1 &
server=$!

cd "$tmp/client"
npm install --silent --no-audit --no-fund --ignore-scripts mysql2@3.24.6 drizzle-orm@0.45.4 typeorm@1.1.1 knex@3.3.0 >/dev/null
cat >run.mjs <<'JS'
import mysql from 'mysql2/promise';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/mysql2';
import typeorm from 'typeorm';
import knexOf from 'knex';
const at = { socketPath: process.argv[2], user: 'root', database: 'd' };
let admin;
for (let i = 0; !admin; i++) {
  try { admin = await mysql.createConnection({ ...at, database: undefined }); } catch (e) { if (i > 300) throw e; }
  await new Promise((done) => setTimeout(done, 100));
}
await admin.query('CREATE DATABASE d');
await admin.query('CREATE TABLE d.t (v VARCHAR(20))');

const deferred = () => {
  let resolve;
  return { promise: new Promise((done) => { resolve = done; }), resolve: () => resolve() };
};

// nested(work) begins a nested transaction; work gets a function that inserts a value.
async function play(name, outer) {
  await admin.query('DELETE FROM d.t');
  const [inserted, begun, failed] = [deferred(), deferred(), deferred()];
  if (name === 'knex') begun.resolve();
  await outer(async (nested) => {
    const first = nested(async (insert) => {
      await insert('failed');
      inserted.resolve();
      await begun.promise;
      throw new Error('on purpose');
    }).catch((e) => { if (e.message !== 'on purpose') throw e; }).finally(failed.resolve);
    await inserted.promise;
    const second = nested(async (insert) => {
      await insert('succeeded');
      begun.resolve();
      await failed.promise;
    });
    await Promise.all([first, second]);
  });
  const [rows] = await admin.query('SELECT v FROM d.t');
  console.log(`${name}: committed ${rows.map((r) => r.v).join(', ')}`);
}

const pool = mysql.createPool(at);
await play('drizzle', (work) => drizzle(pool).transaction((tx) =>
  work((nested) => tx.transaction((inner) => nested((v) => inner.execute(sql`INSERT INTO t VALUES (${v})`))))));
await pool.end();

const source = await new typeorm.DataSource({ type: 'mysql', connectorPackage: 'mysql2', ...at, username: 'root' }).initialize();
await play('typeorm', (work) => source.transaction((tx) =>
  work((nested) => tx.transaction((inner) => nested((v) => inner.query('INSERT INTO t VALUES (?)', [v]))))));
await source.destroy();

const knex = knexOf({ client: 'mysql2', connection: at });
await play('knex', (work) => knex.transaction((tx) =>
  work((nested) => tx.transaction((inner) => nested((v) => inner.raw('INSERT INTO t VALUES (?)', [v]))))));
await knex.destroy();
await admin.end();
JS
got=$(node run.mjs "$tmp/s")
want='drizzle: committed failed
typeorm: committed failed
knex: committed succeeded'
printf '%s\n' "$got"
[ "$got" = "$want" ] || { printf 'differs; it was:\n%s\n' "$want" >&2; exit 1; }
