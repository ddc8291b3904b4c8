// A reader for Node by docs/protocol.md, with the package redis: for JSON, one server or Sentinel,
// without a cache in the process. A test runs it beside package cache and against these files.
//
//   const fetch = reader(client, { lease, stamp, fill, release }) // the texts of protocol/scripts
//   const product = await fetch('shop:product:42', 300_000, loadProduct, ['category:7'])
//
// load returns undefined for what does not exist, and so does fetch.
import { createHash, randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { gunzipSync } from 'node:zlib'
import { RESP_TYPES } from 'redis'

// The name of the lease (fill) or the tombstone (hold) of a key; undefined if it cannot have one.
export const named = (kind, key) => {
  if (key && !/[{}]/.test(key)) return `lock:${kind}:{${key}}`
  if (/^[^{]*\{[^}]+\}/.test(key) && !/^\{[^{}]+\}$/.test(key)) return `lock:${kind}:${key}`
}

const sha1 = bytes => createHash('sha1').update(bytes).digest('hex')

// The fields of an entry, or leave for another format or codec. It throws for what is no entry.
export const parse = bytes => {
  const line = bytes.subarray(0, bytes.indexOf(10) >>> 0)
  let e
  try { e = JSON.parse(line) } catch { e = JSON.parse(bytes) }
  if (![undefined, 1, 2].includes(e.f)) return { leave: true }
  if (![undefined, '', 'gzip'].includes(e.c)) return { leave: true }
  if (e.f === 2) e.v = bytes.subarray(line.length + 1)
  else if ((e = JSON.parse(bytes)).c) e.v = Buffer.from(e.v, 'base64')
  if (e.c) e.v = gunzipSync(e.v, { maxOutputLength: 2 ** 26 })
  if (e.c || e.f === 2) e.v = JSON.parse(e.v)
  if (!Number.isInteger(e.e) || e.v === undefined) throw new Error('not an entry')
  return e
}

export const reader = (client, lua, leaseMs = 10_000) => {
  const asBytes = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } } // hashes are of bytes
  const send = (...args) =>
    client.sendCommand(args.map(a => typeof a === 'number' ? String(a) : a), asBytes)
  const run = (text, keys, ...args) => send('EVAL', text, keys.length, ...keys, ...args)
  let offset = 0, longest = leaseMs // offset: the time of Redis, less performance.now()

  // Both are asked in each pipeline, in front of what it reads, and behind the request for a lease:
  // the answer proves that a worker writes to the server of this connection.
  const asks = () => [send('TIME'), send('HGETALL', 'unstale:alive')]
  const proven = (sent, time, alive) => {
    const now = time[0] * 1000 + time[1] / 1000
    const beats = alive.filter((_, i) => i % 2).map(text => JSON.parse(text))
    if (beats.length && beats.every(b => now - b.t / 1000 > 3000)) throw new Error('no worker')
    offset = now - (sent + performance.now()) / 2
    longest = Math.min(leaseMs, ...beats.map(b => b.lease || leaseMs))
    return now
  }

  // What Redis has: the entry, and whether it is valid.
  const read = async (key, tags) => {
    const sent = performance.now()
    const names = [key, ...tags.map(t => 'stamp:' + t)]
    const [time, alive, values] = await Promise.all([...asks(), send('MGET', ...names)])
    const now = proven(sent, time, alive), [bytes, ...versions] = values
    let e = {}
    try { if (bytes) e = parse(bytes) } catch {}
    const more = Object.keys(e.t ?? {}).filter(t => !tags.includes(t))
    if (more.length) return read(key, [...tags, ...more])
    const same = tags.every((t, i) => versions[i]?.length && e.t?.[t] === String(versions[i]))
    const sha = bytes ? sha1(bytes) : ''
    return { valid: same && now < e.e, value: e.n ? undefined : e.v, leave: e.leave, sha }
  }

  // Gives a lease back that Redis may have, or get: a copy of the request may arrive late.
  const giveUp = async (lease, token) => {
    for (let gone = 0; gone < 2 && client.isOpen; await sleep(1000)) {
      const text = await send('GET', lease).catch(() => undefined)
      const there = String(text).startsWith(token + ':')
      if (there) await run(lua.release, [lease], text).catch(() => {})
      else if (text !== undefined) gone++
    }
  }

  return async (key, ttl, load, tags = []) => {
    const lease = named('fill', key), names = [lease, named('hold', key), key]
    const stamps = tags.map(t => ['stamp:' + t, named('hold', 'stamp:' + t)])
    const token = randomUUID(), end = performance.now() + leaseMs
    let found = {}, held, versions, asked
    try { // to take the lease, before the load
      for (let pause = 2, left = 0, holders = 0; ; pause = Math.min(2 * pause, 100)) {
        found = await read(key, tags)
        if (found.valid) return found.value
        if (!lease || found.leave || stamps.some(s => !s[1])) break
        const sent = performance.now(), leased = longest
        asked = true
        const [[kind, rest], time, alive, ...made] = await Promise.all([
          run(lua.lease, names, token, leased, found.sha), ...asks(),
          ...stamps.map(s => run(lua.stamp, s, randomUUID(), 2 * ttl + 3_600_000))])
        proven(sent, time, alive)
        if (longest < leased) throw new Error('the map has a shorter lease')
        if (kind == 'lease') [held, versions] = [rest, made]
        if (kind == 'taken' && rest > left) holders++
        if (held || kind == 'held' || holders > 4 || performance.now() > end) break
        if (kind == 'taken') await sleep(Math.min(pause * (0.5 + Math.random()), left = rest))
      }
    } catch {
      if (asked) giveUp(lease, token)
    }
    let value, loaded, stored
    try {
      value = await load()
      loaded = true
      if (!held || versions.some(v => !v.length)) return value
      const fresh = value === undefined ? Math.min(ttl, 120_000) : ttl
      const life = Math.ceil(fresh * (0.85 + 0.3 * Math.random()))
      const t = Object.fromEntries(tags.map((tag, i) => [tag, String(versions[i])]))
      const e = Math.floor(offset + performance.now()) + life
      const b = +String(held).split(':')[1], v = value ?? null
      const entry = JSON.stringify({ e, b, t, n: value === undefined ? 1 : undefined, v })
      stored = await run(lua.fill, names, held, entry, life).catch(() => 0)
      return value
    } finally {
      if (held && stored !== 1) {
        const old = loaded && found.sha // what the load has superseded goes too
        await (old ? run(lua.release, [lease, key], held, old) : run(lua.release, [lease], held))
          .catch(() => giveUp(lease, token))
      }
    }
  }
}
