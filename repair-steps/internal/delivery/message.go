package delivery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// mostTermination is how many bytes Kubernetes takes (core/v1, terminationMessagePath).
const mostTermination = 4096

// WriteTermination writes the begin of text to path. Without such a file there is nobody to read
// it.
func WriteTermination(path, text string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString(strings.ToValidUTF8(text[:min(len(text), mostTermination)], ""))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("writing the termination message: %w", err)
	}
	return nil
}
