// Package bootid reads the id of the running boot.
package bootid

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// maxBytes bounds a boot id; the kernel's has 36 characters.
const maxBytes = 128

// File reads the boot id from a file, such as the kernel's
// /proc/sys/kernel/random/boot_id, once: no process outlives its boot, and one that
// does so in a simulation must not take what it saw before for the next boot's. An
// empty or odd file is an error: it says nothing about the boot, and is read again.
func File(path string) func() (string, error) {
	var mu sync.Mutex
	var known string
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != "" {
			return known, nil
		}
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
		known = id
		return id, nil
	}
}

func odd(r rune) bool { return r <= ' ' || r > '~' }
