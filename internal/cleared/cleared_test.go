package cleared_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/internal/cleared"
)

func TestClearedRecordsAreKeptOnceAndBounded(t *testing.T) {
	c, changed := cleared.List{}.With([]string{"a", "b", "a"})
	if !changed || !slices.Equal(c.Records, []string{"a", "b"}) {
		t.Errorf("%v, changed %t", c.Records, changed)
	}
	if _, changed := c.With([]string{"b"}); changed {
		t.Error("a record that is known counts as new")
	}
	for i := range cleared.Max {
		c, _ = c.With([]string{fmt.Sprint(i)})
	}
	if len(c.Records) != cleared.Max || slices.Contains(c.Records, "a") || c.Records[0] != "0" {
		t.Errorf("%d records, first %s", len(c.Records), c.Records[0])
	}
}

func TestPath(t *testing.T) {
	for socket, want := range map[string]string{
		"unix:///run/n.sock": "/run/n.sock.cleared", "/run/n.sock": "/run/n.sock.cleared", "host:443": "", "dns:///host:443": "",
	} {
		if got := cleared.Path(socket); got != want {
			t.Errorf("%s: %q, want %q", socket, got, want)
		}
	}
	if _, err := cleared.Parse([]byte("{")); err == nil {
		t.Error("half a file is read")
	}
	if c, err := cleared.Parse(nil); err != nil || len(c.Records) != 0 {
		t.Errorf("an empty file: %v, %v", c, err)
	}
}
