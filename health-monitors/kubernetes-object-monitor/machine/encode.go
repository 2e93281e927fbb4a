package machine

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nvidia/nvsentinel/data-models/pkg/protos"
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
	Open    []line            `json:"open,omitempty"`
	Waiting []json.RawMessage `json:"waiting,omitempty"`
}

type line struct {
	Key
	Fault
}

// Encode writes the state as compressed JSON: open faults of one policy differ
// in little, so that thousands fit into one object of the cluster.
func (t *Tracker) Encode() ([]byte, error) {
	p := page{Version: 1, Epoch: t.epoch, Runs: t.runs, Began: t.began, Last: t.last}
	for _, k := range t.Open() {
		p.Open = append(p.Open, line{k, t.open[k]})
	}
	for _, w := range t.waiting {
		text, err := protojson.Marshal(w.Event)
		if err != nil {
			return nil, fmt.Errorf("encoding event %d: %w", w.Seq, err)
		}
		p.Waiting = append(p.Waiting, text)
	}
	text, err := json.Marshal(p)
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

// Decode reads a written state and begins a new run of its counter: nobody can
// tell whether it is as it was left, or restored from a backup that is older.
func Decode(data []byte) (*Tracker, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpacking the state: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxPlain))
	if err != nil {
		return nil, fmt.Errorf("unpacking the state: %w", err)
	}
	var p page
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("decoding the state: %w", err)
	}
	if p.Version != 1 || p.Epoch == "" {
		return nil, fmt.Errorf("decoding the state: version %d, epoch %q are not known", p.Version, p.Epoch)
	}
	b := New(p.Epoch)
	b.last, b.began, b.runs = p.Last, p.Last, record.NextRun(p.Runs, p.Last > p.Began)
	for _, l := range p.Open {
		b.begin(l.Key, l.Fault)
	}
	for i, raw := range p.Waiting {
		e := &protos.HealthEvent{}
		if err := protojson.Unmarshal(raw, e); err != nil {
			return nil, fmt.Errorf("decoding waiting event %d: %w", i, err)
		}
		seq, err := strconv.ParseUint(e.Metadata[record.MetadataSeq], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("decoding waiting event %d: %w", i, err)
		}
		b.wait(Waiting{seq, e})
	}
	slices.SortFunc(b.waiting, func(x, y Waiting) int { return int(int64(x.Seq) - int64(y.Seq)) })
	return b, nil
}
