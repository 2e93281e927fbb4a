// Package bootid reads the id of the running boot.
package bootid

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// maxBytes bounds a boot id; the kernel's has 36 characters.
const maxBytes = 128

// File reads boot ids from a file, such as the kernel's
// /proc/sys/kernel/random/boot_id. An empty or odd file is an error: it says
// nothing about the boot.
func File(path string) func() (string, error) {
	return func() (string, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		id := strings.TrimSpace(string(data))
		switch {
		case id == "":
			return "", errors.New("the file is empty")
		case len(id) > maxBytes, strings.ContainsFunc(id, odd):
			return "", fmt.Errorf("the file holds no boot id: %.40q", id)
		}
		return id, nil
	}
}

// Own is the boot id that read finds first, of the boot that this process is of:
// what it sees is of that boot, even where a simulated machine has another one
// by now. For one goroutine.
func Own(read func() (string, error)) func() (string, error) {
	var known string
	return func() (string, error) {
		if known != "" {
			return known, nil
		}
		id, err := read()
		known = id
		return id, err
	}
}

func odd(r rune) bool { return r <= ' ' || r > '~' }
