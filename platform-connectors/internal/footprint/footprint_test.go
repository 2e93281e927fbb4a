package footprint

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

func TestOnlyUnchangedReadOnlyPagesOfTheProgramAreDropped(t *testing.T) {
	const smaps = `00400000-02634000 r-xp 00000000 fe:00 123 /bin/connector
Size:              35024 kB
Anonymous:             0 kB
02634000-04f50000 r--p 02234000 fe:00 123 /bin/connector
Anonymous:             0 kB
04f50000-0503a000 rw-p 04b50000 fe:00 123 /bin/connector
Anonymous:             0 kB
0503a000-0503b000 r--p 04b50000 fe:00 123 /bin/connector
Anonymous:             4 kB
0503b000-0503c000 r--p 00000000 fe:00 124 /lib/other
Anonymous:             0 kB
c000000000-c000800000 rw-p 00000000 00:00 0
Anonymous:             0 kB
`
	got, err := programs(strings.NewReader(smaps), "/bin/connector")
	if err != nil {
		t.Fatal(err)
	}
	want := []mapping{{0x400000, 0x2634000}, {0x2634000, 0x4f50000}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTheProcessRunsOnWithFewerPages unmaps the test's own program.
func TestTheProcessRunsOnWithFewerPages(t *testing.T) {
	if found, err := readPrograms(); err != nil || len(found) == 0 {
		t.Fatalf("no mapping of the program was found: %v, %v", found, err)
	}
	before := resident(t)
	synctest.Test(t, func(t *testing.T) {
		s := Shrinker{After: time.Minute, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if after := resident(t); after >= before {
		t.Errorf("%d bytes of files are mapped, as %d before", after, before)
	}
}

// resident is how much of files is mapped, in kB.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
