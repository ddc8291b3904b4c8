// Package console serves a page that shows whether cached data is stale, and why: an [http.Handler]
// for a program that embeds the worker, and the page of `unstale run --console`.
//
//	c, err := console.New(console.Config{Prefix: "/unstale", MySQL: operator, Worker: w, Token: token})
//	...
//	defer c.Close()
//	mux.Handle("/unstale/", c)
//
// Guarantees:
//
//  1. The page changes nothing, unless Config.Actions is set; then it does only what a person has
//     seen and confirmed. It uses the operator's account, never the worker's. Without an account it
//     shows what the worker of its process knows.
//  2. Without a token or a proxy's secret it answers only requests that reach a loopback address
//     directly, by a name of the loopback interface. Other web sites cannot read it.
//  3. One poller per Console reads MySQL and Redis while pages are open, no matter how many.
//  4. Each panel has its own time limit and its own error. A slow panel holds up no other.
//  5. Keys, IDs, parameters, errors and traces are data: they never become HTML, SQL or a glob.
//
// Limits: it serves plain HTTP. Beyond the loopback interface, put a proxy with TLS in front of it.
package console
