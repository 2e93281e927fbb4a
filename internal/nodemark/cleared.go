package nodemark

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// MaxCleared bounds the records that a connector tells its node's monitors as
// cleared; the oldest go first.
const MaxCleared = 1000

// Cleared is what a node's connector tells the monitors beside it: the records
// of this node that people cleared, oldest first. It lies next to the
// connector's socket, where only root of the node writes.
type Cleared struct {
	Records []string `json:"records"`
}

// ClearedPath is where the connector with this socket tells it; empty for an
// address that is no Unix socket.
func ClearedPath(socket string) string {
	path, isUnix := strings.CutPrefix(socket, "unix://")
	if !isUnix && !strings.HasPrefix(socket, "/") {
		return ""
	}
	return path + ".cleared"
}

// ParseCleared reads the file; of none, it makes none.
func ParseCleared(data []byte) (Cleared, error) {
	var c Cleared
	if len(data) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return Cleared{}, fmt.Errorf("decoding the cleared records: %w", err)
	}
	return c, nil
}

// With adds records and says whether any is new.
func (c Cleared) With(records []string) (Cleared, bool) {
	out := slices.Clone(c.Records)
	for _, id := range records {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	added := len(out) > len(c.Records)
	return Cleared{out[max(0, len(out)-MaxCleared):]}, added
}
