package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	dist    = flag.String("dist", "", "directory with the images of a release")
	version = flag.String("version", "", "its version")
	rootfs  = flag.String("rootfs", "", "directory to extract the image of amd64 to")
)

// The images of a release are valid OCI layouts: as a Docker archive too, static, for a user without
// rights, with labels and certificates.
func TestRelease(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		file := filepath.Join(*dist, "unstale_"+*version+"_linux_"+arch+".oci.tar")
		dir := t.TempDir()
		extract(t, open(t, file), dir)
		index, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		manifest, err := index.IndexManifest()
		if err != nil || len(manifest.Manifests) != 1 {
			t.Fatalf("%s: %+v, %v", file, manifest, err)
		}
		if p := manifest.Manifests[0].Platform; p.OS != "linux" || p.Architecture != arch {
			t.Errorf("%s is for %s", file, p)
		}
		img, err := index.Image(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		testConfig(t, img, arch)
		target := t.TempDir()
		if arch == "amd64" && *rootfs != "" {
			target = *rootfs
		}
		testFiles(t, img, target)
		asDocker, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(asDocker); err != nil {
			t.Errorf("%s as a Docker archive: %v", file, err)
		}
	}
}

func testConfig(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if file.OS != "linux" || file.Architecture != arch || c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/unstale"}) || !slices.Equal(c.Cmd, []string{"run"}) ||
		!slices.Contains(c.Env, "UNSTALE_LISTEN=:9117") || len(file.History) != 1 {
		t.Errorf("%s has %+v", arch, file)
	}
	if c.Labels["org.opencontainers.image.version"] != *version || len(c.Labels["org.opencontainers.image.revision"]) < 7 {
		t.Errorf("%s has labels %q", arch, c.Labels)
	}
}

func testFiles(t *testing.T, img v1.Image, target string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	extract(t, r, target)
	text, err := os.ReadFile(filepath.Join(target, "etc", "ssl", "certs", "ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		t.Error("the certificates cannot be read")
	}
	if info, err := os.Stat(filepath.Join(target, "unstale")); err != nil || info.Mode() != 0o755 {
		t.Errorf("unstale: %v, %v", info, err)
	}
}

func open(t *testing.T, file string) io.ReadCloser {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// extract unpacks a tar archive.
func extract(t *testing.T, r io.ReadCloser, dir string) {
	t.Helper()
	defer r.Close()
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || !filepath.IsLocal(header.Name) {
			t.Errorf("entry %+v", header)
		}
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}
