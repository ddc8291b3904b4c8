// Package limit is a rate limiter. It limits how often a subject, such as a phone number or an IP
// address, may do something, for example log in or request a one-time code. The counts are in
// Redis, so all processes share them. The window is a sliding window.
//
//	codes, err := limit.New(limit.Config{
//		Redis: client, Prefix: "shop:limit:code:", Max: 5, Window: time.Hour, WhenAway: limit.Refuse,
//	})
//	...
//	d, err := codes.Take(ctx, phone)
//	switch {
//	case err != nil:
//		return err
//	case !d.Allowed && d.Unsure != nil:
//		http.Error(w, "try again later", http.StatusServiceUnavailable)
//		return nil
//	case !d.Allowed:
//		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.RetryAfter.Seconds()))))
//		http.Error(w, "too many codes", http.StatusTooManyRequests)
//		return nil
//	}
//
// Guarantees:
//
//  1. If Max is at most 20, the limit is exact: every window of length Window contains at most Max
//     allowed attempts. Times come from the clock of Redis.
//  2. If Max is larger, the limit is an estimate from two counters (a sliding window counter), and
//     each subject takes the same few bytes for any Max. A window always contains fewer than twice
//     Max allowed attempts. In measurements with evenly spaced attempts, windows contained up to
//     15% more than Max. At a rate of exactly Max per Window, one attempt per window was refused.
//  3. If the Redis client repeats an attempt because a reply was lost, the attempt counts once. If
//     Max is above 20, this requires that the subject made at most three other attempts meanwhile.
//  4. Refused attempts do not count. A subject that keeps trying is allowed again as soon as its
//     earlier attempts have left the window.
//  5. If Redis is unavailable or slow, a call returns within Config.Timeout, and Config.WhenAway
//     decides whether the attempt is allowed.
//
// Each attempt runs one script on one key. If the clock of Redis is set back, stored attempts can
// lie in the future. They then count as if they were made now, so a subject never waits longer than
// one window. If the clock is set forward, windows end earlier by the same amount.
//
// Use a Redis that evicts nothing, because an evicted counter starts again at zero. See
// [Limiter.CheckServer].
package limit
