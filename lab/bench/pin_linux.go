package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin keeps this process and others on the first CPU that it may use, with GOMAXPROCS 1, until
// unpin is called. Not pinned, a round trip takes 24 or 70 µs, as the scheduler places the client
// and Redis on one CPU or on two.
func pin(pids ...int) (unpin func() error, err error) {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("read the CPUs of this process: %w", err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	pids = append(pids, os.Getpid())
	before := runtime.GOMAXPROCS(1)
	unpin = func() error {
		runtime.GOMAXPROCS(before)
		return placeAll(pids, &all)
	}
	if err := placeAll(pids, &one); err != nil {
		return nil, errors.Join(err, unpin())
	}
	return unpin, nil
}

// placeAll sets the CPUs of all threads of processes. Later threads inherit them.
func placeAll(pids []int, on *unix.CPUSet) error {
	for _, pid := range pids {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err == nil {
				err = unix.SchedSetaffinity(id, on)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // the thread has ended
				return fmt.Errorf("set the CPUs of thread %s: %w", t.Name(), err)
			}
		}
	}
	return nil
}
