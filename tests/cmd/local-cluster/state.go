package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	takeEvery = 20 * time.Millisecond
	takeLimit = 2 * time.Second
)

// state describes a cluster to other processes. The lock shows whether it runs, not its process
// id, which another process may have now.
type state struct {
	// PID is the process that owns the cluster.
	PID int `json:"pid"`
	// Dir holds certificates, data and logs; empty, as all below, while the cluster starts.
	Dir        string `json:"dir,omitempty"`
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Nodes      int    `json:"nodes,omitempty"`
	Prefix     string `json:"prefix,omitempty"`
}

// stateLock is the ownership of a state folder: an exclusive lock on the file that holds the state.
type stateLock struct {
	dir  string
	file *os.File
}

func stateFile(dir string) string { return filepath.Join(dir, "state.json") }

// take locks a state folder, making it when missing. It fails when a cluster runs there. It tries
// more than once: a reader holds the lock for a moment, and the last owner may have removed the
// file between our opening and locking it.
func take(ctx context.Context, dir string) (*stateLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the state directory: %w", err)
	}
	var taken *stateLock
	err := wait.PollUntilContextTimeout(ctx, takeEvery, takeLimit, true, func(context.Context) (bool, error) {
		file, err := os.OpenFile(stateFile(dir), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return false, fmt.Errorf("opening the state: %w", err)
		}
		locked := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		if !locked || !current(file) {
			return false, file.Close()
		}
		taken = &stateLock{dir: dir, file: file}
		return true, nil
	})
	if wait.Interrupted(err) {
		return nil, fmt.Errorf("a cluster is already running in %s, see local-cluster status", dir)
	}
	return taken, err
}

// current reports whether file is still what its path names.
func current(file *os.File) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(file.Name())
	return err == nil && os.SameFile(ours, named)
}

// write replaces the state. A reader sees the old one or the new one, or nothing, never a part
// that parses.
func (sl *stateLock) write(s state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	if err := sl.file.Truncate(0); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	if _, err := sl.file.WriteAt(append(text, '\n'), 0); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return nil
}

// clusterDir is the folder of the cluster itself; what a killed owner left there is removed.
func (sl *stateLock) clusterDir() (string, error) {
	dir := filepath.Join(sl.dir, "cluster")
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("removing files of an earlier cluster: %w", err)
	}
	return dir, nil
}

// release gives the folder back and removes it, unless it holds other things.
func (sl *stateLock) release() error {
	err := os.Remove(stateFile(sl.dir))
	// A folder that is not empty is not ours alone.
	_ = os.Remove(sl.dir)
	return errors.Join(err, sl.file.Close())
}

// running reads the state of the cluster that runs in dir; errNoCluster when none does.
func running(dir string) (state, error) {
	file, err := os.Open(stateFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, errNoCluster
	}
	if err != nil {
		return state{}, fmt.Errorf("opening the state: %w", err)
	}
	defer file.Close()
	if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return state{}, errNoCluster
	}
	var s state
	err = json.NewDecoder(file).Decode(&s)
	if errors.Is(err, io.EOF) || err == nil && s.PID <= 1 {
		return state{}, errors.New("reading the state: its owner has just started, retry")
	}
	if err != nil {
		return state{}, fmt.Errorf("reading the state: %w", err)
	}
	return s, nil
}
