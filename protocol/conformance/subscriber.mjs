// A subscriber for Node by docs/protocol.md, with the package redis: a cache in this process whose
// keys messages drop. A test compares its globs with those of Redis.
import { createClient } from 'redis'
const cache = new Map(), seen = new Map() // seen: the last seq of each epoch
const matches = (pattern, key) => { // by bytes, as Redis does
  const p = Buffer.from(pattern), k = Buffer.from(key)
  let i = 0, j = 0, star = -1, from = 0
  while (j < k.length) {
    const quoted = p[i] === 92 ? 1 : 0
    if (p[i] === 91 || (quoted && i + 1 === p.length)) return true // no pattern of the protocol
    if (p[i] === 42) [star, from] = [++i, j]
    else if (p[i] === 63 || p[i + quoted] === k[j]) [i, j] = [i + quoted + 1, j + 1]
    else if (star >= 0) [i, j] = [star, ++from] // only the last star tries again
    else return false
  }
  while (p[i] === 42) i++
  return i === p.length
}
const client = await createClient({ url: process.env.REDIS_URL }).on('error', console.error)
  .on('ready', () => cache.clear()).connect()
await client.subscribe('cache:invalidate', text => {
  let message
  try { message = JSON.parse(text) } catch {}
  if (message?.v !== 1) return cache.clear()
  const { epoch, seq, keys, patterns } = message
  if (seq !== seen.get(epoch) && seq !== seen.get(epoch) + 1) cache.clear()
  if (seen.size > 1000) seen.clear() // each restart of a worker adds an epoch
  seen.set(epoch, seq)
  for (const key of keys ?? []) cache.delete(key)
  for (const p of patterns ?? []) {
    for (const key of cache.keys()) if (matches(p, key)) cache.delete(key)
  }
})
