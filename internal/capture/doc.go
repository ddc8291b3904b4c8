// Package capture creates triggers from the section capture of a map: they insert the outbox row of
// a change by any client.
//
// A trigger runs in the transaction of the write, as its definer. If it fails, the write fails, so
// no row is silently lost. Therefore the package checks what could make it fail before it creates
// the trigger.
//
// The name of a trigger ends in a hash of its text. A new trigger can therefore exist next to the
// old one, which is then dropped: MySQL cannot replace a trigger, but supports several for one
// event since 5.7.
package capture
