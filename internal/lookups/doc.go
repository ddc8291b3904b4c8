// Package lookups checks that a map's lookups find for several IDs together the rows that they find
// for each ID alone. Workers ask for the IDs of a whole batch together.
package lookups
