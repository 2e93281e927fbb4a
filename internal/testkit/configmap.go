package testkit

import (
	"fmt"
	"os"
	"path/filepath"
)

// Mount is a ConfigMap of one file as kubelets mount it: the file is a link into a
// folder that is a link itself, which a change exchanges.
type Mount struct {
	// File is the path of the file for a service to read.
	File string

	t    TB
	dir  string
	turn int
}

// NewMount mounts a file of this name and text below dir.
func NewMount(t TB, dir, name, text string) *Mount {
	t.Helper()
	m := &Mount{File: filepath.Join(dir, name), t: t, dir: dir}
	m.Change(text)
	if err := os.Symlink(filepath.Join("..data", name), m.File); err != nil {
		t.Fatalf("mounting %s: %v", name, err)
	}
	return m
}

// Change exchanges the file's content, in one step.
func (m *Mount) Change(text string) {
	m.t.Helper()
	before := fmt.Sprintf("..%d", m.turn)
	m.turn++
	next, link := fmt.Sprintf("..%d", m.turn), filepath.Join(m.dir, "..data_tmp")
	for _, do := range []func() error{
		func() error { return os.Mkdir(filepath.Join(m.dir, next), 0o755) },
		func() error {
			return os.WriteFile(filepath.Join(m.dir, next, filepath.Base(m.File)), []byte(text), 0o600)
		},
		func() error { return os.Symlink(next, link) },
		func() error { return os.Rename(link, filepath.Join(m.dir, "..data")) },
		func() error { return os.RemoveAll(filepath.Join(m.dir, before)) },
	} {
		if err := do(); err != nil {
			m.t.Fatalf("changing %s: %v", m.File, err)
		}
	}
}
