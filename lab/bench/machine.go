package bench

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// A Machine is where something was measured.
type Machine struct {
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"`
	System  string   `json:"system"`
	Go      string   `json:"go"`
	Servers []string `json:"servers"`
}

// ThisMachine describes this one, and the servers that were measured on it.
func ThisMachine(servers ...string) Machine {
	return Machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Servers: servers,
	}
}

// field returns the first value of a name in a file of "name: value" lines, or "unknown".
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// resident returns the memory of this process in bytes; 0 where the system does not tell.
func resident() int64 {
	kb, _, _ := strings.Cut(field("/proc/self/status", "VmRSS"), " ")
	n, err := strconv.ParseInt(kb, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
