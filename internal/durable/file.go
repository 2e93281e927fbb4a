// Package durable is files that are whole after a power cut.
//
// The state that a program keeps in one file is a JSON object with its version: Load and
// Save.
package durable

import (
	"fmt"
	"os"
	"path/filepath"
)

// Replace writes data under the name of path, whole or not at all, and returns
// when it would survive a power cut. A new file gets the mode, less the umask.
func Replace(path string, data []byte, mode os.FileMode) error {
	temp := path + ".TEMP"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes created, renamed and removed files of a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closing := d.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("syncing folder %s: %w", dir, err)
	}
	return nil
}
