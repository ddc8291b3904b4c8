// Package acl lists the ACL rules of Redis that each kind of client needs: commands, and the names
// of keys and channels that a map makes. `unstale acl` prints them, `unstale doctor` compares
// accounts with them, and tests grant them and remove each.
package acl
