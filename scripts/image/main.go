// Command image writes an OCI image layout of unstale without a Docker engine. It has the content
// of the Dockerfile's image: the static binary, the certificates of authorities, and nothing else.
//
//	image -binary unstale -arch arm64 -version 0.1.0 -revision 4feaa16 -epoch 1790000000 unstale.oci.tar
//
// The file is a tar archive of the layout, with the manifest.json that docker load reads. The same
// input makes the same bytes: the certificates come from a module in go.sum, not from this machine.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const repository = "github.com/unstale/unstale"

// An options is the command line.
type options struct {
	binary, arch, version, revision string
	epoch                           int64 // of all files and of the image
}

// created returns the time of the image.
func (o options) created() time.Time { return time.Unix(o.epoch, 0).UTC() }

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "path of the Linux binary")
	flag.StringVar(&o.arch, "arch", "amd64", "its architecture")
	flag.StringVar(&o.version, "version", "", "version, without v")
	flag.StringVar(&o.revision, "revision", "", "commit")
	flag.Int64Var(&o.epoch, "epoch", 0, "time of all files, in Unix seconds")
	flag.Parse()
	if err := writeArchive(o, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// writeArchive builds the image and writes the archive of its layout.
func writeArchive(o options, file string) (err error) {
	img, err := build(o)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "unstale-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := "unstale:" + o.version
	if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          "docker.io/library/" + name,
		"org.opencontainers.image.ref.name": o.version,
	}), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: o.arch})); err != nil {
		return err
	}
	if err := writeDockerManifest(img, name, filepath.Join(dir, "manifest.json")); err != nil {
		return err
	}
	return archive(dir, file, o.created())
}

// build returns the image.
func build(o options) (v1.Image, error) {
	text, err := files(o)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: o.created()}, CreatedBy: "scripts/release",
	}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, config(o, img))
}

// config returns the configuration of the image; it equals that of the Dockerfile.
func config(o options, img v1.Image) *v1.ConfigFile {
	file, err := img.ConfigFile()
	if err != nil {
		panic(err) // of an image in memory
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", o.arch, v1.Time{Time: o.created()}
	file.Config = v1.Config{
		User:         "65532:65532",
		Env:          []string{"UNSTALE_MAP=/etc/unstale/mapping.yaml", "UNSTALE_LISTEN=:9117"},
		ExposedPorts: map[string]struct{}{"9117": {}},
		Entrypoint:   []string{"/unstale"},
		Cmd:          []string{"run"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "unstale",
			"org.opencontainers.image.description": "Invalidates Redis keys when MySQL rows change",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.source":      "https://" + repository,
			"org.opencontainers.image.version":     o.version,
			"org.opencontainers.image.revision":    o.revision,
			"org.opencontainers.image.created":     o.created().Format(time.RFC3339),
		},
	}
	return file
}

// files returns the tar archive of the image's files.
func files(o options) ([]byte, error) {
	binary, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"etc/", 0o755, nil}, {"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()},
		{"etc/unstale/", 0o755, nil}, {"unstale", 0o755, binary},
	} {
		if err := addFile(w, f.name, f.mode, o.created(), f.data); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), w.Close()
}

// certificates returns Mozilla's authorities in PEM, except those with a constraint that PEM cannot
// express.
func certificates() []byte {
	var text []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return text
}

// addFile writes a file of root, or a directory if the name ends in a slash.
func addFile(w *tar.Writer, name string, mode int64, modified time.Time, data []byte) error {
	kind := byte(tar.TypeReg)
	if name[len(name)-1] == '/' {
		kind = tar.TypeDir
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: int64(len(data)), ModTime: modified}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// writeDockerManifest writes the list of images that docker load has read since before OCI layouts.
// It refers to the same blobs.
func writeDockerManifest(img v1.Image, name, file string) error {
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	type image struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	blob := func(d v1.Descriptor) string { return "blobs/sha256/" + d.Digest.Hex }
	entry := image{Config: blob(manifest.Config), RepoTags: []string{name}}
	for _, layer := range manifest.Layers {
		entry.Layers = append(entry.Layers, blob(layer))
	}
	text, err := json.Marshal([]image{entry})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// archive writes the tar archive of a directory's files, in the order of their names.
func archive(dir, file string, modified time.Time) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return addFile(w, name+"/", 0o755, modified, nil)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return addFile(w, name, 0o644, modified, data)
	})
	return errors.Join(err, w.Close())
}
