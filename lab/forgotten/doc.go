// Package forgotten measures shadow reads in a shop. Clients write with rows of the outbox and read
// through package cache. First nothing is forgotten: no shadow read may be confirmed. Then each
// path makes one write without a row, and the report has how many reads it takes to find it.
package forgotten
