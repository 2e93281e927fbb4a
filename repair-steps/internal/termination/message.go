// Package termination leaves what a container says at its end where Kubernetes reads it:
// kubectl describe shows it.
package termination

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// most is how many bytes Kubernetes takes (core/v1, terminationMessagePath).
const most = 4096

// Write writes the begin of text to path. Without such a file there is nobody to read
// it.
func Write(path, text string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString(strings.ToValidUTF8(text[:min(len(text), most)], ""))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("writing the termination message: %w", err)
	}
	return nil
}
