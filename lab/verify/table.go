package verify

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	depth      = 256  // commits kept per key
	mostFaults = 256  // windows of one turn
	newsLength = 4096 // commits that the followers may be behind
)

// A table is the shared state of all processes of a turn: the commits of each key, and the windows
// when reads are ignored. It is a memory-mapped file. Writers write, readers read and raise worst.
type table struct {
	data    []byte
	windows *[mostFaults]window
	news    *news
	rows    []row
}

// A window is a period when a stale read is neither right nor wrong. from is 0 for none, to is 0
// while it is open. whose is everybody if Redis has lost data, or the number of the frozen reader.
type window struct{ from, to, whose atomic.Int64 }

// everybody is not the number of a reader.
const everybody = -1

// keyBits is the number of bits for the key's index in a piece of news. The other bits are its
// number.
const keyBits = 20

// news are the latest commits, for readers that follow them.
type news struct {
	next atomic.Uint64
	ring [newsLength]atomic.Uint64
}

// A row is one key. One writer owns it.
type row struct {
	begun   atomic.Uint64 // the highest version whose transaction has begun
	done    atomic.Uint64 // the highest version whose COMMIT has returned
	commits [depth]commit // version v is at v % depth
}

// A commit is one invalidation.
type commit struct {
	version atomic.Uint64 // written last, 0 while the rest is changed
	at      atomic.Int64  // when COMMIT had returned
	due     atomic.Int64  // a read that begins later must not be older, 0: not known yet
	worst   atomic.Int64  // the largest staleness seen, in nanoseconds
}

const tableHead = int(unsafe.Sizeof([mostFaults]window{}) + unsafe.Sizeof(news{}))

// newTable creates the file and maps it.
func newTable(path string, keys int) (*table, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(int64(tableHead + keys*int(unsafe.Sizeof(row{})))); err != nil {
		return nil, fmt.Errorf("size the table: %w", err)
	}
	return mapTable(file, keys)
}

// openTable maps a table that another process has created.
func openTable(path string, keys int) (*table, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return mapTable(file, keys)
}

func mapTable(file *os.File, keys int) (*table, error) {
	size := tableHead + keys*int(unsafe.Sizeof(row{}))
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table: %w", err)
	}
	return &table{
		data:    data,
		windows: (*[mostFaults]window)(unsafe.Pointer(&data[0])),
		news:    (*news)(unsafe.Pointer(&data[unsafe.Sizeof([mostFaults]window{})])),
		rows:    unsafe.Slice((*row)(unsafe.Pointer(&data[tableHead])), keys),
	}, nil
}

func (t *table) close() error { return unix.Munmap(t.data) }

// begin records that a version is about to be written.
func (t *table) begin(key int) (version uint64) {
	r := &t.rows[key]
	version = r.done.Load() + 1
	r.begun.Store(version)
	return version
}

// commit records that the version of begin is committed. It returns the staleness of the commit
// that it overwrites, or -1.
func (t *table) commit(key int, at, due moment) (worst int64) {
	r := &t.rows[key]
	version := r.begun.Load()
	c := &r.commits[version%depth]
	worst = -1
	if c.version.Swap(0) != 0 {
		worst = c.worst.Load()
	}
	c.at.Store(at)
	c.due.Store(due)
	c.worst.Store(0)
	c.version.Store(version)
	r.done.Store(version)
	n := t.news.next.Add(1)
	t.news.ring[n%newsLength].Store(n<<keyBits | uint64(key))
	return worst
}

// heard returns the keys of the commits after the n-th, and the number of the last one.
func (t *table) heard(n uint64) (keys []int, last uint64) {
	for last = max(n, t.news.next.Load()-min(t.news.next.Load(), newsLength-1)); last < t.news.next.Load(); last++ {
		item := t.news.ring[(last+1)%newsLength].Load()
		if item>>keyBits != last+1 {
			break // being written
		}
		keys = append(keys, int(item&(1<<keyBits-1)))
	}
	return keys, last
}

// unsettled calls f for each commit that has no due time yet.
func (t *table) unsettled(f func(*commit)) {
	for i := range t.rows {
		for j := range t.rows[i].commits {
			if c := &t.rows[i].commits[j]; c.version.Load() != 0 && c.due.Load() == 0 {
				f(c)
			}
		}
	}
}

// remaining calls f for the staleness of each commit that is still in the table.
func (t *table) remaining(f func(worst int64)) {
	for i := range t.rows {
		for j := range t.rows[i].commits {
			if c := &t.rows[i].commits[j]; c.version.Load() != 0 {
				f(c.worst.Load())
			}
		}
	}
}

// open begins a window and returns the function that ends it. It is not safe for concurrent use.
func (t *table) open(whose int) (end func()) {
	for i := range t.windows {
		if w := &t.windows[i]; w.from.Load() == 0 {
			w.whose.Store(int64(whose))
			w.from.Store(now())
			return func() { w.to.CompareAndSwap(0, now()) }
		}
	}
	return func() {} // more faults than a turn can have
}

// latest describes the last window that ended before a time.
func (t *table) latest(before moment) (text string) {
	for i := range t.windows {
		from, to := t.windows[i].from.Load(), t.windows[i].to.Load()
		if from == 0 || from > before || to == 0 {
			break
		}
		text = fmt.Sprintf("; a window began %.3f s before the read and ended %.3f s before it", float64(before-from)/1e9, float64(before-to)/1e9)
	}
	return text
}

// excused reports whether a part of the time between began and ended is within a window of the
// reader, or within the grace after one.
func (t *table) excused(began, ended moment, grace int64, reader int) bool {
	for i := range t.windows {
		from, to := t.windows[i].from.Load(), t.windows[i].to.Load()
		if from == 0 {
			return false
		}
		whose := t.windows[i].whose.Load()
		if (whose == everybody || whose == int64(reader)) && ended >= from && (to == 0 || began <= to+grace) {
			return true
		}
	}
	return false
}
