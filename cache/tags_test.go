package cache

import (
	"fmt"
	"runtime"
	"testing"
)

// A table of tags stays about as long as the number of tags with values, at any rate of changes and
// invalidations, and finds their cells.
func TestTagTable(t *testing.T) {
	t.Parallel()
	const live, rounds = 500, 40
	var table tagTable
	cells := map[string]*tagCell{}
	for round := range rounds {
		for i := range live {
			tag := fmt.Sprint("live:", i)
			if cells[tag] == nil || i%2 == 0 {
				table.drop(tag) // as an invalidation does, before the value is loaded again
				if cell := cells[tag]; cell != nil && !cell.gone.Load() {
					t.Errorf("%s is dropped, and its values stand", tag)
				}
				cells[tag] = table.cell(tag)
			}
			table.cell(fmt.Sprint("dead:", round, ":", i))
		}
		runtime.GC()
		for tag, cell := range cells {
			if table.cell(tag) != cell || cell.gone.Load() {
				t.Fatalf("round %d: the cell of %s is lost", round, tag)
			}
		}
	}
	// Between two collections, dead cells are still counted.
	if most := 4 * live; len(table.cells) > most || len(table.ring) > most {
		t.Errorf("%d tags have values, and the table has %d cells and a ring of %d", live, len(table.cells), len(table.ring))
	}
	runtime.KeepAlive(cells)
}

// Adding a tag costs the same with any number of tags.
func TestTagTableLooks(t *testing.T) {
	t.Parallel()
	var table tagTable
	var cells []*tagCell
	for i := range 10_000 {
		before := table.hand
		cells = append(cells, table.cell(fmt.Sprint(i)))
		if looked := table.hand - before; looked > looks {
			t.Fatalf("%d looks for tag %d", looked, i)
		}
	}
	runtime.KeepAlive(cells)
}
