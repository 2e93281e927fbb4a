package gobuild

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

const (
	mebibyte = 1 << 20
	// A compiler with this much memory hardly collects garbage.
	plenty = 2048 * mebibyte
	// With less than this the compiler's own settings are better.
	scarce = 512 * mebibyte
)

// spareCollector lets compilers and linkers, which live for seconds, collect garbage only near a
// limit instead of whenever the heap has doubled. It saved a third of the processor time of
// k8s.io/api/core/v1 (13 s to 8.7 s). There is one per processor, and they get half of the
// memory that the machine has left. Who sets GOGC or GOMEMLIMIT keeps what they set.
func spareCollector() []string {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := os.LookupEnv(name); set {
			return nil
		}
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // not Linux
	}
	return collector(available(text), runtime.NumCPU())
}

// collector is the environment of processors compilers that share the memory in bytes.
func collector(memory int64, processors int) []string {
	limit := min(memory/2/int64(processors), plenty)
	if limit < scarce {
		return nil
	}
	return []string{"GOGC=off", fmt.Sprintf("GOMEMLIMIT=%dMiB", limit/mebibyte)}
}

// available reads how many bytes the machine has left; 0 if the text does not show it.
func available(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		fields := strings.Fields(string(line))
		if len(fields) == 3 && fields[0] == "MemAvailable:" && fields[2] == "kB" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}
