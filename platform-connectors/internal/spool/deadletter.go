package spool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// deadLettersFile is beside the log, one JSON object a line; when it has reached
// maxDeadLetters bytes it is renamed and replaces the one before.
const (
	deadLettersFile = "dead-letters.jsonl"
	maxDeadLetters  = 16 << 20
)

// deadLetter is one line of the dead letters file.
type deadLetter struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Epoch  string    `json:"epoch"`
	Index  uint64    `json:"index"`
	Count  uint64    `json:"count"`
	// Bytes is what was found, base64.
	Bytes []byte `json:"bytes"`
}

// bury keeps what could not be read back, durably. An entry that several
// readers stumble over is buried once per process.
func (s *Spool) bury(reason string, d Damage) {
	s.mu.Lock()
	known := s.buried[d.Index] && d.Count > 0
	s.buried[d.Index] = true
	s.mu.Unlock()
	if known {
		return
	}
	if d.Count == 0 {
		s.o.Metrics.torn.Add(float64(len(d.Bytes)))
	}
	s.o.Metrics.DeadLetters.WithLabelValues(reason).Add(float64(d.Count))
	s.o.Log.Error("unreadable write-ahead log entries dead-lettered",
		"reason", reason, "index", d.Index, "entries", d.Count, "bytes", len(d.Bytes))
	err := s.writeDeadLetter(deadLetter{s.o.Clock.Now().UTC(), reason, s.epoch, d.Index, d.Count, d.Bytes})
	if err != nil {
		s.o.Log.Error("dead letter write failed", "index", d.Index, "error", err)
	}
}

// buryRead is bury for a reader, which has not locked the log.
func (s *Spool) buryRead(reason string, d Damage) {
	s.io.Lock()
	defer s.io.Unlock()
	s.bury(reason, d)
}

func (s *Spool) writeDeadLetter(l deadLetter) error {
	path := filepath.Join(s.dir, deadLettersFile)
	if info, err := os.Stat(path); err == nil && info.Size() > maxDeadLetters {
		if old, err := os.ReadFile(path + ".old"); err == nil {
			s.o.Metrics.overwritten.Add(float64(bytes.Count(old, []byte{'\n'})))
		}
		if err := os.Rename(path, path+".old"); err != nil {
			return fmt.Errorf("rotating the dead letters: %w", err)
		}
	}
	line, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding a dead letter: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("opening the dead letters: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}
