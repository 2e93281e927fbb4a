package source

import (
	"encoding/json"
	"testing"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

func TestCursorComparesRecords(t *testing.T) {
	const place = `{"boot":"a","next":5,"usec":400}`
	for name, c := range map[string]struct {
		cursor    string
		seq, usec uint64
		want      recordIs
	}{
		"the next record":                           {place, 5, 500, recordNew},
		"a later record":                            {place, 9, 900, recordNew},
		"the record that was read last":             {place, 4, 400, recordAlreadyRead},
		"another record with its number":            {place, 4, 401, recordOfAnotherRing},
		"an earlier record":                         {place, 3, 999, recordAlreadyRead},
		"another record, and no time in the state":  {`{"boot":"a","next":5}`, 4, 401, recordAlreadyRead},
		"a record at the time zero":                 {`{"boot":"a","next":1,"usec":0}`, 0, 0, recordAlreadyRead},
		"another record, and the time zero":         {`{"boot":"a","next":1,"usec":0}`, 0, 1, recordOfAnotherRing},
		"the first record, when none has been read": {`{"boot":"a","next":0}`, 0, 0, recordNew},
	} {
		var cursor kmsgCursor
		if err := json.Unmarshal([]byte(c.cursor), &cursor); err != nil {
			t.Fatal(err)
		}
		if got := cursor.compare(kernellog.Record{Seq: c.seq, Usec: c.usec}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestAPlaceBeyondTheEndOfTheRing(t *testing.T) {
	for name, c := range map[string]struct {
		next, tip uint64
		want      bool
	}{
		"no record":                         {5, 0, false},
		"an earlier record is the last":     {5, 4, true},
		"the record at the place is last":   {5, 5, false},
		"a later record is the last":        {5, 6, false},
		"no record, and none has been read": {0, 0, false},
		"records, and none has been read":   {0, 3, false},
	} {
		if got := (kmsgCursor{Next: c.next}).beyond(c.tip); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
