// Package capture makes triggers from a map's section capture: they insert the outbox row of a change, whoever makes it.
//
// A trigger runs in the transaction of the write, with the rights of its definer. Where it fails, the write fails: no row is
// lost in silence. So what could make it fail is looked at before it is made.
//
// A trigger's name ends in a hash of its text, so a new one can be made beside the old one, which is dropped after it:
// MySQL replaces no trigger, but has several for one event since 5.7.
package capture
