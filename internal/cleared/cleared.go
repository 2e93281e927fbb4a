// Package cleared tells a node's monitors which of its records people cleared: the
// node's connector writes it into a file beside its socket.
package cleared

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Max bounds the records that a connector tells its node's monitors as
// cleared; the oldest go first.
const Max = 1000

// List is what a node's connector tells the monitors beside it: the records
// of this node that people cleared, oldest first. It lies next to the
// connector's socket, where only root of the node writes.
type List struct {
	Records []string `json:"records"`
}

// Path is where the connector with this socket tells it; empty for an
// address that is no Unix socket.
func Path(socket string) string {
	path, isUnix := strings.CutPrefix(socket, "unix://")
	if !isUnix && !strings.HasPrefix(socket, "/") {
		return ""
	}
	return path + ".cleared"
}

// Parse reads the file; of none, it makes none.
func Parse(data []byte) (List, error) {
	var c List
	if len(data) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return List{}, fmt.Errorf("decoding the cleared records: %w", err)
	}
	return c, nil
}

// With adds records and says whether any is new.
func (l List) With(records []string) (List, bool) {
	out := slices.Clone(l.Records)
	for _, id := range records {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	added := len(out) > len(l.Records)
	return List{out[max(0, len(out)-Max):]}, added
}
