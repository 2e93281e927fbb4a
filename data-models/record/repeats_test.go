package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRepeatsAreReadAsTheyWereWritten(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 59, 123e6, time.UTC)
	bursts := []Burst{{at.Add(-time.Minute), at.Add(-50 * time.Second), 900}, {at.Add(-15 * time.Second), at.Add(-15 * time.Second), 1}, {at, at, 1}}
	given := Event{GeneratedTimestamp: at, Metadata: map[string]string{"seq": "7"}}
	e := Repeated(given, bursts)
	if diff := cmp.Diff(bursts, e.Bursts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n, since := e.Repeats(); n != 902 || !since.Equal(bursts[0].From) || e.Metadata["seq"] != "7" || len(given.Metadata) != 1 {
		t.Errorf("%d since %v: %v of %v", n, since, e.Metadata, given.Metadata)
	}
	if text := e.Metadata[MetadataRepeatTimes]; text != "60000+10000x900,15000+0x1,0+0x1" {
		t.Errorf("the times are written as %s", text)
	}
	if n, since := given.Repeats(); n != 1 || !since.Equal(at) || given.Bursts() != nil {
		t.Errorf("an event that stands for itself stands for %d since %v", n, since)
	}
}

func TestRepeatsThatCannotBeReadCountOnce(t *testing.T) {
	for _, text := range []string{
		"x", "1", "1+1", "1+1x0", "1+-1x2", "1+1x-4", fmt.Sprint("1+1x", maxBurst+1), strings.Repeat("1+1x1,", MaxBursts) + "0+0x1",
	} {
		e := Event{Metadata: map[string]string{MetadataRepeatTimes: text, MetadataRepeats: text}}
		if n, _ := e.Repeats(); e.Bursts() != nil || n != 1 && text != "1" {
			t.Errorf("%q: %v, %d", text, e.Bursts(), n)
		}
	}
}
