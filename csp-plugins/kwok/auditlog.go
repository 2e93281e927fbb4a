package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nvidia/nvsentinel/internal/durable"
)

// Effect is what became of a request.
type Effect string

// Effects. A reboot goes from Accepted over PoweredOff to Rebooted and ends as
// Completed; a termination from Accepted over PoweredOff to Terminated; the
// others are single entries.
const (
	// Accepted: the reboot or termination will be carried out, whatever happens to the plugin.
	Accepted Effect = "accepted"
	// PoweredOff: the machine went down.
	PoweredOff Effect = "powered-off"
	// Rebooted: the machine runs under another boot id.
	Rebooted Effect = "rebooted"
	// Terminated: the machine is gone for good.
	Terminated Effect = "terminated"
	// Completed: the machine has its power back.
	Completed Effect = "completed"
	// Superseded: the machine was down for good and another reboot was accepted.
	Superseded Effect = "superseded"
	// NodeGone: the Node was deleted meanwhile; the reboot ends.
	NodeGone Effect = "node-gone"
	// Duplicate: the key was known; the request id of then was given.
	Duplicate Effect = "duplicate"
	// Failed, Hung, Lied: a fault that was asked for; nothing was done.
	Failed Effect = "failed"
	Hung   Effect = "hung"
	Lied   Effect = "lied"
)

// Verbs of entries.
const (
	verbReboot    = "SendRebootSignal"
	verbTerminate = "SendTerminateSignal"
)

// Entry is one line of the audit log.
type Entry struct {
	Time time.Time `json:"time"`
	Verb string    `json:"verb"`
	Node string    `json:"node"`
	// UID of the Node: a machine that comes later under its name is another one.
	UID       string `json:"uid,omitempty"`
	Key       string `json:"key,omitempty"`
	RequestID string `json:"requestID,omitempty"`
	Effect    Effect `json:"effect"`
	// BootID is the boot id that the reboot brings.
	BootID string `json:"bootID,omitempty"`
	// Fault is the fault that was asked for.
	Fault string `json:"fault,omitempty"`
}

// AuditLog is the append-only file of everything that was asked and done. An
// entry is on the disk before anything follows from it.
type AuditLog struct {
	file *os.File
	size int64
}

// OpenAuditLog opens or makes the file and returns what stands in it. A last line
// that a crash cut short is removed: nothing has followed from it.
func OpenAuditLog(path string) (*AuditLog, []Entry, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, nil, fmt.Errorf("creating the directory of the audit log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the audit log: %w", err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reading the audit log: %w", err), file.Close())
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	entries, err := parse(text[:whole])
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reading the audit log %s: %w", path, err), file.Close())
	}
	l := &AuditLog{file: file, size: int64(whole)}
	if err := errors.Join(l.cut(), durable.SyncDir(filepath.Dir(path))); err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return l, entries, nil
}

func parse(text []byte) ([]Entry, error) {
	var entries []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// cut removes what stands behind the last whole entry.
func (l *AuditLog) cut() error {
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("truncating the audit log: %w", err)
	}
	if _, err := l.file.Seek(l.size, io.SeekStart); err != nil {
		return fmt.Errorf("truncating the audit log: %w", err)
	}
	return nil
}

// Write appends an entry and brings it to the disk. After an error the entry
// is not in the log.
func (l *AuditLog) Write(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding an entry of the audit log: %w", err)
	}
	line = append(line, '\n')
	if _, err = l.file.Write(line); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing the audit log: %w", err), l.cut())
	}
	l.size += int64(len(line))
	return nil
}

// Close closes the file.
func (l *AuditLog) Close() error { return l.file.Close() }
