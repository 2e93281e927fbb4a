package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// archive writes an OCI layout into a tar file, which ctr images import, docker load and
// skopeo copy oci-archive: read. Nothing in it depends on when it was written.
func (r recipe) archive(file string, ref name.Tag, idx v1.ImageIndex, variants []variant) error {
	dir, err := os.MkdirTemp(r.Out, ".layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// containerd takes the first for the image's name, skopeo the second.
	if err := path.AppendIndex(idx, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": fullName(ref), "org.opencontainers.image.ref.name": ref.TagStr(),
	})); err != nil {
		return err
	}
	if err := forDocker(filepath.Join(dir, "manifest.json"), fullName(ref), variants); err != nil {
		return err
	}
	files, err := walk(dir)
	if err != nil {
		return err
	}
	return writeAtomically(file, func(out *os.File) error { return files.write(out, r.Time) })
}

// fullName is a reference as containerd and Docker write it.
func fullName(ref name.Tag) string {
	return strings.Replace(ref.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
}

// forDocker writes the list by which a Docker that keeps images outside containerd
// finds one of the images: this machine's, or else the first.
func forDocker(file, name string, variants []variant) error {
	chosen := variants[0]
	for _, v := range variants {
		if v.Platform.Equals(host()) {
			chosen = v
		}
	}
	m, err := chosen.Image.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }
	var layers []string
	for _, l := range m.Layers {
		layers = append(layers, blob(l))
	}
	text, err := json.Marshal([]any{map[string]any{"Config": blob(m.Config), "RepoTags": []string{name}, "Layers": layers}})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// writeAtomically writes a file that appears when it is whole.
func writeAtomically(file string, write func(*os.File) error) error {
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if err := write(out); err != nil {
		out.Close()
		return fmt.Errorf("writing %s: %w", file, err)
	}
	if err := out.Chmod(0o644); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}
