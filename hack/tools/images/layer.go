package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tree is the files of a layer or an archive: where each is on this machine, by its
// path without a slash in front.
type tree map[string]string

// walk returns the files below a folder.
func walk(dir string) (tree, error) {
	out := tree{}
	return out, filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is no regular file", file)
		}
		name, err := filepath.Rel(dir, file)
		out[filepath.ToSlash(name)] = file
		return err
	})
}

// write writes a tar archive that depends on paths, contents and executability alone:
// it is sorted, all is root's, and nothing is younger or older than at.
func (t tree) write(w io.Writer, at time.Time) error {
	out := tar.NewWriter(w)
	made := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := makeFolders(out, path.Dir(name), at, made); err != nil {
			return err
		}
		if err := writeFile(out, name, t[name], at); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	return out.Close()
}

func makeFolders(out *tar.Writer, dir string, at time.Time, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	if err := makeFolders(out, path.Dir(dir), at, made); err != nil {
		return err
	}
	return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at})
}

func writeFile(out *tar.Writer, name, from string, at time.Time) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// Neither a umask nor a setuid bit of this machine gets in.
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size(), ModTime: at}); err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return err
}

// layer packs the files; it is held in memory, compressed. Whatever the time of the
// image, a layer whose files are the same stays the same: nodes and registries that
// have it from an earlier commit do not fetch it again.
func (t tree) layer() (v1.Layer, error) {
	var packed bytes.Buffer
	if err := t.write(&packed, time.Unix(0, 0)); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
