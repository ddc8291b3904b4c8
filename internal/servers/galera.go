package servers

import (
	"fmt"
	"os"
	"path/filepath"
)

// GaleraLibrary is the file that makes a MariaDB a node of a Galera cluster, as its option --wsrep-provider. It comes with the package
// galera-4.
func GaleraLibrary() (string, error) {
	files := []string{"/usr/lib/libgalera_smm.so", "/usr/lib/galera/libgalera_smm.so"}
	if folder, ok := Folder(); ok {
		files = append(files, filepath.Join(folder, "galera", "usr", "lib", "libgalera_smm.so"))
	}
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			return filepath.Abs(file)
		}
	}
	return "", fmt.Errorf("find Galera: there is none of %q; run scripts/servers mariadb in the checkout, or install the package galera-4", files)
}
