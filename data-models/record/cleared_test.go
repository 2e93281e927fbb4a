package record_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

func TestClearedRecordsAreKeptOnceAndBounded(t *testing.T) {
	c, changed := record.ClearedList{}.With([]string{"a", "b", "a"})
	if !changed || !slices.Equal(c.Records, []string{"a", "b"}) {
		t.Errorf("%v, changed %t", c.Records, changed)
	}
	if _, changed := c.With([]string{"b"}); changed {
		t.Error("a record that is known counts as new")
	}
	for i := range record.MaxCleared {
		c, _ = c.With([]string{fmt.Sprint(i)})
	}
	if len(c.Records) != record.MaxCleared || slices.Contains(c.Records, "a") || c.Records[0] != "0" {
		t.Errorf("%d records, first %s", len(c.Records), c.Records[0])
	}
}

func TestPath(t *testing.T) {
	for socket, want := range map[string]string{
		"unix:///run/n.sock": "/run/n.sock.cleared", "/run/n.sock": "/run/n.sock.cleared", "host:443": "", "dns:///host:443": "",
	} {
		if got := record.ClearedPath(socket); got != want {
			t.Errorf("%s: %q, want %q", socket, got, want)
		}
	}
	if _, err := record.ParseCleared([]byte("{")); err == nil {
		t.Error("half a file is read")
	}
	if c, err := record.ParseCleared(nil); err != nil || len(c.Records) != 0 {
		t.Errorf("an empty file: %v, %v", c, err)
	}
}
