package collector

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// archive is a tar.gz that is being written.
type archive struct {
	file *os.File
	gz   *gzip.Writer
	tar  *tar.Writer
	at   time.Time
}

func newArchive(path string, at time.Time) (*archive, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the archive: %w", err)
	}
	gz := gzip.NewWriter(f)
	return &archive{file: f, gz: gz, tar: tar.NewWriter(gz), at: at}, nil
}

// add writes one file of size bytes.
func (a *archive) add(name string, size int64, from io.Reader) error {
	err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: a.at, Format: tar.FormatPAX})
	if err == nil {
		_, err = io.CopyN(a.tar, from, size)
	}
	if err != nil {
		return fmt.Errorf("writing %s into the archive: %w", name, err)
	}
	return nil
}

// finish writes the manifest and closes the archive.
func (a *archive) finish(m Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	err = a.add(ManifestName, int64(len(text)), bytes.NewReader(text))
	if err = errors.Join(err, a.tar.Close(), a.gz.Close(), a.file.Close()); err != nil {
		return fmt.Errorf("finishing the archive: %w", err)
	}
	return nil
}

// ManifestName is the archive's last file: what is in it, and what is not.
const ManifestName = "MANIFEST.json"

// Manifest describes the outcome of each part.
type Manifest struct {
	Node    string    `json:"node,omitempty"`
	Created time.Time `json:"created"`
	// Version of the collector.
	Version string `json:"version"`
	// Bytes of all parts, before they were compressed.
	Bytes int64   `json:"bytes"`
	Parts []Entry `json:"parts"`
	// FilesLeftOut is how many files of the host were more than are parts at most.
	FilesLeftOut int `json:"filesLeftOut,omitempty"`
}

// State is what became of a part.
type State string

// States of parts.
const (
	// Collected: whole, or its newest bytes.
	Collected State = "Collected"
	// Failed: what there is of it is in the archive.
	Failed State = "Failed"
	// Missing: the node has no such tool or file.
	Missing State = "Missing"
	// LeftOut: there was no time or no space left.
	LeftOut State = "LeftOut"
)

// Entry describes one part.
type Entry struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Command or File is where it is from.
	Command []string `json:"command,omitempty"`
	File    string   `json:"file,omitempty"`
	// Exit is the command's status; without one it did not end by itself.
	Exit *int `json:"exit,omitempty"`
	// Bytes in the archive.
	Bytes int64 `json:"bytes"`
	// Truncated: older bytes were dropped.
	Truncated bool `json:"truncated,omitempty"`
	// Redactions is how many secrets were taken out, LongLines how many lines that were
	// too long to be looked at.
	Redactions int    `json:"redactions"`
	LongLines  int    `json:"longLines,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Counts of the entries by their states.
func (m Manifest) Counts() map[State]int {
	counts := map[State]int{}
	for _, e := range m.Parts {
		counts[e.State]++
	}
	return counts
}
