package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// MaxCleared bounds the records that a connector lists as cleared for its node's
// monitors; the oldest go first.
const MaxCleared = 1000

// ClearedList is what a node's connector publishes for the monitors beside it: the
// records of this node that people cleared, oldest first. It lies next to the
// connector's socket, where only root of the node writes.
type ClearedList struct {
	Records []string `json:"records"`
}

// ClearedPath is where the connector with this socket writes it; empty for an
// address that is no Unix socket.
func ClearedPath(socket string) string {
	path, isUnix := strings.CutPrefix(socket, "unix://")
	if !isUnix && !strings.HasPrefix(socket, "/") {
		return ""
	}
	return path + ".cleared"
}

// ParseCleared reads the file; of none, it makes none.
func ParseCleared(data []byte) (ClearedList, error) {
	var c ClearedList
	if len(data) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return ClearedList{}, fmt.Errorf("decoding the cleared records: %w", err)
	}
	return c, nil
}

// With adds records and reports whether any is new.
func (c ClearedList) With(records []string) (ClearedList, bool) {
	out := slices.Clone(c.Records)
	for _, id := range records {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	added := len(out) > len(c.Records)
	return ClearedList{out[max(0, len(out)-MaxCleared):]}, added
}
