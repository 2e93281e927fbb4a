package machine

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// maxPlain bounds what Decode unpacks.
const maxPlain = 64 << 20

// page is the written form of a tracker.
type page struct {
	Version int               `json:"version"`
	Epoch   string            `json:"epoch"`
	Runs    string            `json:"runs,omitempty"`
	Began   uint64            `json:"began,omitempty"`
	Last    uint64            `json:"last"`
	Open    []json.RawMessage `json:"open,omitempty"`
	Waiting []json.RawMessage `json:"waiting,omitempty"`
}

// version is that of the written form. Another one is for changes that this version would
// misread; what it only does not know it keeps.
const version = 1

// ErrNewer is a state that a newer version has written, for one to go on with.
var ErrNewer = errors.New("written by a newer version: install that version or a newer one")

type line struct {
	Key
	Fault
}

// Encode writes the state as compressed JSON: open faults of one policy differ
// in little, so that thousands fit into one object of the cluster.
func (t *Tracker) Encode() ([]byte, error) {
	p := page{Version: version, Epoch: t.epoch, Runs: t.runs, Began: t.began, Last: t.last}
	for _, k := range t.Open() {
		text, err := textOf(line{k, t.open[k]}, t.open[k].Extra)
		if err != nil {
			return nil, fmt.Errorf("encoding an open fault: %w", err)
		}
		p.Open = append(p.Open, text)
	}
	for _, w := range t.waiting {
		text, err := protojson.Marshal(w.Event)
		if err != nil {
			return nil, fmt.Errorf("encoding event %d: %w", w.Seq, err)
		}
		p.Waiting = append(p.Waiting, text)
	}
	text, err := textOf(p, t.extra)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(text); err != nil {
		return nil, fmt.Errorf("compressing the state: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compressing the state: %w", err)
	}
	return out.Bytes(), nil
}

// Decode reads a written state and begins a new run of its counter: it cannot know whether
// the state is the last one written, or an older one from a backup.
func Decode(data []byte) (*Tracker, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompressing the state: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxPlain))
	if err != nil {
		return nil, fmt.Errorf("decompressing the state: %w", err)
	}
	var p page
	more, err := extra.Decode(text, &p, withoutUnknown)
	if err != nil {
		return nil, fmt.Errorf("decoding the state: %w", err)
	}
	if p.Version > version {
		return nil, fmt.Errorf("decoding the state of version %d: %w", p.Version, ErrNewer)
	}
	if p.Version != version || p.Epoch == "" {
		return nil, fmt.Errorf("decoding the state: version %d or epoch %q is unknown", p.Version, p.Epoch)
	}
	b := New(p.Epoch)
	b.last, b.began, b.runs, b.extra = p.Last, p.Last, record.NextRun(p.Runs, p.Last > p.Began), more
	for i, raw := range p.Open {
		var l line
		if l.Extra, err = extra.Decode(raw, &l, withoutUnknown); err != nil {
			return nil, fmt.Errorf("decoding open fault %d: %w", i, err)
		}
		b.begin(l.Key, l.Fault)
	}
	for i, raw := range p.Waiting {
		e, err := event(raw)
		if err != nil {
			return nil, fmt.Errorf("decoding pending event %d: %w", i, err)
		}
		seq, err := strconv.ParseUint(e.Metadata[record.MetadataSeq], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("decoding pending event %d: %w", i, err)
		}
		b.wait(Waiting{seq, e})
	}
	slices.SortFunc(b.waiting, func(x, y Waiting) int { return int(int64(x.Seq) - int64(y.Seq)) })
	return b, nil
}

// textOf is a value with what a newer version has written of it.
func textOf(v any, x *extra.Extra) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return x.MergeJSON(text, 0)
}

func withoutUnknown[T any](v T) ([]byte, error) { return json.Marshal(v) }

// event reads an event that waits. Of one that a newer version decided, an action that
// this one does not know is UNKNOWN, a strategy PERSIST_ONLY, both with their names in the
// metadata; other fields that it does not know are left out.
func event(raw []byte) (*protos.HealthEvent, error) {
	e := &protos.HealthEvent{}
	err := protojson.Unmarshal(raw, e)
	if err == nil {
		return e, nil
	}
	var fields map[string]any
	if json.Unmarshal(raw, &fields) != nil {
		return nil, err
	}
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	keep := func(field, otherwise, key string, known map[string]int32) {
		name, isText := fields[field].(string)
		if _, ok := known[name]; isText && !ok {
			fields[field], metadata[key] = otherwise, name
		}
	}
	keep("recommendedAction", "UNKNOWN", record.MetadataUnknownAction, protos.RecommendedAction_value)
	keep("processingStrategy", "PERSIST_ONLY", record.MetadataUnknownStrategy, protos.ProcessingStrategy_value)
	fields["metadata"] = metadata
	text, encoding := json.Marshal(fields)
	if encoding != nil {
		return nil, err
	}
	return e, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, e)
}
