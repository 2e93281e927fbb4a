// Package faultinjection lists deliberate faults of our own, each a change of the source that
// only the compiler sees, and builds services with them. A check that no fault can fail
// proves nothing: the chaos test, or a service's own tests, must notice each.
package faultinjection

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/tests/overlay"
	"github.com/nvidia/nvsentinel/tests/programs"
)

// Fault is a deliberate one.
type Fault struct {
	// Name is "<service>/<fault>", Description the fault in words.
	Name, Description string
	Edits             []overlay.Edit
	// Package and Run select tests of the service that must notice; empty where the
	// chaos test does.
	Package, Run string
}

// Service is the one that has the fault.
func (f Fault) Service() string { return path.Dir(f.Name) }

// program is the binary that has the fault: of platform-connectors it is the connector of a
// node, which is a program of its own.
func (f Fault) program() string {
	if service := f.Service(); service != "platform-connectors" {
		return service
	}
	return "node-connector"
}

// Faults are all of them.
func Faults() []Fault {
	return slices.Concat(monitor(), connector(), quarantine(), drain(), remediation(), janitor())
}

// Of finds a fault by its name.
func Of(name string) (Fault, error) {
	all := Faults()
	if i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Fault{}, fmt.Errorf("there is no deliberate fault %q", name)
}

// Build builds the fault's service with it, and with its crash points, into a folder
// below dir, and returns the binary.
func (f Fault) Build(ctx context.Context, root, dir string, progress io.Writer) (binary string, err error) {
	texts, err := overlay.Texts(root, f.Edits)
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.Name, err)
	}
	dir = filepath.Join(dir, filepath.FromSlash(f.Name))
	file, err := overlay.Write(filepath.Join(dir, "overlay"), texts)
	if err != nil {
		return "", err
	}
	b := programs.CrashPoints(root, dir)
	b.Title = f.Service() + " with " + path.Base(f.Name)
	b.Programs = slices.DeleteFunc(b.Programs, func(p gobuild.Program) bool { return p.Name != f.program() && !slices.Contains(p.Links, f.program()) })
	b.Flags = append(b.Flags, "-overlay", file)
	return filepath.Join(dir, f.program()), gobuild.Builder{Progress: progress}.Build(ctx, b)
}

// after puts text behind a place of a file.
func after(file, place, text string) overlay.Edit {
	return overlay.Edit{File: file, Old: place, New: place + text}
}

// imports adds packages to a file beside one that it imports.
func imports(file, beside string, packages ...string) overlay.Edit {
	line := func(pkg string) string { return "\t\"github.com/nvidia/nvsentinel/" + pkg + "\"\n" }
	var more strings.Builder
	for _, pkg := range packages {
		more.WriteString(line(pkg))
	}
	return after(file, line(beside), more.String())
}
