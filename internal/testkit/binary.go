package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Prebuilt is the environment variable with a folder of programs that are built
// already: services in "plain", and in "crashpoints" those with -tags crashpoints.
// make test sets it, so that no package builds them again.
const Prebuilt = "NVSENTINEL_TEST_BIN"

// Binary is the program of the main package at path, with its crash points: the
// one that is built already, else one that is built into dir.
func Binary(dir, path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the program: %w", err)
	}
	name := filepath.Base(absolute)
	if built := os.Getenv(Prebuilt); built != "" {
		return filepath.Join(built, "crashpoints", name), nil
	}
	binary := filepath.Join(dir, name)
	return binary, build(binary, absolute, ".")
}

// Controller is nvsentinel-controller with its crash points, under the name of the one
// controller that it runs; see Binary.
func Controller(dir, name string) (string, error) {
	if built := os.Getenv(Prebuilt); built != "" {
		return filepath.Join(built, "crashpoints", name), nil
	}
	binary := filepath.Join(dir, name)
	return binary, build(binary, "", "github.com/nvidia/nvsentinel/nvsentinel-controller")
}

// build builds the main package pkg as seen from a folder.
func build(binary, from, pkg string) error {
	cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", "crashpoints", "-ldflags", "-s -w", "-o", binary, pkg)
	cmd.Dir, cmd.Env = from, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", filepath.Base(binary), err, out)
	}
	return nil
}
