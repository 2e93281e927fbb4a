package announcement

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// maxBytes bounds the file.
const maxBytes = 16 << 20

// Bulletin reads the file at Path whenever it is asked. The file lists everything that
// is open: what it does not list any more has ended.
type Bulletin struct{ Path string }

var _ Source = Bulletin{}

// posted is one announcement as it stands in the file.
type posted struct {
	ID        string            `json:"id"`
	Machine   string            `json:"machine"`
	Code      string            `json:"code"`
	State     string            `json:"state"`
	Unplanned bool              `json:"unplanned"`
	Emergency bool              `json:"emergency"`
	Begin     time.Time         `json:"begin"`
	End       time.Time         `json:"end"`
	Began     time.Time         `json:"began"`
	Ended     time.Time         `json:"ended"`
	Updated   time.Time         `json:"updated"`
	Action    string            `json:"action"`
	Text      string            `json:"text"`
	Metadata  map[string]string `json:"metadata"`
}

// Read reads the file; one that is not there is no answer.
func (s Bulletin) Read(_ context.Context, _ Question) (Reading, error) {
	file, err := os.Open(s.Path)
	if err != nil {
		return Reading{}, fmt.Errorf("reading the bulletin: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return Reading{}, fmt.Errorf("reading the bulletin: %w", err)
	}
	all, err := ParseBulletin(data)
	if err != nil {
		return Reading{}, fmt.Errorf("reading the bulletin %s: %w", s.Path, err)
	}
	return Reading{Announcements: all, Complete: true, Calls: 1}, nil
}

// ParseBulletin reads a bulletin: a JSON array of announcements with the keys of
// announcement.Announcement in lower case, times as in RFC 3339, the action by its
// name. An unknown key is an error.
func ParseBulletin(data []byte) ([]Announcement, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("file has more than %d bytes", maxBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var all []posted
	if err := decoder.Decode(&all); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the array")
	}
	out := make([]Announcement, len(all))
	for i, p := range all {
		var err error
		if out[i], err = p.announcement(); err != nil {
			return nil, fmt.Errorf("announcement %d (%q): %w", i+1, p.ID, err)
		}
	}
	return out, nil
}

func (p posted) announcement() (Announcement, error) {
	a := Announcement{
		ID: p.ID, Machine: p.Machine, Code: p.Code, State: State(p.State), Unplanned: p.Unplanned, Emergency: p.Emergency,
		Begin: p.Begin, End: p.End, Began: p.Began, Ended: p.Ended, Updated: p.Updated, Text: p.Text, Metadata: p.Metadata,
	}
	switch a.State {
	case Scheduled, Ongoing, Completed, Cancelled:
	default:
		return a, fmt.Errorf("state %q is not %s, %s, %s or %s", p.State, Scheduled, Ongoing, Completed, Cancelled)
	}
	if p.ID == "" || p.Machine == "" {
		return a, errors.New("id or machine is empty, set both")
	}
	if p.Action != "" {
		action, err := record.ParseAction(p.Action)
		if err != nil {
			return a, err
		}
		a.Action = record.ActionNumber(action)
	}
	return a, nil
}

// Machine is what follows the last slash of a providerID.
func (s Bulletin) Machine(providerID string) (string, bool) {
	name := providerID[strings.LastIndex(providerID, "/")+1:]
	return name, name != ""
}

// Names are the machines' own: the file knows no other.
func (s Bulletin) Names(_ context.Context, machines []string) (map[string][]string, error) {
	names := map[string][]string{}
	for _, machine := range machines {
		names[machine] = []string{machine}
	}
	return names, nil
}

// Check returns an error if the file is not there.
func (s Bulletin) Check(context.Context) error {
	info, err := os.Stat(s.Path)
	if err != nil {
		return fmt.Errorf("finding the bulletin: %w", err)
	}
	if info.IsDir() {
		return fmt.Errorf("finding the bulletin: %w", &fs.PathError{Op: "read", Path: s.Path, Err: errors.New("is a directory, name a file")})
	}
	return nil
}
