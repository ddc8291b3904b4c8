// Package limit bounds how often a subject, such as a phone number or an address, may do something:
// log in, or ask for a one-time code. It counts in Redis, for all processes together, in a window
// that slides.
//
//	codes, err := limit.New(limit.Config{
//		Redis: state, Prefix: "zahraah:limit:code:", Max: 5, Window: time.Hour, WhenAway: limit.Refuse,
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
// What it promises:
//
//  1. Up to a Max of 20, no window of the server's clock has more than Max allowed attempts,
//     wherever it begins.
//  2. Above that, two counters stand for a window, as in a sliding window counter: no window has
//     twice Max. If attempts come evenly, a window has up to 15% more than Max, as measured, and at
//     Max attempts per Window about 2% are refused. A subject then costs the same few bytes
//     whatever Max is.
//  3. An attempt that is sent again, since an answer got lost, counts once. Above 20 that holds
//     while no more than three others of the same subject have come in between.
//  4. A refused attempt adds nothing, so that whoever keeps trying gets through when those before
//     have left the window.
//  5. A Redis that is away or slow costs a bounded time, and the answer is the one that
//     Config.WhenAway says.
//
// Each attempt is one script on one key, by the clock of Redis. If that is set back, the attempts
// that lie ahead of it count as of now, so that a subject waits for one window at most; if it is
// set forward, windows end early by as much.
//
// Counts belong where nothing is evicted (see [Limiter.CheckServer]): a counter that is evicted
// begins anew.
package limit
