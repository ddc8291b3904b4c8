package servers

import (
	"fmt"
	"path/filepath"
)

// GaleraLibrary returns the path of the library that makes a MariaDB server a node of a Galera
// cluster, for its option --wsrep-provider. The library is in the package galera-4.
func GaleraLibrary() (string, error) {
	patterns := []string{"/usr/lib*/libgalera_smm.so", "/usr/lib*/galera*/libgalera_smm.so"}
	if folder, ok := Folder(); ok {
		patterns = append(patterns, filepath.Join(folder, "galera", "usr", "lib", "libgalera_smm.so"))
	}
	for _, pattern := range patterns {
		if files, _ := filepath.Glob(pattern); len(files) > 0 {
			return filepath.Abs(files[0])
		}
	}
	return "", fmt.Errorf("find Galera: there is none of %q; run scripts/servers mariadb in the checkout, or install the package galera-4", patterns)
}
