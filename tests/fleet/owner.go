package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ownerFile in a fleet's folder names the process that will remove it.
const ownerFile = "owner"

// makeDir makes a fleet's folder, and removes those of processes that were
// killed before they could do it themselves.
func makeDir() (string, error) {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), "nvsentinel-*", ownerFile))
	if err != nil {
		return "", err
	}
	for _, file := range old {
		if b, err := os.ReadFile(file); err == nil && dead(string(b)) {
			// Best effort: it may be another user's.
			_ = os.RemoveAll(filepath.Dir(file))
		}
	}
	me, err := owner(os.Getpid())
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "nvsentinel-")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, ownerFile), []byte(me), 0o600)
}

// owner names a process so that nobody else is taken for it: its namespace,
// its number there, and when it was started.
func owner(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	// The name, in parentheses, may hold anything; the start is the 22nd field.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), ")")
	fields := strings.Fields(rest)
	const start = 22 - 3
	if len(fields) <= start {
		return "", fmt.Errorf("/proc/%d/stat has no start time", pid)
	}
	return fmt.Sprintf("%s %d %s", namespace, pid, fields[start]), nil
}

// dead reports whether an owner is certain to be gone. A text that is incomplete or from another
// namespace does not count as dead.
func dead(text string) bool {
	fields := strings.Fields(text)
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || len(fields) != 3 || fields[0] != namespace {
		return false
	}
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		return false
	}
	now, err := owner(pid)
	return os.IsNotExist(err) || err == nil && now != strings.Join(fields, " ")
}
