package gobuild

import (
	"slices"
	"testing"
)

func TestCollector(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		memory     int64
		processors int
		want       []string
	}{
		"plenty":     {24 * gib, 2, []string{"GOGC=off", "GOMEMLIMIT=2048MiB"}},
		"shared":     {16 * gib, 16, []string{"GOGC=off", "GOMEMLIMIT=512MiB"}},
		"scarce":     {2 * gib, 4, nil},
		"not to say": {0, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := collector(test.memory, test.processors); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestAvailable(t *testing.T) {
	text := "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\nHugePages_Total:       0\n"
	if got := available([]byte(text)); got != 20000000<<10 {
		t.Errorf("%d bytes", got)
	}
	if got := available([]byte("MemTotal: 1 kB\n")); got != 0 {
		t.Errorf("%d bytes where nothing is said", got)
	}
}
